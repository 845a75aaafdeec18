"""Processes that are killed, that stand still, and that are started again one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

from pidkeeper.cli.local_cluster import READY_SECONDS, STOP_SECONDS, Member, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import STOPPED, process_state, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

Choice = Callable[[Stage, Planned], list[Member]]

STAND_SECONDS: Final = 1.0
"""Within which a process that is stopped stands still: a thread that waits for the disk does so first."""

SINGLE: Final = (Target.LEADER, Target.FOLLOWER, Target.AGENT)


def one(stage: Stage, planned: Planned) -> list[Member]:
    """The member that is meant."""
    chosen = stage.chosen(planned)
    return [] if chosen is None else [chosen]


def several(stage: Stage, planned: Planned) -> list[Member]:
    """As many voters as may fail at once, and half of the agents."""
    voters = [member for member in stage.cluster.layout.controllers if not member.learner]
    agents, chance = stage.cluster.layout.agents, random.Random(planned.pick)
    return [*chance.sample(voters, (len(voters) - 1) // 2), *chance.sample(agents, len(agents) // 2)]


def everybody(stage: Stage, _: Planned) -> list[Member]:
    """All members, as when the power of a site is gone; what was written stays."""
    return stage.members()


class Kill(Fault):
    """`kill -9`, and the start again at the end."""

    def __init__(self, choose: Choice, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._members = choose(stage, planned)
        self.victims = tuple(map(member_name, self._members))
        self._pids = [member.pid for member in self._members]
        self._gone: list[Member] = []

    async def begin(self) -> None:
        """Kill them, and see them gone."""
        await self.stage.kill(*self._members)
        ended = [self.stage.cluster.exit_code(member) for member in self._members]
        self._gone = [member for member, code in zip(self._members, ended, strict=True) if code == -signal.SIGKILL]

    async def end(self) -> None:
        """Start them."""
        await self.stage.start(*self._members)

    async def bites(self) -> int:
        """How many were gone, and are other processes now."""
        before = dict(zip(self.victims, self._pids, strict=True))
        return sum(member.pid != before[member_name(member)] for member in self._gone)


class Pause(Fault):
    """SIGSTOP, and SIGCONT at the end."""

    def __init__(self, choose: Choice, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self._members = choose(stage, planned)
        self.victims = tuple(map(member_name, self._members))
        self._stood = 0

    async def begin(self) -> None:
        """Stop all threads of each."""
        running = [member for member in self._members if self.stage.cluster.running(member)]
        for member in running:
            self.stage.cluster.signal(member, signal.SIGSTOP)
        await until(lambda: all(process_state(member.pid) == STOPPED for member in running), STAND_SECONDS)

    async def end(self) -> None:
        """Let them go on, those that stood still all the while."""
        for member in self._members:
            if process_state(member.pid) == STOPPED:
                self._stood += 1
                self.stage.cluster.signal(member, signal.SIGCONT)

    async def bites(self) -> int:
        """How many still stood at the end."""
        return self._stood


class RollingRestart(Fault):
    """SIGTERM to one process after the other, each time until all is well with the one before, as an upgrade does.

    At the end the roll is broken off where it is. No other fault may be under way that ends a process or holds a disk
    up: one that cannot stop in time exits with 1 (docs/operations.md).
    """

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self.victims = tuple(map(member_name, stage.cluster.members()))
        self._codes: dict[str, int | None] = {}
        self._restarted = 0
        self._roll: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin with the roll."""
        self._roll = asyncio.create_task(self._restart_all(), name="rolling restart")

    async def hold(self) -> None:
        """Until all were restarted, if that is sooner than planned."""
        assert self._roll is not None, "it was begun"
        await asyncio.wait([self._roll], timeout=self.planned.seconds)

    async def end(self) -> None:
        """Break it off, if it is not done, and start what does not run."""
        assert self._roll is not None, "it was begun"
        self._roll.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._roll
        await self.stage.start(*map(self.stage.cluster.member, self.victims))

    async def bites(self) -> int:
        """How many were stopped and came to be ready again. Raises AssertionError if one did not exit with 0."""
        failed = {name: code for name, code in self._codes.items() if code != 0}
        assert not failed, f"told to stop, these exited with {failed}"
        return self._restarted

    async def _restart_all(self) -> None:
        for member in map(self.stage.cluster.member, self.victims):
            await self._restart(member)

    async def _restart(self, member: Member) -> None:
        cluster = self.stage.cluster
        if not cluster.running(member):
            return
        cluster.signal(member, signal.SIGTERM)
        if not await until(lambda: not cluster.running(member), STOP_SECONDS):
            await self.stage.kill(member)
        self._codes[member_name(member)] = cluster.exit_code(member)
        await self.stage.start(member)
        self._restarted += await until(lambda: cluster.ready(member), READY_SECONDS)


KINDS: Final = (
    FaultKind("kill", partial(Kill, one), SINGLE, (0.5, 10.0), takes_down=True),
    FaultKind("pause", partial(Pause, one), SINGLE, (1.0, 30.0), takes_down=True),
    FaultKind("kill_several", partial(Kill, several), (Target.CLUSTER,), (0.5, 10.0), takes_down=True),
    FaultKind("kill_all", partial(Kill, everybody), (Target.CLUSTER,), (0.5, 5.0), takes_down=True),
    FaultKind("pause_several", partial(Pause, several), (Target.CLUSTER,), (1.0, 15.0), takes_down=True),
    FaultKind("rolling_restart", RollingRestart, (Target.CLUSTER,), (20.0, 60.0), takes_down=True),
)
