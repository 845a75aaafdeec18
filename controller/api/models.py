"""Values of the interface that no other part needs: path and query parameters, the leadership transfer."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from pidkeeper.controller.raft.messages import NodeId
from pidkeeper.protocol.group_messages import MAX_FETCHED_OFFSETS, MAX_LISTED_GROUPS
from pidkeeper.protocol.groups import GroupId
from pidkeeper.protocol.ids import MAX_BLOCKS_AT_ONCE, MAX_PRODUCER_ID
from pidkeeper.protocol.log_messages import MAX_DESCRIBED_PARTITIONS, MAX_NAMED_TOPICS
from pidkeeper.protocol.logs import MAX_PARTITIONS
from pidkeeper.protocol.metadata_version import MetadataVersion
from pidkeeper.protocol.records import BrokerId, ProducerId
from pidkeeper.protocol.segment_messages import MAX_OBJECTS_PAGE
from pidkeeper.protocol.transactions import MAX_TOPIC_LENGTH, MAX_TRANSACTIONAL_ID_LENGTH, TopicName, TransactionalId

MAX_PAGE_BLOCKS: Final = 1000
"""Blocks on one page: at about 130 bytes of JSON each a page stays below 130 KiB."""


MAX_PAGE_TRANSACTIONS: Final = 1000
"""Transactional ids on one page: without partitions at most 2 KiB of JSON each, mostly under 300 bytes."""

_UUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

TransactionState = Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
"""Kafka's names of the states that an id can be found in."""


class BrokerPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broker in `/v1/brokers/{id}/...`."""

    id: BrokerId


class ProducerPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The producer ID in `/v1/producer-ids/{id}/owner`."""

    id: ProducerId


class VoterPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The member in `/v1/quorum/voters/{id}`."""

    id: NodeId


class AllocateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`blocks`: how many blocks are asked for. No field of the body, which earlier builds would refuse."""

    blocks: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCKS_AT_ONCE)] = 1


class RegisterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`metadata_version`: the newest that the broker knows. No field of the body, which earlier builds would refuse."""

    metadata_version: MetadataVersion | None = None


class HeartbeatQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reserve_ids`: IDs that the broker has at hand. No field of the body, which earlier builds would refuse."""

    reserve_ids: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)] | None = None


class WhoAmIResponse(msgspec.Struct, frozen=True):
    """Whom the caller's token or certificate names, and its roles, sorted."""

    name: str
    roles: list[str]


class BlocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the history: blocks above the ID `after` (-1: from the start), at most `limit`."""

    after: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PRODUCER_ID)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_BLOCKS)] = 100


class TransactionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the transactional ids above `after`, at most `limit`; in `state` and with `producer_id` if given.

    A page may be shorter, even empty, where partitions are many or few ids are in `state`: the last one has no
    `next_after`.
    """

    after: Annotated[str, msgspec.Meta(max_length=MAX_TRANSACTIONAL_ID_LENGTH)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_TRANSACTIONS)] = 100
    state: TransactionState | None = None
    producer_id: ProducerId | None = None


class TransactionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The transactional id to describe."""

    transactional_id: TransactionalId


class TopicsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the topics above the name `after`, at most `limit`."""

    after: Annotated[str, msgspec.Meta(max_length=MAX_TOPIC_LENGTH)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_NAMED_TOPICS)] = 100


class TopicPartitionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The topic to describe, and a page of its partitions: above `after` (-1: from the first), at most `limit`."""

    name: TopicName
    after: Annotated[int, msgspec.Meta(ge=-1, lt=MAX_PARTITIONS)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_DESCRIBED_PARTITIONS)] = 100


class ObjectsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the store's objects whose keys are above `after` (-1: from the first), at most `limit`."""

    after: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_OBJECTS_PAGE)] = 100


class TopicQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The topic to delete; with `topic_id`, only if it is still that one."""

    name: TopicName
    topic_id: Annotated[str, msgspec.Meta(pattern=_UUID)] | None = None


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the consumer groups above the id `after` (None: from the first), at most `limit`.

    A page may be shorter where groups have many members: the last one has no `next_after`.
    """

    after: GroupId | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LISTED_GROUPS)] = 100


class GroupQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The consumer group to describe, or to forget."""

    group: GroupId


class GroupOffsetsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the offsets of `group`, at most `limit`: those above a topic and partition (None: from the first).

    A page may be shorter where offsets have much metadata: the last one has no `next_after`.
    """

    group: GroupId
    after_topic: TopicName | None = None
    after_partition: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_FETCHED_OFFSETS)] = 100


class TransferLeadershipRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hand leadership to the voter `target`; null leaves the choice to the leader."""

    target: NodeId | None = None
