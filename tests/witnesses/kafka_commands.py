"""Kafka's command-line tools: topics, configurations, offsets, the console, the measuring producer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from tests.witnesses.judgement import Known, Outcome, Outcomes, passed
from tests.witnesses.places import Place
from tests.witnesses.programs import java, observed, refusal, run, tool

WITNESS: Final = "Kafka's commands"
TOPIC: Final = "commands"
PARTITIONS: Final = 3
SETTINGS: Final = ("cleanup.policy", "compression.type", "message.timestamp.type", "retention.bytes", "retention.ms")
"""What a topic has here too."""

RECORDS: Final = "".join(f"key-{number}\tvalue-{number}\n" for number in range(30))
THERE: Final = (9, 10, 11)
"""How many of them each partition has: Kafka's clients hash the keys."""

CONSUMER_MS: Final = 20_000
"""After which a consumer gives up on records that do not come."""

MEASURED: Final = 2000
"""Records of the measuring producer: a second of its work."""

GONE_SECONDS: Final = 20.0
GONE_POLL_SECONDS: Final = 0.5

KNOWN: Final = {
    "create with max.message.bytes": Known("a topic has no size of batches of its own", "InvalidConfiguration"),
    "largest batch": Known(
        "an agent's default is 1 MiB, Kafka's is 12 bytes more", "max.message.bytes=1048576", ours="passed"
    ),
    "alter a setting": Known("agents do not serve IncrementalAlterConfigs", "INCREMENTAL_ALTER_CONFIGS"),
    "offsets, earliest local": Known(
        "ListOffsets is served up to version 7", "UnsupportedVersionException", ours="passed"
    ),
    "offsets, latest tiered": Known(
        "ListOffsets is served up to version 7", "UnsupportedVersionException", ours="passed"
    ),
}
OFFSETS: Final = {
    "latest": "-1",
    "earliest": "-2",
    "largest timestamp": "-3",
    "earliest local": "-4",
    "latest tiered": "-5",
    "of the epoch's begin": "0",
    "of the far future": "99999999999999",
}
"""What GetOffsetShell is asked for, as its argument."""


def outcomes(place: Place) -> Outcomes:
    """Of each case. They build on each other: a topic is created, written to, described and deleted."""
    cases = _topics(place) | _console(place) | _offsets(place) | _measuring(place) | _configurations(place)
    return {name: observed(case) for name, case in (cases | _deleting(place)).items()}


