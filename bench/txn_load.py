"""A process that runs one transaction after the other on each of N connections, in Kafka's protocol.

`python -m bench.txn_load` with a spec on stdin. A transaction is InitProducerId with a transactional id, then
AddPartitionsToTxn, then EndTxn: what a coordinator decides, without any records. The versions are the highest that
Kafka's brokers take from clients of before its second transaction protocol (KIP-890), and that pidkeeper's agents take.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, Tally, run_closed_loop
from bench.load_process import serve
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_request
from pidkeeper.service.kafka.wire.primitives import array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, Versions

CORRELATION_ID: Final = 0x70696421
TIMEOUT_MS: Final = 60_000
NEW: Final = (-1, -1)
"""The pair of a producer that has none."""

COME_AGAIN: Final = {14, 51}
"""COORDINATOR_LOAD_IN_PROGRESS and CONCURRENT_TRANSACTIONS: the transaction before is still being completed."""

PAUSE_SECONDS: Final = 0.005
"""Before such a request is sent again: without it the repetitions would be most of the load."""

_HEAD: Final = struct.Struct(">iiB")
_INIT: Final = struct.Struct(">ihqhB")
_END: Final = struct.Struct(">ihB")
_ADD: Final = struct.Struct(">hBBB")
"""The end of the answer for one partition: its error code, and the tags of partition, topic and body."""

_VERSION: Final = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 3, END_TXN: 3}


class TxnLoadSpec(msgspec.Struct, frozen=True):
    """What to do at the coordinator of all ids: transactions on partition 0 of `topic`, over `connections`.

    The transactional ids are `prefix` and a number.
    """

    host: str
    port: int
    topic: str
    prefix: str
    connections: int
    seconds: float
    warmup: float


def init_frame(transactional_id: str) -> bytes:
    """InitProducerId of an instance that has just begun."""
    body = string(transactional_id, flexible=True) + int32(TIMEOUT_MS) + int64(NEW[0]) + int16(NEW[1])
    return _frame(INIT_PRODUCER_ID, body)


def add_frame(transactional_id: str, pair: tuple[int, int], topic: str) -> bytes:
    """AddPartitionsToTxn for partition 0."""
    partitions = string(topic, flexible=True) + array([int32(0)], flexible=True) + tags(flexible=True)
    return _frame(ADD_PARTITIONS_TO_TXN, _producer(transactional_id, pair) + array([partitions], flexible=True))


def end_frame(transactional_id: str, pair: tuple[int, int]) -> bytes:
    """EndTxn that commits."""
    return _frame(END_TXN, _producer(transactional_id, pair) + b"\x01")


def _producer(transactional_id: str, pair: tuple[int, int]) -> bytes:
    return string(transactional_id, flexible=True) + int64(pair[0]) + int16(pair[1])


def _frame(api: int, body: bytes) -> bytes:
    version = _VERSION[api]
    header = RequestHeader(api, version, CORRELATION_ID, "bench")
    return frame_request(header, Versions(version, version, first_flexible=0), body + tags(flexible=True))


class TxnCaller(Caller):
    """One connection, with a transactional id of its own. What it counts is a producer's pair, as one number."""

    def __init__(self, tally: Tally, transactional_id: str, topic: str) -> None:
        self._id = transactional_id
        self._topic = topic
        self._step: Callable[[bytes], None] = self._initialised
        self._pair = NEW
        self._asked = init_frame(transactional_id)
        super().__init__(self._asked, tally)

    def take(self, data: bytes) -> None:
        """One frame: there is one request at a time."""
        end = 4 + int.from_bytes(data[:4], "big") if len(data) >= _HEAD.size else len(data) + 1
        if len(data) < end:
            self.keep(data)
        elif len(data) > end or _HEAD.unpack_from(data)[1:] != (CORRELATION_ID, 0):
            self.fail(f"not one answer to a transactional request: {data[:60].hex()}")
        else:
            try:
                self._step(data[_HEAD.size :])
            except struct.error as error:
                self.fail(f"{error}: {data[:60].hex()}")

    def _initialised(self, body: bytes) -> None:
        _throttle, error, *pair, _tags = _INIT.unpack(body)
        if self._good(error):
            self._pair = (pair[0], pair[1])
            self._ask(add_frame(self._id, self._pair, self._topic), self._added)

    def _added(self, body: bytes) -> None:
        error, *_ = _ADD.unpack_from(body, len(body) - _ADD.size)
        if self._good(error):
            self._ask(end_frame(self._id, self._pair), self._ended)

    def _ended(self, body: bytes) -> None:
        _throttle, error, _tags = _END.unpack(body)
        if self._good(error):
            self._begin_again(SUCCESS, self._pair[0] << 16 | self._pair[1])

    def _good(self, error: int) -> bool:
        """Whether the next step may follow; otherwise the same one does, or the next transaction."""
        if error in COME_AGAIN:
            self.refused(str(error))
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self.proceed, self._asked)
        elif error:
            self._begin_again(str(error), -1)
        return not error

    def _ask(self, request: bytes, step: Callable[[bytes], None]) -> None:
        self._asked, self._step = request, step
        self.proceed(request)

    def _begin_again(self, status: str, start: int) -> None:
        self._asked, self._step = self._request, self._initialised
        self.answered(status, start)


async def run(spec: TxnLoadSpec) -> LoadResult:
    """Run the load; a latency is that of a whole transaction.

    Raises OSError if a connection is refused, ValueError if no transaction was committed.
    """
    numbers = count()
    return await run_closed_loop(
        spec.host,
        spec.port,
        spec.connections,
        lambda tally: TxnCaller(tally, f"{spec.prefix}-{next(numbers)}", spec.topic),
        warmup=spec.warmup,
        seconds=spec.seconds,
    )


if __name__ == "__main__":
    serve(TxnLoadSpec, run)
