"""Kafka's VerifiableConsumer, two of them in one group: they consume all that is written, and commit all of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.record_witnesses import SECONDS, Record, confluent_producer, confluent_sent
from tests.witnesses.judgement import Outcome, Outcomes, failed, passed
from tests.witnesses.places import PARTITIONS, Place
from tests.witnesses.programs import TOOLS, java, observed

WITNESS: Final = "VerifiableConsumer"
CONSUMERS: Final = 2
ROUNDS: Final = 500
"""Of a record for each partition, in peace."""

PAUSE_SECONDS: Final = 0.02
"""Between two rounds while servers are hurt."""

COMMITTED_SECONDS: Final = 120.0
END_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.5


def outcomes(place: Place) -> Outcomes:
    """Of a run in peace, and of one while servers are killed and stopped."""
    return {
        "in peace": observed(lambda: _ran(place, "consumed", None)),
        "while servers are killed and stopped": observed(lambda: _ran(place, "consumed-under-harm", place.harm)),
    }


def _ran(place: Place, topic: str, harm: Callable[[], None] | None) -> Outcome:
    admin = AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(SECONDS)
    producer = confluent_producer(place.bootstrap, None)
    options = ("--topic", topic, "--group-id", topic, "--bootstrap-server", place.bootstrap)
    with tempfile.TemporaryDirectory() as name:
        events = [Path(name) / str(number) for number in range(CONSUMERS)]
        consumers = [_started(java(f"{TOOLS}.VerifiableConsumer", *options), one) for one in events]
        try:
            written = _written(producer, topic, harm)
            _wait_until_committed(admin, topic, written)
            for one in consumers:
                one.terminate()
            codes = [one.wait(END_SECONDS) for one in consumers]
        except subprocess.TimeoutExpired:
            return failed(f"it did not end within {END_SECONDS:g} s")
        finally:
            for one in consumers:
                one.kill()
                one.wait()
        text = "".join(one.read_text() for one in events)
    # The code of a JVM that ended because of SIGTERM.
    if set(codes) != {143}:
        return failed(f"ended with {codes}: {text}")
    return checked(text, written, once=harm is None)


def _started(command: list[str], events: Path) -> subprocess.Popen[bytes]:
    with events.open("wb") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def _written(producer: confluent_kafka.Producer, topic: str, harm: Callable[[], None] | None) -> int:
    """Write to each partition: ROUNDS records, or until the harm is done. How many each partition has."""
    if harm is None:
        for _ in range(ROUNDS):
            _write(producer, topic)
        return ROUNDS
    rounds = 0
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(harm)
        while not done.done():
            _write(producer, topic)
            rounds += 1
            time.sleep(PAUSE_SECONDS)
        done.result()
    return rounds


def _write(producer: confluent_kafka.Producer, topic: str) -> None:
    now = int(time.time() * 1000)
    confluent_sent(producer, topic, [Record(one, now, "key", "value", ("header", "x")) for one in range(PARTITIONS)])


def _wait_until_committed(admin: AdminClient, topic: str, count: int) -> None:
    deadline = time.monotonic() + COMMITTED_SECONDS
    asked = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, one) for one in range(PARTITIONS)])]
    while True:
        told = admin.list_consumer_group_offsets(asked)[topic].result(SECONDS).topic_partitions
        if [one.offset for one in told] == [count] * PARTITIONS:
            return
        assert time.monotonic() < deadline, f"{told} are committed, and {count} are in each partition"
        time.sleep(POLL_SECONDS)


def checked(text: str, count: int, *, once: bool) -> Outcome:
    """What consumers printed of partitions with `count` records each. `once`: nothing may be consumed again."""
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    parts = [part for one in events if one["name"] == "records_consumed" for part in one["partitions"]]
    for partition in range(PARTITIONS):
        of_it = [part for part in parts if part["partition"] == partition]
        if lost := set(range(count)) - set(_offsets(of_it)):
            return failed(f"{len(lost)} records of partition {partition} were not consumed, as {min(lost)}")
        if once and sum(part["count"] for part in of_it) > count:
            return failed(f"records of partition {partition} were consumed more than once")
    return passed("all consumed and committed" + ", each once" * once)


def _offsets(parts: Iterable[dict[str, Any]]) -> Iterable[int]:
    for one in parts:
        yield from range(one["minOffset"], one["maxOffset"] + 1)
