"""The Spark source "pidkeeper_archive": the allocation archives and snapshots of members.

    spark.read.format("pidkeeper_archive").load("/data/*/archive")

Tables by option("table", ...): `blocks`, `snapshots`, `files`, `problems` (`pipeline.schemas` has the columns).
Option `on_bad_file` is `report` (a bad file gives no rows and a row of `problems`) or `fail`.

A task of `blocks` reads one file, or the few that overlap after a crash: a file is at most 48 MiB under one checksum,
which is thus computed once, on the executor, over the very bytes that the rows come from. A snapshot is read by one
task, and at most MAX_SNAPSHOT_BYTES of it.

`spark.readStream` gives the blocks of new files as members archive them, see `archive_stream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.archive import (
    MAX_FILE_BYTES,
    FileName,
    WholeFile,
    as_problem,
    file_name,
    read_file_header,
    read_whole,
    spans,
    within,
)
from pidkeeper.pipeline.formats.problems import (
    BAD_CRC,
    EMPTY,
    FOREIGN,
    MALFORMED,
    MISNAMED,
    NEWER,
    OVERLAP,
    TORN,
    BadFile,
    Problem,
)
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, SNAPSHOT_SUFFIX
from pidkeeper.pipeline.schemas import ARCHIVE_TABLES
from pidkeeper.pipeline.sources.archive_spans import SpanPart, read_blocks
from pidkeeper.pipeline.sources.archive_stream import ArchiveStreamReader
from pidkeeper.pipeline.sources.listing import Listing, list_folders, read_owner
from pidkeeper.pipeline.sources.tables import Rows, TableReader, fits, parse_options, problem_row, raise_if
from pidkeeper.snapshots.archive_format import HEADER_BYTES
from pidkeeper.snapshots.cluster_id import unpack_cluster_id
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, NewerSnapshot, SnapshotError, decode_snapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId

_SNAPSHOT_MAGIC: Final = b"PIDSNAP1"
_SNAPSHOT_CLUSTER: Final = slice(12, 76)


class FilePart(NamedTuple):
    """One file."""

    listing: Listing
    name: str


class ArchiveSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """As in `spark.read.format`."""
        return "pidkeeper_archive"

    def schema(self) -> StructType:
        """That of the chosen table. Raises ValueError for options that are none."""
        return ARCHIVE_TABLES[parse_options(self.options, ARCHIVE_TABLES).table]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Lists the files."""
        table, fail = parse_options(self.options, ARCHIVE_TABLES)
        if table == "snapshots":
            parts = _file_parts(self._listings(SNAPSHOT_SUFFIX, ARCHIVE_SUFFIX))
            return TableReader(parts, partial(_snapshots, fail))
        archives = self._listings(ARCHIVE_SUFFIX, SNAPSHOT_SUFFIX)
        if table == "blocks":
            named = [SpanPart(listing, span) for listing in archives for span in spans(listing.names)]
            return TableReader(named, partial(read_blocks, fail, schema))
        if table == "files":
            return TableReader(archives, partial(_files, fail))
        images = self._listings(SNAPSHOT_SUFFIX, ARCHIVE_SUFFIX)
        return TableReader([*archives, *_file_parts(images)], partial(_problems, fail))

    def _listings(self, suffix: str, other: str) -> list[Listing]:
        """The files of one kind; one that was named itself is there unless it is of the other kind."""
        found = list_folders(self.options, suffix)
        kept = [one._replace(names=[name for name in one.names if not name.endswith(other)]) for one in found]
        return [one for one in kept if one.names]

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream of blocks. Raises ValueError for another table."""
        table, fail = parse_options(self.options, ARCHIVE_TABLES)
        if table != "blocks":
            raise ValueError(f'only table "blocks" is a stream, "{table}" is not')
        return ArchiveStreamReader(dict(self.options), schema, fail)


def _files(fail: bool, listing: Listing) -> Rows:
    files = [file for name in listing.names if (file := file_name(name)) is not None]
    for file in files:
        wider = any(within(file, other) for other in files if other != file)
        size, header = None, None
        try:
            size = listing.folder.size(file.name)
            header = read_file_header(file.name, listing.folder.read(file.name, HEADER_BYTES), listing.cluster_id)
        except FileNotFoundError:
            continue
        except (BadFile, OSError) as error:
            raise_if(fail, listing.folder, as_problem(file.name, error))
        place = (listing.member, header and header.cluster_id, listing.folder.join(file.name), size)
        if header is None:
            yield (*place, None, None, None, None, None, wider)
        else:
            ids = (header.first_id, header.last_id) if header.rows else (None, None)
            yield (*place, header.from_offset, header.to_offset, header.rows, *ids, wider)


def _snapshots(fail: bool, part: FilePart) -> Rows:
    folder, _, member, _ = part.listing
    found = _snapshot_row(part)
    if isinstance(found, Problem):
        raise_if(fail, folder, found)
    else:
        yield (member, *found)


def _problems(fail: bool, part: Listing | FilePart) -> Rows:
    listing = part.listing if isinstance(part, FilePart) else part
    if isinstance(part, FilePart):
        found = _snapshot_row(part)
        problems: Iterator[Problem] = iter([found] if isinstance(found, Problem) else [])
    else:
        problems = _archive_problems(listing)
    for problem in problems:
        raise_if(fail, listing.folder, problem)
        yield problem_row(listing.member, listing.folder, problem)


def _archive_problems(listing: Listing) -> Iterator[Problem]:
    """Of every file, also of those that a wider one makes superfluous."""
    from pidkeeper.pipeline.formats.archive_rows import row_problems

    owner = read_owner(listing.folder)
    if isinstance(owner, Problem):
        yield owner
    yield from (
        Problem(name, FOREIGN, 0, "an archive file is not called so: it was left out")
        for name in listing.names
        if file_name(name) is None
    )
    before: FileName | None = None
    for file in sorted(file for name in listing.names if (file := file_name(name)) is not None):
        whole = _whole_or_problem(listing, file)
        if isinstance(whole, Problem):
            yield whole
        if not isinstance(whole, WholeFile):
            continue
        yield from row_problems(whole)
        if before is not None and before.from_offset < file.from_offset < before.to_offset < file.to_offset:
            yield Problem(file.name, OVERLAP, 76, f"offsets up to {before.to_offset} are in {before.name} too")
        before = file if before is None or file.to_offset > before.to_offset else before


def _whole_or_problem(listing: Listing, file: FileName) -> WholeFile | Problem | None:
    """None for a file that was merged into another one meanwhile."""
    try:
        return read_whole(file.name, listing.folder.read(file.name, MAX_FILE_BYTES + 1), listing.cluster_id)
    except (BadFile, OSError) as error:
        if isinstance(error, FileNotFoundError):
            now = (file_name(name) for name in listing.names_now())
            if any(other is not None and within(file, other) for other in now):
                return None
        return as_problem(file.name, error)


def _snapshot_row(part: FilePart) -> tuple[Any, ...] | Problem:
    """A row of `schemas.ARCHIVE_SNAPSHOTS` without its member."""
    listing, name = part
    try:
        data = listing.folder.read(name, MAX_SNAPSHOT_BYTES + 1)
        image = decode_snapshot(data, name, listing.cluster_id)
    except OSError as error:
        return as_problem(name, error)
    except SnapshotError as error:
        return Problem(name, _snapshot_kind(data, error), 0, str(error))
    named = SnapshotId.from_name(name)
    if named is None or (named.index, named.term) != (image.index, image.term):
        return Problem(name, MISNAMED, 76, f"it holds the state at {image.index} of term {image.term}")
    cluster_id = unpack_cluster_id(data[_SNAPSHOT_CLUSTER])
    row = (cluster_id, listing.folder.join(name), len(data), *_image_columns(image))
    return row if fits(row) else Problem(name, MALFORMED, 100, "a number in it does not fit into 64 bits")


def _image_columns(image: StateImage) -> tuple[Any, ...]:
    block, migration, voters = image.last_block, image.migration, image.voters
    last: tuple[int | None, ...] = (None,) * 6
    if block is not None:
        end = block.first + block.length - 1
        last = (block.first, end, block.broker_id, block.broker_epoch, block.offset, block.timestamp_ms)
    return (
        image.index,
        image.term,
        image.version,
        image.next_offset,
        image.next_producer_id,
        *last,
        len(image.brokers),
        len(image.transactions),
        None if voters is None else msgspec.json.encode(voters.members).decode(),
        None if migration is None else migration.phase.name,
        None if migration is None else migration.claimed_by,
        None if image.founding is None else str(image.founding.founding_id),
    )


def _snapshot_kind(data: bytes, error: SnapshotError) -> str:
    if not data:
        return EMPTY
    if not data.startswith(_SNAPSHOT_MAGIC[: len(data)]) or "it is of cluster" in str(error):
        return FOREIGN
    if "within the header" in str(error):
        return TORN
    if "checksum" in str(error):
        return BAD_CRC
    return NEWER if isinstance(error, NewerSnapshot) or "unknown snapshot version" in str(error) else MALFORMED


def _file_parts(listings: list[Listing]) -> list[FilePart]:
    return [FilePart(listing, name) for listing in listings for name in listing.names]
