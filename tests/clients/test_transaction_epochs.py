"""The official client finds `transaction.version` 2 here, and has an epoch for each transaction (KIP-890)."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.java_witness import JavaError, JavaProcess, java_process, why_no_java
from tests.clients.record_witnesses import (
    PARTITIONS,
    SECONDS,
    Aiokafka,
    Batch,
    Confluent,
    KafkaPython,
    Library,
    Record,
    java_sent,
)
from tests.support.cluster import bring_back, restart, restart_leader, running_cluster, wait_until
from tests.support.http_calls import call
from tests.support.transactional_wire import Pair, TransactionalWire

SESSION_TIMEOUT_MS: Final = 2000
HEARTBEAT_INTERVAL_MS: Final = 200
ABORT_CHECK_MS: Final = 100
CALM_SECONDS: Final = 0.5
"""Between two faults, and behind the last: the producer gets somewhere."""

LEAST: Final = 3
"""Transactions of either outcome that must have been for the test to say something, on a slow machine too."""

FENCED: Final = 90


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("epochs"),
        agents=2,
        controller_options={
            "broker_session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_abort_check_ms": ABORT_CHECK_MS,
        },
        agent_options={"heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS},
        data=True,
    ) as one:
        yield one


@pytest.fixture
def cluster(_cluster: LocalCluster) -> LocalCluster:
    bring_back(_cluster)
    return _cluster


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    return ",".join(agent.kafka for agent in cluster.layout.agents)


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS)
    return name


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess]:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    with java_process(tmp_path_factory.mktemp("java"), "RecordWitness") as process:
        yield process


class Producer:
    """One of the official client, whose transactional id is named like its topic."""

    def __init__(self, java: JavaProcess, bootstrap: str, topic: str, timeout_ms: int = 60_000) -> None:
        self._java, self._topic, self._name = java, topic, java.new_name()
        java.ask("set", "transaction.timeout.ms", str(timeout_ms))
        java.ask("open", self._name, bootstrap, "none", topic)
        self.ask("init")

    def ask(self, command: str, *words: str) -> str:
        return self._java.ask(command, self._name, *words)

    def send(self, *values: str) -> None:
        """A record to each partition in turn, and wait until all are acknowledged."""
        java_sent(self._java, self._name, self._topic, list(records(values)))

    @property
    def pair(self) -> Pair:
        producer_id, epoch = self.ask("pair").split()
        return int(producer_id), int(epoch)


def records(values: tuple[str, ...]) -> Iterator[Record]:
    for value, partition in zip(values, itertools.cycle(range(PARTITIONS)), strict=False):
        yield Record(partition, 1_700_000_000_000, "k", value, ("h", "x"))


def committed(bootstrap: str, topic: str) -> list[str]:
    return sorted(found.record.value for found in Confluent().read(bootstrap, topic, "read_committed"))


def described(cluster: LocalCluster, transactional_id: str) -> dict[str, Any]:
    path = f"/v1/transactions/describe?transactional_id={transactional_id}"
    found: dict[str, Any] = call(cluster.leader().http, "GET", path).json()
    return found


def test_each_transaction_has_its_epoch(java: JavaProcess, bootstrap: str, topic: str) -> None:
    producer = Producer(java, bootstrap, topic)
    producer_id, epoch = producer.pair
    for number, end in enumerate(("commit", "abort", "commit", "commit", "abort")):
        producer.ask("begin")
        producer.send(f"{number}-a", f"{number}-b")
        assert producer.pair == (producer_id, epoch + number)
        producer.ask(end)
        assert producer.pair == (producer_id, epoch + number + 1)
    assert committed(bootstrap, topic) == ["0-a", "0-b", "2-a", "2-b", "3-a", "3-b"]


def test_a_group_joins_with_its_offsets(java: JavaProcess, bootstrap: str, topic: str) -> None:
    producer = Producer(java, bootstrap, topic)
    producer_id, epoch = producer.pair
    for number, end in enumerate(("commit", "abort")):
        producer.ask("begin")
        producer.send(str(number))
        producer.ask("offsets", topic, topic, str(number + 1))
        producer.ask(end)
    assert producer.pair == (producer_id, epoch + 2)
    assert _committed_offset(bootstrap, topic) == 1
    assert committed(bootstrap, topic) == ["0"]


def test_a_late_end_touches_nothing_of_the_next_transaction(java: JavaProcess, bootstrap: str, topic: str) -> None:
    producer = Producer(java, bootstrap, topic)
    before = producer.pair
    producer.ask("begin")
    producer.send("first")
    producer.ask("commit")
    producer.ask("begin")
    producer.send("second")
    for agent in bootstrap.split(","):
        with closing(TransactionalWire(agent, topic, topic)) as late:
            assert [late.end(before, committed=outcome).code for outcome in (True, False)] == [FENCED, FENCED]
    producer.ask("commit")
    assert committed(bootstrap, topic) == ["first", "second"]


def test_the_next_instance_fences_the_one_before(java: JavaProcess, bootstrap: str, topic: str) -> None:
    first = Producer(java, bootstrap, topic)
    first.ask("begin")
    first.send("first")
    second = Producer(java, bootstrap, topic)
    with pytest.raises(JavaError, match="ProducerFencedException"):
        first.ask("commit")
    second.ask("begin")
    second.send("second")
    second.ask("commit")
    assert committed(bootstrap, topic) == ["second"]


def test_whose_time_was_up_aborts_and_goes_on(
    cluster: LocalCluster, java: JavaProcess, bootstrap: str, topic: str
) -> None:
    producer = Producer(java, bootstrap, topic, timeout_ms=1000)
    producer_id, epoch = producer.pair
    producer.ask("begin")
    producer.send("late")
    wait_until(lambda: described(cluster, topic)["state"] == "CompleteAbort", "a transaction whose time is up")
    producer.ask("abort")
    producer.ask("begin")
    producer.send("next")
    producer.ask("commit")
    assert producer.pair == (producer_id, epoch + 2)
    assert committed(bootstrap, topic) == ["next"]


@pytest.mark.parametrize("library", [Confluent(), Aiokafka(), KafkaPython()], ids=lambda one: one.name)
def test_older_clients_keep_their_pair_beside_it(
    cluster: LocalCluster, java: JavaProcess, bootstrap: str, topic: str, library: Library
) -> None:
    producer = Producer(java, bootstrap, topic)
    batches = [Batch(list(records((f"{number}-{library.name}",))), number != 1) for number in range(3)]
    producer.ask("begin")
    producer.send("java")
    library.write(bootstrap, topic, "none", f"{topic}-older", batches)
    producer.ask("commit")
    assert committed(bootstrap, topic) == [f"0-{library.name}", f"2-{library.name}", "java"]
    epochs = {name: described(cluster, name)["producer_epoch"] for name in (topic, f"{topic}-older")}
    assert epochs == {topic: 1, f"{topic}-older": 0}


def test_kills_tear_no_transaction(cluster: LocalCluster, java: JavaProcess, bootstrap: str, topic: str) -> None:
    with transactions(Producer(java, bootstrap, topic)) as ended:
        _harm(cluster)
    assert_whole(bootstrap, topic, ended)
    assert described(cluster, topic)["producer_epoch"] >= len(ended)


@contextlib.contextmanager
def transactions(producer: Producer) -> Iterator[dict[int, bool]]:
    """One after the other meanwhile, a third of them aborted. Whether each was committed, by its number."""
    stop, ended = threading.Event(), dict[int, bool]()

    def work() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            producer.ask("begin")
            try:
                producer.send(*records_of(number))
                outcome = number % 3 != 2
                _again(producer, "commit" if outcome else "abort")
                ended[number] = outcome
            except JavaError:
                ended[number] = False
                _again(producer, "abort")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(2 * SECONDS)
    assert not thread.is_alive()


def records_of(number: int) -> list[str]:
    """The values of a transaction."""
    return [f"{number}-{one}" for one in range(2 * PARTITIONS)]


def assert_whole(bootstrap: str, topic: str, ended: dict[int, bool]) -> None:
    """Each transaction that was committed is there with all its records, and nothing else."""
    assert min(list(ended.values()).count(outcome) for outcome in (True, False)) >= LEAST
    whole = [value for number, outcome in ended.items() if outcome for value in records_of(number)]
    assert committed(bootstrap, topic) == sorted(whole)


def _harm(cluster: LocalCluster) -> None:
    """Kill the agents one after the other, and then the leader. All run again at the end."""
    time.sleep(CALM_SECONDS)
    for agent in cluster.layout.agents:
        restart(cluster, agent)
        time.sleep(CALM_SECONDS)
    restart_leader(cluster)
    time.sleep(CALM_SECONDS)


def _again(producer: Producer, end: str) -> None:
    """What the client gave up on for its time, and only that, is to be asked for again."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            producer.ask(end)
        except JavaError as error:
            if "TimeoutException" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return


def _committed_offset(bootstrap: str, topic: str) -> int:
    """Of the group that is named like the topic, in its first partition."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
    assert found.offset is not None, "an answer has one"
    return found.offset