def _topics(place: Place) -> dict[str, Callable[[], Outcome]]:
    new = ("--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
    return {
        "create": lambda: passed(_topic(place, *new, "--config", "retention.ms=600000")),
        "create again": lambda: _refused(place, *new),
        "create with a bad name": lambda: _refused(place, "--create", "--topic", "two words"),
        "create with an unknown setting": lambda: _refused(place, "--create", "--topic", "x", "--config", "no.such=1"),
        "create with no partition": lambda: _refused(place, "--create", "--topic", "x", "--partitions", "0"),
        "create with max.message.bytes": lambda: passed(
            _topic(place, "--create", "--topic", "small-batches", "--config", "max.message.bytes=10000")
        ),
        "list": lambda: passed("\n".join(one for one in _topic(place, "--list").splitlines() if one == TOPIC)),
        "describe": lambda: passed(_partitions(_topic(place, "--describe", "--topic", TOPIC))),
        "describe an unknown one": lambda: _refused(place, "--describe", "--topic", "unknown"),
        "delete an unknown one": lambda: _refused(place, "--delete", "--topic", "unknown"),
    }


def _deleting(place: Place) -> dict[str, Callable[[], Outcome]]:
    return {
        "delete": lambda: passed(_topic(place, "--delete", "--topic", TOPIC)),
        "describe a deleted one": lambda: passed(_once_gone(place)),
    }


def _topic(place: Place, *arguments: str, code: int = 0) -> str:
    return tool("TopicCommand", "--bootstrap-server", place.bootstrap, *arguments, code=code)


def _refused(place: Place, *arguments: str) -> Outcome:
    return passed(refusal(_topic(place, *arguments, code=1)))


def _once_gone(place: Place) -> str:
    deadline = time.monotonic() + GONE_SECONDS
    while TOPIC in (listed := _topic(place, "--list").split()) and time.monotonic() < deadline:
        time.sleep(GONE_POLL_SECONDS)
    return "gone" if TOPIC not in listed else "it is still listed"


def _partitions(text: str) -> str:
    """What `describe` says that does not depend on who leads."""
    head = re.search(r"PartitionCount: (\d+)\tReplicationFactor: (\d+)", text)
    rows = re.findall(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\S+)\tIsr: (\S+)", text)
    alone = all(leader == replicas == isr for _, leader, replicas, isr in rows)
    own = [one for one in re.findall(r"[a-z.]+=[^,\s]+", text) if one.startswith("retention")]
    assert head is not None, text
    return f"{head[0]}, {own}, partitions {[row[0] for row in rows]}, each led by its replica: {alone}"


def _console(place: Place) -> dict[str, Callable[[], Outcome]]:
    def everything() -> Outcome:
        return passed("".join(_consumed(place, one, 0, "--offset", "earliest") for one in range(PARTITIONS)))

    committed = ("--isolation-level", "read_committed")
    return {
        "console producer": lambda: passed(_written(place)),
        "console consumer, from the beginning": everything,
        "console consumer, from an offset": lambda: passed(_consumed(place, 1, 3, "--offset", "3")),
        "console consumer, of committed records": lambda: passed(_consumed(place, 2, 0, "--offset", "0", *committed)),
    }


def _written(place: Place) -> str:
    settings = ("--reader-property", "parse.key=true", "--command-property", "acks=all", "--sync")
    return tool("ConsoleProducer", "--bootstrap-server", place.bootstrap, "--topic", TOPIC, *settings, stdin=RECORDS)


def _consumed(place: Place, partition: int, first: int, *arguments: str) -> str:
    """The lines of a partition's records from offset `first` on."""
    shown = [f"--formatter-property=print.{one}=true" for one in ("key", "offset", "partition")]
    where = ("--bootstrap-server", place.bootstrap, "--topic", TOPIC, "--partition", str(partition))
    ends = ("--max-messages", str(THERE[partition] - first), "--timeout-ms", str(CONSUMER_MS))
    text = tool("consumer.ConsoleConsumer", *where, *arguments, *ends, *shown)
    return "".join(line + "\n" for line in text.splitlines() if line.startswith("Partition:"))


def _offsets(place: Place) -> dict[str, Callable[[], Outcome]]:
    def ask(*arguments: str, code: int = 0) -> Outcome:
        text = tool("GetOffsetShell", "--bootstrap-server", place.bootstrap, *arguments, code=code)
        return passed(text.replace("Skip getting offsets for topic-partition ", ""))

    def at(time_: str) -> Callable[[], Outcome]:
        return lambda: ask("--topic", TOPIC, "--time", time_)

    return {f"offsets, {name}": at(argument) for name, argument in OFFSETS.items()} | {
        "offsets, some partitions": lambda: ask("--topic-partitions", f"{TOPIC}:1-"),
        "offsets, unknown topic": lambda: ask("--topic", "unknown", code=1),
    }


def _measuring(place: Place) -> dict[str, Callable[[], Outcome]]:
    def produced() -> Outcome:
        topic = ("--topic", "measured", "--bootstrap-server", place.bootstrap, "--command-property", "acks=all")
        size = ("--num-records", str(MEASURED), "--record-size", "100", "--throughput", "-1")
        told = re.findall(r"^\d+ records sent", tool("ProducerPerformance", *topic, *size), re.MULTILINE)
        ends = tool("GetOffsetShell", "--bootstrap-server", place.bootstrap, "--topic", "measured")
        there = sum(int(line.rsplit(":", 1)[1]) for line in ends.split())
        return passed(f"{told[-1]}, {there} there")

    return {"producer performance": produced}


def _configurations(place: Place) -> dict[str, Callable[[], Outcome]]:
    def configured(kind: str, name: str, *arguments: str) -> dict[str, str]:
        entity = ("--entity-type", kind, "--entity-name", name)
        text = run(java("kafka.admin.ConfigCommand", "--bootstrap-server", place.bootstrap, *arguments, *entity))
        return dict(re.findall(r"^  ([a-z.]+)=(\S*) sensitive", text, re.MULTILINE))

    def of_all(*names: str) -> Outcome:
        found = configured("topics", TOPIC, "--describe", "--all")
        return passed("\n".join(f"{name}={found.get(name)}" for name in names))

    return {
        "describe what a topic sets": lambda: passed(str(configured("topics", TOPIC, "--describe"))),
        "describe a topic's settings": lambda: of_all(*SETTINGS),
        "largest batch": lambda: of_all("max.message.bytes"),
        "describe what a broker sets": lambda: passed(str(configured("brokers", "1", "--describe"))),
        "alter a setting": lambda: passed(
            str(configured("topics", TOPIC, "--alter", "--add-config", "retention.ms=700000"))
        ),
    }
