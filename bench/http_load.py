"""A process that posts one request after the other on each of N connections.

`python -m bench.http_load` with a spec on stdin. A raw client of keep-alive HTTP/1.1, because its cost is taken from
the server's machine: it sends bytes made beforehand, reads answers with a Content-Length only, and keeps every
`producer_id_start`.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from typing import Final, cast

import msgspec

from bench.figures import quantile_ms
from bench.load_process import DRAIN_POLL_SECONDS, DRAIN_POLLS, serve

MAX_HEAD_BYTES: Final = 4096
"""Longest head of an answer; aiohttp's are under 200 bytes."""

_LENGTH_FIELD: Final = b"content-length:"


class LoadSpec(msgspec.Struct, frozen=True):
    """What to do: POST `body` to `path` over `connections`, one request in flight on each."""

    host: str
    port: int
    path: str
    body: str
    connections: int
    seconds: float
    warmup: float


class LoadResult(msgspec.Struct, frozen=True):
    """`rate` (answers with status 200 a second) and the latencies are of the time after the warm-up.

    `client_cpu` is a share of a core in the same time. `statuses`, `starts` and `failures` cover the whole run.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]
    starts: list[int]
    failures: list[str]
    client_cpu: float


class _Answer(msgspec.Struct):
    producer_id_start: int


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


class Tally:
    """What all connections got; `repeat` says whether they go on."""

    def __init__(self) -> None:
        self.starts: array[int] = array("q")
        self.latencies: array[float] = array("d")
        self.statuses: Counter[str] = Counter()
        self.failures: list[str] = []
        self.repeat = True


class LoadConnection(asyncio.Protocol):
    """One caller: sends `request`, waits for the answer, sends it again while the tally says so."""

    _transport: asyncio.Transport

    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request = request
        self._tally = tally
        self._partial = b""
        self._sent = 0.0
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self._tally.failures.append(f"a connection ended with a request in flight: {exc}")
            self.waiting = False

    def send(self) -> None:
        """Send the request."""
        self.waiting = True
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at < 4:
            self._keep(data, len(data) <= MAX_HEAD_BYTES)
            return
        try:
            end = body_at + content_length(data[:body_at])
        except ValueError as error:
            self._fail(str(error))
            return
        if len(data) != end:
            self._keep(data, len(data) < end)
            return
        self._partial = b""
        self._answered(data[9:12], data[body_at:])

    def _answered(self, status: bytes, body: bytes) -> None:
        tally = self._tally
        tally.statuses[status.decode()] += 1
        if status == b"200":
            tally.starts.append(_decode_answer(body).producer_id_start)
            tally.latencies.append(time.perf_counter() - self._sent)
        if tally.repeat:
            self.send()
        else:
            self.waiting = False

    def _keep(self, data: bytes, fits: bool) -> None:
        if fits:
            self._partial = data
        else:
            self._fail(f"{len(data)} bytes are more than one answer")

    def _fail(self, reason: str) -> None:
        self._tally.failures.append(reason)
        self.waiting = False
        self._transport.abort()


def content_length(head: bytes) -> int:
    """The value of Content-Length. Raises ValueError without one."""
    at = head.find(b"Content-Length:")
    if at < 0:
        at = head.lower().find(_LENGTH_FIELD)
    if at < 0:
        raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
    return int(head[at + len(_LENGTH_FIELD) : head.index(b"\r\n", at)])


def request_bytes(spec: LoadSpec) -> bytes:
    """The whole request."""
    body = spec.body.encode()
    head = (
        f"POST {spec.path} HTTP/1.1\r\nHost: {spec.host}:{spec.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run(spec: LoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nothing was answered with 200."""
    tally, request, loop = Tally(), request_bytes(spec), asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: LoadConnection(request, tally), spec.host, spec.port))[1]
        for _ in range(spec.connections)
    ]
    for connection in connections:
        connection.send()
    await asyncio.sleep(spec.warmup)
    started, before, cpu = time.perf_counter(), len(tally.starts), time.process_time()
    await asyncio.sleep(spec.seconds)
    elapsed, answered, cpu = time.perf_counter() - started, len(tally.starts), time.process_time() - cpu
    tally.repeat = False
    for _ in range(DRAIN_POLLS):
        if not any(connection.waiting for connection in connections):
            break
        await asyncio.sleep(DRAIN_POLL_SECONDS)
    if unanswered := sum(connection.waiting for connection in connections):
        tally.failures.append(f"{unanswered} requests were not answered")
    for connection in connections:
        connection.close()
    latencies = tally.latencies[before:answered]
    if not latencies:
        raise ValueError(f"no request was answered with 200: {dict(tally.statuses)}, {tally.failures[:3]}")
    return LoadResult(
        rate=(answered - before) / elapsed,
        p50_ms=quantile_ms(latencies, 0.5),
        p99_ms=quantile_ms(latencies, 0.99),
        statuses=dict(tally.statuses),
        starts=tally.starts.tolist(),
        failures=tally.failures,
        client_cpu=cpu / elapsed,
    )


if __name__ == "__main__":
    serve(LoadSpec, run)
