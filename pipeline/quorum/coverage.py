"""`coverage`: whether the members' files together still tell of every log offset, and what each of them lacks.

An interval is `from_offset` to before `to_offset`. There are a few for each member, so this is done in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING

LOG_RUNS_SQL: Final = """
create temp table log_runs as
with numbered as (
    select member_id, file_id, "offset", "offset" - dense_rank() over (partition by member_id order by "offset") as run
    from records where committed and "offset" is not null and not list_contains($foreign, member_id)
)
select member_id, arg_min(file_id, "offset") as file_id, min("offset") as from_offset, max("offset") + 1 as to_offset
from numbered group by member_id, run
"""
"""The runs of committed records in logs; each is named by its first file."""
ARCHIVED_SQL: Final = """
create temp table archived as
select l.member_id, l.file_id, l.from_offset, l.to_offset, l.superseded
from archive_listing l join (
    select file_id, max(rows) as rows, sum(copies) as copies from archive_files group by file_id
) using (file_id)
where copies > 0 or (rows = 0 and not l.superseded)
"""
"""The archive files whose rows were read. One that says it has rows and gave none is damaged, or a wider one was read
in its place."""
HELD_SQL: Final = """
select name_of(member_id), path_of(file_id), from_offset, to_offset, archived from (
    select member_id, file_id, from_offset, to_offset, not superseded as archived from archived
    union all select member_id, file_id, from_offset, to_offset, false from log_runs
) order by all
"""

Interval = tuple[int, int]


class Held(NamedTuple):
    """What a file holds; `archived`: it is an archive file that no wider one makes superfluous."""

    member: str
    file: str
    from_offset: int
    to_offset: int
    archived: bool


def held_of(con: Any, foreign: list[int]) -> list[Held]:
    """From `archive_listing`, `archive_files` and `records`; makes `archived` and `log_runs`."""
    con.execute(LOG_RUNS_SQL, {"foreign": foreign})
    con.execute(ARCHIVED_SQL)
    return [Held(*row) for row in con.sql(HELD_SQL).fetchall()]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Those joined that overlap or touch, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def holes(held: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What of `start` to `end` no interval holds; they are `merged`."""
    found, reached = [], start
    for left, right in held:
        if reached >= end:
            break
        if left > reached:
            found.append((reached, min(left, end)))
        reached = max(reached, right)
    return [*found, (reached, end)] if reached < end else found


def by_member(held: Sequence[Held]) -> dict[str, list[Interval]]:
    """The log offsets that the files of each member hold."""
    members = sorted({one.member for one in held})
    return {name: merged((one.from_offset, one.to_offset) for one in held if one.member == name) for name in members}


def conclude(con: Any, held: Sequence[Held]) -> None:
    """Offsets that no member holds, offsets that one lacks, and archive files of one member that overlap."""
    _insert(con, [*_lost(held), *_lacking(held), *_overlapping(held)])


def conclude_lost(con: Any, held: Sequence[Held], before: Mapping[str, Sequence[Interval]]) -> None:
    """What a member's files held at an earlier audit, and do not any more: a replaced disk, or a loss.

    A member that lagged is sent a snapshot, and drops its log without archiving it. So what follows on its archives
    is a note if several others hold it, as it is one that it lacks it.
    """
    now, rows = by_member(held), []
    ends = {(one.member, one.to_offset) for one in held if one.archived}
    for member, intervals in before.items():
        for start, end in intervals:
            for hole in holes([one for one in now.get(member, []) if one[1] > start], start, end):
                holders = [
                    name for name, theirs in now.items() if any(a <= hole[0] and hole[1] <= b for a, b in theirs)
                ]
                offsets = offset_text(*hole)
                told = f"members {', '.join(holders)} hold them" if holders else "no other member alone holds them all"
                detail = f"an earlier audit saw {offsets} in files of member {member}, which has them no more; {told}"
                place = {"check": "memory", "member": member}
                severity = NOTE if len(holders) > 1 and (member, hole[0]) in ends else WARNING
                rows.append(_finding(severity, f"member {member}, {offsets}", hole[0], detail) | place)
    _insert(con, rows)


