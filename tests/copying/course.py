"""One course: input, copiers in one group, what is done to them and to what serves, and what came of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.failures import CommandError
from tests.clients.record_witnesses import SECONDS, Record, confluent_producer, confluent_sent
from tests.copying.copier import SESSION_SECONDS, Copier, Topics
from tests.copying.endings import Endings, endings
from tests.copying.judgement import wrong
from tests.copying.reading import Level, Reader
from tests.witnesses.places import Place

PARTITIONS: Final = 4
COPIERS: Final = 3
MESSAGES: Final = 1_000
"""Of each partition."""

KILLED: Final = "is killed"
STANDS_STILL: Final = "stands still"
LEAVES: Final = "leaves"
AT_COPIERS: Final = (KILLED, STANDS_STILL, LEAVES)
AT_SERVERS: Final = 3
"""Faults of what serves; each of AT_COPIERS comes as often."""

GAP_COPIES: Final = (60, 500)
GAP_SECONDS: Final = (0.5, 4.0)
"""From one fault to the next: until so much was copied, or so long, for some hold up all copiers."""

AWAY_SECONDS: Final = SESSION_SECONDS + 2.0
"""So long a copier stands still: others have its partitions when it goes on."""

PATIENCE_SECONDS: Final = 120.0
"""When a course gives up: nothing was copied for so long. It has to be longer than sessions and transactions last."""

LOOK_SECONDS: Final = 0.2

UNFINISHED: Final = (AssertionError, KafkaException, CommandError)
"""What ends a course before its time."""


class Size(msgspec.Struct, frozen=True):
    """How much is copied by how many, and which faults come how often."""

    messages: int = MESSAGES
    copiers: int = COPIERS
    at_copiers: Sequence[str] = AT_COPIERS
    at_servers: int = AT_SERVERS


class Copied(msgspec.Struct, frozen=True):
    """What a course did: `transactions` of its copiers, and how they ended; `starts` of copiers.

    `withdrawn` copies were written, and their transaction aborted: what a client has not sent by then it drops. None if
    they could not be read.
    """

    seed: int
    messages: int
    withdrawn: int | None
    transactions: Endings
    starts: int
    seconds: float
    faults: list[str]
    wrong: list[str]


class Course:
    """Its parts, in the order in which they come. `source`: what is to be copied, by partition; `faults`: its plan."""

    def __init__(self, place: Place, seed: int, size: Size, directory: Path) -> None:
        self._place = place
        self._rng = random.Random(seed)
        self._size = size
        self._topics = Topics(f"source-{seed}", f"copies-{seed}", f"copiers-{seed}")
        self._admin = AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})
        self._copiers = [
            Copier(number, place.bootstrap, self._topics, directory / f"{self._topics.group}-{number}.log")
            for number in range(size.copiers)
        ]
        # When each of those that stand still goes on.
        self._stopped: dict[Copier, float] = {}
        self.source = [[f"{one}-{number}" for number in range(size.messages)] for one in range(PARTITIONS)]
        self.faults = self._plan()

    @property
    def starts(self) -> int:
        return sum(copier.starts for copier in self._copiers)

    @property
    def transactions(self) -> Endings:
        return endings(copier.printed for copier in self._copiers)

    def _plan(self) -> list[str]:
        faults = [f"copier {self._rng.randrange(self._size.copiers)} {fault}" for fault in self._size.at_copiers]
        faults += self._rng.choices(sorted(self._place.faults), k=self._size.at_servers)
        self._rng.shuffle(faults)
        return faults

    def write_source(self) -> None:
        """Both topics, and what is to be copied: nothing is hurt meanwhile."""
        new = [NewTopic(one, PARTITIONS, 1) for one in (self._topics.source, self._topics.target)]
        for made in self._admin.create_topics(new).values():
            made.result(SECONDS)
        # Kafka deletes what is old: at its next start, for one.
        now = int(time.time() * 1000)
        records = [
            Record(partition, now, "key", value, ("header", "x"))
            for partition, values in enumerate(self.source)
            for value in values
        ]
        confluent_sent(confluent_producer(self._place.bootstrap, None), self._topics.source, records)

    def run(self) -> None:
        """All faults, until all is copied and no transaction is open. Raises AssertionError if it comes to no end."""
        with closing(Reader(self._place.bootstrap, self._topics.target, PARTITIONS)) as target:
            try:
                self._go_on_until(target, lambda: target.count > 0)
                for fault in self.faults:
                    self._go_on_for(target, self._rng.randint(*GAP_COPIES), self._rng.uniform(*GAP_SECONDS))
                    self._do(fault)
                self._go_on_until(target, lambda: not self._stopped and target.count >= self._messages)
                for copier in self._copiers:
                    copier.leave()
            finally:
                for copier in self._copiers:
                    copier.kill()
        self._wait_for_open_transactions()

    def found(self, level: Level = "read_committed") -> list[list[str]]:
        """All copies, by partition."""
        with closing(Reader(self._place.bootstrap, self._topics.target, PARTITIONS, level)) as reader:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not reader.at_the_end:
                assert time.monotonic() < deadline, f"the copies are not read after {PATIENCE_SECONDS:g} s"
                reader.read(LOOK_SECONDS)
            return reader.values

    def committed(self) -> list[int]:
        """The offsets that the group has committed, in the order of partitions."""
        partitions = [TopicPartition(self._topics.source, one) for one in range(PARTITIONS)]
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._topics.group, partitions)], require_stable=True
        )
        return [one.offset for one in asked[self._topics.group].result(SECONDS).topic_partitions]

    @property
    def _messages(self) -> int:
        return PARTITIONS * self._size.messages

    def _go_on_until(self, target: Reader, condition: Callable[[], bool]) -> None:
        count, deadline = target.count, time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if target.count > count:
                count, deadline = target.count, time.monotonic() + PATIENCE_SECONDS
            left = self._messages - count
            assert time.monotonic() < deadline, f"{left} are left, and none was copied for {PATIENCE_SECONDS:g} s"
            self._start_copiers()
            for copier in [one for one, until in self._stopped.items() if until <= time.monotonic()]:
                del self._stopped[copier]
                copier.go_on()
            target.read(LOOK_SECONDS)

    def _start_copiers(self) -> None:
        """Those that have ended. One that is done would cost the others a rebalance: it waits until nobody runs."""
        all_ended = not any(copier.runs for copier in self._copiers)
        for copier in self._copiers:
            if not copier.runs and (all_ended or not copier.is_done):
                copier.start()

    def _go_on_for(self, target: Reader, copies: int, seconds: float) -> None:
        count, until = target.count + copies, time.monotonic() + seconds
        self._go_on_until(target, lambda: target.count >= count or time.monotonic() >= until)

    def _do(self, fault: str) -> None:
        if fault in self._place.faults:
            self._place.faults[fault]()
            return
        _, number, what = fault.split(" ", 2)
        copier = self._copiers[int(number)]
        if what == STANDS_STILL:
            self._stopped[copier] = time.monotonic() + AWAY_SECONDS
            copier.stop()
        elif copier not in self._stopped:
            copier.kill() if what == KILLED else copier.leave()

    def _wait_for_open_transactions(self) -> None:
        """Until those that killed copiers left open have ended by their timeouts."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._ends(IsolationLevel.READ_COMMITTED) != self._ends(IsolationLevel.READ_UNCOMMITTED):
            assert time.monotonic() < deadline, f"a transaction is open after {PATIENCE_SECONDS:g} s"
            time.sleep(LOOK_SECONDS)

    def _ends(self, level: IsolationLevel) -> list[int]:
        latest = {TopicPartition(self._topics.target, one): OffsetSpec.latest() for one in range(PARTITIONS)}  # type: ignore[no-untyped-call]
        return [one.result(SECONDS).offset for one in self._admin.list_offsets(latest, isolation_level=level).values()]


