"""Callers that each send one request, wait for its answer and send it again: what both protocols' loads have in common.

Their cost is taken from the server's machine, so they send bytes made beforehand and keep every `producer_id_start`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

import msgspec

from bench.figures import quantile_ms
from bench.load_process import DRAIN_POLL_SECONDS, DRAIN_POLLS

SUCCESS = "200"
"""The status of an answer with a block, in Kafka's protocol as well."""


QUANTILES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""The distribution of latencies, as it is plotted."""


class LoadResult(msgspec.Struct, frozen=True):
    """`rate` (answers with a block a second) and the latencies are of the time after the warm-up.

    `client_cpu` is a share of a core in the same time. `statuses`, `starts` and `failures` cover the whole run.
    `spread_ms`: the latencies at each of QUANTILES.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    spread_ms: list[float]
    statuses: dict[str, int]
    starts: list[int]
    failures: list[str]
    client_cpu: float


class Tally:
    """What all callers got; `repeat` says whether they go on."""

    def __init__(self) -> None:
        self.starts: array[int] = array("q")
        self.latencies: array[float] = array("d")
        self.statuses: Counter[str] = Counter()
        self.failures: list[str] = []
        self.repeat = True


class Caller(asyncio.Protocol, ABC):
    """One caller: sends `request`, waits for the answer, sends it again while the tally says so."""

    _transport: asyncio.Transport

    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request = request
        self._tally = tally
        self._partial = b""
        self._sent = 0.0
        self.waiting = False

    @abstractmethod
    def take(self, data: bytes) -> None:
        """All that has come of an answer: calls `answered` or `fail`, or `keep` while it is not whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self._tally.failures.append(f"a connection ended with a request in flight: {exc}")
            self.waiting = False

    def data_received(self, data: bytes) -> None:
        self.take(self._partial + data if self._partial else data)

    def send(self) -> None:
        """Send the request."""
        self.waiting = True
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def answered(self, status: str, start: int) -> None:
        """A whole answer, with a block from `start` on if it is one."""
        self._partial = b""
        tally = self._tally
        tally.statuses[status] += 1
        if status == SUCCESS:
            tally.starts.append(start)
            tally.latencies.append(time.perf_counter() - self._sent)
        if tally.repeat:
            self.send()
        else:
            self.waiting = False

    def proceed(self, request: bytes) -> None:
        """A whole answer, after which it takes this request as well: the time runs on."""
        self._partial = b""
        if not self._transport.is_closing():
            self._transport.write(request)

    def refused(self, status: str) -> None:
        """A whole answer that is neither a success nor the end of waiting."""
        self._partial = b""
        self._tally.statuses[status] += 1

    def again(self, status: str, request: bytes) -> None:
        """A whole answer, which says that it has to be asked for again: the time runs on, unless the run is over."""
        self.refused(status)
        if self._tally.repeat:
            self.proceed(request)
        else:
            self.waiting = False

    def keep(self, data: bytes) -> None:
        """It goes on."""
        self._partial = data

    def fail(self, reason: str) -> None:
        """It is none."""
        self._tally.failures.append(reason)
        self.waiting = False
        self._transport.abort()


async def run_closed_loop(
    host: str, port: int, callers: int, caller: Callable[[Tally], Caller], *, warmup: float, seconds: float
) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got a block."""
    tally, loop = Tally(), asyncio.get_running_loop()
    connections = [(await loop.create_connection(lambda: caller(tally), host, port))[1] for _ in range(callers)]
    for connection in connections:
        connection.send()
    try:
        return await measure(tally, lambda: sum(one.waiting for one in connections), warmup=warmup, seconds=seconds)
    finally:
        for connection in connections:
            connection.close()


async def measure(tally: Tally, waiting: Callable[[], int], *, warmup: float, seconds: float) -> LoadResult:
    """Look on while callers fill `tally`, then tell them to stop, until none is `waiting` for an answer.

    Raises ValueError if nobody got a block.
    """
    await asyncio.sleep(warmup)
    started, before, cpu = time.perf_counter(), len(tally.starts), time.process_time()
    await asyncio.sleep(seconds)
    elapsed, answered, cpu = time.perf_counter() - started, len(tally.starts), time.process_time() - cpu
    tally.repeat = False
    for _ in range(DRAIN_POLLS):
        if not waiting():
            break
        await asyncio.sleep(DRAIN_POLL_SECONDS)
    if unanswered := waiting():
        tally.failures.append(f"{unanswered} requests were not answered")
    latencies = tally.latencies[before:answered]
    if not latencies:
        raise ValueError(f"no request was answered with a block: {dict(tally.statuses)}, {tally.failures[:3]}")
    return LoadResult(
        rate=(answered - before) / elapsed,
        p50_ms=quantile_ms(latencies, 0.5),
        p99_ms=quantile_ms(latencies, 0.99),
        spread_ms=[quantile_ms(latencies, fraction) for fraction in QUANTILES],
        statuses=dict(tally.statuses),
        starts=tally.starts.tolist(),
        failures=tally.failures,
        client_cpu=cpu / elapsed,
    )
