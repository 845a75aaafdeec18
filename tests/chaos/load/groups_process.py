"""A process with a member of each of two consumer groups, until its stdin ends: a copier and a follower.

Copiers write what they consume into a topic of its own, in transactions that commit their offsets as well (KIP-447).
Followers commit the offsets of what they have consumed, and nothing else. Both read what was committed. Whoever loses a
partition, or cannot tell what became of a commit, goes on from what its group has committed. The last process copies
all that is left once the others are gone, and reads all copies.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from msgspec.structs import replace

from tests.chaos.load.client_errors import text_of
from tests.chaos.load.journal import clock
from tests.chaos.load.kafka_process import COPIES_TOPIC, Spec
from tests.chaos.load.kinds import COMMIT, FINAL_COPIES, FOUND
from tests.chaos.load.records_process import (
    COMMITTED,
    PARTITIONS,
    STEP_SECONDS,
    Client,
    GivenUpError,
    Reader,
    Transactional,
    main,
)

COPIERS: Final = "copiers"
FOLLOWERS: Final = "followers"

SESSION_SECONDS: Final = 6.0
"""Kafka's least: who stands still for longer is a member no more."""
HEARTBEAT_SECONDS: Final = 0.5

LEFT_SECONDS: Final = 90.0
"""For the last of a group to be given all partitions, and to come to their ends: transactions that were left open have
ended by then."""
LOOK_SECONDS: Final = 0.1

REFUSALS: Final = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"})
"""What a member is told that may not commit."""

_METADATA: Final = struct.Struct("=7si")
_MAGIC: Final = b"CGMDv2:"


class Membership(NamedTuple):
    """`metadata`: as librdkafka gives it, which goes with a transaction. `generation`: -1 of who is no member. The
    quorum cannot tell who was one, so whoever commits under -1 is fenced by nothing (KIP-447)."""

    metadata: Any
    generation: int


