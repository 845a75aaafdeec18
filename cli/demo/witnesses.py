"""Two real Kafka client libraries, each asking an agent's listener for producer IDs as it would ask a broker."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from pidkeeper.cli.failures import CommandError

AT_ONCE: Final = 8

WITNESS_SECONDS: Final = 30.0
"""How long a client may take to obtain its ID: librdkafka reports it with its statistics, ten times a second."""


async def aiokafka_ids(kafka: str, count: int) -> list[int]:
    """Start `count` idempotent aiokafka producers, AT_ONCE side by side, and read the producer ID back from each."""
    gate = asyncio.Semaphore(AT_ONCE)
    return list(await asyncio.gather(*(_aiokafka_id(kafka, gate) for _ in range(count))))


async def _aiokafka_id(kafka: str, gate: asyncio.Semaphore) -> int:
    from aiokafka import AIOKafkaProducer

    async with gate, asyncio.timeout(WITNESS_SECONDS):
        producer = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
        await producer.start()
        try:
            while not producer._txn_manager.has_pid():  # noqa: ASYNC110 - the library offers no event
                await asyncio.sleep(0.005)
            return int(producer._txn_manager.producer_id)
        finally:
            await producer.stop()


def confluent_ids(kafka: str, count: int) -> list[int]:
    """Start `count` idempotent librdkafka producers at once and read each one's ID from its statistics; blocking.

    Raises CommandError if one gets none in WITNESS_SECONDS.
    """
    from confluent_kafka import Producer

    ids: dict[int, int] = {}

    def on_statistics(number: int, statistics: str) -> None:
        producer_id = json.loads(statistics).get("eos", {}).get("producer_id", -1)
        if producer_id >= 0:
            ids[number] = producer_id

    producers: list[Any] = [
        Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "statistics.interval.ms": 100,
                "log_level": 0,
                "stats_cb": lambda statistics, number=number: on_statistics(number, statistics),
            }
        )
        for number in range(count)
    ]
    deadline = time.monotonic() + WITNESS_SECONDS
    while len(ids) < count:
        if time.monotonic() > deadline:
            raise CommandError(f"only {len(ids)} of {count} confluent-kafka producers got an ID from {kafka}")
        for producer in producers:
            producer.poll(0.01)
    return list(ids.values())
