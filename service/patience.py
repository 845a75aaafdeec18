"""For how long a listener waits for somebody who has to do something."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

CUTS_AT_ONCE: Final = 8
"""Ends of connections in a row; one takes 0.1 ms of the event loop, and a crowd that came together is due together."""

PAUSE_SECONDS: Final = 0.01
"""Between them. So 800 are cut a second: a whole listener of 8192 in the 10 s that a first head may take."""

Holder = TypeVar("Holder", bound=Hashable)


class Patience(Generic[Holder]):
    """Since when each is waited for, and who has been waited for longer than `seconds`. Time comes in, in seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: OrderedDict[Holder, float] = OrderedDict()

    def wait(self, holder: Holder, now: float) -> None:
        """It is waited for. That began earlier if it was waited for already."""
        self._since.setdefault(holder, now)

    def end(self, holder: Holder) -> None:
        """It is not waited for, or not any more."""
        self._since.pop(holder, None)

    def overdue(self, now: float) -> Iterator[Holder]:
        """Who has been waited for too long; each is forgotten here as it is given."""
        while self._since:
            holder, since = next(iter(self._since.items()))
            if now - since < self._seconds:
                return
            del self._since[holder]
            yield holder


async def cut_overdue(waiting: Mapping[str, Patience[Holder]], cut: Callable[[str, Holder], None], now: float) -> None:
    """Call `cut` with everyone who is overdue at `now`, and why; a few at a time, so that others are served between."""
    for reason, patience in waiting.items():
        for number, holder in enumerate(patience.overdue(now), start=1):
            cut(reason, holder)
            if number % CUTS_AT_ONCE == 0:
                await asyncio.sleep(PAUSE_SECONDS)
