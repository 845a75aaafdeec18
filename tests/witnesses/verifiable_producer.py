"""Kafka's VerifiableProducer: what it was told to be written is in the log exactly once, where it was told."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka

from tests.witnesses.judgement import Outcome, Outcomes, failed, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import TOOLS, java, observed

WITNESS: Final = "VerifiableProducer"
PRODUCER: Final = (
    "acks=all\nenable.idempotence=true\ndelivery.timeout.ms=90000\nrequest.timeout.ms=3000\nretries=2147483647\n"
)
"""Its settings: it waits out what is done to the servers, and gives up on a stopped one after three seconds."""

MESSAGES: Final = 20_000
LONG_MESSAGES: Final = 6_000
PER_SECOND: Final = 200
"""Of the one that goes on meanwhile: half a minute of messages, longer than the harm lasts."""

RUN_SECONDS: Final = 180.0
BEGUN_SECONDS: Final = 30.0
READ_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2


class Written(NamedTuple):
    """Where a message is: its partition and offset, and what it says."""

    partition: int
    offset: int
    value: str


def outcomes(place: Place) -> Outcomes:
    """Of a run in peace, and of one while servers are killed and stopped."""
    return {
        "in peace": observed(lambda: _ran(place, "verified", MESSAGES, -1, None)),
        "while servers are killed and stopped": observed(
            lambda: _ran(place, "verified-under-harm", LONG_MESSAGES, PER_SECOND, place.harm)
        ),
    }


def _ran(place: Place, topic: str, messages: int, per_second: int, harm: Callable[[], None] | None) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        events = Path(name) / "events"
        settings = Path(name) / "producer.properties"
        settings.write_text(PRODUCER)
        options = ("--topic", topic, "--max-messages", str(messages), "--throughput", str(per_second), "--acks", "-1")
        files = ("--command-config", str(settings))
        command = java(f"{TOOLS}.VerifiableProducer", "--bootstrap-server", place.bootstrap, *options, *files)
        with events.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            if harm is not None:
                _wait_for_the_first(events)
                harm()
                if process.poll() is not None:
                    return failed("it ended before the harm did, so it shows nothing")
            code = process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return failed(f"it did not end within {RUN_SECONDS:g} s")
        finally:
            process.kill()
            process.wait()
        text = events.read_text()
    if code != 0:
        return failed(f"ended with {code}: {text}")
    return checked(text, _read(place.bootstrap, topic), messages)


def _wait_for_the_first(events: Path) -> None:
    deadline = time.monotonic() + BEGUN_SECONDS
    while "producer_send_success" not in events.read_text():
        assert time.monotonic() < deadline, f"no message was acknowledged within {BEGUN_SECONDS:g} s"
        time.sleep(POLL_SECONDS)


def checked(text: str, there: list[Written], messages: int) -> Outcome:
    """What the producer printed, against what is in the log."""
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    errors = [one for one in events if one["name"] == "producer_send_error"]
    told = [
        Written(one["partition"], one["offset"], one["value"])
        for one in events
        if one["name"] == "producer_send_success"
    ]
    if errors:
        return failed(f"{len(errors)} messages failed, the first: {errors[0]}")
    if lost := set(told) - set(there):
        return failed(f"{len(lost)} acknowledged messages are not where it was told, as {min(lost)}")
    twice = [value for value, times in Counter(one.value for one in there).items() if times > 1]
    if twice:
        return failed(f"{len(twice)} messages are there more than once, as {twice[0]!r}")
    if len(there) > len(told):
        return failed(f"{len(there)} messages are there, {len(told)} were acknowledged")
    if len(told) != messages:
        return failed(f"{len(told)} of {messages} messages were acknowledged")
    return passed(f"{messages} acknowledged, each there once")


def _read(bootstrap: str, topic: str) -> list[Written]:
    """All that is in the topic, by a consumer that assigns its partitions."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | {"enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, READ_SECONDS).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
        return _until_the_end(consumer, len(partitions))
    finally:
        consumer.close()


def _until_the_end(consumer: confluent_kafka.Consumer, partitions: int) -> list[Written]:
    found: list[Written] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + READ_SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"the topic was not read within {READ_SECONDS:g} s"
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            continue
        if (error := message.error()) is None:
            found.append(_written(message))
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    return found


def _written(message: confluent_kafka.Message) -> Written:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None, "a consumed message has all three"
    return Written(partition, offset, value.decode())
