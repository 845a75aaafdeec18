"""What becomes of a cluster that is left alone: everybody is up, nothing is lost, and whoever has no leader times out.

Whatever has happened before, somebody must come to serve. The members are taken as they are in one state; what was on
its way between them is lost, and terms have no bound any more.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pidkeeper.controller.raft.messages import PreVote, RequestVote
from tests.explore.member import Member

TURNS: Final = 6
"""Of each member to time out. Two that stand in turn may each have to learn a term, and one that leads to step down."""

MOST_MESSAGES: Final = 5_000
"""After one event, until all is quiet."""


def stands_still(members: Sequence[bytes]) -> bool:
    """Whether none of the members, pickled, comes to serve. Raises AssertionError where a rule is broken."""
    left_alone = _LeftAlone([pickle.loads(one) for one in members])
    return not any(left_alone.turn() for _ in range(TURNS))


class _LeftAlone:
    def __init__(self, members: Iterable[Member]) -> None:
        self._members = {one.config.node_id: one for one in members}
        self._flying: deque[Any] = deque()
        for one in self._members.values():
            self._write(one)
        # What they say now was lost with all the rest.
        self._flying.clear()

    def turn(self) -> bool:
        """Everybody's time is up once, where nobody leads; whether somebody serves then."""
        for one in self._members.values():
            if self._leads():
                break
            self._happen(one, ("time_out",))
        for one in self._members.values():
            self._happen(one, ("heartbeat",))
        return any(one.core.serving for one in self._members.values())

    def _leads(self) -> bool:
        return any(one.core.leadership is not None for one in self._members.values())

    def _happen(self, one: Member, event: tuple[Any, ...]) -> None:
        self._tell(one, event)
        for _ in range(MOST_MESSAGES):
            if not self._flying:
                return
            message = self._flying.popleft()
            if (to := self._members.get(message.to)) is not None:
                impatient = isinstance(message, PreVote | RequestVote)
                self._tell(to, ("receive", message, impatient))
        raise AssertionError(f"{MOST_MESSAGES} messages after {event}, and no end")

    def _tell(self, one: Member, event: tuple[Any, ...]) -> None:
        outcome = one.happen(event)
        if outcome is None:
            return
        assert outcome.broken is None, outcome.broken
        self._flying += outcome.messages
        self._write(one)

    def _write(self, one: Member) -> None:
        while one.disk.pending or one.installing is not None:
            outcome = one.happen(("sync",))
            assert outcome is not None, "what is under way can be written"
            assert outcome.broken is None, outcome.broken
            self._flying += outcome.messages
