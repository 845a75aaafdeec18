"""What may be asked of the replicated state, once the edge has validated it. Each is decided by `decide`."""

from __future__ import annotations

import uuid

import msgspec

from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.group_messages import OffsetsTransaction
from pidkeeper.protocol.groups import GroupMember, TopicOffsets
from pidkeeper.protocol.log_messages import JoiningBatch, OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.segments import SegmentName
from pidkeeper.protocol.transactions import TopicPartitions


class RegisterBroker(msgspec.Struct, frozen=True):
    """Answered with RegisterBrokerResponse. `kafka`: host:port where Kafka clients reach it, if it said.

    `held`: what it remembers of the IDs that it was given, if it remembers any. `store_id`: of the store where it keeps
    objects, if it does. `metadata_version`: the newest that it knows, if it said; nothing is decided by it. `untold`:
    the answer names no founding, for that in the log is of a quorum that is gone.
    """

    broker_id: int
    incarnation_id: str
    kafka: str | None = None
    held: HeldIds | None = None
    store_id: uuid.UUID | None = None
    metadata_version: int | None = None
    untold: bool = False


class UnregisterBroker(msgspec.Struct, frozen=True):
    """Answered with UnregisterBrokerResponse."""

    broker_id: int
    broker_epoch: int


class BrokerHeartbeat(msgspec.Struct, frozen=True):
    """Answered with BrokerHeartbeatResponse. `held`, `untold`: as of RegisterBroker. `reserve_ids`: IDs at hand;
    nothing is decided by them."""

    broker_id: int
    broker_epoch: int
    held: HeldIds | None = None
    reserve_ids: int | None = None
    untold: bool = False


class FenceBroker(msgspec.Struct, frozen=True):
    """Asked by the leader itself when a broker's heartbeats stopped. Answered with BrokerHeartbeatResponse."""

    broker_id: int
    broker_epoch: int


class Claimed(msgspec.Struct, frozen=True):
    """IDs from `first` to `end` - 1, which the write of a znode keeps from everybody but this quorum.

    `znode_version`: of the znode that the write replaced; `broker_id`: who had written that one, -1 for a controller.
    `begun_in`: the record of the phase, this very object, in which it was claimed: it holds for no later one.
    """

    first: int
    end: int
    znode_version: int
    broker_id: int
    begun_in: MigrationRecord


class AllocateProducerIds(msgspec.Struct, frozen=True):
    """Answered with AllocateProducerIdsResponse. `claimed`: where the block is taken from, while ZooKeeper counts.

    `held`: as of RegisterBroker.
    """

    broker_id: int
    broker_epoch: int
    claimed: Claimed | None = None
    held: HeldIds | None = None


class FillOwnIds(msgspec.Struct, frozen=True):
    """Asked by the leader itself: take a block for transactional producers ahead. Answered with whether one was taken.

    `claimed`: as of AllocateProducerIds.
    """

    claimed: Claimed | None = None


class RaiseFloor(msgspec.Struct, frozen=True):
    """Answered with RaiseFloorResponse. `claimed`: it reaches to the floor, while ZooKeeper counts.

    `forced`: more IDs than MAX_FLOOR_JUMP may be skipped.
    """

    at_least: int
    claimed: Claimed | None = None
    forced: bool = False


class InitProducerId(msgspec.Struct, frozen=True):
    """KIP-360's InitProducerId for a transactional id, asked by a broker's agent. Answered with InitProducerIdResponse.

    `producer_id`, `producer_epoch`: the pair that the producer has, or -1 and -1. `candidate`: an ID of the agent's
    reserve that nobody has, for the decision that needs a new one; -1 if it has none. From metadata version 6 on it
    counts for nothing. `may_take_block`: the leader knows no reason why IDs of this quorum alone could be somebody
    else's, so the decision may take an own block where the phase does not forbid it. `may_get_id`: it knows none why
    no transactional id may get a new producer ID at all.
    """

    broker_id: int
    broker_epoch: int
    transactional_id: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    candidate: int
    may_take_block: bool = False
    may_get_id: bool = True


