"""A process that copies a topic, exactly once, as one of a group: `python -m bench.copy_load` with a spec on stdin.

It has one consumer, and either one transactional producer for all its partitions, as KIP-447 allows, or one for each of
them: before KIP-447 a zombie was fenced by the transactional id of its partition alone. In each round it takes what the
consumer has, and commits what came of a partition with the offset behind it: all at once, or partition by partition.
All processes begin at the same time, with their share of the partitions, and leave only when none works any more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Final

import msgspec

from bench.load_process import serve

CALL_SECONDS: Final = 30.0
LATE_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 3.0
"""For how long a process stays in the group behind the end: others may be in their last round."""

STATISTICS_MS: Final = 200
MAX_ROUND: Final = 2000
"""Records."""

PARTITION_FETCH_BYTES: Final = 16 << 10
"""Of one partition at a time, so that a round has records of all of them, as where they come evenly."""

ROUND_SECONDS: Final = 0.1
"""For how long a round waits for records: Kafka Streams commits as often."""


class CopySpec(msgspec.Struct, frozen=True):
    """What to do as one that has `share` partitions of `source`: copy them to `target` in `group` for `seconds`.

    `starts_at`: in seconds since 1970. `producer_each`: a producer for each partition in place of one. `name`: of this
    process, and of no other one.
    """

    bootstrap: str
    source: str
    target: str
    group: str
    name: str
    share: int
    producer_each: bool
    starts_at: float
    seconds: float


class CopyResult(msgspec.Struct, frozen=True):
    """What was committed in `seconds`, and what the clients sent meanwhile: requests by their name."""

    producers: int
    records: int
    transactions: int
    seconds: float
    requests: dict[str, int]


class Requests:
    """What librdkafka's clients have sent, by their own statistics."""

    def __init__(self) -> None:
        self._sent: dict[str, Counter[str]] = {}

    def heard(self, statistics: str) -> None:
        """The callback of a client."""
        told = json.loads(statistics)
        sent: Counter[str] = Counter()
        for broker in told["brokers"].values():
            sent.update(broker["req"])
        self._sent[told["name"]] = sent

    def all(self) -> Counter[str]:
        """Of all clients, by the name of the request."""
        return sum(self._sent.values(), Counter())


class Copier:
    """A consumer and its producers."""

    def __init__(self, spec: CopySpec) -> None:
        from confluent_kafka import Consumer

        self._spec = spec
        self.requests = Requests()
        self._settings = {
            "bootstrap.servers": spec.bootstrap,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self.requests.heard,
            "log_level": 2,
        }
        reading = {"isolation.level": "read_committed", "max.partition.fetch.bytes": PARTITION_FETCH_BYTES}
        self._consumer: Any = Consumer(self._settings | reading | {"group.id": spec.group, "enable.auto.commit": False})
        self.producers: list[Any] = []
        self._of_partition: dict[int, Any] = {}

    def take_part(self) -> None:
        """Join, make the producers, and read nothing yet. Raises TimeoutError if that lasts beyond the start."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        consumer, source = self._consumer, self._spec.source
        consumer.subscribe([source])
        while len(share := consumer.assignment()) != self._spec.share:
            consumer.poll(ROUND_SECONDS)
            if time.time() > self._spec.starts_at:
                raise TimeoutError(f"{len(share)} partitions, not {self._spec.share}, at the start")
        # Nobody has committed anything yet, and what was read until now is read again by whoever has it.
        share = [TopicPartition(source, one.partition, OFFSET_BEGINNING) for one in share]
        consumer.assign(share)
        consumer.pause(share)
        names = [str(one.partition) if self._spec.producer_each else "all" for one in share]
        made = {name: self._producer(name) for name in set(names)}
        self.producers = list(made.values())
        self._of_partition = {one.partition: made[name] for one, name in zip(share, names, strict=True)}
        self._idle_until(self._spec.starts_at)
        consumer.resume(share)
        if (late := time.time() - self._spec.starts_at) > LATE_SECONDS:
            raise TimeoutError(f"ready {late:.1f} s after the start")

    def round(self) -> tuple[int, int]:
        """Copy what there is: so many records, in so many transactions. Raises RuntimeError for what is no record."""
        parts: dict[Any, list[Any]] = {}
        for message in self._consumer.consume(MAX_ROUND, ROUND_SECONDS):
            if message.error() is not None:
                raise RuntimeError(f"no record came: {message.error()}")
            parts.setdefault(self._of_partition[message.partition()], []).append(message)
        for producer, messages in parts.items():
            self._copy(producer, messages)
        return sum(map(len, parts.values())), len(parts)

    def leave(self) -> None:
        """Read nothing more; and leave the group when others have ended too."""
        self._consumer.pause(self._consumer.assignment())
        self._idle_until(self._spec.starts_at + self._spec.seconds + LEAVE_SECONDS)
        self._consumer.close()

    def _idle_until(self, moment: float) -> None:
        while (left := moment - time.time()) > 0:
            self._consumer.poll(min(left, ROUND_SECONDS))

    def _producer(self, name: str) -> Any:
        from confluent_kafka import Producer

        producer = Producer(self._settings | {"transactional.id": f"{self._spec.name}-{name}", "linger.ms": 5})
        producer.init_transactions(CALL_SECONDS)
        return producer

    def _copy(self, producer: Any, messages: list[Any]) -> None:
        from confluent_kafka import TopicPartition

        producer.begin_transaction()
        for message in messages:
            producer.produce(self._spec.target, message.value(), partition=message.partition())
        behind = {one.partition(): one.offset() + 1 for one in messages}
        offsets = [TopicPartition(self._spec.source, *place) for place in behind.items()]
        producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), CALL_SECONDS)
        producer.commit_transaction(CALL_SECONDS)
        producer.poll(0)


async def run(spec: CopySpec) -> CopyResult:
    """Run the load. Raises what the clients raise: nothing may fail here."""
    copier = Copier(spec)
    copier.take_part()
    before, begun = copier.requests.all(), time.perf_counter()
    records = transactions = 0
    while (took := time.perf_counter() - begun) < spec.seconds:
        copied, ended = copier.round()
        records, transactions = records + copied, transactions + ended
    sent = copier.requests.all()
    sent.subtract(before)
    copier.leave()
    return CopyResult(len(copier.producers), records, transactions, took, dict(+sent))


if __name__ == "__main__":
    serve(CopySpec, run)
