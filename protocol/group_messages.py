"""Requests and response values of the calls about consumer groups; see `messages`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from pidkeeper.protocol.groups import (
    MAX_COMMITTED_OFFSETS,
    NO_GENERATION,
    Generation,
    GroupId,
    GroupMember,
    InstanceId,
    ProtocolType,
    TopicOffsets,
    Version,
)
from pidkeeper.protocol.logs import BrokerId, Offset
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId, TopicName, TopicPartitions, TransactionalId

MAX_LISTED_GROUPS: Final = 1000
"""Groups on one page."""

MAX_FETCHED_OFFSETS: Final = 1000
"""Offsets on one page; with the longest metadata 4 MiB, so a page ends at MAX_PAGE_BYTES too."""

MAX_PAGE_BYTES: Final = 256 * 1024

AnyGeneration = Annotated[int, msgspec.Meta(ge=NO_GENERATION, le=2**31 - 1)]
AnyMemberId = Annotated[str, msgspec.Meta(max_length=249)]


class GroupDescription(msgspec.Struct, frozen=True):
    """A group as the quorum knows it. `version`: the offset of its record, which the next one has to name.

    `members` of `generation` came together at `broker_id`. A group of which offsets alone are known has version and
    generation -1, and no coordinator (-1). `offsets`: partitions with one; `pending`: those that transactions hold.
    """

    group_id: str
    version: int
    generation: int
    protocol_type: str
    members: list[GroupMember]
    broker_id: int
    broker_epoch: int
    offsets: int
    pending: int
    timestamp_ms: int


class GroupsPage(msgspec.Struct, frozen=True):
    """Groups in order of their ids. `next_after` goes into `after` for the next page; null on the last one."""

    groups: list[GroupDescription]
    next_after: str | None


class FindGroupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coordinator begins with a group. Answered with FindGroupResponse, from a confirmed state."""

    group_id: GroupId


class FindGroupResponse(msgspec.Struct, frozen=True):
    """The group; None if nothing is known of it."""

    group: GroupDescription | None


class CommitGroupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coordinator's: the group has these members from now on. Fields as of GroupRecord.

    Sent again when no answer came, it is answered alike.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    group_id: GroupId
    after: Version
    generation: Generation
    protocol_type: ProtocolType
    members: list[GroupMember]


class CommitGroupResponse(msgspec.Struct, frozen=True):
    """`taken`: the group has these members. If not, somebody else went on with it, and `group` is what is known now."""

    taken: bool
    group: GroupDescription | None


class OffsetsTransaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whose transaction settles offsets (KIP-98).

    `joining`: the group need not have been added to it before (KIP-890); it needs metadata version 13.
    """

    transactional_id: TransactionalId
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    joining: bool = False


class CommitOffsetsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """OffsetCommit, or within a transaction TxnOffsetCommit (KIP-447). At most MAX_COMMITTED_OFFSETS partitions.

    `generation`, `member_id`, `instance_id`: of the member that commits, -1, empty and None without one.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    group_id: GroupId
    topics: Annotated[list[TopicOffsets], msgspec.Meta(min_length=1, max_length=MAX_COMMITTED_OFFSETS)]
    generation: AnyGeneration = NO_GENERATION
    member_id: AnyMemberId = ""
    instance_id: InstanceId | None = None
    transaction: OffsetsTransaction | None = None


class CommitOffsetsResponse(msgspec.Struct, frozen=True):
    """Kafka's code for each partition of the request, in its order: 0 where the offset is kept."""

    codes: list[int]


class FetchOffsetsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Offsets of a group, of `topics` or of all (None), page by page, from a confirmed state.

    `require_stable`: a partition for which a transaction holds an offset is answered as unstable (KIP-447). `after`:
    topic and partition of the last one of the page before.
    """

    group_id: GroupId
    topics: list[TopicPartitions] | None = None
    require_stable: bool = False
    after: tuple[TopicName, int] | None = None


class FetchedOffset(msgspec.Struct, frozen=True, array_like=True):
    """One partition; `offset` -1 if there is none. `error_code`: UNSTABLE_OFFSET_COMMIT, or 0."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: int = 0
    timestamp_ms: int = -1


class OffsetsPage(msgspec.Struct, frozen=True):
    """In the order of topics and partitions. `next_after` goes into `after`; null on the last page."""

    offsets: list[FetchedOffset]
    next_after: tuple[str, int] | None


class DeleteGroupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Forget a group without members, with its offsets (KIP-229). `broker_id`, `broker_epoch`: of the agent that asks
    for a client; null for an operator."""

    group_id: GroupId
    broker_id: BrokerId | None = None
    broker_epoch: Offset | None = None


class DeleteGroupResponse(msgspec.Struct, frozen=True):
    """The group that was forgotten."""

    group_id: str


class DeleteOffsetsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Forget offsets of a group (KIP-496). As DeleteGroupRequest.

    A coordinator leaves out the partitions of topics to which members are subscribed.
    """

    group_id: GroupId
    topics: Annotated[list[TopicPartitions], msgspec.Meta(min_length=1, max_length=MAX_COMMITTED_OFFSETS)]
    broker_id: BrokerId | None = None
    broker_epoch: Offset | None = None


class DeleteOffsetsResponse(msgspec.Struct, frozen=True):
    """How many offsets were forgotten."""

    deleted: int


class ResetOffsetsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's: a group without members goes on at these offsets."""

    group_id: GroupId
    topics: Annotated[list[TopicOffsets], msgspec.Meta(min_length=1, max_length=MAX_COMMITTED_OFFSETS)]
