"""What an operator does to a cluster that serves: no fault, but nobody may notice it for long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.load.quorum_operator import QuorumOperator
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import Stage

Act = Callable[[QuorumOperator], Awaitable[None]]


class OperatorsAct(Fault):
    """One act, which is broken off if it takes longer than is planned; then the voters are made the old ones."""

    def __init__(self, act: Act, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        assert stage.operator is not None, "why_not was asked"
        self.victims = tuple(member_name(one) for one in stage.cluster.layout.controllers)
        self._operator = stage.operator
        self._act = act
        self._before = stage.operator.carried_out
        self._doing: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Begin with it."""
        self._doing = asyncio.ensure_future(self._act(self._operator))

    async def hold(self) -> None:
        """Until it is done, if that is sooner than planned."""
        assert self._doing is not None, "it was begun"
        await asyncio.wait([self._doing], timeout=self.planned.seconds)

    async def end(self) -> None:
        """Break off what is not done, and settle."""
        assert self._doing is not None, "it was begun"
        self._doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._doing
        await self._operator.settle()

    async def bites(self) -> int:
        """How many orders were acknowledged."""
        return self._operator.carried_out - self._before


def _why_no_operator(stage: Stage) -> str | None:
    return "nobody may give orders to the quorum" if stage.operator is None else None


def _why_no_spare(stage: Stage) -> str | None:
    if any(one.learner for one in stage.cluster.layout.controllers):
        return _why_no_operator(stage)
    return "no controller stands by that could take a voter's place"


KINDS: Final = tuple(
    FaultKind(name, partial(OperatorsAct, act), (Target.CLUSTER,), seconds, takes_down=False, why_not=why_not)
    for name, act, seconds, why_not in (
        ("leadership_transferred", QuorumOperator.transfer, (5.0, 6.0), _why_no_operator),
        ("floor_raised", QuorumOperator.raise_floor, (5.0, 6.0), _why_no_operator),
        ("voter_replaced", QuorumOperator.replace, (60.0, 61.0), _why_no_spare),
    )
)
