"""A pace for a thread beside the event loop: it works for a short while, then it rests."""

from __future__ import annotations

import threading
import time
from typing import Final

WORK_SECONDS: Final = 0.0002
REST_SECONDS: Final = 0.0006
"""What takes long is made in a quarter of the time: meanwhile the event loop has the interpreter, and on few cores a
processor too, for which it may have to wait some milliseconds where others never pause."""


class Pace:
    """Of one thread, which calls `rest` between pieces of its work; any other may `hurry` it."""

    def __init__(self) -> None:
        self._hurried = threading.Event()
        self._rested_at = time.perf_counter()

    def rest(self) -> None:
        """Pause for REST_SECONDS if WORK_SECONDS went by since the last pause; never once it was hurried."""
        if time.perf_counter() - self._rested_at < WORK_SECONDS:
            return
        self._hurried.wait(REST_SECONDS)
        self._rested_at = time.perf_counter()

    def hurry(self) -> None:
        """From now on there are no pauses, and one that is under way ends."""
        self._hurried.set()
