"""What an audit has seen, and what it has not: "nothing wrong was seen" says nothing where nothing was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pidkeeper.pipeline.quorum.coverage import Held, by_member, merged
from pidkeeper.pipeline.quorum.members import Members
from pidkeeper.pipeline.report.tables import LEGAL
from pidkeeper.pipeline.verdict import Coverage, LogsCovered
from pidkeeper.protocol.records import QuorumMember

MAX_NAMED_HOLES: Final = 20
"""Runs of log offsets that are named; of more the first."""


class Seen(msgspec.Struct, frozen=True):
    """What the files hold, as far as the verdict rests on it. Log offsets and indexes; None where no file tells.

    quorum, segments: whether files of a quorum, of Kafka's brokers were to be audited. members: whose files were read,
    by node id where a meta.json tells it, else by the path of the folder. voters: the node ids of all voters. held:
    runs of offsets that some file holds, from-to, the end exclusive; held_by: by member.
    snapshot_offset: the next offset by the newest
    snapshot. last_index: of the newest entry that a log or a snapshot holds; committed_index: the highest that a member
    knew to be committed.
    """

    quorum: bool
    segments: bool
    members: list[str] = []
    voters: frozenset[str] | None = None
    held: list[tuple[int, int]] = []
    held_by: dict[str, list[tuple[int, int]]] = {}
    snapshot_offset: int | None = None
    last_index: int | None = None
    committed_index: int | None = None
    batches: int = 0
    bad_files: int = 0
    logs: LogsCovered | None = None


def judge(seen: Seen) -> Coverage:
    """What was covered, and in words what was not."""
    unseen = []
    if seen.bad_files:
        one = seen.bad_files == 1
        unseen.append(f"{seen.bad_files:,} {'file' if one else 'files'} could not be read, or not wholly")
    if seen.quorum:
        unseen += _unseen_of_quorum(seen)
    if seen.segments and not seen.batches:
        unseen.append("no record batch of Kafka was read")
    if seen.logs is not None:
        unseen += _unseen_of_logs(seen.logs)
    return Coverage(
        members=seen.members,
        voters=None if seen.voters is None else len(seen.voters),
        from_offset=seen.held[0][0] if seen.held else None,
        to_offset=seen.held[-1][1] if seen.held else None,
        unseen=unseen,
        logs=seen.logs,
    )


def _unseen_of_logs(logs: LogsCovered) -> Iterator[str]:
    if logs.stateless:
        yield "no file has the state of partition logs that batches are of: of these nothing was audited"
    if logs.batches_nowhere:
        yield f"{logs.batches_nowhere:,} batches are in objects whose names no file tells"
    if logs.batches and logs.store is None:
        yield f"no store was given: {logs.batches:,} batches in {logs.objects:,} objects were not looked at"
    if logs.objects_unreadable:
        yield f"{logs.objects_unreadable:,} of {logs.objects:,} objects of the store could not be read"
    if logs.objects_gone:
        yield (
            f"{logs.objects_gone:,} of {logs.objects:,} objects are not in the store, which is newer than the members' "
            "files: they may have been deleted by right since"
        )
    yield from _unseen_of_segments(logs)


def _unseen_of_segments(logs: LogsCovered) -> Iterator[str]:
    left = logs.offsets_rolled - logs.offsets_read
    if left and logs.store is None:
        yield f"no store was given: {left:,} offsets in {logs.segments:,} segments were not looked at"
    elif left:
        yield f"{left:,} offsets of partition logs are in segments that were not looked at"
    if logs.segments_unreadable:
        yield f"{logs.segments_unreadable:,} of {logs.segments:,} segments, or their indices, could not be read"
    if logs.segments_gone:
        yield (
            f"{logs.segments_gone:,} of {logs.segments:,} segments, or their indices, are not in the store, which is "
            "newer than the members' files: they may have been deleted by right since"
        )


def _unseen_of_quorum(seen: Seen) -> list[str]:
    if not seen.held:
        return ["no file of a member told of any log offset: of the quorum nothing was audited"]
    found = _unseen_members(seen)
    holes = _holes(seen)
    found += [_in_no_file(start, end) for start, end in holes[:MAX_NAMED_HOLES]]
    if len(holes) > MAX_NAMED_HOLES:
        found.append(f"nor are {len(holes) - MAX_NAMED_HOLES:,} more runs of log offsets")
    committed, last = seen.committed_index, seen.last_index
    if committed is not None and committed > (last or 0):
        found.append(
            f"log entries up to index {committed:,} are committed, and the newest in any file is {last or 0:,}"
        )
    return found


def _unseen_members(seen: Seen) -> list[str]:
    """A folder without a meta.json may be that of any voter."""
    if seen.voters is None:
        alone = len(seen.members) == 1
        return ["the files are of one member, and none says how many voters the quorum has"] if alone else []
    missing = _by_number(seen.voters.difference(seen.members))
    nameless = [member for member in seen.members if not member.isdecimal()]
    if len(missing) <= len(nameless):
        return []
    if nameless:
        return [f"the quorum has {len(seen.voters)} voters, and files of {len(seen.members)} members were read"]
    return [f"nothing was read of {'voter' if len(missing) == 1 else 'voters'} {', '.join(missing)}"]


def _by_number(members: Iterable[str]) -> list[str]:
    return sorted(members, key=lambda name: (len(name), name))


def _in_no_file(start: int, end: int) -> str:
    return (
        f"log offset {start:,} is in no file"
        if end == start + 1
        else f"log offsets {start:,} to {end - 1:,} are in no file"
    )


def _holes(seen: Seen) -> list[tuple[int, int]]:
    """From the first offset there ever was, to the last that any file is known to have had."""
    found, reached = [], 0
    for start, end in seen.held:
        if start > reached:
            found.append((reached, start))
        reached = max(reached, end)
    if seen.snapshot_offset is not None and seen.snapshot_offset > reached:
        found.append((reached, seen.snapshot_offset))
    return found


COMMITTED_SQL: Final = """
with kin_logs as (select * from logs where not list_contains($foreign, member_id)),
kin_snapshots as (select * from snapshots where not list_contains($foreign, member_id))
select
    (select max(commit_index) from kin_logs) as committed_index,
    greatest((select max(last_index) from kin_logs), (select max("index") from kin_snapshots)) as last_index,
    (select max(next_offset) from kin_snapshots) as snapshot_offset,
    (select count(distinct coalesce(path, file)) from problems left join files using (file_id)
        where not coalesce({legal}, false)) as bad_files,
    (select coalesce(sum(batches), 0)::bigint from segment_parts join files using (file_id) where source = 'segment')
        as batches
