"""One course: input, copiers in one group, what is done to them and to what serves, and what came of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.failures import CommandError
from tests.clients.record_witnesses import SECONDS, Record, confluent_producer, confluent_sent
from tests.copying.copier import SESSION_SECONDS, TRANSACTION_MS, Copier, Topics
from tests.copying.endings import Endings, endings
from tests.copying.judgement import wrong
from tests.copying.reading import Level, Reader

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

Answer = TypeVar("Answer")

UNFINISHED: Final = (AssertionError, KafkaException, CommandError)
"""What ends a course before its time."""


class Size(msgspec.Struct, frozen=True):
    """How much is copied by how many, and which faults come how often. `aborts`: whether copiers abort by choice."""

    messages: int = MESSAGES
    copiers: int = COPIERS
    at_copiers: Sequence[str] = AT_COPIERS
    at_servers: int = AT_SERVERS
    aborts: bool = True
    transaction_ms: int = TRANSACTION_MS


class Served(Protocol):
    """Where copiers connect to, host:port with commas between, and what can be done to what serves."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def faults(self) -> Mapping[str, Callable[[], None]]: ...


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

    def __init__(self, place: Served, seed: int, size: Size, directory: Path) -> None:
        self._began = time.monotonic()
        self._seed = seed
        self._place = place
        self._rng = random.Random(seed)
        self._size = size
        self._topics = Topics(f"source-{seed}", f"copies-{seed}", f"copiers-{seed}")
        self._admin = AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})
        self._copiers = [
            Copier(
                number,
                place.bootstrap,
                self._topics,
                directory / f"{self._topics.group}-{number}.log",
                aborts=size.aborts,
                transaction_ms=size.transaction_ms,
            )
            for number in range(size.copiers)
        ]
        # When each of those that stand still goes on.
        self._stopped: dict[Copier, float] = {}
        self.source = [[f"{one}-{number}" for number in range(size.messages)] for one in range(PARTITIONS)]
        self.faults = self._plan()

    def _plan(self) -> list[str]:
        faults = [f"copier {self._rng.randrange(self._size.copiers)} {fault}" for fault in self._size.at_copiers]
        faults += self._rng.choices(sorted(self._place.faults), k=self._size.at_servers)
        self._rng.shuffle(faults)
        return faults

    def copied(self) -> Copied:
        """All of it, and what came of it. A course that comes to no end is judged by what is there."""
        broken, withdrawn = [], None
        try:
            self.write_source()
            self.run()
        except UNFINISHED as error:
            broken.append(f"it came to no end: {error}")
        try:
            found = self.found()
            broken += self._judged(found)
            withdrawn = sum(map(len, self.found("read_uncommitted"))) - sum(map(len, found))
        except UNFINISHED as error:
            broken.append(f"it cannot be judged: {error}")
        return Copied(
            seed=self._seed,
            messages=self._messages,
            withdrawn=withdrawn,
            transactions=endings(copier.printed for copier in self._copiers),
            starts=sum(copier.starts for copier in self._copiers),
            seconds=round(time.monotonic() - self._began, 1),
            faults=self.faults,
            wrong=broken,
        )

    def _judged(self, found: list[list[str]]) -> list[str]:
        """What is wrong with the copies, and with what the group has committed."""
        pairs = zip(self.source, found, strict=True)
        broken = [f"partition {at}: {told}" for at, (one, other) in enumerate(pairs) if (told := wrong(one, other))]
        if (offsets := self.committed()) != self.all:
            broken.append(f"the group has committed {offsets}, and the ends are {self.all}")
        return broken

    def write_source(self) -> None:
        """Both topics, and what is to be copied: nothing is hurt meanwhile."""
        _asked(lambda: self._make(self._topics.source))
        _asked(lambda: self._make(self._topics.target))
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
                self._hurt(target)
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

    def committed(self, *, stable: bool = True) -> list[int]:
        """The offsets that the group has committed, in the order of partitions. `stable`: no transaction holds any."""
        partitions = [TopicPartition(self._topics.source, one) for one in range(PARTITIONS)]
        group = ConsumerGroupTopicPartitions(self._topics.group, partitions)

        def ask() -> list[int]:
            asked = self._admin.list_consumer_group_offsets([group], require_stable=stable)
            found = asked[group.group_id].result(SECONDS).topic_partitions
            if unstable := [one.error for one in found if one.error is not None]:
                raise KafkaException(*unstable)
            return [one.offset for one in found]

        return _asked(ask)

    @property
    def all(self) -> list[int]:
        """The offsets at the end of the source."""
        return [self._size.messages] * PARTITIONS

    def members(self) -> list[str]:
        """Who is in the group, by member id."""
        group = self._topics.group
        described = _asked(lambda: self._admin.describe_consumer_groups([group])[group].result(SECONDS))
        return [one.member_id for one in described.members]

    def _hurt(self, target: Reader) -> None:
        """Do all that is planned, while copies are made."""
        self._go_on_until(target, lambda: target.count > 0)
        for fault in self.faults:
            self._go_on_for(target, self._rng.randint(*GAP_COPIES), self._rng.uniform(*GAP_SECONDS))
            self._do(fault)

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
        return _asked(
            lambda: [
                one.result(SECONDS).offset for one in self._admin.list_offsets(latest, isolation_level=level).values()
            ]
        )

    def _make(self, topic: str) -> None:
        try:
            self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(SECONDS)
        except KafkaException as error:
            # By a request of which nobody was told how it went.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _asked(ask: Callable[[], Answer]) -> Answer:
    """What is answered. Whoever is told that it takes too long asks again, but not for ever."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOOK_SECONDS)
