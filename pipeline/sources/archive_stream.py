"""New archive files as a stream of blocks: every block of a member exactly once.

The stream's offset is, for each folder, the log offset up to which its files reach. A batch is the rows of the offsets
between two of those, whatever files they are in by then. So it does not matter that members merge their files, nor
when: after a restart from a checkpoint the same offsets give the same rows.

Members write a file under another name and rename it, so a file that is there is whole. One whose header is bad does
not move the offset. One whose rows do not have their checksum gives none with `on_bad_file=report`, and the stream goes
on behind it; name `fail` for a stream that must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.archive import FileName, file_name, read_file_header, spans
from pidkeeper.pipeline.formats.problems import BadFile
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX
from pidkeeper.pipeline.sources.archive_spans import SpanPart, read_blocks
from pidkeeper.pipeline.sources.listing import Listing, list_folders
from pidkeeper.pipeline.sources.tables import Partition, Rows
from pidkeeper.snapshots.archive_format import HEADER_BYTES

_ATTEMPTS: Final = 3
"""Listings of a folder in which files may be merged away."""

Offsets = dict[str, int]
"""By the path of a folder, the log offset up to which its files reach."""


class MissingOffsetsError(RuntimeError):
    """A batch is due again and the files that it came from are gone."""


class ArchiveStreamReader(DataSourceStreamReader):
    """See the module."""

    def __init__(self, options: dict[str, str], schema: StructType, fail: bool) -> None:
        self._options = options
        self._schema = schema
        self._fail = fail

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as below
        """A new stream starts with the oldest files."""
        return {}

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:  # noqa: N802
        """Up to where the files reach now: all that is there, whatever the limit."""
        offsets = dict(start)
        for listing in list_folders(self._options, ARCHIVE_SUFFIX):
            path = listing.folder.path
            offsets[path] = _covered(listing, offsets.get(path, 0))
        return offsets

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """One for each span of files with offsets between `start` and `end`. Raises MissingOffsetsError."""
        listings = {one.folder.path: one for one in list_folders(self._options, ARCHIVE_SUFFIX)}
        return [
            Partition(part)
            for path, to_offset in end.items()
            for part in _parts(path, listings.get(path), start.get(path, 0), to_offset)
        ]

    def read(self, partition: InputPartition) -> Rows:
        """The rows of one partition as Arrow record batches."""
        return read_blocks(self._fail, self._schema, partition.value)


def _covered(listing: Listing, known: int) -> int:
    """The highest offset that a file with a good header reaches, at least `known`."""
    names = listing.names
    for _ in range(_ATTEMPTS):
        files = [file for name in names if (file := file_name(name)) is not None and file.to_offset > known]
        try:
            return max((file.to_offset for file in files if _is_good(listing, file)), default=known)
        except FileNotFoundError:
            names = listing.folder.names()
    return known


def _is_good(listing: Listing, file: FileName) -> bool:
    try:
        read_file_header(file.name, listing.folder.read(file.name, HEADER_BYTES), listing.cluster_id)
    except BadFile:
        return False
    return True


def _parts(path: str, listing: Listing | None, from_offset: int, to_offset: int) -> Iterator[SpanPart]:
    if from_offset >= to_offset:
        return
    found = [] if listing is None else spans(listing.names)
    if listing is None or max((span.to_offset for span in found), default=0) < to_offset:
        raise MissingOffsetsError(
            f"the archive in {path} reached to log offset {to_offset} when this batch was planned and does not any "
            "more: bring its files back, or start a new stream with another checkpoint"
        )
    for span in found:
        clipped = FileName(max(span.from_offset, from_offset), min(span.to_offset, to_offset))
        if clipped.from_offset < clipped.to_offset:
            yield SpanPart(listing, clipped)
