"""Who holds one of a listener's places, and who gives way when there is none left."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

NEWCOMERS_SHARE: Final = 4
"""One place in four is left to newcomers. With fewer, those that come at once would push each other out before they
could ask; with more of them, somebody is flooding, and whoever has asked before keeps its place."""

Holder = TypeVar("Holder", bound=Hashable)


class Places(Generic[Holder]):
    """At most `limit` holders. No clock, no I/O; every call takes constant time.

    A holder is a newcomer until its first request is whole. From then on it is busy while it is being answered, else
    idle. It is a regular once it has asked in two periods (`next_period`): connections that a client has forgotten ask
    once, at their begin.

    For one more newcomers give way, the oldest first, as long as there are more of them than their share; then idle
    ones that are no regulars; then regulars, each the one that has been idle for longest first; then newcomers again.
    Nobody who is busy ever gives way.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = limit // NEWCOMERS_SHARE
        self._period = 0
        self._first_asked: dict[Holder, int] = {}
        self._newcomers: OrderedDict[Holder, None] = OrderedDict()
        self._idle: OrderedDict[Holder, None] = OrderedDict()
        self._idle_regulars: OrderedDict[Holder, None] = OrderedDict()
        self._busy: dict[Holder, bool] = {}
        """And whether they are regulars."""

    def __len__(self) -> int:
        return len(self._newcomers) + len(self._idle) + len(self._idle_regulars) + len(self._busy)

    def take(self, holder: Holder) -> Holder | None:
        """Give a newcomer a place. Returns who lost its own for that: `holder` itself if all others are busy."""
        gone = None
        if len(self) >= self._limit:
            gone = self._who_gives_way()
            if gone is None:
                return holder
            self._first_asked.pop(gone, None)
        self._newcomers[holder] = None
        return gone

    def set_busy(self, holder: Holder) -> None:
        """Its request is whole. Without effect on one that has no place."""
        if self._pop(holder) is not None:
            self._busy[holder] = self._first_asked.setdefault(holder, self._period) != self._period

    def set_idle(self, holder: Holder) -> None:
        """It was answered, or showed life otherwise. Without effect on one that has no place."""
        regular = self._pop(holder)
        if regular is not None:
            (self._idle_regulars if regular else self._idle)[holder] = None

    def leave(self, holder: Holder) -> None:
        """It is gone; if it had a place, that is free."""
        self._pop(holder)
        self._first_asked.pop(holder, None)

    def next_period(self) -> None:
        """Another period begins; called each second or so."""
        self._period += 1

    def _who_gives_way(self) -> Holder | None:
        crowded = len(self._newcomers) > self._share
        for waiting in (self._newcomers,) if crowded else (self._idle, self._idle_regulars, self._newcomers):
            if waiting:
                return waiting.popitem(last=False)[0]
        return None

    def _pop(self, holder: Holder) -> bool | None:
        """Whether it is a regular; None if it has no place."""
        if holder in self._busy:
            return self._busy.pop(holder)
        for waiting in (self._idle_regulars, self._idle, self._newcomers):
            if holder in waiting:
                del waiting[holder]
                return waiting is self._idle_regulars
        return None