class AddPartitionsToTxn(msgspec.Struct, frozen=True):
    """Partitions join a producer's transaction, which begins with the first. Answered with TransactionResponse."""

    broker_id: int
    broker_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TopicPartitions, ...]


class EndTxn(msgspec.Struct, frozen=True):
    """A producer commits or aborts its transaction. Answered with TransactionResponse.

    `new_epoch`: it goes on with another pair. `may_take_block`, `may_get_id`: as of InitProducerId, for the decision
    that needs a new producer ID.
    """

    broker_id: int
    broker_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    new_epoch: bool = False
    may_take_block: bool = False
    may_get_id: bool = True


class CompleteTransaction(msgspec.Struct, frozen=True):
    """Asked by the leader itself when all markers are written. Answered with TransactionResponse."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AbortTransaction(msgspec.Struct, frozen=True):
    """Asked by the leader itself when a transaction's time is up, or by an operator. Answered with TransactionResponse.

    With a pair of -1 and -1 it concerns whatever transaction is under way. `timed_out`: its producer may go on.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timed_out: bool = False


class ForgetTransactionalId(msgspec.Struct, frozen=True):
    """Asked by the leader itself when nothing was heard for long. Answered with TransactionResponse."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class RecordFounding(msgspec.Struct, frozen=True):
    """Asked by the leader itself. Answered with the founding's id. `block_size`, `bridge`: as of FoundingRecord.

    `succession`: whose place the founding takes, if it takes any.
    """

    founding_id: uuid.UUID
    block_size: int
    bridge: bool
    succession: Succession | None = None


class DismissEvidence(msgspec.Struct, frozen=True):
    """An operator's, about an ID that the broker names, if not None. Answered with DismissEvidenceResponse."""

    broker_id: int
    highest_producer_id: int | None = None


class RaiseMetadataVersion(msgspec.Struct, frozen=True):
    """Asked by the leader itself when all members can read `version`. Answered with the version in force then."""

    version: int


class StartMigration(msgspec.Struct, frozen=True):
    """An operator begins the migration. Answered with the phase that is in force then.

    `claimed_by`: a name for this quorum's claims that nobody ever had, taken if it has none yet; `zookeeper_next`: the
    next ID according to the znode.
    """

    claimed_by: str
    zookeeper_next: int


class OrderMigration(msgspec.Struct, frozen=True):
    """An operator ends the migration for good (FINALIZING), or hands allocation back to ZooKeeper (ROLLING_BACK).

    Answered with the phase that is in force then.
    """

    phase: MigrationPhase


class AdvanceMigration(msgspec.Struct, frozen=True):
    """Asked by the leader itself once `after` is done with. Answered with the phase that is in force then.

    `znode_version`, `zookeeper_next` and `broker_id`: the znode as it was read, the next ID according to it and who
    wrote it; -1 where it does not matter. `claimed_by`: as in StartMigration, for BRIDGE. `left_at`: the ID that
    ZooKeeper's brokers begin at, for ROLLED_BACK.
    """

    after: MigrationPhase
    phase: MigrationPhase
    znode_version: int = -1
    zookeeper_next: int = -1
    broker_id: int = -1
    claimed_by: str = ""
    left_at: int = -1


class CreateTopic(msgspec.Struct, frozen=True):
    """Answered with TopicDescription. Fields as of CreateTopicRequest."""

    topic_id: uuid.UUID
    name: str
    partitions: int
    retention_ms: int
    retention_bytes: int
    broker: tuple[int, int] | None
    validate_only: bool


class DeleteTopic(msgspec.Struct, frozen=True):
    """Answered with DeleteTopicResponse. Fields as of DeleteTopicRequest."""

    name: str
    topic_id: uuid.UUID | None
    broker: tuple[int, int] | None


class CommitObject(msgspec.Struct, frozen=True):
    """Answered with CommitObjectResponse. Fields as of CommitObjectRequest."""

    object: ObjectId
    founding_id: uuid.UUID
    size: int
    batches: tuple[OfferedBatch, ...]
    joining: tuple[JoiningBatch, ...] = ()


class ExpireProducers(msgspec.Struct, frozen=True):
    """Asked by the leader itself: forget those of some producers that wrote nothing since. Answered with None.

    `producers`: of each the number of the log, the producer id, and when it wrote last, in ms since the epoch.
    """

    producers: tuple[tuple[int, int, int], ...]