def copy(place: Place, seed: int, size: Size, directory: Path) -> Copied:
    """One course; what copiers print goes to `directory`. One that comes to no end is judged by what is there."""
    began = time.monotonic()
    course = Course(place, seed, size, directory)
    broken, withdrawn = [], None
    try:
        course.write_source()
        course.run()
    except UNFINISHED as error:
        broken.append(f"it came to no end: {error}")
    try:
        broken += _judged(course, size)
        withdrawn = sum(map(len, course.found("read_uncommitted"))) - sum(map(len, course.found()))
    except UNFINISHED as error:
        broken.append(f"it cannot be judged: {error}")
    return Copied(
        seed=seed,
        messages=size.messages * PARTITIONS,
        withdrawn=withdrawn,
        transactions=course.transactions,
        starts=course.starts,
        seconds=round(time.monotonic() - began, 1),
        faults=course.faults,
        wrong=broken,
    )


def _judged(course: Course, size: Size) -> list[str]:
    """What is wrong with the copies, and with what the group has committed."""
    pairs = zip(course.source, course.found(), strict=True)
    broken = [f"partition {at}: {told}" for at, (one, other) in enumerate(pairs) if (told := wrong(one, other))]
    if (offsets := course.committed()) != [size.messages] * PARTITIONS:
        broken.append(f"the group has committed {offsets}, and {size.messages} messages are in each partition")
    return broken
