"""What a fault is, and what there is to know of each kind of it."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tests.chaos.plan import Planned, Target

if TYPE_CHECKING:
    from tests.chaos.stage import Stage


class Fault(abc.ABC):
    """One fault, from `begin` to `end`. Both are called once, on the event loop, which they must not hold up.

    `victims`: the names of the processes that are meant, known from the construction on.
    """

    def __init__(self, stage: Stage, planned: Planned) -> None:
        self.stage = stage
        self.planned = planned
        self.victims: tuple[str, ...] = ()

    @abc.abstractmethod
    async def begin(self) -> None:
        """Inject it."""

    async def hold(self) -> None:
        """From `begin` to `end`: as long as is planned, or less where that is enough."""
        await asyncio.sleep(self.planned.seconds)

    @abc.abstractmethod
    async def end(self) -> None:
        """Heal it: whatever it stopped is started again, without waiting until that is ready."""

    @abc.abstractmethod
    async def bites(self) -> int:
        """How often an effect of it was seen, from outside of what injects it where that can be; asked after `end`.

        0 says that nothing came of it: the run counts it as a fault that did not bite.
        """


class FaultKind(msgspec.Struct, frozen=True):
    """`seconds`: shortest and longest time from begin to end, above 0. `targets`: whom it may be planned for.

    `takes_down`: a victim serves nobody meanwhile. `loses`: its disk may lose what was acknowledged, so that the plan
    leaves all others in peace. `why_not` says why this machine cannot do it, or None; it is asked once, when all is set
    up.
    """

    name: str
    make: Callable[[Stage, Planned], Fault]
    targets: tuple[Target, ...]
    seconds: tuple[float, float]
    takes_down: bool
    why_not: Callable[[Stage], str | None] = lambda _: None
    loses: bool = False
