"""Records as four client libraries write and read them: keys, headers, timestamps, compression, transactions."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import aiokafka
import aiokafka.structs
import confluent_kafka

from tests.clients.java_witness import JavaProcess, codec_jars

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SECONDS: Final = 30.0
"""How long a step may take; never how fast it must be."""

POLL_SECONDS: Final = 0.1
LINGER_MS: Final = 5
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS: Final = ("read_uncommitted", "read_committed")
PARTITIONS: Final = 2
"""Of every topic that is written or read here."""


class Record(NamedTuple):
    """What a client sends. Texts are of one word, without `|`: so the Java client's process takes and tells them."""

    partition: int
    timestamp: int
    key: str
    value: str
    header: tuple[str, str]


class Found(NamedTuple):
    """A record where it is in its partition."""

    offset: int
    record: Record


class Batch(NamedTuple):
    """Records of one transaction; an idempotent producer's are all `committed`."""

    records: Sequence[Record]
    committed: bool = True


class Library(Protocol):
    """One client library. Calls raise what the library raises, and TimeoutError."""

    name: ClassVar[str]

    def codecs(self) -> set[str]:
        """Those of CODECS that it can write and read here."""

    def write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        """Every record of `batches`, in order, with the offset of its acknowledgement."""

    def read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        """All that is there by now, in an order that is right within each partition."""


class Confluent:
    name: ClassVar[str] = "confluent-kafka"

    def codecs(self) -> set[str]:
        return set(CODECS)

    def write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        producer = confluent_producer(bootstrap, transactional_id, {"compression.type": codec, "linger.ms": LINGER_MS})
        if transactional_id:
            producer.init_transactions(SECONDS)
        found = []
        for batch in batches:
            if transactional_id:
                producer.begin_transaction()
            found += confluent_sent(producer, topic, batch.records)
            if transactional_id:
                (producer.commit_transaction if batch.committed else producer.abort_transaction)(SECONDS)
        return found

    def read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "isolation.level": level,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
            return _confluent_read(consumer)
        finally:
            consumer.close()


def confluent_producer(
    bootstrap: str, transactional_id: str | None, settings: dict[str, Any] | None = None
) -> confluent_kafka.Producer:
    """An idempotent producer, without init_transactions."""
    kind = {"transactional.id": transactional_id} if transactional_id else {"enable.idempotence": True}
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    return confluent_kafka.Producer(common | kind | (settings or {}))


def confluent_sent(producer: confluent_kafka.Producer, topic: str, records: Iterable[Record]) -> list[Found]:
    """The records with their offsets, once all are acknowledged. Raises KafkaException for the first that is not."""
    outcomes: list[tuple[Record, Any, Any]] = []

    def keep(error: Any, message: Any, record: Record) -> None:
        outcomes.append((record, error, message))

    for one in records:
        producer.produce(
            topic,
            partition=one.partition,
            timestamp=one.timestamp,
            key=one.key,
            value=one.value,
            headers=[(one.header[0], one.header[1].encode())],
            on_delivery=partial(keep, record=one),
        )
    try:
        waiting = producer.flush(SECONDS)
    except SystemError as wrapped:
        # Version 2.16 may raise a fatal error while it calls back: the interpreter then wraps it.
        cause: BaseException = wrapped
        while isinstance(cause, SystemError) and cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None
    if waiting:
        raise TimeoutError(f"confluent-kafka did not flush within {SECONDS:g} s")
    for _, error, _ in outcomes:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
    return [Found(message.offset(), one) for one, _, message in outcomes]


def _confluent_read(consumer: confluent_kafka.Consumer) -> list[Found]:
    found: list[Found] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + SECONDS
    while len(ended) < PARTITIONS:
        _check(deadline, f"the ends of the partitions, but for {ended}")
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise confluent_kafka.KafkaException(error)
            ended.add(message.partition())
            continue
        headers = message.headers()
        found.append(
            _found(
                message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers
            )
        )
    return found


