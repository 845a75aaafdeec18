"""An engine that is started when there is enough for it to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from pidkeeper.pipeline.engine.engine import Engine, Keyed, Named

T = TypeVar("T")

ALONE_BYTES: Final = 256 << 20
"""So much one process has read and judged before Spark has started and been told what to do."""


class WaitingEngine:
    """See `Engine`. start: called once at most."""

    def __init__(self, start: Callable[[], Engine], alone_bytes: int = ALONE_BYTES) -> None:
        self.alone_bytes = alone_bytes
        self._start = start
        self._engine: Engine | None = None

    def map(self, kernel: Callable[[T], Iterator[Named]], parts: Sequence[T]) -> Iterator[Named]:
        """As `Engine.map`."""
        return self._started().map(kernel, parts)

    def shuffle(
        self,
        read: Callable[[T], Iterator[Keyed]],
        judge: Callable[[int, Iterator[Named]], Iterator[Named]],
        parts: Sequence[T],
        buckets: int,
    ) -> Iterator[Named]:
        """As `Engine.shuffle`."""
        return self._started().shuffle(read, judge, parts, buckets)

    def _started(self) -> Engine:
        if self._engine is None:
            self._engine = self._start()
        return self._engine
