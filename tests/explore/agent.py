"""A broker's agent: the reserve as it ships, and one request for a block at a time. It hands out all that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve, RejectedBlockError
from pidkeeper.protocol.ids import ProducerIdBlock
from tests.explore.controller import FOUNDING, Ask, Grant
from tests.explore.frozen import renamed
from tests.explore.member import Event, Outcome

MOST_AT_ONCE: Final = 2 * FOUNDING.block_size


class Agent:
    """An agent between two events. `waits_for`: the number of the request under way, 0 when none is."""

    __slots__ = ("asked", "own", "reserve", "waits_for")

    def __init__(self, own: int) -> None:
        self.own = own
        self.asked = 0
        self._start()

    def _start(self) -> None:
        self.reserve = BlockReserve(_nothing)
        self.waits_for = 0

    def happen(self, event: Event) -> Outcome | None:
        """Let `event` happen; None if it cannot. Its name is the name of a method below."""
        try:
            outcome: Outcome = getattr(self, event[0])(*event[1:])
        except AssertionError as error:
            return Outcome([], [], False, str(error) or repr(error))
        return outcome

    def ask(self, member: int) -> Outcome:
        """Ask a member for a block. A request before this one is given up: its answer is never offered."""
        self.asked += 1
        self.waits_for = self.asked
        return Outcome([Ask(self.own, member, self.asked, self.reserve.highest_held)], [], False)

    def restart(self) -> Outcome:
        """All is forgotten but the number: a connection of the process before answers nobody."""
        self._start()
        return Outcome([], [], False)

    def receive(self, grant: Grant, _: bool) -> Outcome:
        """A block has come: offer it, and hand out its IDs, unless nobody waits for it any more."""
        if grant.number != self.waits_for:
            return Outcome([], [], False)
        self.waits_for = 0
        try:
            self.reserve.offer(ProducerIdBlock(grant.first, grant.length))
        except RejectedBlockError:
            return Outcome([], [], False)
        handed = [one for one in (self.reserve.claim() for _ in range(MOST_AT_ONCE)) if one != NO_ID]
        return Outcome([], [], False, handed=handed)

    def renamed(self, names: Mapping[int, int]) -> Any:
        """A copy in which it has another id."""
        return renamed(self, names)


def _nothing() -> None:
    """It asks whenever it may."""
