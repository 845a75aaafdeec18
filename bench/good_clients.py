"""A process with a few well-behaved clients, at a pace that leaves the machine idle: `python -m bench.good_clients`.

Each asks for one thing over one connection, waits for the answer and a pause, and asks again. A lost connection is
opened again, and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

import msgspec

from bench.figures import quantile_ms
from bench.http_load import content_length
from bench.load_process import serve
from pidkeeper.cli.kafka_load import ANSWER_BYTES, request_frame

CALL_SECONDS: Final = 10.0
MAX_REASONS: Final = 5


class Ask(msgspec.Struct, frozen=True):
    """What one client does: `method` and `path` with `body` at `address`, or InitProducerId over Kafka's wire without
    them. `anew`: each time over a new connection."""

    name: str
    host: str
    port: int
    method: str = ""
    path: str = ""
    body: str = ""
    anew: bool = False


class GoodSpec(msgspec.Struct, frozen=True):
    """The clients, for how long they ask, and their pause after each answer, in seconds."""

    asks: list[Ask]
    seconds: float
    pause: float


class Served(msgspec.Struct, frozen=True):
    """What one client got: answers, their latencies, and failures by reason."""

    name: str
    answers: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    failures: dict[str, int]


class GoodResult(msgspec.Struct, frozen=True):
    """What each got, and the starts of all blocks and the ids that were handed out."""

    served: list[Served]
    starts: list[int]
    ids: list[int]


class _Answer(msgspec.Struct):
    producer_id_start: int | None = None
    producer_id: int | None = None


class Client:
    """One of them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._request = _http_request(ask) if ask.method else request_frame()
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._latencies: list[float] = []
        self._failures: Counter[str] = Counter()
        self.starts: list[int] = []
        self.ids: list[int] = []

    async def ask_until(self, end: float, pause: float) -> None:
        """Ask again and again."""
        while time.perf_counter() < end:
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._ask_once()
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                self._failures[f"{type(error).__name__}: {error}"[:120]] += 1
                self._hang_up()
            else:
                self._latencies.append(time.perf_counter() - begun)
                if self._ask.anew:
                    self._hang_up()
            await asyncio.sleep(pause)
        self._hang_up()

    def served(self) -> Served:
        """What it got."""
        return Served(
            name=self._ask.name,
            answers=len(self._latencies),
            p50_ms=quantile_ms(self._latencies, 0.5) if self._latencies else float("inf"),
            p99_ms=quantile_ms(self._latencies, 0.99) if self._latencies else float("inf"),
            max_ms=quantile_ms(self._latencies, 1.0) if self._latencies else float("inf"),
            failures=dict(self._failures.most_common(MAX_REASONS)),
        )

    async def _ask_once(self) -> None:
        if self._connection is None:
            self._connection = await asyncio.open_connection(self._ask.host, self._ask.port)
        reader, writer = self._connection
        writer.write(self._request)
        if not self._ask.method:
            answer = await reader.readexactly(ANSWER_BYTES)
            if answer[13:15] != b"\x00\x00":
                raise ValueError(f"error {int.from_bytes(answer[13:15], 'big')}")
            self.ids.append(int.from_bytes(answer[15:23], "big"))
            return
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(content_length(head))
        if head[9:12] != b"200":
            raise ValueError(head[9:12].decode())
        if body.startswith(b"{"):
            self._note(msgspec.json.decode(body, type=_Answer))

    def _note(self, answer: _Answer) -> None:
        if answer.producer_id_start is not None:
            self.starts.append(answer.producer_id_start)
        if answer.producer_id is not None:
            self.ids.append(answer.producer_id)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection[1].transport.abort()
            self._connection = None


def _http_request(ask: Ask) -> bytes:
    head = f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n"
    if ask.body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(ask.body)}\r\n"
    return (head + "\r\n" + ask.body).encode()


async def run(spec: GoodSpec) -> GoodResult:
    """All clients at once."""
    clients = [Client(ask) for ask in spec.asks]
    end = time.perf_counter() + spec.seconds
    await asyncio.gather(*(client.ask_until(end, spec.pause) for client in clients))
    return GoodResult(
        served=[client.served() for client in clients],
        starts=[start for client in clients for start in client.starts],
        ids=[claimed for client in clients for claimed in client.ids],
    )


if __name__ == "__main__":
    serve(GoodSpec, run)
