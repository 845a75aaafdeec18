"""KIP-447 with librdkafka: a transaction carries a group's offsets, and whoever lost its partitions carries nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.record_witnesses import SECONDS, Record, confluent_producer, confluent_sent
from tests.copying.reading import Reader
from tests.support.cluster import running_cluster

MESSAGES: Final = 10
CONSUMED: Final = 4
"""As many as are taken in the first transaction."""

POLL_SECONDS: Final = 0.1
HELD_POLLS: Final = 10
"""Looks of a new owner that is held back."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = {"groups": {"initial_rebalance_delay_ms": 0}}
    directory = tmp_path_factory.mktemp("groups")
    with running_cluster(directory, agents=2, data=True, agent_options=options) as one:
        yield one


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    return ",".join(agent.kafka for agent in cluster.layout.agents)


@pytest.fixture
def names(request: pytest.FixtureRequest, bootstrap: str) -> tuple[str, str]:
    """A topic of one partition with MESSAGES records, and one for their copies."""
    source = str(request.node.name).replace("_", "-")
    target = f"{source}-copies"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(one, 1, 1) for one in (source, target)]).values():
        made.result(SECONDS)
    confluent_sent(confluent_producer(bootstrap, None), source, [_record(number) for number in range(MESSAGES)])
    return source, target


def test_who_follows_goes_on_behind_what_was_committed(bootstrap: str, names: tuple[str, str]) -> None:
    source, target = names
    with closing(_member(bootstrap, source)) as first:
        producer, metadata = _copied(bootstrap, first, target), first.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(source, 0, CONSUMED)], metadata, SECONDS)
        producer.commit_transaction(SECONDS)
    with closing(_member(bootstrap, source)) as second:
        assert [_next(second) for _ in range(MESSAGES - CONSUMED)] == [*range(CONSUMED, MESSAGES)]
    assert _copies(bootstrap, target) == [*range(CONSUMED)]


def test_who_lost_its_partitions_commits_nothing(bootstrap: str, names: tuple[str, str]) -> None:
    source, target = names
    with closing(_member(bootstrap, source)) as first:
        producer, metadata = _copied(bootstrap, first, target), first.consumer_group_metadata()
    with closing(_member(bootstrap, source)) as second:
        assert _next(second) == 0
        with pytest.raises(KafkaException) as caught:
            producer.send_offsets_to_transaction([TopicPartition(source, 0, CONSUMED)], metadata, SECONDS)
        error = caught.value.args[0]
        assert error.code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}, error
        assert error.txn_requires_abort()
        producer.abort_transaction(SECONDS)
    assert _copies(bootstrap, target) == []
    with closing(_consumer(bootstrap, source)) as asking:
        assert asking.committed([TopicPartition(source, 0)], SECONDS)[0].offset < 0


def test_a_new_owner_waits_for_the_transaction_that_holds_its_offset(bootstrap: str, names: tuple[str, str]) -> None:
    source, target = names
    with closing(_member(bootstrap, source)) as first:
        producer, metadata = _copied(bootstrap, first, target), first.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(source, 0, CONSUMED)], metadata, SECONDS)
    with closing(_member(bootstrap, source)) as second:
        deadline = time.monotonic() + SECONDS
        while not second.assignment():
            assert second.poll(POLL_SECONDS) is None
            assert time.monotonic() < deadline, "it was assigned nothing"
        assert [second.poll(POLL_SECONDS) for _ in range(HELD_POLLS)] == [None] * HELD_POLLS
        producer.commit_transaction(SECONDS)
        assert _next(second) == CONSUMED


def _record(number: int) -> Record:
    return Record(0, 1, "key", str(number), ("header", "x"))


def _consumer(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    return confluent_kafka.Consumer(settings | {"enable.auto.commit": False, "auto.offset.reset": "earliest"})


def _member(bootstrap: str, topic: str) -> confluent_kafka.Consumer:
    """Of the group that is named like the topic."""
    consumer = _consumer(bootstrap, topic)
    consumer.subscribe([topic])
    return consumer


def _copied(bootstrap: str, consumer: confluent_kafka.Consumer, target: str) -> confluent_kafka.Producer:
    """A producer that has copied CONSUMED records in a transaction, which it is in."""
    producer = confluent_producer(bootstrap, target)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    confluent_sent(producer, target, [_record(_next(consumer)) for _ in range(CONSUMED)])
    return producer


def _next(consumer: confluent_kafka.Consumer) -> int:
    """The offset of the next record."""
    deadline = time.monotonic() + SECONDS
    while (message := consumer.poll(POLL_SECONDS)) is None:
        assert time.monotonic() < deadline, f"no record within {SECONDS:g} s"
    assert message.error() is None, message.error()
    offset = message.offset()
    assert offset is not None, "a consumed record has one"
    return offset


def _copies(bootstrap: str, topic: str) -> list[int]:
    """The numbers that were copied and committed."""
    with closing(Reader(bootstrap, topic, 1)) as reader:
        deadline = time.monotonic() + SECONDS
        while not reader.at_the_end:
            assert time.monotonic() < deadline, f"{topic} was not read"
            reader.read(POLL_SECONDS)
        return [int(value) for value in reader.values[0]]
