"""One function for each client library: obtain producer ids over the Kafka wire, and read them back out of it."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.support.waiting import until

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

__all__ = ["KafkaProducer", "aiokafka_ids", "confluent_ids", "kafka_python_ids"]

ONE_ID_SECONDS = 20.0


async def aiokafka_ids(kafka: str, count: int, *, at_once: int = 8) -> list[int]:
    """`count` ids by as many aiokafka producers, `at_once` side by side."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> int:
        async with gate:
            producer = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
            await producer.start()
            try:
                await until(producer._txn_manager.has_pid)
                return int(producer._txn_manager.producer_id)
            finally:
                await producer.stop()

    return list(await asyncio.gather(*(one() for _ in range(count))))


def confluent_ids(kafka: str, count: int) -> list[int]:
    """`count` ids by as many librdkafka producers, read from the statistics (`eos.producer_id`)."""
    found: dict[int, int] = {}

    def take(number: int, statistics: str) -> None:
        producer_id = json.loads(statistics)["eos"]["producer_id"]
        if producer_id >= 0:
            found[number] = producer_id

    settings: dict[str, Any] = {
        "bootstrap.servers": kafka,
        "enable.idempotence": True,
        "statistics.interval.ms": 50,
    }
    producers = [
        Producer(settings | {"stats_cb": lambda statistics, number=number: take(number, statistics)})
        for number in range(count)
    ]
    deadline = time.monotonic() + ONE_ID_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for producer in producers:
            producer.poll(0.01)
    return list(found.values())


def kafka_python_ids(kafka: str, count: int) -> list[int]:
    """`count` ids by as many kafka-python producers, one after the other."""
    return [_kafka_python_id(kafka) for _ in range(count)]


def _kafka_python_id(kafka: str) -> int:
    producer = KafkaProducer(bootstrap_servers=kafka)
    try:
        deadline = time.monotonic() + ONE_ID_SECONDS
        while time.monotonic() < deadline:
            pair = producer._transaction_manager.producer_id_and_epoch
            if pair.is_valid:
                return int(pair.producer_id)
            time.sleep(0.002)
        raise TimeoutError(f"kafka-python got no producer id within {ONE_ID_SECONDS} s")
    finally:
        producer.close(timeout=1)
