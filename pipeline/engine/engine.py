"""What an audit asks of whoever runs its kernels.

A kernel is a function of a module over plain values, so that it can be sent by name. It gives evidence: rows of named
Arrow tables, which the driver concludes from. Rows of a large table never come to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

Named = tuple[str, Any]
"""The name of an evidence table, and a RecordBatch of its rows."""
Keyed = tuple[int, str, Any]
"""The same, for one bucket of a shuffle."""
DIRECT: Final = -1
"""No bucket: evidence for the driver."""


class Engine(Protocol):
    """Runs kernels over parts, in any order, each part once or, after a failure, once more.

    alone_bytes: whoever has no more to read than that does not need the engine.
    """

    @property
    def alone_bytes(self) -> int: ...

    def map(self, kernel: Callable[[T], Iterator[Named]], parts: Sequence[T]) -> Iterator[Named]:
        """The evidence of all parts."""
        ...

    def shuffle(
        self,
        read: Callable[[T], Iterator[Keyed]],
        judge: Callable[[int, Iterator[Named]], Iterator[Named]],
        parts: Sequence[T],
        buckets: int,
    ) -> Iterator[Named]:
        """`read` on each part, then `judge` on all that was put into each bucket, from 0 to before `buckets`.

        What `read` puts into DIRECT is evidence as it is.
        """
        ...
