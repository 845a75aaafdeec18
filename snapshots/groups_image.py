"""Consumer groups in a snapshot: their newest records, and the offsets that they committed, row by row."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import msgspec

from pidkeeper.protocol.groups import GroupId, GroupRecord, LeaderEpoch, Metadata
from pidkeeper.protocol.logs import Offset
from pidkeeper.protocol.segments import Partition
from pidkeeper.protocol.transactions import AnyProducerId, TopicName


class KeptOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An offset that was committed (Kafka's `OffsetAndMetadata`).

    `record_offset`: of the record that committed it; `timestamp_ms`: when, by the leader's clock.
    """

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: Metadata
    record_offset: Offset
    timestamp_ms: int


class KnownGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newest record of a group. `version`: the record's own offset."""

    version: Offset
    record: GroupRecord


class OffsetRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a group is to go on in one partition."""

    group_id: GroupId
    topic: TopicName
    partition: Partition
    kept: KeptOffset


class PendingRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a group is to go on in one partition once the transaction of a producer is committed."""

    group_id: GroupId
    topic: TopicName
    partition: Partition
    producer_id: AnyProducerId
    kept: KeptOffset


class GroupsImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All groups, ascending by their ids; `offsets` and `pending` in the order of their fields.

    A group of which offsets alone are known is not among `groups`. Raises ValueError if those do not ascend; the rows
    are looked at when they become a state.
    """

    groups: list[KnownGroup]
    offsets: Collection[OffsetRow]
    pending: Collection[PendingRow]

    def __post_init__(self) -> None:
        names = [known.record.group_id for known in self.groups]
        if any(one >= other for one, other in itertools.pairwise(names)):
            raise ValueError("the groups do not ascend by their ids")
