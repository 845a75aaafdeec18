"""Partition logs of a quorum, and segments of a real broker, from real clients with producer IDs of that quorum.

`python -m tests.pipeline.quorum_segments CLUSTER DIR` starts the cluster of that directory once more (one of
`pidkeeper demo --keep`, for example), lets clients write through its agents and then into a broker in DIR, and stops
both; the segments are in DIR/logs. Where no broker can run it says so, and leaves none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pidkeeper.cli.local_cluster import LocalCluster, free_ports
from tests.support.kafka_broker import HOST, KafkaBroker, why_unavailable
from tests.support.quorum_front import SETTINGS, quorum_front

TOPICS: Final = ("orders", "payments")
OWN_TOPICS: Final = ("deliveries", "invoices")
"""Of the quorum's partition logs, so that nobody takes one for a broker's."""
PARTITIONS: Final = 3
SMALL_SEGMENT: Final = str(64 << 10)
WAIT_SECONDS: Final = 60.0
PRODUCERS: Final = 4
BATCHES: Final = 10
RECORDS: Final = 50
TRANSACTIONS: Final = 6
GROUP: Final = "copiers"


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
            write_all(address, *TOPICS)
    finally:
        broker.close()
    return broker.logs


def write_logs(agent: str) -> None:
    """Let the same clients write into partition logs through the agent at that address."""
    admin = AdminClient({"bootstrap.servers": agent})
    created = admin.create_topics([NewTopic(topic, PARTITIONS) for topic in OWN_TOPICS])
    for future in created.values():
        future.result(WAIT_SECONDS)
    write_all(agent, *OWN_TOPICS)
    copy_all(agent, *OWN_TOPICS)


def copy_all(address: str, source: str, target: str) -> None:
    """A group copies records, each part with its offsets in a transaction (KIP-447); every other one is aborted."""
    settings = {"group_id": GROUP, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = Consumer(_named(address, **settings))
    consumer.subscribe([source])
    producer = _producer(address, transactional_id="copying")
    producer.init_transactions(WAIT_SECONDS)
    for number in range(TRANSACTIONS):
        records = consumer.consume(RECORDS, WAIT_SECONDS)
        assert len(records) == RECORDS, records
        producer.begin_transaction()
        for record in records:
            producer.produce(target, record.value())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_SECONDS)
        if number % 2:
            producer.abort_transaction(WAIT_SECONDS)
        else:
            producer.commit_transaction(WAIT_SECONDS)
    consumer.close()


def write_all(address: str, one: str, other: str) -> None:
    """Idempotent producers, one to each of two topics in turn; transactional ones to both."""
    for number in range(PRODUCERS):
        _idempotent(address, (one, other)[number % 2])
    _transactional(address, one, other)
    asyncio.run(_asynchronous(address, one, other))


def _named(address: str, **settings: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": address, "log_level": 0, **named}


def _producer(address: str, **settings: object) -> Producer:
    return Producer(_named(address, linger_ms=1, **settings))


def _write(producer: Producer, *topics: str) -> None:
    for record in range(RECORDS):
        for topic in topics:
            producer.produce(topic, b"v" * 100, key=str(record))
    assert producer.flush(WAIT_SECONDS) == 0, f"{topics}: records were not acknowledged in {WAIT_SECONDS:g} s"


def _idempotent(address: str, topic: str) -> None:
    producer = _producer(address, enable_idempotence=True)
    for _ in range(BATCHES):
        _write(producer, topic)


def _transactional(address: str, *topics: str) -> None:
    """Every other one is aborted. Then a second instance fences the first, and goes on."""
    for _ in range(2):
        producer = _producer(address, transactional_id="billing")
        producer.init_transactions(WAIT_SECONDS)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            _write(producer, *topics)
            if number % 2:
                producer.abort_transaction(WAIT_SECONDS)
            else:
                producer.commit_transaction(WAIT_SECONDS)


async def _asynchronous(address: str, one: str, other: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        for record in range(RECORDS):
            await producer.send_and_wait(one, f"{record}".encode() * 20)
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="shipping") as producer:
        for number in range(TRANSACTIONS):
            await producer.begin_transaction()
            for record in range(RECORDS):
                await producer.send(other, f"{record}".encode() * 20)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


@contextlib.contextmanager
def _running(directory: Path, *, data: bool) -> Iterator[str]:
    """A local cluster while the block runs; where Kafka clients reach one of its agents."""
    cluster = LocalCluster(directory, data=data)
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster.layout.agents[0].kafka
    finally:
        cluster.stop()


def main(arguments: list[str]) -> None:
    """The command line. Ends with an error if a client does not come to its end."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.quorum_segments", description=__doc__)
    parser.add_argument("cluster", type=Path, metavar="CLUSTER")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parsed = parser.parse_args(arguments)
    with _running(parsed.cluster, data=True) as agent:
        write_logs(agent)
    print(f"clients wrote into partition logs, whose store is in {parsed.cluster}", file=sys.stderr)
    if (reason := why_unavailable()) is not None:
        print(f"{reason}; so there are no segments of Kafka", file=sys.stderr)
        return
    # Agents that keep partition logs refuse transactions on topics that are another broker's.
    with _running(parsed.cluster, data=False) as agent:
        logs = write_segments(agent, parsed.directory.resolve())
    print(f"clients wrote with IDs of the quorum into {logs}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
