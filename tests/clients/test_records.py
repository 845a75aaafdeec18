"""Four client libraries write records to a cluster and read what the others wrote: what was acknowledged, no more."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.java_witness import JavaError, JavaProcess, java_process, why_no_java
from tests.clients.record_witnesses import (
    CODECS,
    LEVELS,
    PARTITIONS,
    SECONDS,
    Aiokafka,
    Batch,
    Confluent,
    Found,
    Java,
    KafkaPython,
    Library,
    Record,
    confluent_producer,
    confluent_sent,
    java_sent,
)
from tests.support.cluster import pidkeeper, running_cluster, wait_until

# kafka-python leaves a socket that could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

EACH: Final = 10
"""Records of one batch: enough for batches of more than one record."""

FIRST_MS: Final = 1_700_000_000_000
"""Timestamp of the first record: none that a clock gave."""

OUTCOMES: Final = (True, False, True)
"""Of the transactions: whether they commit."""

ACTIONS: Final = ("send", "commit", "abort")

ROLLED_SOON: Final = {"log_roll_rows": 4, "log_roll_ms": 200}
"""So that what is read comes from tails and from segments."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("records"), agents=2, data=True, controller_options=ROLLED_SOON
    ) as one:
        yield one


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    return ",".join(agent.kafka for agent in cluster.layout.agents)


@pytest.fixture(scope="module")
def _java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess | None]:
    if why_no_java() is not None:
        yield None
        return
    with java_process(tmp_path_factory.mktemp("java"), "RecordWitness") as process:
        yield process


@pytest.fixture
def java(_java: JavaProcess | None) -> JavaProcess:
    if _java is None:
        pytest.skip(str(why_no_java()))
    return _java


@pytest.fixture(scope="module")
def libraries(_java: JavaProcess | None) -> list[Library]:
    """Those that are here: the Java client needs a JDK."""
    python: list[Library] = [Confluent(), Aiokafka(), KafkaPython()]
    return python if _java is None else [*python, Java(_java)]


def make_topic(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS)
    return name


def records(writer: str, kind: str) -> Iterator[Record]:
    """Records that no other call gives, alternating between partitions."""
    for number in itertools.count():
        value = f"{writer}/{kind}/{number}/" + "x" * 100
        yield Record(number % PARTITIONS, FIRST_MS + number, f"key-{number}", value, ("writer", writer))


def batches(writer: str, kind: str, outcomes: Iterable[bool]) -> list[Batch]:
    fresh = records(writer, kind)
    return [Batch(list(itertools.islice(fresh, EACH)), committed) for committed in outcomes]


def in_order(found: Iterable[Found]) -> dict[int, list[Found]]:
    """By partition, as they came."""
    by_partition = defaultdict(list)
    for one in found:
        by_partition[one.record.partition].append(one)
    return dict(by_partition)


def test_librdkafka_lists_all_topics(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "listed")
    listed = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=SECONDS).topics
    assert len(listed[topic].partitions) == PARTITIONS


@pytest.fixture(scope="module", params=CODECS)
def written(
    request: pytest.FixtureRequest, bootstrap: str, libraries: list[Library]
) -> tuple[str, dict[str, dict[int, list[Found]]]]:
    """A topic to which every library wrote with one codec, and what is to be read by isolation level."""
    codec: str = request.param
    topic = make_topic(bootstrap, f"of-{codec}")
    everything: list[Found] = []
    aborted: set[Found] = set()
    for library in libraries:
        if codec in library.codecs():
            everything += library.write(bootstrap, topic, codec, None, batches(library.name, "idempotent", [True]))
            transactions = batches(library.name, "transactional", OUTCOMES)
            found = library.write(bootstrap, topic, codec, f"{library.name}-{codec}", transactions)
            given_up = {record for batch in transactions if not batch.committed for record in batch.records}
            aborted |= {one for one in found if one.record in given_up}
            everything += found
    assert aborted
    kept = [one for one in everything if one not in aborted]
    return codec, {"read_uncommitted": in_order(sorted(everything)), "read_committed": in_order(sorted(kept))}


@pytest.mark.parametrize("level", LEVELS)
def test_every_library_reads_what_every_library_wrote(
    written: tuple[str, dict[str, dict[int, list[Found]]]], level: str, bootstrap: str, libraries: list[Library]
) -> None:
    codec, expected = written
    for library in libraries:
        if codec in library.codecs():
            assert in_order(library.read(bootstrap, f"of-{codec}", level)) == expected[level], library.name


def test_every_library_reads_from_segments_alone(
    cluster: LocalCluster, bootstrap: str, libraries: list[Library]
) -> None:
    topic, writer = make_topic(bootstrap, "rolled"), Confluent()
    everything = writer.write(bootstrap, topic, "gzip", None, batches("rolled", "idempotent", [True]))
    transactions = batches("rolled", "transactional", OUTCOMES)
    everything += writer.write(bootstrap, topic, "gzip", "rolled", transactions)
    wait_until(lambda: all(one["batches"] == 0 for one in _partitions(cluster, topic)), "segments of all there is")
    assert all(one["segments"] >= 1 and one["end"] > EACH for one in _partitions(cluster, topic))
    given_up = {record for batch in transactions if not batch.committed for record in batch.records}
    kept = [one for one in everything if one.record not in given_up]
    for library in libraries:
        for level, expected in zip(LEVELS, (everything, kept), strict=True):
            assert in_order(library.read(bootstrap, topic, level)) == in_order(sorted(expected)), library.name


