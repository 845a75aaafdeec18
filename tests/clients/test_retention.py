"""Real logs lose their beginning, by retention and on demand: clients see it, and segments leave the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.record_witnesses import SECONDS, confluent_producer
from tests.support.cluster import running_cluster, wait_until

SOON: Final = {
    "log_roll_rows": 4,
    "log_roll_ms": 200,
    "log_retention_check_ms": 100,
    "log_segment_delete_delay_ms": 100,
}
VALUE_BYTES: Final = 500
FEW: Final = 3
MANY: Final = 9
BATCH_BYTES: Final = 600
"""Of a record's batch at most."""
RETENTION_BYTES: Final = FEW * BATCH_BYTES
RETENTION_MS: Final = 5_000
"""Longer than it takes until a tail is a segment."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("retention"), agents=1, data=True, controller_options=SOON) as one:
        for topic, config in TOPICS.items():
            make_topic(one, topic, config)
            write(one, topic, FEW)
        yield one


TOPICS: Final[dict[str, dict[str, str]]] = {
    "by-time": {"retention.ms": str(RETENTION_MS), "retention.bytes": "-1"},
    "by-bytes": {"retention.ms": "-1", "retention.bytes": str(RETENTION_BYTES)},
    "on-demand": {"retention.ms": "-1"},
}


def bootstrap(cluster: LocalCluster) -> str:
    return cluster.layout.agents[0].kafka


def make_topic(cluster: LocalCluster, topic: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster), "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(SECONDS)


def write(cluster: LocalCluster, topic: str, count: int) -> None:
    """Records, each in a batch of its own."""
    producer = confluent_producer(bootstrap(cluster), None, {"batch.num.messages": 1})
    for _ in range(count):
        producer.produce(topic, b"x" * VALUE_BYTES, partition=0)
        assert producer.flush(SECONDS) == 0


def segments(cluster: LocalCluster, topic: str) -> set[str]:
    """The files of the topic's segments."""
    return {str(path) for path in (cluster.directory / "store").glob(f"segments/*/*/*/*/{topic}-0/*.log")}


def rolled(cluster: LocalCluster, topic: str) -> set[str]:
    """Once there are any."""
    return wait_until(lambda: segments(cluster, topic), f"a segment of {topic}")


def ends(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Where the log begins, and where it ends, as a client is told."""
    with closing(consumer_of(cluster, "error")) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
    return low, high


def consumer_of(cluster: LocalCluster, reset: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "log_level": 0,
        }
    )


def first_from_the_beginning(cluster: LocalCluster, topic: str, reset: str) -> int | str:
    """The offset of the first record that a consumer gets who asks for offset 0; the error where it gets none."""
    with closing(consumer_of(cluster, reset)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                return offset
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                return error.str()
    raise AssertionError(f"nothing came from {topic}")


def assert_begins_where_it_is_said_to(cluster: LocalCluster, topic: str) -> None:
    """To those who ask for what is gone, too. It may begin later meanwhile."""
    assert "out of range" in str(first_from_the_beginning(cluster, topic, "error")).lower()
    wait_until(
        lambda: first_from_the_beginning(cluster, topic, "earliest") == ends(cluster, topic)[0],
        "a reader that begins where the log does",
    )


def assert_leave_the_store(cluster: LocalCluster, topic: str, gone: set[str]) -> None:
    wait_until(lambda: not gone & segments(cluster, topic), f"the end of segments of {topic}")


def test_retention_by_bytes_drops_segments(cluster: LocalCluster) -> None:
    first = rolled(cluster, "by-bytes")
    assert ends(cluster, "by-bytes") == (0, FEW)
    write(cluster, "by-bytes", MANY)
    wait_until(lambda: ends(cluster, "by-bytes")[0] >= FEW, "a log that begins later")
    assert_begins_where_it_is_said_to(cluster, "by-bytes")
    start, end = ends(cluster, "by-bytes")
    assert end == FEW + MANY
    # As much is left as is to be kept; how much more depends on what was in one segment.
    assert (end - start) * BATCH_BYTES >= RETENTION_BYTES
    assert_leave_the_store(cluster, "by-bytes", first)


def test_records_are_deleted_on_demand(cluster: LocalCluster) -> None:
    first = rolled(cluster, "on-demand")
    write(cluster, "on-demand", MANY)
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster), "log_level": 0})
    asked = TopicPartition("on-demand", 0, FEW + 2)
    (answered,) = admin.delete_records([asked]).values()
    assert answered.result(SECONDS).low_watermark == FEW + 2
    assert ends(cluster, "on-demand") == (FEW + 2, FEW + MANY)
    assert_begins_where_it_is_said_to(cluster, "on-demand")
    # The whole log, as the tools that come with Kafka ask for it.
    (answered,) = admin.delete_records([TopicPartition("on-demand", 0, confluent_kafka.OFFSET_END)]).values()
    assert answered.result(SECONDS).low_watermark == FEW + MANY
    assert_leave_the_store(cluster, "on-demand", first)
    wait_until(lambda: not segments(cluster, "on-demand"), "a topic without segments")


def test_retention_by_time_drops_what_is_too_old(cluster: LocalCluster) -> None:
    first = segments(cluster, "by-time")
    wait_until(lambda: ends(cluster, "by-time") == (FEW, FEW), "an empty log")
    write(cluster, "by-time", 1)
    assert ends(cluster, "by-time") == (FEW, FEW + 1)
    assert_begins_where_it_is_said_to(cluster, "by-time")
    assert_leave_the_store(cluster, "by-time", first)
