"""An object store in memory: for the simulator, and for tests. It never waits, so its order is the caller's."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from pidkeeper.broker_agent.data.store.port import (
    MAX_CREATED_BYTES,
    ObjectMissingError,
    StoredObject,
    StoreError,
    StoreRefusedError,
    check_listing,
    check_name,
    check_names,
    check_pieces,
    check_range,
)


class MemoryStore:
    """`ObjectStore` in memory; several agents may share one."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._names: list[str] = []

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        check_name(name)
        check_pieces(pieces)
        data = b"".join(pieces)
        if self._stored(name, data) != data:
            raise StoreRefusedError(f"{name} is there with other bytes: nothing may be put over it")

    async def create(self, name: str, data: bytes) -> bytes:
        check_name(name)
        check_pieces([data], MAX_CREATED_BYTES)
        stored = self._stored(name, data)
        if len(stored) > MAX_CREATED_BYTES:
            raise StoreRefusedError(f"{name} has {len(stored)} bytes: it was not made by create")
        return stored

    async def read(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        check_range(start, length)
        if name not in self._objects:
            raise ObjectMissingError(f"there is no {name}")
        data = self._objects[name][start : start + length]
        if len(data) < length:
            raise StoreError(f"{name} ends before byte {start + length}")
        return data

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        check_listing(prefix, after, limit)
        # Names are ASCII: text is in the order of its bytes.
        first = max(bisect.bisect_right(self._names, after), bisect.bisect_left(self._names, prefix))
        names = self._names[first : first + limit]
        return [StoredObject(name, len(self._objects[name])) for name in names if name.startswith(prefix)]

    async def delete(self, names: Sequence[str]) -> None:
        check_names(names)
        for name in names:
            if self._objects.pop(name, None) is not None:
                del self._names[bisect.bisect_left(self._names, name)]

    async def close(self) -> None:
        pass

    def _stored(self, name: str, data: bytes) -> bytes:
        """What is under the name, `data` if there was nothing."""
        if name not in self._objects:
            self._objects[name] = data
            bisect.insort(self._names, name)
        return self._objects[name]
