"""Writes what real clients write into a real broker: codecs, transactions, fencing, compaction, wrapped sequences."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import warnings
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer

from tests.support.kafka_broker import HOST, KafkaBroker
from tests.support.segment_builder import batch

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENT: Final = str(32 << 10)
"""`internal.segment.bytes` is Kafka's own setting for tests; `segment.bytes` does not go below 1 MiB."""
WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
KEYS: Final = 20
WRAPPING_PRODUCER: Final = 4_000_000
"""An id of a raw batch, far above any that the broker hands out in a test."""
_PRODUCE, _PRODUCE_VERSION = 0, 3


def write_everything(broker: KafkaBroker) -> None:
    """Fill the topics codecs, stamped, transactions, asynchronous, python, compacted and wrapped."""
    for name in ("codecs", "transactions", "asynchronous", "python", "wrapped"):
        broker.create_topic(name, internal_segment_bytes=SMALL_SEGMENT)
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    _codecs(broker)
    _transactions(broker)
    asyncio.run(_asynchronous(broker))
    _python(broker)
    _wrapped(broker)
    _compacted(broker)


def _producer(broker: KafkaBroker, **settings: object) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 1, **named})


def _write(producer: Producer, topic: str, count: int, *, batches: int = 4, value: bytes = b"v" * 100) -> None:
    for number in range(batches):
        for record in range(count):
            producer.produce(topic, value + str(record).encode(), key=f"key-{(number * count + record) % KEYS}")
        assert producer.flush(WAIT_SECONDS) == 0, f"{topic}: records were not acknowledged in {WAIT_SECONDS:g} s"


def _codecs(broker: KafkaBroker) -> None:
    for codec in CODECS:
        producer = _producer(broker, enable_idempotence=True, compression_type=codec)
        _write(producer, "codecs", 100)
        _write(producer, "stamped", 10)
    _write(_producer(broker, enable_idempotence=False), "codecs", 100, batches=20)


def _transactions(broker: KafkaBroker) -> None:
    """Commits and aborts; then a second instance of the same id fences the first in the middle of a transaction."""
    first = _producer(broker, transactional_id="one", compression_type="lz4")
    first.init_transactions(WAIT_SECONDS)
    for number in range(6):
        first.begin_transaction()
        _write(first, "transactions", 50, batches=2)
        if number % 2:
            first.abort_transaction(WAIT_SECONDS)
        else:
            first.commit_transaction(WAIT_SECONDS)
    first.begin_transaction()
    _write(first, "transactions", 5)
    second = _producer(broker, transactional_id="one")
    second.init_transactions(WAIT_SECONDS)
    second.begin_transaction()
    _write(second, "transactions", 50)
    second.commit_transaction(WAIT_SECONDS)
    try:
        first.commit_transaction(WAIT_SECONDS)
    except KafkaException:
        return
    raise AssertionError("the first instance was not fenced")


async def _asynchronous(broker: KafkaBroker) -> None:
    for codec in (None, "gzip"):
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"async-{codec}", compression_type=codec
        ) as producer:
            for number in range(4):
                await producer.begin_transaction()
                for record in range(20):
                    await producer.send("asynchronous", f"{number} {record}".encode() * 20)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


def _python(broker: KafkaBroker) -> None:
    for codec in (None, "gzip"):
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, compression_type=codec, linger_ms=1
        )
        for number in range(200):
            producer.send("python", f"{number}".encode() * 20)
        producer.flush(WAIT_SECONDS)
        producer.close(WAIT_SECONDS)


def _wrapped(broker: KafkaBroker) -> None:
    """Batches of our own making, which the broker checks before it appends them, across the largest sequence."""
    sequence = (1 << 31) - 1 - 14
    for _ in range(4):
        raw_produce(broker, "wrapped", batch(0, [b"v"] * 10, producer=(WRAPPING_PRODUCER, 0, sequence)))
        sequence = (sequence + 10) % (1 << 31)


def raw_produce(broker: KafkaBroker, topic: str, batches: bytes) -> None:
    """One Produce request with bytes as they are. Raises AssertionError unless the broker takes them."""
    text = topic.encode()
    header = struct.pack(">hhih", _PRODUCE, _PRODUCE_VERSION, 1, -1)
    # No transactional id, acknowledged by all, a time-out; then one topic with one partition.
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">ih", 1, len(text)) + text
    request = header + body + struct.pack(">iii", 1, 0, len(batches)) + batches
    with socket.create_connection((HOST, int(broker.bootstrap.rpartition(":")[2])), WAIT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        # Correlation id, topics, name, partitions, partition, then the error.
        (error,) = struct.unpack_from(">h", answer.read(size), 4 + 4 + 2 + len(text) + 4 + 4)
    assert error == 0, f"the broker refused the batch with error {error}"


def _compacted(broker: KafkaBroker) -> None:
    """Many values a key, tombstones and markers, then wait until the cleaner has been over the closed segments."""
    directory = broker.create_topic(
        "compacted",
        cleanup_policy="compact",
        internal_segment_bytes=SMALL_SEGMENT,
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="60000",
    )
    producer = _producer(broker, transactional_id="compacting")
    producer.init_transactions(WAIT_SECONDS)
    for number in range(6):
        producer.begin_transaction()
        _write(producer, "compacted", 100)
        producer.produce("compacted", None, key=f"gone-{number}")
        producer.commit_transaction(WAIT_SECONDS)
    _wait_for_cleaner(broker.logs / "cleaner-offset-checkpoint", directory)


def _wait_for_cleaner(checkpoint: Path, directory: Path) -> None:
    active = max(int(path.stem) for path in directory.glob("*.log"))
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for line in checkpoint.read_text().splitlines() if checkpoint.exists() else []:
            if line.startswith("compacted 0 ") and int(line.rsplit(" ", 1)[1]) >= active:
                return
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"the cleaner did not come to offset {active} in {WAIT_SECONDS:g} s")