class CommitSegment(msgspec.Struct, frozen=True):
    """Answered with CommitSegmentResponse. Fields as of CommitSegmentRequest."""

    object: ObjectId
    founding_id: uuid.UUID
    log: int
    name: SegmentName
    end_offset: int
    size: int
    index_size: int
    max_timestamp: int
    replaces: int


class DeleteRecords(msgspec.Struct, frozen=True):
    """Answered with DeleteRecordsResponse. `broker`: id and epoch of the agent that asks. `logs`: as of the request."""

    broker: tuple[int, int]
    logs: tuple[tuple[int, int], ...]


class RetainLogs(msgspec.Struct, frozen=True):
    """Asked by the leader itself: drop what lies below an offset of each log. Answered with None."""

    starts: tuple[tuple[int, int], ...]


class ObjectsDeleted(msgspec.Struct, frozen=True):
    """Answered with ObjectsDeletedResponse. `broker`: id and epoch of the agent that deleted them."""

    broker: tuple[int, int]
    keys: tuple[int, ...]


class ReleaseCollection(msgspec.Struct, frozen=True):
    """An operator's. Answered with ReleaseCollectionResponse."""

    foundings: tuple[uuid.UUID, ...]


SegmentRequest = CommitSegment | DeleteRecords | RetainLogs | ObjectsDeleted | ReleaseCollection


class CommitGroup(msgspec.Struct, frozen=True):
    """Answered with CommitGroupResponse. `broker`: id and epoch of the coordinator. Fields as of CommitGroupRequest."""

    broker: tuple[int, int]
    group_id: str
    after: int
    generation: int
    protocol_type: str
    members: tuple[GroupMember, ...]


class CommitOffsets(msgspec.Struct, frozen=True):
    """Answered with CommitOffsetsResponse. Fields as of CommitOffsetsRequest; `broker` is None for an operator's, which
    an empty group alone takes."""

    broker: tuple[int, int] | None
    group_id: str
    topics: tuple[TopicOffsets, ...]
    generation: int
    member_id: str
    instance_id: str | None
    transaction: OffsetsTransaction | None


class DeleteGroup(msgspec.Struct, frozen=True):
    """Answered with DeleteGroupResponse. `broker`: id and epoch of the agent that asks, None for an operator."""

    broker: tuple[int, int] | None
    group_id: str


class DeleteOffsets(msgspec.Struct, frozen=True):
    """Answered with DeleteOffsetsResponse. `broker`: as of DeleteGroup."""

    broker: tuple[int, int] | None
    group_id: str
    topics: tuple[TopicPartitions, ...]


class ExpireOffsets(msgspec.Struct, frozen=True):
    """Asked by the leader itself: forget old offsets of a group without members. Answered with None.

    `version`: of the group as it was seen. `offsets`: topic, partition, and the offset of the record that committed
    each. With the last of them the group is forgotten.
    """

    group_id: str
    version: int
    offsets: tuple[tuple[str, int, int], ...]


GroupRequest = CommitGroup | CommitOffsets | DeleteGroup | DeleteOffsets | ExpireOffsets


class ConfirmState(msgspec.Struct, frozen=True):
    """Answered with None once it is sure that no other leader has committed more than is applied then."""


SignOfLife = AllocateProducerIds | BrokerHeartbeat | RegisterBroker
"""Whoever asks for one of these is a broker that lives."""

Request = (
    RegisterBroker
    | UnregisterBroker
    | BrokerHeartbeat
    | FenceBroker
    | AllocateProducerIds
    | FillOwnIds
    | RaiseFloor
    | RaiseMetadataVersion
    | RecordFounding
    | DismissEvidence
    | InitProducerId
    | AddPartitionsToTxn
    | EndTxn
    | CompleteTransaction
    | AbortTransaction
    | ForgetTransactionalId
    | StartMigration
    | OrderMigration
    | AdvanceMigration
    | CreateTopic
    | DeleteTopic
    | CommitObject
    | ExpireProducers
    | SegmentRequest
    | GroupRequest
    | ConfirmState
)