def _insert(con: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        con.register("rows", pa.Table.from_pylist(rows, schema=_FINDINGS))
        con.execute("insert into findings by name from rows")
        con.unregister("rows")


_FINDINGS: Final = pa.schema(
    [
        ("check", pa.string()),
        ("severity", pa.string()),
        ("subject", pa.string()),
        ("offset", pa.int64()),
        ("member", pa.string()),
        ("file", pa.string()),
        ("detail", pa.string()),
    ]
)


def _finding(severity: str, subject: str, offset: int, detail: str, **place: str) -> dict[str, Any]:
    row = {"check": "coverage", "severity": severity, "subject": subject, "offset": offset, "detail": detail}
    return row | place


def _missing(held: Sequence[Held]) -> list[Interval]:
    """Offsets that no member holds, between offsets that some do."""
    whole = merged((one.from_offset, one.to_offset) for one in held)
    return holes(whole, whole[0][0], whole[-1][1]) if whole else []


def _lost(held: Sequence[Held]) -> Iterable[dict[str, Any]]:
    """A hole in the only member that was given is legal: it went on behind a received snapshot."""
    members = {one.member for one in held}
    for start, end in _missing(held):
        offsets = offset_text(start, end)
        if len(members) == 1:
            detail = f"{offsets} are not in the files of the only member given; look at another's too"
            yield _finding(WARNING, offsets, start, detail)
        else:
            detail = f"missing: no one of {len(members)} members holds {offsets}"
            yield _finding(VIOLATION, offsets, start, detail)


def _lacking(held: Sequence[Held]) -> Iterable[dict[str, Any]]:
    """What a member lacks and others hold: fewer than two others are a warning, unless the member is only behind."""
    own = {
        member: merged((one.from_offset, one.to_offset) for one in held if one.member == member)
        for member in sorted({one.member for one in held})
    }
    missing = _missing(held)
    start = min((one.from_offset for one in held), default=0)
    end = max((one.to_offset for one in held), default=0)
    for member, intervals in own.items():
        for hole in holes(merged([*intervals, *missing]), start, end):
            holders = [
                other
                for other, theirs in own.items()
                if other != member and any(left <= hole[0] and hole[1] <= right for left, right in theirs)
            ]
            yield _lacks(member, hole, holders, behind=hole[1] == end)


def _lacks(member: str, hole: Interval, holders: Sequence[str], *, behind: bool) -> dict[str, Any]:
    offsets = offset_text(*hole)
    if behind:
        detail = f"member {member} is behind: it lacks {offsets}"
    elif not holders:
        detail = f"member {member} lacks {offsets}; no other member alone holds them all"
    elif len(holders) == 1:
        detail = f"member {member} lacks {offsets}; only member {holders[0]} holds them all"
    else:
        detail = f"member {member} lacks {offsets}; members {', '.join(holders)} hold them"
    severity = NOTE if behind or len(holders) > 1 else WARNING
    return _finding(severity, f"member {member}, {offsets}", hole[0], detail, member=member)


def _overlapping(held: Sequence[Held]) -> Iterable[dict[str, Any]]:
    """Of two files that hold the same offsets one does not belong there; a member with both refuses to start."""
    widest: dict[str, Held] = {}
    for one in sorted((one for one in held if one.archived), key=lambda one: (one.member, one[2:4])):
        other = widest.get(one.member)
        if other is not None and other.to_offset > one.from_offset:
            both = offset_text(one.from_offset, min(one.to_offset, other.to_offset))
            detail = (
                f"{both} are in two archive files of member {one.member}, {other.file} and {one.file}: one does not "
            )
            subject = f"member {one.member}, {both}"
            place = {"member": one.member, "file": one.file}
            yield _finding(WARNING, subject, one.from_offset, f"{detail}not belong there", **place)
        if other is None or (one.to_offset, one.file) > (other.to_offset, other.file):
            widest[one.member] = one


def offset_text(start: int, end: int) -> str:
    """`offset 5` or `offsets 5 to 9`; the end is exclusive."""
    return f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
