"""Calls of one connection that are under way together, and whose answers leave in the order of the requests. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_OVERLAPPING: Final = 8
"""Calls under way together on one connection. Producers send five requests ahead of their answers
(`max.in.flight.requests.per.connection`), and those that want no answer count as well."""


class OverlappingCall:
    """One of them. `answer`: None until it has ended, and still if it has failed."""

    __slots__ = ("answer", "ended")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.ended = False


class CallsInOrder:
    """They begin in the order of the requests and end in any. `under_way`: those whose answers have not left, for
    others to look at; `failed`: one of them has ended without an answer."""

    __slots__ = ("failed", "under_way")

    def __init__(self) -> None:
        self.under_way: deque[OverlappingCall] = deque()
        self.failed = False

    def full(self) -> bool:
        """Whether no further one may begin: there are enough, or its answer would never be written."""
        return self.failed or len(self.under_way) >= MAX_OVERLAPPING

    def begin(self) -> OverlappingCall:
        """One more, behind all others."""
        self.under_way.append(call := OverlappingCall())
        return call

    def end(self, call: OverlappingCall, answer: bytes | None) -> tuple[list[bytes], bool]:
        """`call` has this answer, or None if it failed. Returns the answers that may leave now, in their order, and
        whether the next one is of a call that failed, so that nothing may follow."""
        call.answer, call.ended = answer, True
        if answer is None:
            self.failed = True
        leaving: list[bytes] = []
        while self.under_way and self.under_way[0].ended:
            answer = self.under_way[0].answer
            if answer is None:
                return leaving, True
            self.under_way.popleft()
            leaving.append(answer)
        return leaving, False
