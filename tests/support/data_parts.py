"""The parts of the data plane over stores and a leader in memory, with faults on demand."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, read_batch_header
from pidkeeper.protocol.metadata_version import LATEST
from tests.support.log_leader import FOUNDING, LogLeader
from tests.support.segment_builder import NO_PRODUCER, batch
from tests.support.waiting import PATIENCE_SECONDS, PAUSE_SECONDS

MAX_LOOKS = 10_000
RNG = random.Random(1)
RECORDS = (b"value",)


class StubRegistration:
    """A registration as a test sets it. `doubted`: the epochs that were reported stale. `store_told`: whether the
    quorum was told of the store."""

    def __init__(self, broker_epoch: int | None = 5) -> None:
        self.broker_id = 7
        self.broker_epoch = broker_epoch
        self.metadata_version = LATEST
        self.founding_id: uuid.UUID | None = FOUNDING
        self.doubted: list[int] = []
        self.store_told = True

    @property
    def store_epoch(self) -> int | None:
        return self.broker_epoch if self.store_told else None

    def doubt_epoch(self, epoch: int) -> None:
        self.doubted.append(epoch)


class FaultyStore(MemoryStore):
    """What befalls the next puts and reads: each is called with the name, and may raise, or give what to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.put_faults: deque[Callable[[str], Any]] = deque()
        self.read_faults: deque[Callable[[str], Any]] = deque()
        self.puts: list[str] = []
        self.reads: list[tuple[str, int, int]] = []

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        self.puts.append(name)
        await _befall(self.put_faults, name)
        await super().put(name, pieces)

    async def read(self, name: str, start: int, length: int) -> bytes:
        self.reads.append((name, start, length))
        await _befall(self.read_faults, name)
        return await super().read(name, start, length)

    async def names(self) -> list[str]:
        """All that is stored."""
        return [one.name for one in await self.list("", "", 1000)]


async def _befall(faults: deque[Callable[[str], Any]], name: str) -> None:
    if faults and (waiting := faults.popleft()(name)) is not None:
        await waiting


def raising(error: Exception) -> Callable[[Any], Any]:
    """A fault that raises."""

    def fault(_: Any) -> None:
        raise error

    return fault


def records(
    sequence: int = -1,
    values: Sequence[bytes] = RECORDS,
    *,
    producer_id: int = 1000,
    epoch: int = 0,
    **options: Any,
) -> memoryview:
    """A batch as a producer sends it; without a sequence, without idempotence."""
    producer = NO_PRODUCER if sequence < 0 else (producer_id, epoch, sequence)
    return memoryview(batch(0, values, producer=producer, **options))


async def stored_headers(store: ObjectStore, leader: LogLeader, log: int) -> dict[int, BatchHeader]:
    """The header of each batch in a log, as it is in the store, by its base offset there."""
    return {
        offset: read_batch_header(memoryview(await store.read(name, position, size)))
        for offset, name, position, size in leader.places(log)
    }


async def until_stored(store: FaultyStore, names: Callable[[list[str]], bool]) -> None:
    """Return once `names` holds for what is stored. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(MAX_LOOKS):
            if names(await store.names()):
                return
            await asyncio.sleep(PAUSE_SECONDS)
    raise TimeoutError
