"""The Spark source "pidkeeper_log": the write-ahead logs of members, one task for each log.

    spark.read.format("pidkeeper_log").load("/data/*/wal")

Tables by option("table", ...): `records`, `files`, `problems` (`pipeline.schemas` has the columns). Options:
`on_bad_file` is `report` (a bad file gives its good rows and a row of `problems`) or `fail`. A task keeps a window of
1 MiB or one batch in memory. The log of a member that is running is read as far as it was when the task began; copy it
or stop the member for tables that agree with each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.log_records import RecordRow, record_rows
from pidkeeper.pipeline.formats.problems import Problem
from pidkeeper.pipeline.formats.write_ahead_log import LogDirectory, LogEntry, LogSurvey, read_entries, survey_log
from pidkeeper.pipeline.schemas import LOG_TABLES
from pidkeeper.pipeline.sources.listing import Folder, Listing, list_folders, read_owner
from pidkeeper.pipeline.sources.tables import Rows, TableReader, parse_options, problem_row, raise_if
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, SnapshotError, decode_snapshot

_SUFFIX: Final = ".wal"


class LogSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """As in `spark.read.format`."""
        return "pidkeeper_log"

    def schema(self) -> StructType:
        """That of the chosen table. Raises ValueError for options that are none."""
        return LOG_TABLES[parse_options(self.options, LOG_TABLES).table]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Lists the logs; each is one partition."""
        table, fail = parse_options(self.options, LOG_TABLES)
        read = {"records": _records, "files": _files, "problems": _problems}[table]
        return TableReader(list_folders(self.options, _SUFFIX), partial(read, fail))


def _records(fail: bool, listing: Listing) -> Rows:
    survey = _survey(fail, listing)
    clusters = {segment.name: segment.cluster_id for segment in survey.segments}
    for item in _items(listing, survey):
        if isinstance(item, Problem):
            raise_if(fail, listing.folder, item)
            continue
        place = (listing.member, clusters[item.segment], listing.folder.join(item.segment))
        yield (*place, *msgspec.structs.astuple(item))


def _files(fail: bool, listing: Listing) -> Rows:
    survey = _survey(fail, listing)
    for segment in survey.segments:
        yield (
            listing.member,
            segment.cluster_id,
            listing.folder.join(segment.name),
            segment.number,
            segment.first_sequence,
            segment.batches,
            None if segment.first_index < 0 else segment.first_index,
            None if segment.last_index < 0 else segment.last_index,
            segment.end,
            survey.commit_index,
        )


def _problems(fail: bool, listing: Listing) -> Rows:
    survey = _survey(fail, listing)
    owner = read_owner(listing.folder)
    found: list[Problem] = [owner] if isinstance(owner, Problem) else []
    for problem in [*found, *survey.problems]:
        yield problem_row(listing.member, listing.folder, problem)
    for item in _items(listing, survey):
        if isinstance(item, Problem):
            raise_if(fail, listing.folder, item)
            yield problem_row(listing.member, listing.folder, item)


def _survey(fail: bool, listing: Listing) -> LogSurvey:
    survey = survey_log(_directory(listing))
    for problem in survey.problems:
        raise_if(fail, listing.folder, problem)
    return survey


def _items(listing: Listing, survey: LogSurvey) -> Iterator[RecordRow | Problem]:
    for item in read_entries(_directory(listing), survey, _snapshots(listing.folder.beside("snapshots"))):
        if isinstance(item, LogEntry):
            yield from record_rows(item)
        else:
            yield item


def _directory(listing: Listing) -> LogDirectory:
    owner = listing.owner
    known = None if owner is None else (owner.cluster_id, owner.directory_id)
    return LogDirectory(listing.names, listing.folder.open, known)


def _snapshots(folder: Folder) -> dict[int, int]:
    """Index and next offset of every whole snapshot in a folder; others are problems of "pidkeeper_archive"."""
    found: dict[int, int] = {}
    try:
        names = [name for name in folder.names() if name.endswith(".snap")]
    except OSError:
        return found
    for name in names:
        try:
            image = decode_snapshot(folder.read(name, MAX_SNAPSHOT_BYTES + 1), name, None)
        except (SnapshotError, OSError):
            continue
        found[image.index] = image.next_offset
    return found
