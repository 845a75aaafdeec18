"""Segments of a real broker, from real clients that have their producer IDs from a quorum.

`python -m tests.pipeline.quorum_segments CLUSTER DIR` starts the cluster of that directory once more (one of
`pidkeeper demo --keep`, for example), lets clients write into a broker in DIR, and stops both; the segments are in
DIR/logs. Where no broker can run it says so, and leaves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from pidkeeper.cli.local_cluster import LocalCluster, free_ports
from tests.support.kafka_broker import HOST, KafkaBroker, why_unavailable
from tests.support.quorum_front import SETTINGS, quorum_front

TOPICS: Final = ("orders", "payments")
SMALL_SEGMENT: Final = str(64 << 10)
WAIT_SECONDS: Final = 60.0
PRODUCERS: Final = 4
BATCHES: Final = 10
RECORDS: Final = 50
TRANSACTIONS: Final = 6


def write_segments(agent: str, directory: Path) -> Path:
    """Run a broker in `directory` and let clients write there with IDs of the agent at `agent`; the log directory."""
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    broker = KafkaBroker(directory, {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{address}"})
    try:
        with quorum_front(address, agent, broker.bootstrap):
            broker.start()
            for topic in TOPICS:
                broker.create_topic(topic, internal_segment_bytes=SMALL_SEGMENT)
            for number in range(PRODUCERS):
                _idempotent(address, TOPICS[number % 2])
            _transactional(address)
            asyncio.run(_asynchronous(address))
    finally:
        broker.close()
    return broker.logs


def _producer(address: str, **settings: object) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 1, **named})


def _write(producer: Producer, *topics: str) -> None:
    for record in range(RECORDS):
        for topic in topics:
            producer.produce(topic, b"v" * 100, key=str(record))
    assert producer.flush(WAIT_SECONDS) == 0, f"{topics}: records were not acknowledged in {WAIT_SECONDS:g} s"


def _idempotent(address: str, topic: str) -> None:
    producer = _producer(address, enable_idempotence=True)
    for _ in range(BATCHES):
        _write(producer, topic)


def _transactional(address: str) -> None:
    """Every other one is aborted. Then a second instance fences the first, and goes on."""
    for _ in range(2):
        producer = _producer(address, transactional_id="billing")
        producer.init_transactions(WAIT_SECONDS)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            _write(producer, *TOPICS)
            if number % 2:
                producer.abort_transaction(WAIT_SECONDS)
            else:
                producer.commit_transaction(WAIT_SECONDS)


async def _asynchronous(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        for record in range(RECORDS):
            await producer.send_and_wait(TOPICS[0], f"{record}".encode() * 20)
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="shipping") as producer:
        for number in range(TRANSACTIONS):
            await producer.begin_transaction()
            for record in range(RECORDS):
                await producer.send(TOPICS[1], f"{record}".encode() * 20)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


def main(arguments: list[str]) -> None:
    """The command line. Ends with an error if a client does not come to its end."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.quorum_segments", description=__doc__)
    parser.add_argument("cluster", type=Path, metavar="CLUSTER")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parsed = parser.parse_args(arguments)
    if (reason := why_unavailable()) is not None:
        print(f"{reason}; so there are no segments of Kafka", file=sys.stderr)
        return
    cluster = LocalCluster(parsed.cluster)
    try:
        cluster.start()
        cluster.wait_ready()
        logs = write_segments(cluster.layout.agents[0].kafka, parsed.directory.resolve())
    finally:
        cluster.stop()
    print(f"clients wrote with IDs of the quorum into {logs}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
