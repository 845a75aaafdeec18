from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pidkeeper.service.access import Access
from pidkeeper.service.kafka import listener as listener_module
from pidkeeper.service.kafka.listener import KafkaListener
from tests.support.kafka_calls import ANSWER_BYTES, Calls

SECONDS = 10.0


class Served:
    """A listener on loopback, in front of calls that the test answers."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.listener = KafkaListener(Access.PRODUCER)
        self._port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        """Made only now, as tests may have changed its limits."""
        self.listener = KafkaListener(Access.PRODUCER)
        self._port = await self.listener.bind("127.0.0.1", 0)
        await self.listener.serve(self.calls)

    async def restart(self, monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
        """With other limits, before anybody has connected."""
        for name, value in limits.items():
            monkeypatch.setattr(listener_module, name, value)
        await self.listener.stop()
        await self.start()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return reader, writer

    async def numbers(self, reader: asyncio.StreamReader, count: int) -> list[int]:
        """Of the next answers."""
        async with asyncio.timeout(SECONDS):
            answers = [await reader.readexactly(ANSWER_BYTES) for _ in range(count)]
        return [int.from_bytes(answer[4:], "big") for answer in answers]

    async def rest(self, reader: asyncio.StreamReader) -> bytes:
        """What comes until the connection ends."""
        received = b""
        try:
            async with asyncio.timeout(SECONDS):
                while data := await reader.read(65536):
                    received += data
        except ConnectionError:
            pass
        return received

    async def stop(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        await self.listener.stop()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.02)
    made = Served()
    await made.start()
    yield made
    await made.stop()
