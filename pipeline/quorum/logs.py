"""What one member's write-ahead log and snapshots hold: all records of entries that count, and the saved states."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import evidence
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.archive import as_problem
from pidkeeper.pipeline.formats.log_records import INT64, RecordRow, entry_records, record_rows, sum_of
from pidkeeper.pipeline.formats.problems import BAD_CRC, EMPTY, FOREIGN, MALFORMED, MISNAMED, NEWER, TORN, Problem
from pidkeeper.pipeline.formats.write_ahead_log import (
    FIRST_INDEX,
    LogDirectory,
    LogEntry,
    LogSurvey,
    read_entries,
    survey_log,
)
from pidkeeper.pipeline.quorum.evidence import PROBLEMS
from pidkeeper.pipeline.quorum.members import Files, Member, read_founding, read_owner
from pidkeeper.pipeline.quorum.partitions.groups import saved_groups
from pidkeeper.pipeline.quorum.partitions.replay import LogsReplay, SavedGroups
from pidkeeper.pipeline.quorum.partitions.saved import Copy, saved_logs
from pidkeeper.snapshots.archive_format import HEADER_BYTES, ArchiveError, decode_header
from pidkeeper.snapshots.cluster_id import unpack_cluster_id
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, NewerSnapshot, SnapshotError, decode_snapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId

_LONG: Final = pa.int64()
_INT: Final = pa.int32()
_TEXT: Final = pa.string()
_RECORD_KINDS: Final = {int: _LONG, str: _TEXT, bool: pa.bool_()}

BATCH_ROWS: Final = 16_384
FOLLOWED_SNAPSHOTS: Final = 2
"""So many of a member tell of partition logs, the newest: as many as it keeps. Copies that were shipped may be many."""
_SNAPSHOT_MAGIC: Final = b"PIDSNAP1"
_SNAPSHOT_CLUSTER: Final = slice(12, 76)
_SNAPSHOT_BODY: Final = 100


def _record_fields() -> list[tuple[str, Any]]:
    fields = []
    for field in msgspec.structs.fields(RecordRow):
        kinds = [kind for kind in getattr(field.type, "__args__", (field.type,)) if kind in _RECORD_KINDS]
        fields.append((field.name, _RECORD_KINDS[kinds[0]]))
    return fields


RECORDS: Final = pa.schema([("member_id", _INT), ("file_id", _INT), *_record_fields()])
"""The records of a log, by the columns of `formats.log_records.RecordRow`."""
LOGS: Final = pa.schema(
    [
        ("member_id", _INT),
        ("file_id", _INT),
        ("cluster_id", _TEXT),
        ("batches", _LONG),
        ("last_index", _LONG),
        ("commit_index", _LONG),
    ]
)
"""One row for each segment of a log; the commit index is the newest that the whole log recorded."""
SNAPSHOTS: Final = pa.schema(
    [
        ("member_id", _INT),
        ("file_id", _INT),
        ("cluster_id", _TEXT),
        ("index", _LONG),
        ("term", _LONG),
        ("metadata_version", _LONG),
        ("next_offset", _LONG),
        ("next_producer_id", _LONG),
        ("last_first_id", _LONG),
        ("last_last_id", _LONG),
        ("last_broker_id", _LONG),
        ("last_broker_epoch", _LONG),
        ("last_offset", _LONG),
        ("last_timestamp_ms", _LONG),
        ("brokers", _LONG),
        ("transactions", _LONG),
        ("groups", _TEXT),
        ("voters", _TEXT),
        ("phase", _TEXT),
        ("claimed_by", _TEXT),
        ("founding_id", _TEXT),
    ]
)
"""The saved states. `next_producer_id`: the lowest ID never handed out; `last_`: the newest block, null without one;
`brokers`, `transactions`: how many; `groups`: a sum of them and their offsets, null without any; `voters`: the members
as JSON, null while they are the configured ones."""
CLUSTERS: Final = pa.schema([("member_id", _INT), ("cluster_id", _TEXT)])
"""Of which cluster the files of a member say they are."""
ACCEPTED: Final = pa.schema([("member_id", _INT), ("directory_id", _TEXT), ("term", _LONG), ("index", _LONG)])
"""Behind the commit index that a log recorded: its last entry of a term that the member accepted in that very term."""
FOUNDED: Final = pa.schema([("member_id", _INT), ("voters", _TEXT)])
"""The voters of the founding, by members whose log or snapshots tell of no others, from the first entry on."""
GONE: Final = pa.schema([("member_id", _INT), ("file_id", _INT)])
"""Segments that were listed and were not there any more when they were to be read."""
TABLES: Final = {
    "records": RECORDS,
    "logs": LOGS,
    "snapshots": SNAPSHOTS,
    "clusters": CLUSTERS,
    "accepted": ACCEPTED,
    "founded": FOUNDED,
    "gone": GONE,
}


def read_member(member: Member) -> Iterator[Named]:
    """Evidence by TABLES and PROBLEMS, and by those of `partitions.tables`."""
    for files in (*member.logs, *member.snapshots, *member.archives):
        owner = read_owner(files.folder)
        if isinstance(owner, Problem):
            yield _problem(member, files, owner)
    whole = False
    for name, rows in _states(member):
        whole |= name == "snapshots" and rows["voters"].null_count > 0
        whole |= name == "records" and rows["index"][0].as_py() == FIRST_INDEX
        yield name, rows
    if whole:
        yield from _founding(member)
    for files in member.archives:
        yield from _clusters(member, files)


def _states(member: Member) -> Iterator[Named]:
    view = itertools.count()
    newest = sorted({name for files in member.snapshots for name in files.names})[-FOLLOWED_SNAPSHOTS:]
    for files in member.snapshots:
        for name in files.names:
            yield from _snapshot(member, files, name, next(view) if name in newest else None)
    for files in member.logs:
        yield from _log(member, files, next(view))


def _founding(member: Member) -> Iterator[Named]:
    voters = read_founding([*member.logs, *member.snapshots][0].folder)
    if voters is not None:
        yield from evidence("founded", FOUNDED, [(member.member_id, msgspec.json.encode(voters).decode())])


# Logs.


def _log(member: Member, files: Files, view: int) -> Iterator[Named]:
    known = None if member.owner is None else (member.owner.cluster_id, member.owner.directory_id)
    log = LogDirectory(list(files.names), lambda name: (files.folder / name).open(), known)
    survey = survey_log(log)
    for problem in survey.problems:
        yield _problem(member, files, problem)
    rows = [
        (
            member.member_id,
            files.names[one.name],
            one.cluster_id,
            one.batches,
            max(one.last_index, -1),
            survey.commit_index,
        )
        for one in survey.segments
    ]
    yield from evidence("logs", LOGS, rows)
    yield from evidence("gone", GONE, [(member.member_id, files.names[name]) for name in survey.gone])
    if member.owner is not None:
        directory = str(member.owner.directory_id)
        accepted = [
            (member.member_id, directory, term, last)
            for term, last in survey.accepted.items()
            if last > survey.commit_index
        ]
        yield from evidence("accepted", ACCEPTED, accepted)
    records: list[tuple[Any, ...]] = []
    first = survey.entries[0].index if survey.entries else 0
    saved = _saved(member, files.folder.parent / "snapshots", first)
    whole = saved.oldest is not None or first == FIRST_INDEX
    replay = LogsReplay(saved.oldest, member.member_id, view, whole=whole, later=saved.groups)
    for item in _rows(survey, saved.ends, replay, files):
        if isinstance(item, Problem):
            yield _problem(member, files, item)
            continue
        records.append((member.member_id, files.names[item.segment], *msgspec.structs.astuple(item)))
        if len(records) >= BATCH_ROWS:
            yield from evidence("records", RECORDS, records)
            yield from replay.rows()
            records = []
    yield from evidence("records", RECORDS, records)
    yield from replay.views()


def _rows(survey: LogSurvey, ends: dict[int, int], replay: LogsReplay, files: Files) -> Iterator[RecordRow | Problem]:
    for item in read_entries(survey, ends):
        if not isinstance(item, LogEntry):
            yield item
            continue
        records = entry_records(item)
        if isinstance(records, Problem):
            replay.stop()
        else:
            replay.take(records, item.index, item.offset, files.names[item.segment], item.position)
        yield from record_rows(item, records)


class _Saved(NamedTuple):
    """Whole snapshots beside a log. ends: the next offset of each by its index; oldest: the first that the log follows,
    None if it has its first entry; groups: of FOLLOWED_SNAPSHOTS that were listed, the newest, by index."""

    ends: dict[int, int]
    oldest: StateImage | None
    groups: dict[int, SavedGroups]


def _saved(member: Member, folder: Location, first_index: int) -> _Saved:
    ends: dict[int, int] = {}
    oldest: StateImage | None = None
    groups: dict[int, SavedGroups] = {}
    listed = next((files.names for files in member.snapshots if files.folder == folder), {})
    try:
        names = sorted(name for name in folder.names() if name.endswith(".snap"))
    except OSError:
        names = []
    for name in names:
        try:
            image = decode_snapshot((folder / name).read(MAX_SNAPSHOT_BYTES + 1), name, None)
        except (SnapshotError, OSError):
            continue
        if image.next_offset not in INT64:
            continue
        ends[image.index] = image.next_offset
        if image.index >= first_index - 1 and (oldest is None or image.index < oldest.index):
            oldest = image
        if name in listed and name in names[-FOLLOWED_SNAPSHOTS:]:
            groups[image.index] = SavedGroups(listed[name], image.next_offset, image.groups)
    return _Saved(ends, oldest if first_index > FIRST_INDEX else None, groups)


# Snapshots.


def _snapshot(member: Member, files: Files, name: str, view: int | None) -> Iterator[Named]:
    cluster = None if member.owner is None else member.owner.cluster_id
    try:
        state = _snapshot_state(files.folder, name, cluster)
    except FileNotFoundError:
        return  # A newer one made it superfluous since it was listed.
    if isinstance(state, Problem):
        yield _problem(member, files, state)
        return
    row, image = state
    yield from evidence("snapshots", SNAPSHOTS, [(member.member_id, files.names[name], *row)])
    if view is None:
        return
    yield from saved_groups(image, member.member_id, files.names[name])
    try:
        yield from saved_logs(image, Copy(member.member_id, files.names[name], view))
    except ValueError as error:
        yield _problem(member, files, Problem(name, MALFORMED, _SNAPSHOT_BODY, str(error)))


def _snapshot_state(folder: Location, name: str, cluster: str | None) -> tuple[tuple[Any, ...], StateImage] | Problem:
    try:
        data = (folder / name).read(MAX_SNAPSHOT_BYTES + 1)
        image = decode_snapshot(data, name, cluster)
    except FileNotFoundError:
        raise
    except OSError as error:
        return as_problem(name, error)
    except SnapshotError as error:
        return Problem(name, _snapshot_kind(data, error), 0, str(error))
    named = SnapshotId.from_name(name)
    if named is None or (named.index, named.term) != (image.index, image.term):
        return Problem(name, MISNAMED, 76, f"it holds the state at {image.index} of term {image.term}")
    row = (unpack_cluster_id(data[_SNAPSHOT_CLUSTER]), *_image_columns(image))
    if any(isinstance(value, int) and value not in INT64 for value in row):
        return Problem(name, MALFORMED, _SNAPSHOT_BODY, "a number in it does not fit into 64 bits")
    return row, image


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
        None if image.groups is None else sum_of(image.groups),
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


# Archives: whose they are.


def _clusters(member: Member, files: Files) -> Iterator[Named]:
    for name in files.names:
        try:
            header = decode_header((files.folder / name).read(HEADER_BYTES))
        except (OSError, ArchiveError):
            continue
        yield from evidence("clusters", CLUSTERS, [(member.member_id, header.cluster_id)])
        return


def _problem(member: Member, files: Files, problem: Problem) -> Named:
    file = problem.file if "/" in problem.file else str(files.folder / problem.file)
    row = (files.names.get(problem.file), member.member_id, file, problem.kind, problem.position, problem.index)
    (named,) = evidence("problems", PROBLEMS, [(*row, problem.detail)])
    return named
