"""A process that sends one record after the other and waits until a consumer has it: `python -m bench.round_trip_load`.

The producer is idempotent, and the consumer reads with `read_committed`. Both are librdkafka's; the time of a record
is from when the producer takes it until the consumer's application has it.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from bench.figures import quantile_ms
from bench.load_process import serve

RECORD_SECONDS: Final = 20.0
"""When a record is given up."""


class RoundTripSpec(msgspec.Struct, frozen=True):
    """What to do: `records` of `record_bytes` to partition 0 of `topic`, after `warmup` ones that do not count."""

    bootstrap: str
    topic: str
    records: int
    warmup: int
    record_bytes: int


class RoundTripResult(msgspec.Struct, frozen=True):
    """From producer to consumer."""

    p50_ms: float
    p99_ms: float


async def run(spec: RoundTripSpec) -> RoundTripResult:
    """Run the load. Raises RuntimeError for what fails, TimeoutError for a record that does not come."""
    from confluent_kafka import Producer

    producer: Any = Producer(
        {"bootstrap.servers": spec.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
    )
    consumer = _consumer(spec)
    try:
        took = [_seconds(producer, consumer, spec, number) for number in range(spec.warmup + spec.records)]
    finally:
        consumer.close()
    counted = took[spec.warmup :]
    return RoundTripResult(quantile_ms(counted, 0.5), quantile_ms(counted, 0.99))


def _consumer(spec: RoundTripSpec) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(spec.topic, 0, 0)])
    return consumer


def _seconds(producer: Any, consumer: Any, spec: RoundTripSpec, number: int) -> float:
    value = number.to_bytes(8, "big") + bytes(max(0, spec.record_bytes - 8))
    begun = time.perf_counter()
    producer.produce(spec.topic, value, partition=0)
    message = _next(consumer, begun + RECORD_SECONDS)
    took = time.perf_counter() - begun
    if message.value() != value:
        raise RuntimeError(f"record {number}: another one came: {message.value()[:8].hex()}")
    producer.poll(0)
    return took


def _next(consumer: Any, deadline: float) -> Any:
    """The next record. Raises RuntimeError, and TimeoutError if there is none until `deadline`."""
    while (left := deadline - time.perf_counter()) > 0:
        message = consumer.poll(left)
        if message is None:
            break
        if (error := message.error()) is None:
            return message
        raise RuntimeError(f"no record came: {error}")
    raise TimeoutError(f"no record came in {RECORD_SECONDS:g} s")


if __name__ == "__main__":
    serve(RoundTripSpec, run)
