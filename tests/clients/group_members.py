"""Members of consumer groups by four client libraries: they consume, and commit what they have consumed."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka

from tests.clients.java_witness import JavaError, JavaProcess

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors

SESSION_MS: Final = 8_000
"""Of every member. Short: one that leaves while nobody coordinates is waited for until its session ends."""

HEARTBEAT_MS: Final = 300
BACKOFF_MS: Final = 200
POLL_SECONDS: Final = 0.1
COMMIT_SECONDS: Final = 10
POLLED: Final = 500
"""Records at once."""


class Polled(NamedTuple):
    """Partitions that were assigned anew since the last time, and the (partition, offset) of what was consumed."""

    assigned: list[int]
    records: list[tuple[int, int]]


class Member(Protocol):
    """One member of a group, of one thread. `poll` and `close` raise what the library raises."""

    def poll(self) -> Polled: ...

    def commit(self, offsets: Mapping[int, int]) -> bool:
        """Of each partition the offset to go on from. Whether the group was told to have committed them."""

    def close(self) -> None:
        """Leave the group; a static member of librdkafka stays in it until its session ends."""


Joined = Callable[[str, str, str], Member]
"""By bootstrap, group and topic."""


class Confluent:
    """`settings` are more of librdkafka's."""

    def __init__(self, settings: Mapping[str, str], bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self._assigned: list[int] = []
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "reconnect.backoff.max.ms": BACKOFF_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = confluent_kafka.Consumer(common | dict(settings))
        self._consumer.subscribe([topic], on_assign=self._keep)

    def _keep(self, _: Any, partitions: Iterable[confluent_kafka.TopicPartition]) -> None:
        self._assigned += [one.partition for one in partitions]

    def poll(self) -> Polled:
        records = []
        for one in self._consumer.consume(POLLED, POLL_SECONDS):
            # What it tells of brokers that are gone is no error of the group.
            if one.error() is None:
                partition, offset = one.partition(), one.offset()
                assert partition is not None and offset is not None, "a consumed record has both"
                records.append((partition, offset))
        assigned, self._assigned = self._assigned, []
        return Polled(assigned, records)

    def commit(self, offsets: Mapping[int, int]) -> bool:
        asked = [confluent_kafka.TopicPartition(self._topic, one, offset) for one, offset in offsets.items()]
        try:
            told = self._consumer.commit(offsets=asked, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return told is not None and all(one.error is None for one in told)

    def close(self) -> None:
        self._consumer.close()


class _Listener(kafka.ConsumerRebalanceListener, aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
    """Of both libraries in Python."""

    def __init__(self) -> None:
        self._assigned: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._assigned += [one.partition for one in assigned]

    def taken(self) -> list[int]:
        assigned, self._assigned = self._assigned, []
        return assigned


class KafkaPython:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self._listener = _Listener()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=BACKOFF_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.subscribe([topic], listener=self._listener)

    def poll(self) -> Polled:
        found = self._consumer.poll(timeout_ms=POLL_SECONDS * 1000, max_records=POLLED)
        records = [(one.partition, one.offset) for batch in found.values() for one in batch]
        return Polled(self._listener.taken(), records)

    def commit(self, offsets: Mapping[int, int]) -> bool:
        try:
            self._consumer.commit(
                {
                    kafka.TopicPartition(self._topic, one): kafka.OffsetAndMetadata(offset, "", -1)
                    for one, offset in offsets.items()
                },
                timeout_ms=COMMIT_SECONDS * 1000,
            )
        except kafka.errors.KafkaError:
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """Its tasks run while it is polled."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self._listener = _Listener()
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._start(bootstrap, group))

    async def _start(self, bootstrap: str, group: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            retry_backoff_ms=BACKOFF_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([self._topic], listener=self._listener)
        await consumer.start()
        return consumer

    def poll(self) -> Polled:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=POLLED))
        records = [(one.partition, one.offset) for batch in found.values() for one in batch]
        return Polled(self._listener.taken(), records)

    def commit(self, offsets: Mapping[int, int]) -> bool:
        told = {aiokafka.TopicPartition(self._topic, one): offset for one, offset in offsets.items()}
        try:
            self._runner.run(self._consumer.commit(told))
        except aiokafka.errors.KafkaError:
            return False
        return True

    def close(self) -> None:
        with self._runner:
            self._runner.run(self._stop())

    async def _stop(self) -> None:
        # Where its agent is gone, `stop` ends with the cancellation of a task of its own, and leaves the rest open.
        for step in (self._consumer.stop, self._consumer._fetcher.close, self._consumer._client.close):
            with contextlib.suppress(asyncio.CancelledError):
                await step()


class Java:
    """One of a process that others may share."""

    def __init__(self, process: JavaProcess, bootstrap: str, group: str, topic: str) -> None:
        self._process = process
        self._name = process.new_name()
        process.ask("join", self._name, bootstrap, group, topic, str(SESSION_MS), str(HEARTBEAT_MS))

    def poll(self) -> Polled:
        words = self._process.ask("poll", self._name).split()
        assigned = [int(one[1:]) for one in words if one.startswith("+")]
        pairs = (one.split("|") for one in words if not one.startswith("+"))
        return Polled(assigned, [(int(partition), int(offset)) for partition, offset in pairs])

    def commit(self, _: Mapping[int, int]) -> bool:
        """All that it polled."""
        try:
            self._process.ask("commit", self._name)
        except JavaError:
            return False
        return True

    def close(self) -> None:
        self._process.ask("close", self._name)