def _partitions(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    printed = pidkeeper("topics", "describe", topic, "--cluster", cluster.directory, "--output", "json")
    assert printed.returncode == 0, printed.stderr
    partitions: list[dict[str, Any]] = json.loads(printed.stdout)["partitions"]
    return partitions


def test_log_read_prints_what_a_client_reads(
    written: tuple[str, dict[str, dict[int, list[Found]]]], cluster: LocalCluster
) -> None:
    codec, expected = written
    for level, partition, options in zip(LEVELS, range(PARTITIONS), ([], ["--committed"]), strict=True):
        where = ["--partition", str(partition), "--limit", "10000", "--cluster", str(cluster.directory)]
        printed = pidkeeper("log", "read", f"of-{codec}", *options, *where, "--output", "json")
        assert printed.returncode == 0, printed.stderr
        shown = [_shown(partition, json.loads(line)) for line in printed.stdout.splitlines()]
        assert shown == expected[level][partition]


def _shown(partition: int, document: dict[str, Any]) -> Found:
    ((header_key, header_value),) = ((one["key"]["text"], one["value"]["text"]) for one in document["headers"])
    texts = document["key"]["text"], document["value"]["text"], (header_key, header_value)
    return Found(document["offset"], Record(partition, document["timestamp_ms"], *texts))


def test_described_partitions_end_where_clients_see_them_end(cluster: LocalCluster, bootstrap: str) -> None:
    topic = make_topic(bootstrap, "described")
    producer = confluent_producer(bootstrap, "open")
    producer.init_transactions(SECONDS)
    for batch in batches("described", "ended", [True, False]):
        producer.begin_transaction()
        confluent_sent(producer, topic, batch.records)
        (producer.commit_transaction if batch.committed else producer.abort_transaction)(SECONDS)
    producer.begin_transaction()
    confluent_sent(producer, topic, batches("described", "open", [True])[0].records)
    described = {one["partition"]: one for one in _partitions(cluster, topic)}
    for level, field in zip(LEVELS, ("end", "last_stable"), strict=True):
        for partition in range(PARTITIONS):
            start, end = _watermarks(bootstrap, topic, partition, level)
            assert (described[partition]["start"], described[partition][field]) == (start, end)
    each = EACH // PARTITIONS
    assert described[0]["end"] - described[0]["last_stable"] == each
    assert described[0]["last_stable"] == 2 * (each + 1), "two transactions with a marker each"
    producer.abort_transaction(SECONDS)


def _watermarks(bootstrap: str, topic: str, partition: int, level: str) -> tuple[int, int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": level, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    try:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), SECONDS)
        return low, high
    finally:
        consumer.close()


class _ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_producer(bootstrap, transactional_id)
        self._producer.init_transactions(SECONDS)
        self.begin = self._producer.begin_transaction

    def send(self, topic: str, some: list[Record]) -> None:
        confluent_sent(self._producer, topic, some)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS)


class _JavaProducer:
    def __init__(self, process: JavaProcess, bootstrap: str, transactional_id: str) -> None:
        self._process, self._name = process, process.new_name()
        process.ask("open", self._name, bootstrap, "none", transactional_id)
        process.ask("init", self._name)

    def begin(self) -> None:
        self._process.ask("begin", self._name)

    def send(self, topic: str, some: list[Record]) -> None:
        java_sent(self._process, self._name, topic, some)

    def commit(self) -> None:
        self._process.ask("commit", self._name)

    def abort(self) -> None:
        self._process.ask("abort", self._name)


def fenced(error: Exception) -> bool:
    if isinstance(error, JavaError):
        return "ProducerFencedException" in str(error) or "InvalidProducerEpochException" in str(error)
    told = error.args[0]
    return isinstance(told, KafkaError) and (
        told.code() == KafkaError._FENCED or told.code() == KafkaError.INVALID_PRODUCER_EPOCH
    )


def _zombie_story(make: Callable[[str], Any], bootstrap: str, name: str, action: str) -> tuple[Exception, list[Found]]:
    """What the first producer is told after the second one's init, and what read_committed shows afterwards."""
    topic = make_topic(bootstrap, f"zombie-{name}-{action}")
    before, late, good = (batch.records for batch in batches(name, action, [False, False, True]))
    first = make(f"zombie-{name}-{action}")
    first.begin()
    first.send(topic, before)
    second = make(f"zombie-{name}-{action}")
    with pytest.raises((KafkaException, JavaError)) as raised:
        first.send(topic, late) if action == "send" else getattr(first, action)()
    second.begin()
    second.send(topic, good)
    second.commit()
    committed = Confluent().read(bootstrap, topic, "read_committed")
    assert sorted(one.record for one in committed) == sorted(good)
    return raised.value, Confluent().read(bootstrap, topic, "read_uncommitted")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("library", [Confluent.name, Java.name])
def test_a_zombie_is_fenced(library: str, action: str, bootstrap: str, request: pytest.FixtureRequest) -> None:
    def make(transactional_id: str) -> Any:
        if library == Confluent.name:
            return _ConfluentProducer(bootstrap, transactional_id)
        return _JavaProducer(request.getfixturevalue("java"), bootstrap, transactional_id)

    error, everything = _zombie_story(make, bootstrap, library, action)
    assert fenced(error), error
    assert len(everything) == 2 * EACH, "what was sent late was not kept"
