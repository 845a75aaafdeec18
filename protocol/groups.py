"""The records of consumer groups: their generations, and the offsets that they committed (KIP-447).

A group's members come together at one agent, its coordinator; the quorum knows which members a generation has, and
decides by that who may commit. So two agents that both believe to coordinate cannot both go on, and whoever is of no
current generation commits nothing. Offsets that were committed within a transaction are pending until it ends, and
the record that ends it settles them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from pidkeeper.protocol.logs import MAX_INT64, BrokerId, Offset
from pidkeeper.protocol.segments import Partition
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId, TopicName, TopicPartitions

MAX_GROUP_ID_LENGTH: Final = 249
"""Characters in a group's id. Kafka has no bound of its own; 249 is that of a topic's name."""

MAX_MEMBER_ID_LENGTH: Final = 249
"""Characters in a member's id: coordinators make one of a client's id and a uuid."""

MAX_INSTANCE_ID_LENGTH: Final = 249
"""Characters in the id of a static member, as Kafka checks it: a topic's name (KIP-345)."""

MAX_CLIENT_LENGTH: Final = 128
"""Characters that are kept of a client's id, and of its address: for people alone."""

MAX_PROTOCOL_TYPE_LENGTH: Final = 64
"""Characters in the protocol type of a group: `consumer`, `connect`."""

MAX_MEMBERS_BYTES: Final = 64 * 1024
"""Of one group's members in a record, as `GroupMember.encoded_bytes` counts them: some 300 members. A quarter of what
fits into one entry of the log."""

MAX_COMMITTED_OFFSETS: Final = 1024
"""Partitions of which one request commits offsets, and one record has them."""

MAX_OFFSET_METADATA_BYTES: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""

MAX_OFFSETS_BYTES: Final = 64 * 1024
"""Of the offsets in one record, as `TopicOffsets.encoded_bytes` counts them: 13 with the longest metadata."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""Kafka's default of `offsets.topic.num.partitions`. There is no such topic here: a transaction that is to settle the
offsets of a group has the group's partition of it among its own (AddOffsetsToTxn)."""

DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000
"""Java's default of `session.timeout.ms`."""

NO_VERSION: Final = -1
"""Of a group that is not known: the first record replaces nothing."""

NO_GENERATION: Final = -1
NO_LEADER_EPOCH: Final = -1

MEMBER_BYTES: Final = 21
GROUP_BYTES: Final = 96
TOPIC_OFFSETS_BYTES: Final = 8
OFFSET_BYTES: Final = 28
OFFSETS_RECORD_BYTES: Final = 48
"""At most, of an encoded member without its texts, of a group's record without its texts and members, of a topic's
offsets without its name and partitions, of one partition's offset without its metadata, and of a record of offsets, or
of their removal, without its group's id and topics."""

GroupId = Annotated[str, msgspec.Meta(max_length=MAX_GROUP_ID_LENGTH)]
"""An empty one is legal in Kafka, for offsets without members."""

MemberId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MEMBER_ID_LENGTH)]
InstanceId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_INSTANCE_ID_LENGTH)]
SessionTimeoutMs = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Client = Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_LENGTH)]
ProtocolType = Annotated[str, msgspec.Meta(max_length=MAX_PROTOCOL_TYPE_LENGTH)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Version = Annotated[int, msgspec.Meta(ge=NO_VERSION, le=MAX_INT64)]
LeaderEpoch = Annotated[int, msgspec.Meta(ge=NO_LEADER_EPOCH, le=2**31 - 1)]
Metadata = Annotated[str, msgspec.Meta(max_length=MAX_OFFSET_METADATA_BYTES)]


class GroupMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member of a generation. `instance_id`: of a static one (KIP-345). `client_id`, `host`: for people.

    `session_timeout_ms`: for how long a next coordinator waits for a sign of its life.
    """

    member_id: MemberId
    instance_id: InstanceId | None
    client_id: Client
    host: Client
    session_timeout_ms: SessionTimeoutMs = DEFAULT_SESSION_TIMEOUT_MS

    @property
    def encoded_bytes(self) -> int:
        """At most, in a record."""
        texts = self.member_id + (self.instance_id or "") + self.client_id + self.host
        return MEMBER_BYTES + len(texts.encode())


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group has these members, in this generation; none in an empty group.

    `after`: the offset of the group's record that this one replaces, NO_VERSION if the group was not known. So of two
    coordinators that go on from the same one the second is refused. `broker_id`, `broker_epoch`: the coordinator.
    """

    TYPE: ClassVar[int] = 29
    VERSION: ClassVar[int] = 0
    group_id: GroupId
    after: Version
    generation: Generation
    protocol_type: ProtocolType
    members: tuple[GroupMember, ...]
    broker_id: BrokerId
    broker_epoch: Offset
    timestamp_ms: int


class RemoveGroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group is forgotten, with all its offsets: it was deleted, or nobody used it for long."""

    TYPE: ClassVar[int] = 30
    VERSION: ClassVar[int] = 0
    group_id: GroupId
    timestamp_ms: int


class PartitionOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a group is to go on in one partition. `leader_epoch`: as the consumer told it, NO_LEADER_EPOCH for none."""

    partition: Partition
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: Metadata


class TopicOffsets(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Offsets of some partitions of one topic."""

    topic: TopicName
    partitions: tuple[PartitionOffset, ...]

    @property
    def encoded_bytes(self) -> int:
        """At most, in a record."""
        metadata = sum(len(one.metadata.encode()) for one in self.partitions)
        return TOPIC_OFFSETS_BYTES + len(self.topic.encode()) + OFFSET_BYTES * len(self.partitions) + metadata


class OffsetsRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group committed offsets. `producer_id`, `producer_epoch`: of the transaction with which they are settled; -1
    without one."""

    TYPE: ClassVar[int] = 31
    VERSION: ClassVar[int] = 0
    group_id: GroupId
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    topics: Annotated[tuple[TopicOffsets, ...], msgspec.Meta(min_length=1, max_length=MAX_COMMITTED_OFFSETS)]
    timestamp_ms: int


class RemoveOffsetsRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Offsets of a group are forgotten, but for pending ones: they were deleted (KIP-496), or are old (KIP-211)."""

    TYPE: ClassVar[int] = 32
    VERSION: ClassVar[int] = 0
    group_id: GroupId
    topics: Annotated[tuple[TopicPartitions, ...], msgspec.Meta(min_length=1, max_length=MAX_COMMITTED_OFFSETS)]
    timestamp_ms: int


def offsets_partition(group_id: str) -> int:
    """The partition of OFFSETS_TOPIC that a group's offsets have: Java's String.hashCode, its sign bit cleared."""
    encoded = group_id.encode("utf-16-be")
    hashed = 0
    for position in range(0, len(encoded), 2):
        hashed = (31 * hashed + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFF_FFFF
    return (hashed & 0x7FFF_FFFF) % OFFSETS_PARTITIONS


GroupsRecord = GroupRecord | RemoveGroupRecord | OffsetsRecord | RemoveOffsetsRecord
