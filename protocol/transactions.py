"""The records of transactional ids, and the values that go with them (KIP-98, KIP-360).

A record is the whole state of one transactional id, as in Kafka's transaction log (`TransactionLogValue`), with the
pair before the newest one, which Kafka kept in memory alone until 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN, ProducerIdBlock

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

MAX_TRANSACTIONAL_ID_LENGTH: Final = 249
"""Characters in a transactional id. Kafka has no bound of its own; 249 is that of a topic's name."""

MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's default of `transaction.max.timeout.ms`."""

MAX_TOPIC_LENGTH: Final = 249
"""Characters in a topic's name, as in Kafka."""

_SHARED_NUMBERS: Final = 2**16
_NUMBERS: Final = tuple(range(_SHARED_NUMBERS))
"""The numbers that partitions have but for the largest topics. Shared, a partition takes 8 bytes instead of 40."""

TransactionalId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TRANSACTIONAL_ID_LENGTH)]
TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOPIC_LENGTH)]
Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
AnyProducerId = Annotated[int, msgspec.Meta(ge=NO_PRODUCER_ID, le=MAX_PRODUCER_ID)]
AnyEpoch = Annotated[int, msgspec.Meta(ge=NO_PRODUCER_EPOCH, le=2**15 - 1)]
TimeoutMs = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]

TOPIC_BYTES: Final = 8
PARTITION_BYTES: Final = 5
"""At most, of an encoded topic without its name and partitions, and of one partition's number."""

KEPT_TOPIC_BYTES: Final = 160
"""At most, of a topic in memory without its name and partitions: its struct, a tuple and a string, and a place."""


class TopicPartitions(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Partitions of one topic."""

    topic: TopicName
    partitions: tuple[Partition, ...]

    @property
    def encoded_bytes(self) -> int:
        """At most, in a record."""
        return TOPIC_BYTES + len(self.topic.encode()) + PARTITION_BYTES * len(self.partitions)

    @property
    def kept_bytes(self) -> int:
        """At most, in memory, in a record that is `lean`. A topic with one partition takes nine times its encoding."""
        name = len(self.topic) if self.topic.isascii() else 32 + 4 * len(self.topic)
        is_shared = not self.partitions or self.partitions[-1] < _SHARED_NUMBERS
        return KEPT_TOPIC_BYTES + name + (8 if is_shared else 40) * len(self.partitions)


class TransactionRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything that is known of one transactional id from this record on.

    `last_producer_id` and `last_producer_epoch`: the pair before the newest one, -1 and -1 if nobody may come back with
    it. `status`: a `TransactionStatus`. `partitions`: those of the transaction under way, ascending. `start_ms`: when
    it began, -1 without one; like `update_ms` by the leader's wall clock, in ms since the epoch.
    """

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 0
    transactional_id: TransactionalId
    producer_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    producer_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
    last_producer_id: AnyProducerId
    last_producer_epoch: AnyEpoch
    timeout_ms: TimeoutMs
    status: Annotated[int, msgspec.Meta(ge=0, le=5)]
    update_ms: int
    partitions: tuple[TopicPartitions, ...] = ()
    start_ms: int = -1

    @property
    def partition_bytes(self) -> int:
        """Bytes that `partitions` take at most in a record."""
        return sum(topic.encoded_bytes for topic in self.partitions)

    @property
    def kept_bytes(self) -> int:
        """Bytes that `partitions` take at most in memory."""
        return sum(topic.kept_bytes for topic in self.partitions)

    def each_partition(self) -> Iterator[tuple[str, int]]:
        """Every partition as (topic, number)."""
        return ((topic.topic, number) for topic in self.partitions for number in topic.partitions)


class AddPartitionsRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Partitions joined the transaction of a transactional id's newest pair, which begins with the first that do.

    `topics`: ascending, without those that had joined before. `update_ms`: as of TransactionRecord.
    """

    TYPE: ClassVar[int] = 14
    VERSION: ClassVar[int] = 0
    transactional_id: TransactionalId
    producer_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    producer_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
    topics: tuple[TopicPartitions, ...]
    update_ms: int


class TransactionalBlockRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The quorum took a block for its transactional producers: IDs `producer_id_start` to `producer_id_end`, inclusive.

    `timestamp_ms`: the leader's wall clock, in ms since the epoch. In the allocation history `broker_id` and
    `broker_epoch` are OWN: no broker has the block.
    """

    TYPE: ClassVar[int] = 15
    VERSION: ClassVar[int] = 0
    broker_id: ClassVar[int] = OWN
    broker_epoch: ClassVar[int] = OWN
    producer_id_start: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    producer_id_end: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    timestamp_ms: int

    @property
    def block(self) -> ProducerIdBlock:
        """The block as a value. Raises ValueError if the fields do not make one."""
        return ProducerIdBlock(self.producer_id_start, self.producer_id_end - self.producer_id_start + 1)


class ForgetTransactionRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing is known of a transactional id any more (a tombstone in Kafka's transaction log)."""

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 0
    transactional_id: TransactionalId


def lean(record: TransactionRecord) -> TransactionRecord:
    """An equal record that takes less memory: one that was decoded has its own object for each partition."""
    topics = tuple(TopicPartitions(topic.topic, shared(topic.partitions)) for topic in record.partitions)
    return replace(record, partitions=topics) if topics else record


def shared(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Equal numbers that take less memory, unless one of them is too large."""
    try:
        return tuple(map(_NUMBERS.__getitem__, numbers))
    except IndexError:
        return numbers
