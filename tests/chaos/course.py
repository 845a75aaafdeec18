"""The course of a run: one act of the plan after the other, each on a cluster that is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from pidkeeper.cli.local_cluster import Controller, Member, member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.looking import described
from tests.chaos.plan import SETTLING_SECONDS, Act, Planned, Target
from tests.chaos.stage import Stage

WHOLE_SECONDS: Final = 60.0
"""A cluster that is not whole again so long after the last fault was healed has broken a promise."""

LOOK_SECONDS: Final = 0.1


class NotWholeError(AssertionError):
    """The cluster did not become whole again after an act."""


class Happened(msgspec.Struct, frozen=True):
    """A fault as it was, `planned` with the target that was struck. Times are of `time.monotonic`; `whole` is when all
    members were ready again.

    `bites`: how often it was seen to have an effect; None where nobody was there whom it could have struck.
    """

    planned: Planned
    victims: tuple[str, ...]
    began: float
    ended: float
    whole: float
    bites: int | None


class _Played(msgspec.Struct):
    planned: Planned
    fault: Fault | None
    began: float
    ended: float


def aim(stage: Stage, planned: Planned, kind: FaultKind) -> Planned | None:
    """At whom it is planned for, or else at another whom the kind may strike; None if all of them are down."""
    ways = [planned, *(msgspec.structs.replace(planned, target=target) for target in kind.targets)]
    return next((one for one in ways if one.target is Target.CLUSTER or stage.chosen(one) is not None), None)


class Course:
    """Plays a plan on a stage. `happened`: what was done so far.

    `keeper` keeps what a disk has that is about to be lost; `say` hears of each act before it begins.
    """

    def __init__(
        self,
        stage: Stage,
        kinds: Iterable[FaultKind],
        keeper: LedgerKeeper,
        say: Callable[[Act], None] = lambda _: None,
    ) -> None:
        self._stage = stage
        self._keeper = keeper
        self._kinds: Mapping[str, FaultKind] = {kind.name: kind for kind in kinds}
        self._say = say
        self.happened: list[Happened] = []

    async def play(self, plan: Iterable[Act], until: float) -> None:
        """Play acts until the clock (`time.monotonic`) says `until`; the last one is played to its end.

        Raises NotWholeError, and whatever a fault raises.
        """
        await self.whole()
        for act in plan:
            if time.monotonic() >= until:
                return
            self._say(act)
            await self._play(act)
            await asyncio.sleep(SETTLING_SECONDS)

    async def _play(self, act: Act) -> None:
        async with asyncio.TaskGroup() as faults:
            tasks = [faults.create_task(self._fault(planned)) for planned in act]
        whole = await self.whole()
        for played in (task.result() for task in tasks):
            fault = played.fault
            victims, bites = ((), None) if fault is None else (fault.victims, await fault.bites())
            self.happened.append(Happened(played.planned, victims, played.began, played.ended, whole, bites))

    async def _fault(self, planned: Planned) -> _Played:
        await asyncio.sleep(planned.begin)
        began = time.monotonic()
        kind = self._kinds[planned.kind]
        aimed = aim(self._stage, planned, kind)
        if aimed is None:
            return _Played(planned, None, began, began)
        planned = aimed
        fault = kind.make(self._stage, planned)
        if kind.loses:
            await self._keep(fault.victims)
        down = fault.victims if kind.takes_down else ()
        self._stage.down.update(down)
        try:
            await fault.begin()
            await fault.hold()
        finally:
            await fault.end()
            self._stage.down.difference_update(down)
        return _Played(planned, fault, began, time.monotonic())

    async def _keep(self, victims: Iterable[str]) -> None:
        for name in victims:
            member = self._stage.cluster.member(name)
            assert isinstance(member, Controller), "agents keep nothing on disk"
            await asyncio.to_thread(self._keeper.look, member)

    async def whole(self) -> float:
        """Wait until all members are ready, one leads, and the quorum can do without as many as ever; gives the time.

        A member that has just lost the end of its log is ready, and counts in no majority until it has all of it again.
        Raises NotWholeError.
        """
        deadline = time.monotonic() + WHOLE_SECONDS
        waiting = self._stage.members()
        while waiting := [member for member, ready in await self._look(waiting) if not ready]:
            if time.monotonic() > deadline:
                names = ", ".join(member_name(member) for member in waiting)
                raise NotWholeError(f"not ready {WHOLE_SECONDS:g} s after the faults were healed: {names}")
            await asyncio.sleep(LOOK_SECONDS)
        while not await asyncio.to_thread(self._has_its_leader_and_all_votes):
            if time.monotonic() > deadline:
                raise NotWholeError(f"not every voter counts {WHOLE_SECONDS:g} s after the faults were healed")
            await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic()

    def _has_its_leader_and_all_votes(self) -> bool:
        leader = self._stage.cluster.leader()
        self._stage.leader_id = leader.id
        told = described(self._stage.cluster, leader)
        tolerance = told.get("failure_tolerance")
        return tolerance is not None and tolerance >= (len(told["voters"]) - 1) // 2

    async def _look(self, members: list[Member]) -> list[tuple[Member, bool]]:
        ready = await asyncio.gather(*(asyncio.to_thread(self._stage.cluster.ready, member) for member in members))
        return list(zip(members, ready, strict=True))
