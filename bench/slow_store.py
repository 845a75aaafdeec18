"""`python -m bench.slow_store SECONDS ARGUMENTS`: the `pidkeeper` command, whose agents' store is that much slower.

Each put and each read waits so long and is then carried out: as a store that is reached over a network.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pidkeeper.broker_agent.data import seeking
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoredObject
from pidkeeper.cli.local_cluster import LocalCluster, Member

STORE_SECONDS: Final = 0.01
"""What a PUT of 256 KiB took at a SeaweedFS on loopback, and one at a mock of S3."""


class SlowStoreCluster(LocalCluster):
    """A local cluster whose agents reach their store in STORE_SECONDS."""

    def program(self, member: Member) -> list[str]:
        """The command with such a store."""
        return [sys.executable, "-m", "bench.slow_store", str(STORE_SECONDS)]


class SlowStore:
    """The same store, `seconds` away."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        """As of the store."""
        await asyncio.sleep(self._seconds)
        await self._store.put(name, pieces)

    async def create(self, name: str, data: bytes) -> bytes:
        """As of the store."""
        await asyncio.sleep(self._seconds)
        return await self._store.create(name, data)

    async def read(self, name: str, start: int, length: int) -> bytes:
        """As of the store."""
        await asyncio.sleep(self._seconds)
        return await self._store.read(name, start, length)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        """As of the store."""
        await asyncio.sleep(self._seconds)
        return await self._store.list(prefix, after, limit)

    async def delete(self, names: Sequence[str]) -> None:
        """As of the store."""
        await asyncio.sleep(self._seconds)
        await self._store.delete(names)

    async def close(self) -> None:
        """As of the store."""
        await self._store.close()


def slow_down(seconds: float) -> None:
    """From now on agents of this process open stores that are so far away."""

    def opened(location: str, options: Mapping[str, str]) -> ObjectStore:
        return SlowStore(open_store(location, options), seconds)

    vars(seeking)["open_store"] = opened


if __name__ == "__main__":
    slow_down(float(sys.argv.pop(1)))
    runpy.run_module("pidkeeper.cli", run_name="__main__")
