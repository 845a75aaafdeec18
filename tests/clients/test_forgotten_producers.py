"""Idempotent producers whose state is gone (KIP-360): with silence, and with the topic; as before a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.java_witness import JavaError, JavaProcess, java_process, why_no_java
from tests.clients.record_witnesses import (
    PARTITIONS,
    SECONDS,
    Confluent,
    Found,
    Java,
    Record,
    confluent_producer,
    confluent_sent,
    java_sent,
)
from tests.support.cluster import labelled, running_cluster, wait_until
from tests.support.kafka_broker import KafkaBroker, why_unavailable

EXPIRATION_MS: Final = 1000
"""The least that may be configured."""

EACH: Final = 3
POLL_SECONDS: Final = 0.05
LIBRARIES: Final = (Confluent.name, Java.name)

Send = Callable[[str, list[Record]], list[Found]]
"""Topic, records: with the offsets of their acknowledgements."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = {"producer_id_expiration_ms": EXPIRATION_MS}
    with running_cluster(tmp_path_factory.mktemp("forgotten"), agents=2, data=True, controller_options=options) as one:
        yield one


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    return ",".join(agent.kafka for agent in cluster.layout.agents)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    one = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        one.start()
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess]:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    with java_process(tmp_path_factory.mktemp("java"), "RecordWitness") as process:
        yield process


@pytest.fixture(params=LIBRARIES)
def opened(request: pytest.FixtureRequest) -> Callable[[str], Send]:
    """Opens an idempotent producer of a library, by bootstrap addresses."""

    def by_confluent(bootstrap: str) -> Send:
        producer = confluent_producer(bootstrap, None)
        return lambda topic, records: confluent_sent(producer, topic, records)

    def by_java(bootstrap: str) -> Send:
        process: JavaProcess = request.getfixturevalue("java")
        name = process.new_name()
        process.ask("open", name, bootstrap, "none", "-")
        return lambda topic, records: java_sent(process, name, topic, records)

    if request.param == Java.name:
        request.getfixturevalue("java")
        return by_java
    return by_confluent


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def make_topic(bootstrap: str, name: str) -> None:
    client = admin(bootstrap)
    client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS)


def records(first: int) -> list[Record]:
    return [Record(0, 1_700_000_000_000 + one, "k", f"v{one}", ("h", "x")) for one in range(first, first + EACH)]


def test_a_producer_that_was_forgotten_goes_on(
    opened: Callable[[str], Send], cluster: LocalCluster, bootstrap: str, request: pytest.FixtureRequest
) -> None:
    topic = f"silent-{request.node.callspec.params['opened']}"
    make_topic(bootstrap, topic)
    send = opened(bootstrap)
    sent = send(topic, records(0))
    wait_until(lambda: labelled(cluster.leader(), "pidkeeper_logs_kept")["producers",] == 0, "a forgotten producer")
    sent += send(topic, records(EACH))
    assert [one.offset for one in sent] == list(range(2 * EACH))
    assert Confluent().read(bootstrap, topic, "read_committed") == sent


def test_a_producer_outlives_its_topic_as_before_a_real_broker(
    opened: Callable[[str], Send], bootstrap: str, broker: KafkaBroker, request: pytest.FixtureRequest
) -> None:
    topic = f"anew-{request.node.callspec.params['opened']}"
    expected = _outcome_of_a_new_topic(opened, broker.bootstrap, topic)
    assert _outcome_of_a_new_topic(opened, bootstrap, topic) == expected


def _outcome_of_a_new_topic(opened: Callable[[str], Send], bootstrap: str, topic: str) -> list[Any]:
    """What becomes of records that are sent on after the topic was deleted and created anew, and what is there then."""
    make_topic(bootstrap, topic)
    send = opened(bootstrap)
    send(topic, records(0))
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(SECONDS)
    _create_anew(bootstrap, topic)
    outcome: list[Any] = []
    for first in (EACH, 2 * EACH):
        try:
            outcome.append(send(topic, records(first)))
        except KafkaException as error:
            outcome.append(error.args[0].name())
        except JavaError as error:
            outcome.append(str(error))
    return [*outcome, Confluent().read(bootstrap, topic, "read_uncommitted")]


def _create_anew(bootstrap: str, topic: str) -> None:
    """A deleted topic may be in the way for a while."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return make_topic(bootstrap, topic)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
