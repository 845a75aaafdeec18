"""A process with real Kafka clients that write records and read them, until its stdin ends; then all is read once more.

One producer is idempotent, one transactional; one consumer reads everything, one what was committed. All are
librdkafka's, the library whose retries are known best. A value is `PRODUCER.SEQUENCE`, and is produced once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.load.client_errors import passes, text_of
from tests.chaos.load.journal import ActorJournal, clock
from tests.chaos.load.kafka_process import Spec
from tests.chaos.load.kinds import FATAL, FINAL_READ, READ, TRANSACTION, WRITE

PARTITIONS: Final = 8
"""So many that each of two agents leads some, but for one run in 128."""

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"

PACE_SECONDS: Final = 0.1
BURST: Final = 5
"""Records of one partition, so that they are one batch: the quorum keeps a row for each, and has 200,000."""
OUTSTANDING: Final = 100
TRANSACTION_PARTITIONS: Final = 2
TRANSACTION_PAUSE_SECONDS: Final = 0.4
ABORTED: Final = 0.3
TRANSACTION_TIMEOUT_SECONDS: Final = 60.0
LATE_SECONDS: Final = 50.0
"""A transaction that took so long may have been ended because its time was up."""
STEP_SECONDS: Final = 15.0
CONSUME_SECONDS: Final = 0.5
MAX_MESSAGES: Final = 500
FLUSH_SECONDS: Final = 40.0
FINAL_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.5


_EXPECTED: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Before the topic is made there is none."""


class GivenUpError(Exception):
    """An instance cannot go on; the next one takes its place."""


class Taken(NamedTuple):
    """What a consumer took at once: offset and value of each record by partition, and at whose end it is."""

    records: dict[int, list[tuple[int, str]]]
    ended: set[int]