class Member:
    """A consumer in `group`. `ended`: the partitions at whose end it is, of those that it was assigned."""

    def __init__(self, client: Client, group: str) -> None:
        self.group = group
        self.ended: set[int] = set()
        self._client = client
        settings = client.settings | {
            "group.id": group,
            "session.timeout.ms": int(SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": int(HEARTBEAT_SECONDS * 1000),
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            # To begin anew somewhere else would hide an offset that was lost.
            "auto.offset.reset": "error",
            "isolation.level": COMMITTED,
            "enable.partition.eof": True,
        }
        self._consumer = Consumer(settings)
        self._consumer.subscribe([client.topic], on_assign=self._assigned, on_revoke=self._revoked)

    @property
    def membership(self) -> Membership:
        """As of now."""
        metadata = self._consumer.consumer_group_metadata()
        magic, generation = _METADATA.unpack_from(metadata)
        assert magic == _MAGIC, f"another format: {magic!r}"
        return Membership(metadata, generation)

    def take(self) -> dict[int, list[tuple[int, str]]]:
        """What comes, by partition: offset and value of each record. Raises GivenUpError."""
        taken = self._client.taken(self._consumer)
        self.ended = self.ended - taken.records.keys() | taken.ended
        return taken.records

    def find(self, partitions: Iterable[int]) -> dict[int, int]:
        """From where its group is to go on. Raises GivenUpError."""
        asked = [TopicPartition(self._client.topic, one) for one in partitions]
        number = self._client.journal.invoke(FOUND, group=self.group, generation=self.membership.generation)
        try:
            told = self._consumer.committed(asked, STEP_SECONDS)
            if (error := next((one.error for one in told if one.error is not None), None)) is not None:
                raise KafkaException(error)
        except KafkaException as error:
            self._client.journal.unknown(number, text_of(error))
            self._client.judge(error.args[0])
            raise GivenUpError from error
        found = {one.partition: max(one.offset, 0) for one in told}
        self._client.journal.ok(number, {"offsets": [*found.items()]})
        return found

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Offsets by themselves. Raises KafkaException."""
        told = self._consumer.commit(offsets=positions(self._client.topic, offsets), asynchronous=False)
        error = next((one.error for one in told or () if one.error is not None), None)
        if error is not None:
            raise KafkaException(error)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.ended.clear()
        found = self.find(one.partition for one in partitions) if partitions else {}
        consumer.assign(positions(self._client.topic, found))

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self.ended.clear()
        consumer.unassign()


def positions(topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
    """As librdkafka wants them."""
    return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]


def behind(taken: Mapping[int, list[tuple[int, str]]]) -> dict[int, int]:
    """The offsets to go on from."""
    return {partition: records[-1][0] + 1 for partition, records in taken.items()}


class Copier(Transactional):
    """Copies each record once, into the same partition."""

    def __init__(self, spec: Spec, stopping: threading.Event) -> None:
        super().__init__(spec, "copier", stopping)
        self.ended: frozenset[int] = frozenset()

    def work(self) -> None:
        self.ended = frozenset()
        producer = self._opened()
        with closing(Member(self, COPIERS)) as member:
            while not self.stopping.is_set():
                if taken := member.take():
                    self._copy(producer, member, taken)
                self.ended = frozenset(member.ended)
            member.find(range(PARTITIONS))

    def _copy(self, producer: Producer, member: Member, taken: Mapping[int, list[tuple[int, str]]]) -> None:
        """In one transaction. Raises GivenUpError: the consumer is ahead then of what its group has committed."""
        membership, offsets = member.membership, behind(taken)
        if membership.generation < 0:
            raise GivenUpError
        number = self.journal.invoke(
            COMMIT, group=COPIERS, generation=membership.generation, offsets=[*offsets.items()]
        )
        self._began, self._left_open = clock(), True
        try:
            producer.begin_transaction()
            for partition, records in taken.items():
                for _, value in records:
                    producer.produce(COPIES_TOPIC, value, partition=partition)
            where = positions(self.topic, offsets)
            send = partial(producer.send_offsets_to_transaction, where, membership.metadata, STEP_SECONDS)
            self._patiently(partial(_come_back, send))
            self._patiently(partial(producer.commit_transaction, STEP_SECONDS))
        except GivenUpError:
            self.journal.unknown(number, "given up")
            raise
        except KafkaException as error:
            self._withdraw(producer, number, error)
            raise GivenUpError from error
        self._left_open = False
        self.journal.ok(number)

    def _withdraw(self, producer: Producer, number: int, error: KafkaException) -> None:
        """What went wrong aborts the transaction, unless it ends the producer. Raises GivenUpError."""
        try:
            if not error.args[0].txn_requires_abort():
                raise error
            self._patiently(partial(producer.abort_transaction, STEP_SECONDS))
        except GivenUpError:
            self.journal.unknown(number, text_of(error))
            raise
        except KafkaException as fatal:
            self.journal.unknown(number, text_of(error))
            self.judge(fatal.args[0], excused=self._is_excused(fatal.args[0]))
        else:
            self._left_open = False
            self.journal.refuse(number, error.args[0].name())


def _come_back(step: Callable[[], None]) -> None:
    """Do a step of librdkafka, which may not keep to its own time: it waits for ever for the coordinator of a group
    that went while the offsets of a transaction were added, once Metadata names it no more (2.16.0).

    Raises what the step raises, and GivenUpError: the instance and its thread are left as they are.
    """
    done: Future[None] = Future()

    def work() -> None:
        try:
            step()
        except KafkaException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    try:
        done.result(STEP_SECONDS + 1.0)
    except TimeoutError as error:
        raise GivenUpError from error


class Follower(Client):
    """Commits what it has consumed."""

    def __init__(self, spec: Spec, stopping: threading.Event) -> None:
        super().__init__(spec, "follower", stopping)
        self.ended: frozenset[int] = frozenset()

    def work(self) -> None:
        self.ended = frozenset()
        with closing(Member(self, FOLLOWERS)) as member:
            while not self.stopping.is_set():
                if taken := member.take():
                    self._commit(member, behind(taken))
                self.ended = frozenset(member.ended)
            member.find(range(PARTITIONS))

    def _commit(self, member: Member, offsets: Mapping[int, int]) -> None:
        generation = member.membership.generation
        if generation < 0:
            return
        number = self.journal.invoke(COMMIT, group=FOLLOWERS, generation=generation, offsets=[*offsets.items()])
        try:
            member.commit(offsets)
        except KafkaException as error:
            refused = error.args[0].name() in REFUSALS
            # The library asks again by itself: what is refused in the end may have been done before.
            self.journal.unknown(number, error.args[0].name() if refused else text_of(error))
            if not refused:
                self.judge(error.args[0])
        else:
            self.journal.ok(number)


async def run(spec: Spec, stdin: Any) -> None:
    """Both members, until `stdin` ends, or the last of them have nothing left; those read all copies then."""
    stopping = threading.Event()
    members = (Copier(spec, stopping), Follower(spec, stopping))
    async with asyncio.TaskGroup() as tasks:
        for one in members:
            tasks.create_task(asyncio.to_thread(one.run))
        await asyncio.to_thread(stdin.read)
        if spec.last:
            await _nothing_left(members)
        stopping.set()
    if spec.last:
        reader = Reader(replace(spec, topic=COPIES_TOPIC), COMMITTED, stopping)
        await asyncio.to_thread(reader.read_all, FINAL_COPIES)


async def _nothing_left(members: Iterable[Copier | Follower]) -> None:
    """Or no time: what is missing then is found by the check."""
    deadline = asyncio.get_running_loop().time() + LEFT_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        if all(len(one.ended) == PARTITIONS for one in members):
            return
        await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(run)
