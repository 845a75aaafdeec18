"""One way of one connection through our own proxy, and what the toxics do to its bytes."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tests.chaos.links.proxies import Toxic, ToxicKind

MAX_WAITING_BYTES: Final = 1024 * 1024
"""What waits for a toxic before no more is read from the source."""

BANDWIDTH_STEP_SECONDS: Final = 0.1
"""A piece that takes longer at a limited bandwidth goes in steps of this length."""

_END: Final = b""


class Count:
    """Bytes of one way of a link, of all its connections."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class Pipe:
    """From `source` to `sink`: at once while there is no toxic, else piece by piece through a task.

    Whatever the order in which toxics came, a piece meets them in this one: timeout, reset_peer, latency, slicer,
    bandwidth, limit_data. `reset` resets the whole connection; any other end closes the sink alone, and what the sink
    then does ends the other way.
    """

    def __init__(
        self,
        source: asyncio.Transport,
        sink: asyncio.Transport,
        count: Count,
        toxics: Iterable[Toxic],
        reset: Callable[[], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._count = count
        self._reset = reset
        self._loop = asyncio.get_running_loop()
        self._toxics: dict[ToxicKind, dict[str, int]] = {}
        self._waiting: collections.deque[tuple[float, bytes]] = collections.deque()
        self._waiting_bytes = 0
        self._sink_full = False
        self._limited_bytes = 0
        self._come = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        for toxic in toxics:
            self.add(toxic)

    def add(self, toxic: Toxic) -> None:
        """This connection suffers it from now on, or by chance does not."""
        if random.random() >= toxic.toxicity:
            return
        self._toxics[toxic.kind] = toxic.attributes
        if toxic.kind is ToxicKind.TIMEOUT and toxic.attributes["timeout"] > 0:
            self._timer = self._loop.call_later(toxic.attributes["timeout"] / 1000, self._sink.close)
        self._changed.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def remove(self, kind: ToxicKind) -> None:
        """No longer. What a toxic holds back goes on at once."""
        if self._toxics.pop(kind, None) is None:
            return
        if kind is ToxicKind.LIMIT_DATA:
            self._limited_bytes = 0
        self._changed.set()
        self._come.set()
        if kind is ToxicKind.TIMEOUT:
            self._sink.close()

    def feed(self, data: bytes) -> None:
        """The source has sent this."""
        self._count.received += len(data)
        if self._task is None:
            self._pass(data)
        else:
            self._wait(data)

    def end(self) -> None:
        """The source will send no more."""
        if self._task is None:
            self._sink.close()
        else:
            self._wait(_END)

    def hold(self, full: bool) -> None:
        """The sink takes no more for now, or does again."""
        self._sink_full = full
        self._mind_the_source()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _pass(self, data: bytes) -> None:
        if self._sink.is_closing():
            return
        self._count.sent += len(data)
        self._sink.write(data)

    def _wait(self, data: bytes) -> None:
        self._waiting.append((self._loop.time(), data))
        self._waiting_bytes += len(data)
        self._come.set()
        self._mind_the_source()

    def _mind_the_source(self) -> None:
        if self._source.is_closing():
            return
        if self._sink_full or self._waiting_bytes > MAX_WAITING_BYTES:
            self._source.pause_reading()
        else:
            self._source.resume_reading()

    async def _run(self) -> None:
        while self._toxics or self._waiting:
            if not self._waiting:
                self._come.clear()
                await self._come.wait()
                continue
            arrived, data = self._waiting.popleft()
            await self._suffer(arrived, data)
            self._waiting_bytes -= len(data)
            self._mind_the_source()
        self._task = None

    async def _suffer(self, arrived: float, data: bytes) -> None:
        if data == _END:
            await self._sleep(self._told(ToxicKind.SLOW_CLOSE).get("delay", 0) / 1000)
            self._sink.close()
        elif ToxicKind.TIMEOUT in self._toxics:
            return
        elif (reset := self._toxics.get(ToxicKind.RESET_PEER)) is not None:
            await self._sleep(reset["timeout"] / 1000)
            self._reset()
        else:
            await self._sleep(arrived + self._latency() - self._loop.time())
            await self._pass_in_pieces(data)

    async def _pass_in_pieces(self, data: bytes) -> None:
        for piece in self._pieces(data):
            if (bandwidth := self._toxics.get(ToxicKind.BANDWIDTH)) is not None:
                await self._sleep(len(piece) / 1000 / bandwidth["rate"])
            if (limit := self._toxics.get(ToxicKind.LIMIT_DATA)) is not None:
                passed = piece[: limit["bytes"] - self._limited_bytes]
                self._limited_bytes += len(passed)
                self._pass(passed)
                if self._limited_bytes >= limit["bytes"]:
                    self._sink.close()
                    return
            else:
                self._pass(piece)
            await self._sleep(self._told(ToxicKind.SLICER).get("delay", 0) / 1_000_000)

    def _told(self, kind: ToxicKind) -> dict[str, int]:
        return self._toxics.get(kind, {})

    def _latency(self) -> float:
        told = self._told(ToxicKind.LATENCY)
        return (told.get("latency", 0) + told.get("jitter", 0) * random.uniform(-1, 1)) / 1000

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """As small as slicer and bandwidth want them; all of the rest once neither does any more."""
        begin = 0
        while begin < len(data):
            end = begin + min(self._slice(), self._step(), len(data) - begin)
            yield data[begin:end]
            begin = end

    def _slice(self) -> int:
        if (told := self._toxics.get(ToxicKind.SLICER)) is None:
            return MAX_WAITING_BYTES
        variation = told.get("size_variation", 0)
        return max(1, told["average_size"] + random.randint(-variation, variation))

    def _step(self) -> int:
        if (told := self._toxics.get(ToxicKind.BANDWIDTH)) is None:
            return MAX_WAITING_BYTES
        return int(told["rate"] * 1000 * BANDWIDTH_STEP_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        """So long, or until the toxics change."""
        if seconds <= 0:
            return
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