class Client:
    """What all have in common: a journal of their own, and what becomes of errors."""

    def __init__(self, spec: Spec, role: str, stopping: threading.Event) -> None:
        self.name = f"{spec.name}-{role}"
        self.journal = ActorJournal(Path(spec.directory), self.name)
        self.stopping = stopping
        secured = {} if spec.security is None else spec.security.librdkafka()
        self.settings: dict[str, Any] = {"bootstrap.servers": spec.bootstrap, "log_level": 0, **secured}
        self.topic = spec.topic
        self._library = spec.library

    def run(self) -> None:
        """One instance after the other until told to stop."""
        with self.journal:
            while not self.stopping.is_set():
                try:
                    self.work()
                except GivenUpError:
                    self.stopping.wait(RETRY_SECONDS)
            self.finish()

    @abstractmethod
    def work(self) -> None:
        """As one instance, until told to stop. Raises GivenUpError."""

    def finish(self) -> None:
        """When all is over."""

    def judge(self, error: KafkaError, *, excused: bool = False) -> None:
        """Write down an error that no fault explains."""
        raised = KafkaException(error)
        if not (passes(raised) or excused):
            self.journal.ok(self.journal.invoke(FATAL, library=self._library, text=f"{self.name}: {text_of(raised)}"))

    def taken(self, consumer: Consumer) -> Taken:
        """What comes within CONSUME_SECONDS. Raises GivenUpError."""
        found = Taken(defaultdict(list), set())
        for message in consumer.consume(MAX_MESSAGES, CONSUME_SECONDS):
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if error is None:
                assert partition is not None and offset is not None, "a record has a place"
                found.records[partition].append((offset, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None, "an end is that of a partition"
                found.ended.add(partition)
            elif error.code() not in _EXPECTED:
                self.judge(error)
                if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise GivenUpError
        return found


class Writer(Client):
    """Idempotent: what was acknowledged is in the log once, and in order."""

    def __init__(self, spec: Spec, stopping: threading.Event) -> None:
        super().__init__(spec, "writer", stopping)
        self._rng = random.Random(self.name)
        self._broken = False

    def work(self) -> None:
        self._broken = False
        label, sequence = f"w{clock()}", 0
        producer = Producer(self.settings | {"enable.idempotence": True, "linger.ms": 5})
        while not self.stopping.wait(PACE_SECONDS):
            producer.poll(0)
            if self._broken:
                raise GivenUpError
            if len(producer) >= OUTSTANDING:
                continue
            partition = self._rng.randrange(PARTITIONS)
            for _ in range(BURST):
                value = f"{label}.{sequence}"
                number = self.journal.invoke(WRITE, partition=partition, value=value)
                producer.produce(self.topic, value, partition=partition, on_delivery=partial(self._delivered, number))
                sequence += 1
        producer.flush(FLUSH_SECONDS)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.journal.ok(number, {"offset": message.offset()})
            return
        # It may be in the log all the same.
        self.journal.unknown(number, error.str())
        if not self._broken and error.code() != KafkaError._PURGE_QUEUE:
            self.judge(error)
        self._broken = True


class Transactional(Client):
    """One whose transactional id is its name."""

    def __init__(self, spec: Spec, role: str, stopping: threading.Event) -> None:
        super().__init__(spec, role, stopping)
        self._left_open = False
        self._began = 0

    def finish(self) -> None:
        """A transaction that was left open would hide what is behind it: a new instance ends it."""
        if self._left_open:
            with _given_up_is_well():
                self._opened()

    def _opened(self) -> Producer:
        """A new instance. Raises GivenUpError."""
        timeout = {"transaction.timeout.ms": int(TRANSACTION_TIMEOUT_SECONDS * 1000)}
        producer = Producer(self.settings | {"transactional.id": self.name, "linger.ms": 5} | timeout)
        self._began = clock()
        try:
            self._patiently(partial(producer.init_transactions, STEP_SECONDS))
        except KafkaException as error:
            self.judge(error.args[0])
            raise GivenUpError from error
        self._left_open = False
        return producer

    def _patiently(self, step: Callable[[], None]) -> None:
        """Again while the library says that this may help. Raises GivenUpError, and KafkaException to be looked at."""
        deadline = time.monotonic() + TRANSACTION_TIMEOUT_SECONDS
        while True:
            try:
                step()
            except KafkaException as error:
                told = error.args[0]
                if told.txn_requires_abort():
                    raise
                if not told.retriable() or time.monotonic() > deadline:
                    self.judge(told, excused=self._is_excused(told))
                    raise GivenUpError from error
            else:
                return

    def _is_excused(self, error: KafkaError) -> bool:
        """Its time was up."""
        return error.code() == KafkaError._FENCED and clock() - self._began > LATE_SECONDS * 1e9


class Transactor(Transactional):
    """The records of a transaction are there together, or not at all."""

    def __init__(self, spec: Spec, stopping: threading.Event) -> None:
        super().__init__(spec, "transactor", stopping)
        self._rng = random.Random(self.name)

    def work(self) -> None:
        label, sequence = f"t{clock()}", 0
        producer = self._opened()
        while not self.stopping.wait(TRANSACTION_PAUSE_SECONDS):
            partitions = self._rng.sample(range(PARTITIONS), TRANSACTION_PARTITIONS)
            records = [(one, f"{label}.{sequence + place}") for place, one in enumerate(partitions)]
            sequence += len(records)
            self._transaction(producer, records, commits=self._rng.random() >= ABORTED)

    def _transaction(self, producer: Producer, records: list[tuple[int, str]], *, commits: bool) -> None:
        number = self.journal.invoke(TRANSACTION, records=records)
        self._began, self._left_open = clock(), True
        try:
            producer.begin_transaction()
            committed = self._ended(producer, records, commits=commits)
        except GivenUpError:
            self.journal.unknown(number, "given up")
            raise
        except KafkaException as error:
            self.journal.unknown(number, text_of(error))
            self.judge(error.args[0], excused=self._is_excused(error.args[0]))
            raise GivenUpError from error
        self._left_open = False
        self.journal.ok(number, {"committed": committed})

    def _ended(self, producer: Producer, records: list[tuple[int, str]], *, commits: bool) -> bool:
        """Whether it was committed, as was wanted; what goes wrong on the way aborts it."""
        try:
            for partition, value in records:
                producer.produce(self.topic, value, partition=partition)
            if commits:
                self._patiently(partial(producer.commit_transaction, STEP_SECONDS))
                return True
        except KafkaException as error:
            if error.args[0].fatal():
                raise
        self._patiently(partial(producer.abort_transaction, STEP_SECONDS))
        return False


class Reader(Client):
    """Reads from the beginning on, and goes on where it was whatever happens."""

    def __init__(self, spec: Spec, isolation: str, stopping: threading.Event) -> None:
        super().__init__(spec, isolation, stopping)
        self._isolation = isolation
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def work(self) -> None:
        with closing(self._consumer()) as consumer:
            while not self.stopping.is_set():
                for partition, messages in self.taken(consumer).records.items():
                    self._keep(READ, partition, messages)
                    self._next[partition] = messages[-1][0] + 1

    def read_all(self, kind: str = FINAL_READ) -> None:
        """Everything once more, from the beginning, up to the end of each partition. What cannot be read is UNKNOWN."""
        self.journal = ActorJournal(self.journal.directory, f"{self.name}-final")
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        found: dict[int, list[tuple[int, str]]] = defaultdict(list)
        missing = set(range(PARTITIONS))
        with self.journal, closing(self._consumer()) as consumer:
            deadline = time.monotonic() + FINAL_SECONDS
            while missing and time.monotonic() < deadline:
                taken = self.taken(consumer)
                missing -= taken.ended
                for partition, messages in taken.records.items():
                    found[partition] += messages
            for partition in range(PARTITIONS):
                if partition in missing:
                    self.journal.invoke(kind, isolation=self._isolation, partition=partition)
                else:
                    self._keep(kind, partition, found[partition])

    def _consumer(self) -> Consumer:
        # To begin anew somewhere else would hide what was lost.
        reading = {"group.id": self.name, "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer(
            self.settings | reading | {"isolation.level": self._isolation, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(self.topic, partition, offset) for partition, offset in self._next.items()])
        return consumer

    def _keep(self, kind: str, partition: int, messages: list[tuple[int, str]]) -> None:
        number = self.journal.invoke(kind, isolation=self._isolation, partition=partition)
        self.journal.ok(number, {"records": messages})


@contextmanager
def _given_up_is_well() -> Iterator[None]:
    try:
        yield
    except GivenUpError:
        return


async def run(spec: Spec, stdin: Any) -> None:
    """All four, until `stdin` ends; then what was written is settled, and read as a whole."""
    stopping, read_enough = threading.Event(), threading.Event()
    readers = [Reader(spec, isolation, read_enough) for isolation in (COMMITTED, UNCOMMITTED)]
    async with asyncio.TaskGroup() as tasks:
        writing = [tasks.create_task(asyncio.to_thread(one(spec, stopping).run)) for one in (Writer, Transactor)]
        reading = [tasks.create_task(asyncio.to_thread(one.run)) for one in readers]
        await asyncio.to_thread(stdin.read)
        stopping.set()
        await asyncio.gather(*writing)
        read_enough.set()
        await asyncio.gather(*reading)
    await asyncio.gather(*(asyncio.to_thread(one.read_all) for one in readers))


async def _run_and_exit(work: Callable[[Spec, Any], Awaitable[None]], spec: Spec, stdin: Any) -> None:
    await work(spec, stdin)
    # Threads may be in calls of the library that never return, and all that counts is on disk.
    os._exit(0)


def main(work: Callable[[Spec, Any], Awaitable[None]]) -> None:
    """Read the spec, and work until the end of stdin."""
    logging.disable(logging.CRITICAL)
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stdin:
        asyncio.run(_run_and_exit(work, msgspec.json.decode(stdin.readline(), type=Spec), stdin))


if __name__ == "__main__":
    main(run)
