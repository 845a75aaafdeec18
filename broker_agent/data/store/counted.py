"""A store of which is known how often it failed, and how long a put is under way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pidkeeper.broker_agent.data.store.port import ObjectStore, StoredObject, StoreError

OPERATIONS: Final = ("put", "create", "read", "list", "delete")


class CountedStore:
    """`store`, and what came of its calls.

    `errors`: calls that ended with a StoreError, by operation. A call that was cancelled counts as none: who waited for
    it had no more time, and `put_age_seconds` tells of a store that does not answer.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.errors: Counter[str] = Counter(dict.fromkeys(OPERATIONS, 0))
        # In the order in which they began.
        self._puts: dict[object, float] = {}

    @property
    def put_age_seconds(self) -> float:
        """How long the oldest put is under way; 0 without one."""
        began = next(iter(self._puts.values()), None)
        return 0.0 if began is None else time.monotonic() - began

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        place = object()
        self._puts[place] = time.monotonic()
        try:
            with self._counting("put"):
                await self._store.put(name, pieces)
        finally:
            del self._puts[place]

    async def create(self, name: str, data: bytes) -> bytes:
        with self._counting("create"):
            return await self._store.create(name, data)

    async def read(self, name: str, start: int, length: int) -> bytes:
        with self._counting("read"):
            return await self._store.read(name, start, length)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        with self._counting("list"):
            return await self._store.list(prefix, after, limit)

    async def delete(self, names: Sequence[str]) -> None:
        with self._counting("delete"):
            await self._store.delete(names)

    async def close(self) -> None:
        await self._store.close()

    @contextmanager
    def _counting(self, operation: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.errors[operation] += 1
            raise
