"""Why a producer ID has no owner here: it is nobody's yet, or something went past it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from pidkeeper.controller.state.machine import Jump, reached
from pidkeeper.protocol.founding import SuccessionRecord, founding_name
from pidkeeper.protocol.migration import MigrationRecord, ZooKeeperBlockRecord


class Gaps(msgspec.Struct, frozen=True):
    """What is known of the IDs that no block holds.

    `next_producer_id`: the lowest ID that nobody was given yet. `jumps`: by which the next ID went on without a block,
    each with its offset, in order; all of them from the ID `jumps_from` on. `complete_from`: the ID from which on no
    block is missing. `succession`, `migration`: as the state has them.
    """

    next_producer_id: int
    succession: SuccessionRecord | None = None
    migration: MigrationRecord | None = None
    jumps: Iterable[tuple[int, Jump]] = ()
    jumps_from: int = 0
    complete_from: int = 0


def why_ownerless(producer_id: int, gaps: Gaps, following: int | None) -> str:
    """Why no block holds `producer_id`; the next block above it begins at `following`, if there is one."""
    if producer_id >= gaps.next_producer_id:
        return f"producer ID {producer_id} is not handed out yet: the next one is {gaps.next_producer_id}"
    if producer_id >= gaps.jumps_from:
        for offset, jump in gaps.jumps:
            if producer_id < reached(jump):
                return _past(producer_id, jump, f"at {_time(jump.timestamp_ms)}, log offset {offset}")
    if gaps.succession is not None and producer_id < gaps.succession.floor:
        return _past(producer_id, gaps.succession, f"at {_time(gaps.succession.timestamp_ms)}")
    if producer_id < gaps.complete_from:
        return (
            f"no block in this member's history holds producer ID {producer_id}, but that history is incomplete below "
            f"ID {gaps.complete_from}: ask the other members, or audit their archives"
        )
    return _somehow(producer_id, gaps.migration, gaps.next_producer_id if following is None else following)


def _past(producer_id: int, jump: Jump, when: str) -> str:
    match jump:
        case ZooKeeperBlockRecord():
            return (
                f"producer ID {producer_id} was given by ZooKeeper's controller, before this quorum took over from it "
                f"at the next ID {jump.next_producer_id} ({when}, version {jump.znode_version} of the znode): to whom "
                "is not known here"
            )
        case SuccessionRecord():
            return (
                f"producer ID {producer_id} lies below the floor {jump.floor} from which on this quorum hands out "
                f"({when}): if anybody has it, the quorum of founding {founding_name(jump.predecessor)} gave it, whose "
                "place this one took"
            )
        case _:
            return (
                f"producer ID {producer_id} is nobody's, and stays so: it was skipped when the floor was raised to "
                f"{jump.next_producer_id} ({when})"
            )


def _somehow(producer_id: int, migration: MigrationRecord | None, following: int) -> str:
    """Of an ID that something went past which this member has forgotten with the log behind its snapshot."""
    if migration is None:
        return (
            f"producer ID {producer_id} is nobody's, and stays so: it was skipped when the floor was raised, to "
            f"{following} at most"
        )
    return (
        f"producer ID {producer_id} was given by ZooKeeper's controller before this quorum took over from it, or was "
        f"skipped by a raised floor: this quorum goes on from {following}, and the record of that is not in this "
        "member's log any more"
    )


def _time(timestamp_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
