"""Virtual time: one heap of events, one seed, nothing else. Times are integer microseconds.

Every subsystem draws from a random stream of its own, so a new draw in one of them does not change the others. The
digest mixes the time and number of every event that ran; two runs with equal digests took the same course.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000


class Violation(SystemExit):
    """The system broke a promise. `rule` names it; the message has the facts.

    Not an Exception: the system under test must not take it for a fault of its own and handle it. A SystemExit, because
    that is what a task of asyncio lets through.
    """

    def __init__(self, rule: str, facts: str) -> None:
        super().__init__(f"{rule}: {facts}")
        self.rule = rule


class World:
    """The clock, the events to come, and the account of the faults.

    `phase` is what the cluster was doing when it was last looked at; every fault is counted under its kind and phase.
    `trace` takes readable lines, or is None.
    """

    def __init__(self, seed: int, trace: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.now = 0
        self.digest = hash((seed,))
        self.phase = "starting"
        self.faults: Counter[tuple[str, str]] = Counter()
        self.events = 0
        self.trace = trace
        self._heap: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._number = 0

    def stream(self, name: str) -> random.Random:
        """An independent random stream."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, delay: int, call: Callable[..., Any], *args: Any) -> None:
        """Run `call(*args)` in `delay` microseconds, after everything that was scheduled earlier for that moment."""
        self._number += 1
        heapq.heappush(self._heap, (self.now + delay, self._number, call, args))

    def run(self, until: int, done: Callable[[], bool] | None = None) -> None:
        """Run all events up to the moment `until`, or until `done` (looked at every 50 ms) says so."""
        heap, pop = self._heap, heapq.heappop
        look = self.now
        while heap and heap[0][0] <= until:
            self.now, number, call, args = pop(heap)
            self.digest = hash((self.digest, self.now, number))
            self.events += 1
            call(*args)
            if done is not None and self.now >= look:
                if done():
                    return
                look = self.now + 50 * MILLISECOND
        self.now = until

    def mix(self, *facts: int) -> None:
        """Let the digest depend on `facts`."""
        self.digest = hash((self.digest, *facts))

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault that fired."""
        self.faults[kind, self.phase] += 1
        if self.trace is not None:
            self.note(f"FAULT {kind} {detail}")

    def note(self, line: str) -> None:
        """Write a line of the trace. Callers on hot paths look at `trace` first."""
        if self.trace is not None:
            self.trace(f"{self.now / SECOND:11.6f}  {line}")
