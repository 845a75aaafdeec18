"""For how long a listener waits for somebody who has to do something."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

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
