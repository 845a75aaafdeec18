"""The places at which processes are killed: what has to be true just then, who dies, and of what.

A window is a moment of a request that an agent makes. Where what is to be interrupted goes on between two requests, a
call to the disk is slowed down (`slow`) once the moment has come, until such a call waits and `until` is seen.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.shim.control import Effect
from tests.cuts import sights
from tests.cuts.sights import Sight


class Moment(enum.Enum):
    """Of a request; see `relay.Looks`."""

    ASKED = enum.auto()
    UNDERWAY = enum.auto()
    ANSWERED = enum.auto()


class Victim(enum.StrEnum):
    """Who dies. The last three lose their power: what their disk had not synced is gone too.

    STORE_MACHINE: all agents, with the directory of the store. LEADER_MACHINE: the controller that is asked.
    """

    AGENT = "agent"
    LEADER = "leader"
    STORE_MACHINE = "store's machine"
    LEADER_MACHINE = "leader's machine"
    EVERYTHING = "everything"

    @property
    def loses_power(self) -> bool:
        return self not in {Victim.AGENT, Victim.LEADER}


class Slow(NamedTuple):
    """A call of the agent to its disk, or of the leader where that is the victim, and what it comes to."""

    call: str
    effect: Effect
    seconds: float = 0.0


class Window(NamedTuple):
    """One place. `holds`: whether it is the place that its name says, asked at the moment, before anybody is killed.

    `files`: those that `until` looks at, as they are at the moment. `needs`: a window that has to be hit before, since
    it leaves what this one is about.
    """

    name: str
    path: str
    moment: Moment
    victim: Victim
    holds: Callable[[Sight], bool]
    slow: Slow | None = None
    files: Callable[[Sight], list[Path]] | None = None
    until: Callable[[Sight, list[Path]], bool] | None = None
    needs: str | None = None

    @property
    def full_name(self) -> str:
        """With who dies."""
        return f"{self.victim}: {self.name}"


UNLINKS_SECONDS: Final = 0.1
"""Of each name that is removed: the watcher looks some ten times meanwhile, on a busy machine too."""
SYNCS_SECONDS: Final = 0.3
"""Of each sync: a segment waits so long for its index."""

_UNLINKS: Final = Slow("unlink", Effect.STALLS, UNLINKS_SECONDS)
_SYNCS: Final = Slow("fdatasync", Effect.STALLS, SYNCS_SECONDS)
_HANGS: Final = Slow("fdatasync", Effect.HANGS)


def _half_gone(_: Sight, files: list[Path]) -> bool:
    return 0 < sum(path.exists() for path in files) < len(files)


def _half_a_segment(sight: Sight, _: list[Path]) -> bool:
    return sights.half_a_segment(sight)


def _unfinished(sight: Sight, _: list[Path]) -> bool:
    return sights.unfinished_object(sight)


def _always(_: Sight) -> bool:
    return True


PUT: Final = "an object's bytes are written, and not synced"
STORED: Final = "between PUT and commit"
JOINED: Final = "between commit and answer"
ENDING: Final = "EndTxn: before the quorum hears of it"
AT_ITS_END: Final = "EndTxn is with the leader"
ENDED: Final = "EndTxn: between commit and answer"
HALF: Final = "a roll: the segment is put, its index is not"
ROLL_STORED: Final = "a roll: between PUT and commit"
ROLL_JOINED: Final = "a roll: between commit and answer"
FOUND: Final = "collection: before it deletes"
AMID: Final = "collection: some objects are deleted"
GONE: Final = "collection: between deletion and report"
TOLD: Final = "collection: between report and answer"
SWEPT: Final = "sweep: before it deletes"
AMID_SWEEP: Final = "sweep: some orphans are deleted"
COMMITTING: Final = "a commit is with the leader"
ROLLING: Final = "a roll's commit is with the leader"
REPORTING: Final = "a report of deletions is with the leader"
UNSYNCED: Final = "a commit is written, and not synced"

_AGENT, _LEADER = Victim.AGENT, Victim.LEADER
_ASKED, _UNDERWAY, _ANSWERED = Moment

_OF_AGENTS: Final = (
    Window(PUT, sights.COMMIT, _UNDERWAY, _AGENT, _always, _HANGS, until=_unfinished),
    Window(STORED, sights.COMMIT, _ASKED, _AGENT, sights.object_stored),
    Window(JOINED, sights.COMMIT, _ANSWERED, _AGENT, sights.object_joined),
    Window(ENDING, sights.END, _ASKED, _AGENT, _always),
    Window(ENDED, sights.END, _ANSWERED, _AGENT, sights.transaction_ended),
    Window(HALF, sights.ROLLS, _ANSWERED, _AGENT, sights.rolls_due, _SYNCS, until=_half_a_segment),
    Window(ROLL_STORED, sights.SEGMENT, _ASKED, _AGENT, sights.segment_stored),
    Window(ROLL_JOINED, sights.SEGMENT, _ANSWERED, _AGENT, sights.segment_joined),
    Window(FOUND, sights.GARBAGE, _ANSWERED, _AGENT, sights.garbage_there),
    Window(AMID, sights.GARBAGE, _ANSWERED, _AGENT, sights.garbage_there, _UNLINKS, sights.garbage, _half_gone),
    Window(GONE, sights.DELETED, _ASKED, _AGENT, sights.garbage_gone),
    Window(TOLD, sights.DELETED, _ANSWERED, _AGENT, sights.garbage_told),
    Window(SWEPT, sights.CHECK, _ANSWERED, _AGENT, sights.orphans_there, needs=ROLL_STORED),
    Window(
        AMID_SWEEP,
        sights.CHECK,
        _ANSWERED,
        _AGENT,
        sights.orphans_there,
        _UNLINKS,
        sights.orphans,
        _half_gone,
        needs=ROLL_STORED,
    ),
)
_OF_LEADERS: Final = (
    Window(STORED, sights.COMMIT, _ASKED, _LEADER, sights.object_stored),
    Window(COMMITTING, sights.COMMIT, _UNDERWAY, _LEADER, sights.object_stored),
    Window(UNSYNCED, sights.COMMIT, _ASKED, _LEADER, sights.object_stored, _HANGS),
    Window(JOINED, sights.COMMIT, _ANSWERED, _LEADER, sights.object_joined),
    Window(AT_ITS_END, sights.END, _UNDERWAY, _LEADER, _always),
    Window(ENDED, sights.END, _ANSWERED, _LEADER, sights.transaction_ended),
    Window(ROLL_STORED, sights.SEGMENT, _ASKED, _LEADER, sights.segment_stored),
    Window(ROLLING, sights.SEGMENT, _UNDERWAY, _LEADER, sights.segment_stored),
    Window(ROLL_JOINED, sights.SEGMENT, _ANSWERED, _LEADER, sights.segment_joined),
    Window(GONE, sights.DELETED, _ASKED, _LEADER, sights.garbage_gone),
    Window(REPORTING, sights.DELETED, _UNDERWAY, _LEADER, sights.garbage_gone),
    Window(TOLD, sights.DELETED, _ANSWERED, _LEADER, sights.garbage_told),
    Window(SWEPT, sights.CHECK, _ANSWERED, _LEADER, sights.orphans_there, needs=ROLL_STORED),
)
_OF_POWER: Final = (
    Window(STORED, sights.COMMIT, _ASKED, Victim.STORE_MACHINE, sights.object_stored),
    Window(JOINED, sights.COMMIT, _ANSWERED, Victim.STORE_MACHINE, sights.object_joined),
    Window(ROLL_JOINED, sights.SEGMENT, _ANSWERED, Victim.STORE_MACHINE, sights.segment_joined),
    Window(GONE, sights.DELETED, _ASKED, Victim.STORE_MACHINE, sights.garbage_gone),
    Window(TOLD, sights.DELETED, _ANSWERED, Victim.STORE_MACHINE, sights.garbage_told),
    Window(COMMITTING, sights.COMMIT, _UNDERWAY, Victim.LEADER_MACHINE, sights.object_stored),
    Window(UNSYNCED, sights.COMMIT, _ASKED, Victim.LEADER_MACHINE, sights.object_stored, _HANGS),
    Window(JOINED, sights.COMMIT, _ANSWERED, Victim.LEADER_MACHINE, sights.object_joined),
    Window(ROLL_JOINED, sights.SEGMENT, _ANSWERED, Victim.LEADER_MACHINE, sights.segment_joined),
    Window(TOLD, sights.DELETED, _ANSWERED, Victim.LEADER_MACHINE, sights.garbage_told),
    Window(ENDED, sights.END, _ANSWERED, Victim.LEADER_MACHINE, sights.transaction_ended),
    Window(JOINED, sights.COMMIT, _ANSWERED, Victim.EVERYTHING, sights.object_joined),
    Window(ENDED, sights.END, _ANSWERED, Victim.EVERYTHING, sights.transaction_ended),
    Window(ROLL_JOINED, sights.SEGMENT, _ANSWERED, Victim.EVERYTHING, sights.segment_joined),
    Window(TOLD, sights.DELETED, _ANSWERED, Victim.EVERYTHING, sights.garbage_told),
)
ALL: Final = (*_OF_AGENTS, *_OF_LEADERS, *_OF_POWER)
"""All there are. They are hit equally often."""


def windows(*, power: bool, quick: bool) -> tuple[Window, ...]:
    """Those that this machine can do; `power`: whether it can cut any. `quick`: without those that take seconds to
    come."""
    found = (one for one in ALL if power or not one.victim.loses_power)
    return tuple(one for one in found if not quick or one.path in {sights.COMMIT, sights.SEGMENT, sights.END})


def by_name(victim: Victim, name: str) -> Window:
    """The window. Raises KeyError."""
    return {(one.victim, one.name): one for one in ALL}[victim, name]
