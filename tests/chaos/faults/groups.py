"""What is done to consumer groups: to the agent that coordinates one, and to the members of both.

Agents that stand still or are cut off from the quorum go on to believe that they coordinate; members that stand still
believe that they have their partitions. All of them come back with what they believe.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Final

from tests.chaos.fault import Fault, FaultKind
from tests.chaos.faults.links import LinkFault, Wound, Wounds, swallowed, why_no_links
from tests.chaos.faults.processes import STAND_SECONDS, Kill, Pause, one
from tests.chaos.links.laying import Links
from tests.chaos.links.proxies import Stream
from tests.chaos.load.groups_process import SESSION_SECONDS
from tests.chaos.looking import STOPPED, process_state, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

OUTLASTING: Final = (13.0, 20.0)
"""Seconds: longer than the sessions of members and than that of an agent with the quorum, which is 9 s by default."""


class PausedMember(Fault):
    """SIGSTOP for a process with members of groups, and SIGCONT at the end: one that does not stand still already."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        free = [one for one in stage.group_members if one.name not in stage.down] or stage.group_members
        chosen = free[planned.pick % len(free)]
        self.victims = (chosen.name,)
        self._pid = None if chosen.process is None else chosen.process.pid
        self._stood = 0

    async def begin(self) -> None:
        """Stop all of its threads."""
        self.stage.down.update(self.victims)
        if (pid := self._pid) is not None and process_state(pid):
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: process_state(pid) == STOPPED, STAND_SECONDS)

    async def end(self) -> None:
        """Let it go on, if it stood still all the while."""
        if self._pid is not None and process_state(self._pid) == STOPPED:
            self._stood = 1
            os.kill(self._pid, signal.SIGCONT)
        self.stage.down.difference_update(self.victims)

    async def bites(self) -> int:
        """Whether it still stood at the end."""
        return self._stood


# Which links of a coordinator are hurt, and how.


def quorum(links: Links, victim: str, _: Planned) -> list[Wound]:
    """Those to all controllers, in both directions; clients have theirs."""
    return swallowed(links.of(victim), Stream.UPSTREAM) + swallowed(links.of(victim), Stream.DOWNSTREAM)


def half_of_clients(links: Links, victim: str, planned: Planned) -> list[Wound]:
    """Those of every other client, so that of two members of a group one is cut off."""
    chosen = links.clients[planned.pick % 2 :: 2]
    return [(link, None) for link in links.to(victim) if link.source in chosen]


def _why_no_members(stage: Stage) -> str | None:
    return None if stage.group_members else "there are no groups"


def _cut(name: str, wounds: Wounds, seconds: tuple[float, float]) -> FaultKind:
    return FaultKind(name, partial(LinkFault, wounds=wounds), COORDINATOR, seconds, True, why_no_links)


COORDINATOR: Final = (Target.COORDINATOR,)

KINDS: Final[tuple[FaultKind, ...]] = (
    FaultKind("coordinator_killed", partial(Kill, one), COORDINATOR, (0.5, 10.0), True, _why_no_members),
    FaultKind("coordinator_paused", partial(Pause, one), COORDINATOR, OUTLASTING, True, _why_no_members),
    _cut("coordinator_without_quorum", quorum, OUTLASTING),
    _cut("coordinator_without_half", half_of_clients, (SESSION_SECONDS, 2 * SESSION_SECONDS)),
    FaultKind(
        "member_paused",
        PausedMember,
        (Target.CLUSTER,),
        (SESSION_SECONDS + 2.0, 2 * SESSION_SECONDS + 2.0),
        takes_down=False,
        why_not=_why_no_members,
    ),
)
