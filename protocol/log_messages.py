"""Requests and response values of the calls about topics and partition logs; see `messages`."""

from __future__ import annotations

import uuid
from typing import Annotated, Final

import msgspec

from pidkeeper.protocol.logs import (
    JOIN_BYTES,
    MAX_JOINING,
    MAX_OBJECT_BATCHES,
    MAX_PARTITIONS,
    UNLIMITED,
    AnySequence,
    BrokerId,
    LogNumber,
    Offset,
    PartitionCount,
    Position,
    Records,
    Retention,
    Size,
    Timestamp,
)
from pidkeeper.protocol.segment_messages import StoredSegment
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId, TopicName, TransactionalId

MAX_READ_LOGS: Final = 1000
"""Logs that one request reads or watches: more than a consumer has partitions in one Fetch."""

MAX_READ_BATCHES: Final = 1000
"""Batches in one answer to a read: 64 KiB of coordinates."""

MAX_NAMED_TOPICS: Final = 1000
"""Topics in one page, and that one request asks for by name."""

MAX_DESCRIBED_PARTITIONS: Final = 1000
"""Partitions on one page of a topic's description: at most 125 bytes of JSON each, so a page stays below 130 KiB."""

MAX_WATCH_MS: Final = 10_000
"""How long one request watches logs: it holds a connection, and the caller may have gone."""


class TopicDescription(msgspec.Struct, frozen=True):
    """One topic. Its partitions have the logs `first_log` to `first_log + partitions - 1`."""

    topic_id: uuid.UUID
    name: str
    partitions: int
    first_log: int
    retention_ms: int
    retention_bytes: int


class TopicsPage(msgspec.Struct, frozen=True):
    """Topics in order of their names. `next_after` goes into `after` for the next page; null on the last one."""

    topics: list[TopicDescription]
    next_after: str | None


class PartitionDescription(msgspec.Struct, frozen=True, array_like=True):
    """One partition, by its number. `log`: the number of its log.

    `start`, `end` (the high watermark) and `last_stable` are offsets. `bytes`: of its segments, and of the
    `batches` that are in none of these yet. `held_by`: the transactional id whose open transaction holds the last
    stable offset, null without one; `held_since_ms`: when that transaction began, by the clock of its leader.
    """

    partition: int
    log: int
    start: int
    end: int
    last_stable: int
    bytes: int
    batches: int
    held_by: str | None = None
    held_since_ms: int | None = None
    segments: int = 0


class TopicPartitionsPage(msgspec.Struct, frozen=True):
    """A topic and some of its partitions, ascending.

    `next_after` goes into `after` for the next page; null on the last one. A topic that was deleted and created anew
    between two pages has another `topic_id`.
    """

    topic: TopicDescription
    partitions: list[PartitionDescription]
    next_after: int | None


class FindTopicsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Topics by name. Answered with those that there are, in a TopicsPage."""

    names: Annotated[list[TopicName], msgspec.Meta(min_length=1, max_length=MAX_NAMED_TOPICS)]


class CreateTopicRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Create a topic. `topic_id`: a uuid that the caller made for it, so that it may ask again when no answer came.

    `broker_id` and `broker_epoch`: of the agent that asks for a client; null for an operator. `validate_only`: nothing
    is created (KIP-4). Answered with the TopicDescription.
    """

    topic_id: uuid.UUID
    name: TopicName
    partitions: PartitionCount
    retention_ms: Retention = UNLIMITED
    retention_bytes: Retention = UNLIMITED
    broker_id: BrokerId | None = None
    broker_epoch: Offset | None = None
    validate_only: bool = False


class DeleteTopicRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Delete a topic, with all that it holds. `topic_id`: only if it is still this one."""

    name: TopicName
    topic_id: uuid.UUID | None = None
    broker_id: BrokerId | None = None
    broker_epoch: Offset | None = None


class DeleteTopicResponse(msgspec.Struct, frozen=True):
    """The topic that was deleted."""

    topic_id: uuid.UUID
    name: str


class OfferedBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record batch in an object; see `BatchCoordinates`."""

    log: LogNumber
    records: Records
    position: Position
    size: Size
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    base_sequence: AnySequence
    max_timestamp: Timestamp
    transactional: bool


class JoiningBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A batch, by its index, whose partition joins the transaction of its producer with it (KIP-890)."""

    batch: Annotated[int, msgspec.Meta(ge=0, lt=MAX_OBJECT_BATCHES)]
    transactional_id: TransactionalId

    @property
    def encoded_bytes(self) -> int:
        """At most, of the record by which its partition joins."""
        return JOIN_BYTES + len(self.transactional_id.encode())


class CommitObjectRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Let the batches of an object join their logs. It is durable in the store already.

    `number`: of the object; every object of an epoch has a higher one than those before it. A request whose answer was
    lost may be sent again, as long as none with a higher number was sent. `founding_id`: in the object's name.
    `joining`: whose partitions need not have joined before; it needs metadata version 13.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    founding_id: uuid.UUID
    number: Offset
    size: Size
    batches: Annotated[tuple[OfferedBatch, ...], msgspec.Meta(min_length=1, max_length=MAX_OBJECT_BATCHES)]
    joining: Annotated[list[JoiningBatch], msgspec.Meta(max_length=MAX_JOINING)] = []


class CommitObjectResponse(msgspec.Struct, frozen=True):
    """`outcomes`: for each batch its base offset, or minus Kafka's code of the refusal; see `ObjectRecord`.

    A batch that was there already has the offset that it was given then. `referenced`: whether any log has a batch in
    the object; if not, it may be deleted by whoever made it.
    """

    outcomes: list[int]
    referenced: bool


class ReadLog(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Read a log from `offset` on; at least one batch, then as many as fit into `max_bytes`."""

    log: LogNumber
    offset: Offset
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class ReadLogsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the batches of some logs are. `committed`: nothing from the last stable offset on (`read_committed`).

    `confirmed`: the answer is given once it is sure that no other leader knows more. Without that it may be of the
    past: what it shows is committed, but more may be.
    """

    logs: Annotated[list[ReadLog], msgspec.Meta(min_length=1, max_length=MAX_READ_LOGS)]
    committed: bool = False
    confirmed: bool = False


class StoredBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch and where it is: `size` bytes from `position` on of one of the answer's objects, by its index there."""

    base_offset: int
    object: int
    position: int
    size: int


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """The end of a transaction, which takes an offset as a batch of one record does."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    timestamp_ms: int


class AbortedTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that was aborted, as Fetch tells of it: its first offset in this log, and that of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int = -1


class LogBatches(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a log has from an offset on, in the order of their offsets.

    `error_code`: Kafka's; UNKNOWN_TOPIC_OR_PARTITION, or OFFSET_OUT_OF_RANGE with nothing but the three offsets.
    `log_start`, `end` (the high watermark) and `last_stable`: offsets. `aborted`: those of the range that was read, for
    `committed`. `segment`: the one that holds the offset, in place of batches and markers.
    """

    log: int
    error_code: int = 0
    log_start: int = -1
    end: int = -1
    last_stable: int = -1
    batches: list[StoredBatch] = []
    markers: list[Marker] = []
    aborted: list[AbortedTransaction] = []
    segment: StoredSegment | None = None


class ReadLogsResponse(msgspec.Struct, frozen=True):
    """One for each log that was asked for, in that order. `objects`: the names of those that hold their batches."""

    logs: list[LogBatches]
    objects: list[str]


class WatchedLog(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A log, with the end and the last stable offset that the caller knows of it."""

    log: LogNumber
    end: Offset
    last_stable: Offset


class WatchLogsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wait until one of the logs has gone on, or is gone, for `wait_ms` at most."""

    logs: Annotated[list[WatchedLog], msgspec.Meta(min_length=1, max_length=MAX_READ_LOGS)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WATCH_MS)]


class WatchLogsResponse(msgspec.Struct, frozen=True):
    """The logs that have gone on, or are gone; none when the time was up."""

    logs: list[int]


class FindOffsetsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets of logs by time (ListOffsets), from a confirmed state.

    `timestamp` of each: LATEST, EARLIEST or MAX_TIMESTAMP, or ms since the epoch for the first batch that has a record
    with that time or later. `committed`: LATEST is the last stable offset.
    """

    logs: Annotated[list[tuple[LogNumber, Timestamp]], msgspec.Meta(min_length=1, max_length=MAX_PARTITIONS)]
    committed: bool = False


class FoundOffset(msgspec.Struct, frozen=True, array_like=True):
    """`offset` and `timestamp` are -1 if no batch has a record of that time; `error_code` is Kafka's.

    `timestamp`: the latest of the batch, or of the segment, that begins at `offset`. The record itself is in there:
    `batch` or `segment` says where that is.
    """

    error_code: int
    offset: int
    timestamp: int
    batch: StoredBatch | None = None
    segment: StoredSegment | None = None


class FindOffsetsResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One for each log that was asked for, in that order. `objects`: the names of those that hold what was found."""

    offsets: list[FoundOffset]
    objects: list[str] = []


LATEST: Final = -1
"""Kafka's time (ListOffsets, KIP-79) for the end of a log, or its last stable offset under READ_COMMITTED."""
EARLIEST: Final = -2
"""For the first offset that is still there."""
MAX_TIMESTAMP: Final = -3
"""For the offset of the record with the largest timestamp (KIP-734)."""
