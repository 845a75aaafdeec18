"""A process that asks for one block after the other on each of N connections, in Kafka's protocol (KIP-730).

`python -m bench.kafka_load` with a spec on stdin. It sends AllocateProducerIds as brokers of other systems do, without
the tagged field of ours, and knows answers without one alone: all of one size.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from bench.closed_loop import SUCCESS, Caller, LoadResult, run_closed_loop
from bench.load_process import serve

CORRELATION_ID: Final = 0x70696421

_REQUEST: Final = struct.Struct(">ihhih5sBiqB")
_ANSWER: Final = struct.Struct(">iiBihqiB")
ANSWER_BYTES: Final = _ANSWER.size
_HEAD: Final = struct.pack(">iiB", _ANSWER.size - 4, CORRELATION_ID, 0)


class KafkaLoadSpec(msgspec.Struct, frozen=True):
    """What to do: ask for blocks of a broker over `connections`, one request in flight on each."""

    host: str
    port: int
    broker_id: int
    broker_epoch: int
    connections: int
    seconds: float
    warmup: float


def request_frame(broker_id: int, broker_epoch: int) -> bytes:
    """AllocateProducerIds, version 0, with request header 2, length field included."""
    rest = (67, 0, CORRELATION_ID, 5, b"bench", 0, broker_id, broker_epoch, 0)
    return _REQUEST.pack(_REQUEST.size - 4, *rest)


def answer_frame(correlation_id: int, start: int, length: int) -> bytes:
    """The answer with a block."""
    return _ANSWER.pack(_ANSWER.size - 4, correlation_id, 0, 0, 0, start, length, 0)


def read_answer(frame: bytes) -> tuple[int, int]:
    """Error code, 0 for none, and the start of the block. Raises ValueError for what is no answer."""
    if len(frame) != _ANSWER.size or not frame.startswith(_HEAD):
        raise ValueError(f"not one answer of AllocateProducerIds v0: {frame[: _ANSWER.size].hex()}")
    *_, error, start, _length, _tags = _ANSWER.unpack(frame)
    return error, start


class KafkaCaller(Caller):
    """One connection of Kafka's protocol."""

    def take(self, data: bytes) -> None:
        """One answer of the only size that there is."""
        if len(data) < _ANSWER.size and _HEAD.startswith(data[: len(_HEAD)]):
            self.keep(data)
            return
        try:
            error, start = read_answer(data)
        except ValueError as reason:
            self.fail(str(reason))
        else:
            self.answered(str(error) if error else SUCCESS, start)


async def run(spec: KafkaLoadSpec) -> LoadResult:
    """Run the load. Raises OSError if a connection is refused, ValueError if nobody got a block."""
    request = request_frame(spec.broker_id, spec.broker_epoch)
    return await run_closed_loop(
        spec.host,
        spec.port,
        spec.connections,
        lambda tally: KafkaCaller(request, tally),
        warmup=spec.warmup,
        seconds=spec.seconds,
    )


if __name__ == "__main__":
    serve(KafkaLoadSpec, run)
