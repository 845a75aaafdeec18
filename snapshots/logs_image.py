"""Partition logs in a snapshot. Columns are packed integers, little-endian, so that a large tail is a copy of bytes."""

from __future__ import annotations

import uuid
from collections.abc import Collection

import msgspec

from pidkeeper.protocol.logs import BrokerId, LogNumber, Offset, TopicRecord
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId

KeptBatch = tuple[int, int, int]
"""Base sequence, last sequence and base offset of a batch that its producer may send again."""


class ProducerEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one log knows of one producer (Kafka's `ProducerStateEntry`).

    `timestamp_ms`: of its last batch or marker, by the leader's clock. `open_since`: the first offset of its
    transaction in this log, -1 without one. `batches`: the last ones of this epoch, in their order.
    """

    producer_epoch: AnyEpoch
    timestamp_ms: int
    open_since: int
    batches: tuple[KeptBatch, ...]


class ProducerRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The entry of a producer in a log."""

    log: LogNumber
    producer_id: AnyProducerId
    entry: ProducerEntry


class LastCommit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The object that a broker committed last, and what it was answered. `referenced`: any batch of it joined."""

    broker_id: BrokerId
    broker_epoch: Offset
    number: Offset
    outcomes: tuple[int, ...]
    referenced: bool


class LastRoll(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The segment that a broker committed last, and whether its log took it."""

    broker_id: BrokerId
    broker_epoch: Offset
    number: Offset
    joined: bool


class LogImage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One log. `columns`: of its batches, `markers`: of its markers, `aborted`: of its aborted transactions.

    The columns are in the order of `controller.state.logs.partition_log`.
    """

    number: LogNumber
    start: Offset
    end: Offset
    columns: tuple[bytes, ...]
    markers: tuple[bytes, ...]
    aborted: tuple[bytes, ...]


class SegmentsImage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The segments of the log `number`, as columns in the order of `controller.state.logs.rolled`."""

    number: LogNumber
    columns: tuple[bytes, ...]


class LogsImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All logs. `topics` ascend by their first log, `logs` by their number, `commits` by broker id.

    `producers`: those that were silent longest come first. `objects`: columns of the objects that a log has a batch
    in, in the order of `controller.state.logs.objects`; `foundings`: those that the objects are of, by their index.
    `segments`: of the logs that have any, ascending; `segment_names`: of the objects that are segments, by key; `rolls`
    ascend by broker id; `collected`: foundings whose objects are deleted once no log needs them.
    """

    store_id: uuid.UUID | None
    next_log: LogNumber
    next_object: Offset
    topics: list[TopicRecord]
    logs: list[LogImage]
    objects: tuple[bytes, ...]
    foundings: list[uuid.UUID]
    commits: list[LastCommit]
    producers: Collection[ProducerRow]
    segments: list[SegmentsImage] = []
    segment_names: dict[int, SegmentName] = {}
    rolls: list[LastRoll] = []
    collected: tuple[uuid.UUID, ...] = ()