class KafkaPython:
    name: ClassVar[str] = "kafka-python"

    def codecs(self) -> set[str]:
        return set(CODECS)

    def write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if codec == "none" else codec,
            transactional_id=transactional_id,
            linger_ms=LINGER_MS,
            max_block_ms=SECONDS * 1000,
        )
        try:
            if transactional_id:
                producer.init_transactions()
            found = []
            for batch in batches:
                if transactional_id:
                    producer.begin_transaction()
                found += _kafka_python_sent(producer, topic, batch.records)
                if transactional_id:
                    (producer.commit_transaction if batch.committed else producer.abort_transaction)()
            return found
        finally:
            producer.close(timeout=1)

    def read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","), isolation_level=level, enable_auto_commit=False, group_id=None
        )
        try:
            partitions = [kafka.TopicPartition(topic, one) for one in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            found = []
            deadline = time.monotonic() + SECONDS
            while any(consumer.position(one) < ends[one] for one in partitions):
                _check(deadline, f"records up to {ends}")
                for records in consumer.poll(timeout_ms=POLL_SECONDS * 1000).values():
                    found += [
                        _found(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
                        for one in records
                    ]
            return found
        finally:
            consumer.close()


def _kafka_python_sent(producer: Any, topic: str, records: Iterable[Record]) -> list[Found]:
    sent = [
        (
            one,
            producer.send(
                topic,
                partition=one.partition,
                timestamp_ms=one.timestamp,
                key=one.key.encode(),
                value=one.value.encode(),
                headers=[(one.header[0], one.header[1].encode())],
            ),
        )
        for one in records
    ]
    producer.flush(timeout=SECONDS)
    return [Found(future.get(timeout=SECONDS).offset, one) for one, future in sent]


class Aiokafka:
    name: ClassVar[str] = "aiokafka"

    def codecs(self) -> set[str]:
        return set(CODECS)

    def write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        return asyncio.run(self._write(bootstrap, topic, codec, transactional_id, batches))

    async def _write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            transactional_id=transactional_id,
            enable_idempotence=True,
            linger_ms=LINGER_MS,
        )
        async with asyncio.timeout(SECONDS), producer:
            found = []
            for batch in batches:
                if transactional_id:
                    await producer.begin_transaction()
                found += await _aiokafka_sent(producer, topic, batch.records)
                if transactional_id:
                    await (producer.commit_transaction() if batch.committed else producer.abort_transaction())
            return found

    def read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        return asyncio.run(self._read(bootstrap, topic, level))

    async def _read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=level, enable_auto_commit=False, group_id=None
        )
        partitions = [aiokafka.TopicPartition(topic, one) for one in range(PARTITIONS)]
        consumer.assign(partitions)
        async with asyncio.timeout(SECONDS), consumer:
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            found = []
            while [one for one in partitions if await consumer.position(one) < ends[one]]:
                for records in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
                    found += [
                        _found(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
                        for one in records
                    ]
            return found


async def _aiokafka_sent(producer: Any, topic: str, records: Iterable[Record]) -> list[Found]:
    sent = [
        await producer.send(
            topic,
            partition=one.partition,
            timestamp_ms=one.timestamp,
            key=one.key.encode(),
            value=one.value.encode(),
            headers=[(one.header[0], one.header[1].encode())],
        )
        for one in records
    ]
    return [Found((await future).offset, one) for one, future in zip(records, sent, strict=True)]


class Java:
    name: ClassVar[str] = "Java"

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def codecs(self) -> set[str]:
        return {"none", "gzip"} | {codec for codec in CODECS if any(codec in jar.name for jar in codec_jars())}

    def write(
        self, bootstrap: str, topic: str, codec: str, transactional_id: str | None, batches: Iterable[Batch]
    ) -> list[Found]:
        ask, name = self._process.ask, self._process.new_name()
        ask("open", name, bootstrap, codec, transactional_id or "-")
        if transactional_id:
            ask("init", name)
        found = []
        for batch in batches:
            if transactional_id:
                ask("begin", name)
            found += java_sent(self._process, name, topic, batch.records)
            if transactional_id:
                ask("commit" if batch.committed else "abort", name)
        ask("close", name)
        return found

    def read(self, bootstrap: str, topic: str, level: str) -> list[Found]:
        told = self._process.ask("read", level, bootstrap, topic, str(PARTITIONS)).split()
        return [_java_found(*one.split("|")) for one in told]


def java_sent(process: JavaProcess, name: str, topic: str, records: Sequence[Record]) -> list[Found]:
    """The records with their offsets, once all are acknowledged. Raises JavaError for the first that is not."""
    for one in records:
        process.ask("send", name, topic, str(one.partition), str(one.timestamp), one.key, one.value, *one.header)
    offsets = process.ask("flush", name).split()
    return [Found(int(offset), one) for offset, one in zip(offsets, records, strict=True)]


def _java_found(partition: str, offset: str, timestamp: str, key: str, value: str, *header: str) -> Found:
    header_key, header_value = header
    return Found(int(offset), Record(int(partition), int(timestamp), key, value, (header_key, header_value)))


def _found(partition: Any, offset: Any, timestamp: int, key: Any, value: Any, headers: Any) -> Found:
    ((header_key, header_value),) = headers
    record = Record(partition, timestamp, key.decode(), value.decode(), (header_key, header_value.decode()))
    return Found(offset, record)


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"not within {SECONDS:g} s: {what}")