"""
VOTERS_SQL: Final = """
select arg_max(voters, "index") from (
    select voters, "index" from records where committed and not list_contains($foreign, member_id)
    union all select voters, "index" from snapshots where not list_contains($foreign, member_id)
    union all select voters, -1 from founded where not list_contains($foreign, member_id)
) where voters is not null
"""


def seen_of(
    con: Any,
    members: Members,
    held: Sequence[Held],
    foreign: Sequence[int],
    *,
    of_quorum: bool,
    of_segments: bool,
    logs: LogsCovered | None = None,
) -> Seen:
    """The facts, from the driver's connection. `members`: whose files were found; `foreign`: who is left out."""
    query = COMMITTED_SQL.format(legal=LEGAL)
    ((committed, last, snapshot, bad, batches),) = con.execute(query, {"foreign": list(foreign)}).fetchall()
    ((voters,),) = con.execute(VOTERS_SQL, {"foreign": list(foreign)}).fetchall()
    return Seen(
        quorum=of_quorum,
        segments=of_segments,
        members=_by_number({one.name for one in members.members if one.member_id not in foreign}),
        voters=None if voters is None else _voters(voters),
        held=merged((one.from_offset, one.to_offset) for one in held),
        held_by=by_member(held),
        snapshot_offset=snapshot,
        last_index=last,
        committed_index=committed,
        batches=batches,
        bad_files=bad,
        logs=logs,
    )


def _voters(told: str) -> frozenset[str]:
    return frozenset(str(member.id) for member in msgspec.json.decode(told, type=list[QuorumMember]) if member.voting)
