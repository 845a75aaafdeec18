"""The records of partition logs: bytes live in an object store, the quorum orders them and knows who wrote what.

An object holds record batches of many partitions, as one agent gathered them. It is named by the agent's broker id and
epoch, and a number that rises, so that nobody else ever makes one of that name. A partition's log has a number that is
never given again: a topic that is deleted and created anew has other logs.

Offsets, sequences and markers are Kafka's (KIP-98, "Message Format" and "Idempotent Producer Guarantees").
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar, Final

import msgspec

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId, TopicName

MAX_PARTITIONS: Final = 10_000
"""Of all topics together. Each takes about 1 KiB of memory on every member and on every agent."""

MAX_OBJECT_BATCHES: Final = 1024
"""Batches in one object. At BATCH_BYTES each, all of them take less than a third of an entry of the log."""

MAX_JOINING: Final = 64
MAX_JOINING_BYTES: Final = 24 * 1024
"""Batches of one object whose partitions join transactions with them, and bytes of the records by which they do. An
object of 600 batches, as agents make them, has that left of the largest one's share of an entry."""

MAX_OBJECT_BYTES: Final = 16 << 20
"""An agent gathers up to 4 MiB, to which one Produce request of up to 8 MiB may come; the next power of two."""

MAX_EXPIRED: Final = 1024
"""Producers that one record forgets: a millisecond's work, and PRODUCER_BYTES each."""

MAX_DELETED: Final = 1000
"""Objects that one record tells to be deleted: as many as one call of an object store deletes."""

MAX_INT64: Final = 2**63 - 1
"""Kafka's offsets and times are int64, and columns of them are kept. A larger number would stop whoever replays it."""

MAX_SEQUENCE: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
UNLIMITED: Final = -1
"""Of retention."""

BATCH_BYTES: Final = 72
JOIN_BYTES: Final = 396
OBJECT_BYTES: Final = 80
TOPIC_BYTES: Final = 112
PRODUCER_BYTES: Final = 19
"""At most, of an encoded BatchCoordinates and its outcome, of an AddPartitionsRecord with one partition but without its
transactional id, of an ObjectRecord without its batches, of a TopicRecord without its name, and of a producer in a
ProducersExpiredRecord."""

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_BROKER_ID)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
ProducerId = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
LogNumber = Offset
Timestamp = Annotated[int, msgspec.Meta(ge=-MAX_INT64 - 1, le=MAX_INT64)]
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_OBJECT_BYTES)]
Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_OBJECT_BYTES)]
Records = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
AnySequence = Annotated[int, msgspec.Meta(ge=NO_SEQUENCE, le=MAX_SEQUENCE)]
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
Outcomes = Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=MAX_OBJECT_BATCHES)]
Retention = Annotated[int, msgspec.Meta(ge=UNLIMITED, le=MAX_INT64)]


class ObjectId(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object of the store: `number` counts those of one epoch of a broker, upwards, not without gaps."""

    broker_id: BrokerId
    broker_epoch: Offset
    number: Offset

    def path(self, founding_id: uuid.UUID) -> str:
        """Its name in the store. Epochs of two foundings may be the same numbers."""
        return f"wal/{founding_id}/{self.broker_id}/{self.broker_epoch}/{self.number:020}"


class BrokerStoreRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A registered broker keeps its objects in the store `store_id`. The first record pins the cluster's store."""

    TYPE: ClassVar[int] = 20
    VERSION: ClassVar[int] = 0
    broker_id: BrokerId
    broker_epoch: Offset
    store_id: uuid.UUID


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic was created. Its partitions have the logs `first_log` to `first_log + partitions - 1`.

    `retention_ms`, `retention_bytes`: as Kafka's settings of a topic, UNLIMITED for none.
    """

    TYPE: ClassVar[int] = 21
    VERSION: ClassVar[int] = 0
    topic_id: uuid.UUID
    name: TopicName
    partitions: PartitionCount
    first_log: LogNumber
    retention_ms: Retention
    retention_bytes: Retention
    timestamp_ms: int

    @property
    def logs(self) -> range:
        """The logs of its partitions, in their order."""
        return range(self.first_log, self.first_log + self.partitions)


class RemoveTopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic was deleted, and all that its logs held."""

    TYPE: ClassVar[int] = 22
    VERSION: ClassVar[int] = 0
    topic_id: uuid.UUID
    timestamp_ms: int


class BatchCoordinates(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One record batch: `size` bytes of its object from `position` on, at `base_offset` of its log.

    `producer_id`, `producer_epoch` and `base_sequence` are -1 for a producer without idempotence. `max_timestamp`: the
    latest of its records, in ms since the epoch, by the producer's clock.
    """

    log: LogNumber
    base_offset: Offset
    records: Records
    position: Position
    size: Size
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    base_sequence: AnySequence
    max_timestamp: Timestamp
    transactional: bool


class ObjectRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object was committed: its batches joined their logs, as far as they might.

    `outcomes`: what became of each batch of the object, in their order: its base offset, or minus Kafka's code of the
    refusal. So the same request is answered alike when it comes again. `batches`: those that joined, in that order;
    of an object without any only the number is taken.
    """

    TYPE: ClassVar[int] = 23
    VERSION: ClassVar[int] = 0
    object: ObjectId
    size: Size
    outcomes: Outcomes
    batches: Annotated[tuple[BatchCoordinates, ...], msgspec.Meta(max_length=MAX_OBJECT_BATCHES)]
    timestamp_ms: int


class ProducersExpiredRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Producers that wrote nothing for long are forgotten (KIP-854): a log's number and a producer id each."""

    TYPE: ClassVar[int] = 24
    VERSION: ClassVar[int] = 0
    producers: Annotated[tuple[tuple[LogNumber, ProducerId], ...], msgspec.Meta(min_length=1, max_length=MAX_EXPIRED)]


class ObjectsDeletedRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Objects that no log has a batch in are deleted from the store. `keys`: as `Objects` counts them."""

    TYPE: ClassVar[int] = 25
    VERSION: ClassVar[int] = 0
    keys: Annotated[tuple[Offset, ...], msgspec.Meta(min_length=1, max_length=MAX_DELETED)]
    timestamp_ms: int


LogRecord = (
    BrokerStoreRecord | TopicRecord | RemoveTopicRecord | ObjectRecord | ProducersExpiredRecord | ObjectsDeletedRecord
)


def last_sequence(base_sequence: int, records: int) -> int:
    """Of a batch; 0 follows MAX_SEQUENCE."""
    return (base_sequence + records - 1) & MAX_SEQUENCE
