"""A store that may not be there yet, or not be the right one: nothing is written or read before both are known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pidkeeper.broker_agent.data.store.port import (
    ObjectStore,
    StoredObject,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)

_Result = TypeVar("_Result")


class AwaitedStore:
    """`ObjectStore` over the one that `found` brings. Until then, and until `admitted()`, every call raises
    StoreUnavailableError. `failed(error)` hears of each that the store did not answer, or refused."""

    def __init__(self, admitted: Callable[[], bool], failed: Callable[[StoreError], None]) -> None:
        self._store: ObjectStore | None = None
        self._admitted = admitted
        self._failed = failed

    def found(self, store: ObjectStore) -> None:
        """The store is there. It is closed with this one."""
        assert self._store is None, "a store is found once"
        self._store = store

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        await self._watched(self._right_store().put(name, pieces))

    async def create(self, name: str, data: bytes) -> bytes:
        return await self._watched(self._right_store().create(name, data))

    async def read(self, name: str, start: int, length: int) -> bytes:
        return await self._watched(self._right_store().read(name, start, length))

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        return await self._watched(self._right_store().list(prefix, after, limit))

    async def delete(self, names: Sequence[str]) -> None:
        await self._watched(self._right_store().delete(names))

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def _right_store(self) -> ObjectStore:
        if self._store is None:
            raise StoreUnavailableError("the store was not found yet")
        if not self._admitted():
            raise StoreUnavailableError("the quorum did not say yet whether this is the cluster's store")
        return self._store

    async def _watched(self, call: Awaitable[_Result]) -> _Result:
        try:
            return await call
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._failed(error)
            raise
