"""Request and response values of the HTTP interfaces; handlers and `/openapi.json` are both made from these.

Field names are KIP-730's, in snake case. Times are milliseconds, ids are integers, ends are inclusive.
"""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec

from pidkeeper.protocol.founding import HighestId, Succession
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import BASE
from pidkeeper.protocol.records import (
    MAX_MEMBERS,
    BaseUrl,
    BrokerId,
    DirectoryId,
    IncarnationId,
    MemberId,
    Offset,
    PeerAddress,
)
from pidkeeper.protocol.transactions import AnyEpoch, AnyProducerId, Partition, TopicName, TransactionalId

MAX_CLUSTER_ID_LENGTH = 64
"""Kafka's own limit on names of this kind."""

MAX_REQUEST_PARTITIONS = 16_384
"""Topics in a request, and partitions of one of them: more than one transaction can hold."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
ClusterId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CLUSTER_ID_LENGTH)]


class HeldIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a broker remembers: the highest ID that it ever held, and under which founding it was registered then."""

    founding_id: uuid.UUID
    highest_producer_id: HighestId


def keeps(held: HeldIds, succession: Succession) -> bool:
    """Whether a broker goes on with what it holds under a quorum that took the place of the one that gave it."""
    return held.founding_id == succession.predecessor and held.highest_producer_id < succession.floor


class RegisterBrokerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Register one process as a broker. `incarnation_id` names the process; `cluster_id` is checked if given.

    `kafka`: host:port where Kafka clients reach it. `held`: the highest ID that the process ever held, and the founding
    of the quorum that gave it; from metadata version 7 on. `store_id`: of the store where it keeps objects; from
    metadata version 10 on.
    """

    incarnation_id: IncarnationId
    cluster_id: ClusterId | None = None
    kafka: PeerAddress | None = None
    held: HeldIds | None = None
    store_id: uuid.UUID | None = None


class RegisterBrokerResponse(msgspec.Struct, frozen=True):
    """`broker_epoch` is the log offset of the registration; it goes along with every later request.

    `metadata_version`: the one in force. A build that does not tell it has a lower one than any that matters here.
    `founding_id`: the founding of the quorum; null where none is in its log yet, or another one than its members have:
    then no object is to be named after this registration yet. `succession`: whose place it took.
    """

    broker_epoch: int
    cluster_id: str
    metadata_version: int = BASE
    founding_id: uuid.UUID | None = None
    succession: Succession | None = None


class BrokerHeartbeatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keep a registration unfenced. `held`: as in a registration."""

    broker_epoch: Offset
    held: HeldIds | None = None


class BrokerHeartbeatResponse(msgspec.Struct, frozen=True):
    """`fenced`: whether the registration is fenced as of this answer.

    `metadata_version`, `founding_id`, `succession`: as of a registration.
    """

    fenced: bool
    metadata_version: int = BASE
    founding_id: uuid.UUID | None = None
    succession: Succession | None = None


class UnregisterBrokerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End a registration."""

    broker_epoch: Offset


class UnregisterBrokerResponse(msgspec.Struct, frozen=True):
    """`broker_id`: whose registration ended."""

    broker_id: int


class FenceBrokerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An operator ends a registration. `broker_epoch`: only if it is still this one; null for whatever it is."""

    broker_epoch: Offset | None = None


class FenceBrokerResponse(msgspec.Struct, frozen=True):
    """`broker_epoch`: stale from now on. The process that has it gets no block before it registers anew."""

    broker_id: int
    broker_epoch: int


class AllocateProducerIdsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """KIP-730's AllocateProducerIdsRequest; `cluster_id` is checked if given. `held`: as in a registration."""

    broker_id: BrokerId
    broker_epoch: Offset
    cluster_id: ClusterId | None = None
    held: HeldIds | None = None


class FurtherBlock(msgspec.Struct, frozen=True):
    """A block beside the first one of an answer, with the names that KIP-730 gives to that."""

    producer_id_start: int
    producer_id_len: int


class AllocateProducerIdsResponse(msgspec.Struct, frozen=True):
    """KIP-730's AllocateProducerIdsResponse: IDs `producer_id_start` to `producer_id_start + producer_id_len - 1`.

    `more`: the further blocks of a request that asked for several; there may be fewer of them than it asked for.

    `founding_id`, `succession`: as of a registration. They come with the first block of a quorum that took the place of
    another, so that its IDs are not taken for those of the predecessor.
    """

    error_code: int
    producer_id_start: int
    producer_id_len: int
    throttle_time_ms: int = 0
    founding_id: uuid.UUID | None = None
    succession: Succession | None = None
    more: list[FurtherBlock] = msgspec.field(default_factory=list)


class AllocatedBlock(msgspec.Struct, frozen=True):
    """One block of the allocation history; `offset` is its record's, `last` is inclusive."""

    first: int
    last: int
    broker_id: int
    broker_epoch: int
    offset: int
    timestamp_ms: int


class TransactionalOwner(msgspec.Struct, frozen=True):
    """Which transactional id has, or last had, a producer ID. `offset` and `timestamp_ms`: of the record that gave it.

    Both are null where this member's history does not reach back to it.
    """

    transactional_id: str
    offset: int | None = None
    timestamp_ms: int | None = None


class ProducerIdOwner(AllocatedBlock, frozen=True):
    """The block that holds an ID, and who has the ID of it that was asked for, if the quorum knows.

    `transactional`: null for a producer without a transactional id, for an ID that nobody was given yet, and where the
    history of the quorum's own blocks has a hole. `free`: the ID is of the quorum's own block, and nobody's yet.
    """

    transactional: TransactionalOwner | None = None
    free: bool = False


class AllocatedBlocksPage(msgspec.Struct, frozen=True):
    """Blocks in order of ID. `next_after` goes into `after` for the next page; null on the last one.

    `complete_from` is the lowest ID from which this member's history has no hole.
    """

    blocks: list[AllocatedBlock]
    next_after: int | None
    complete_from: int


class RaiseFloorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Raise the next producer ID to `at_least`; a lower value changes nothing.

    `force`: skip more IDs than one call may; the caller has to bring the operators' token.
    """

    at_least: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    force: bool = False


class RaiseFloorResponse(msgspec.Struct, frozen=True):
    """`next_producer_id` after the request; `raised` says whether it moved."""

    next_producer_id: int
    raised: bool


class AddVoterRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make member `id` a voter (KIP-853). `peer`: host:port of its links; `http`: its base URL.

    `directory_id`: its data directory's uuid, if the caller wants to be sure that it is this one.
    """

    id: MemberId
    peer: Annotated[PeerAddress, msgspec.Meta(min_length=3)]
    http: Annotated[BaseUrl, msgspec.Meta(min_length=8)]
    directory_id: DirectoryId | None = None


class AddVoterResponse(msgspec.Struct, frozen=True):
    """`voting`: whether it is a voter by now. If not, ask again; `waiting_for` says what is missing, if anything."""

    id: int
    voting: bool
    waiting_for: str = ""


class RemoveVoterResponse(msgspec.Struct, frozen=True):
    """Member `id` is neither voter nor learner any more."""

    id: int


class FoundQuorumRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Found a new quorum of blank members. `voters`: their ids, as the configuration file of each of them names them.

    `founding_id`: a uuid that the caller has made for it, so that a request whose answer was lost can be sent again.
    `succession`: whose place the quorum takes, and from which ID on; `force`: however far that is above 0.
    """

    founding_id: uuid.UUID
    voters: Annotated[list[MemberId], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    succession: Succession | None = None
    force: bool = False


class FoundQuorumResponse(msgspec.Struct, frozen=True):
    """The quorum is founded, by this request or by one before it with the same `founding_id`."""

    founding_id: uuid.UUID
    voters: list[int]


class VoterStatus(msgspec.Struct, frozen=True):
    """One voter or learner as the answering member sees it.

    `match_index`, `lag` (entries behind the leader's log end) and `last_contact_ms` are null where only the leader
    knows. `http` is the voter's base URL; `directory_id` the uuid of its data directory as of its adding, if known.
    `release`: of its build; null while it is not connected to the answering member, or tells none.
    """

    id: int
    http: str
    match_index: int | None = None
    lag: int | None = None
    last_contact_ms: int | None = None
    state: str = "unknown"
    directory_id: str | None = None
    release: str | None = None


class EvidenceDescription(msgspec.Struct, frozen=True):
    """A broker that holds IDs up to `highest_producer_id`, of founding `founding_id`, which were not handed out here.

    While one is `open`, the quorum hands out nothing. It is not any more once the next producer ID lies above it, or an
    operator has dismissed it.
    """

    broker_id: int
    founding_id: uuid.UUID
    highest_producer_id: int
    open: bool


class DismissEvidenceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An operator judges that what broker `broker_id` said it holds is wrong.

    highest_producer_id: up to which it was seen to say so. INVALID_REQUEST if it names another one: that is
    another process's word, or a later one. None: whatever it says.
    """

    broker_id: BrokerId
    highest_producer_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)] | None = None


class DismissEvidenceResponse(msgspec.Struct, frozen=True):
    """`dismissed`: whether there was open evidence of this broker."""

    broker_id: int
    dismissed: bool


class QuorumDescription(msgspec.Struct, frozen=True):
    """What one member knows about the quorum.

    `failure_tolerance`: voters that may still fail before service stops; `reasons`: why `healthy` is false;
    `warnings`: what an operator should mend although the quorum is healthy. `founding_id`: of the founding that this
    member belongs to; null while its disk is blank, or where a build without foundings began the quorum.
    `evidence`: of brokers that hold what was not handed out here. `succession`: whose place that founding took.
    """

    cluster_id: str
    node_id: int
    role: str
    term: int
    leader_id: int | None
    leader_http: str | None
    commit_index: int
    applied_index: int
    log_end_index: int
    snapshot_index: int
    next_producer_id: int
    block_size: int
    voters: list[VoterStatus]
    failure_tolerance: int | None
    healthy: bool
    reasons: list[str]
    learners: list[VoterStatus] = []
    metadata_version: int = BASE
    warnings: list[str] = []
    founding_id: uuid.UUID | None = None
    evidence: list[EvidenceDescription] = []
    succession: Succession | None = None


class InitProducerIdRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka's InitProducerIdRequest (API key 22). With a null transactional id the other fields are ignored."""

    transactional_id: str | None = None
    transaction_timeout_ms: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 2**31 - 1
    producer_id: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PRODUCER_ID)] = -1
    producer_epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**15 - 1)] = -1


class InitProducerIdResponse(msgspec.Struct, frozen=True):
    """Kafka's InitProducerIdResponse; on an error both ids are -1."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_time_ms: int = 0


class TransactionalInitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """InitProducerId for a transactional id, from a broker's agent (KIP-360).

    `producer_id`, `producer_epoch`: the pair that the producer has, or -1 and -1. `candidate`: an ID of the agent's
    reserve that nobody has, taken if a new one is needed; -1 if it has none. From metadata version 6 on it is ignored.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    transactional_id: str
    transaction_timeout_ms: Int32
    producer_id: AnyProducerId = -1
    producer_epoch: AnyEpoch = -1
    candidate: AnyProducerId = -1


class TransactionTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Partitions of one topic."""

    topic: TopicName
    partitions: Annotated[list[Partition], msgspec.Meta(min_length=1, max_length=MAX_REQUEST_PARTITIONS)]


class AddPartitionsToTxnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka's AddPartitionsToTxnRequest, from a broker's agent."""

    broker_id: BrokerId
    broker_epoch: Offset
    transactional_id: str
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    topics: Annotated[list[TransactionTopic], msgspec.Meta(min_length=1, max_length=MAX_REQUEST_PARTITIONS)]


class EndTxnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Kafka's EndTxnRequest, from a broker's agent.

    `new_epoch`: from version 5 of it on (KIP-890), the producer goes on with the pair of the answer. It needs metadata
    version 13.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    transactional_id: str
    producer_id: AnyProducerId
    producer_epoch: AnyEpoch
    committed: bool
    new_epoch: bool = False


class AbortTransactionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator aborts a transaction and fences its producer; with a pair, only if it is still that producer's."""

    transactional_id: TransactionalId
    producer_id: AnyProducerId = -1
    producer_epoch: AnyEpoch = -1


class TransactionDescription(msgspec.Struct, frozen=True):
    """One transactional id. `state`: Kafka's name of it; `start_ms` is null without a transaction. Times: Unix ms."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    update_ms: int
    topics: list[TransactionTopic]


class TransactionsPage(msgspec.Struct, frozen=True):
    """Transactional ids in order. `next_after` goes into `after` for the next page; null on the last one."""

    transactions: list[TransactionDescription]
    next_after: str | None


class BrokerDescription(msgspec.Struct, frozen=True):
    """One registered broker. `kafka`: host:port where Kafka clients reach it, null if it did not say.

    `incarnation_id`: of its process. `last_contact_ms`: how long ago the leader heard it; null from any other member,
    and where that was before it led or before it fenced the broker. `reserve_ids`: how many IDs it had at hand then, if
    it said so. `store_id`: of the store where it keeps objects, if it does. `metadata_version`: the newest that the
    leader takes its agent to know, while that matters to the next one; who knows another one registers once more, and
    says so. All five are null from a build that does not tell them.
    """

    broker_id: int
    broker_epoch: int
    fenced: bool
    kafka: str | None
    incarnation_id: str | None = None
    last_contact_ms: int | None = None
    reserve_ids: int | None = None
    store_id: uuid.UUID | None = None
    metadata_version: int | None = None


class BrokersResponse(msgspec.Struct, frozen=True):
    """All registered brokers, by id."""

    brokers: list[BrokerDescription]


class TransactionResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a transaction was taken; what went wrong otherwise comes as a problem.

    `producer_id`, `producer_epoch`: the pair that the producer goes on with, if the step gave it another one.
    """

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


class ZnodeDescription(msgspec.Struct, frozen=True):
    """What ZooKeeper holds. `data`: null if nothing was ever stored; `version`: ZooKeeper's dataVersion.

    `next_producer_id`: the first ID after its block; null if `problem` says why it cannot be used.
    """

    path: str
    version: int
    data: str | None
    next_producer_id: int | None
    written_by: str | None
    problem: str | None


class ZookeeperBrokers(msgspec.Struct, frozen=True):
    """The brokers that have a session with ZooKeeper, by the children of `path`. `ids`: ascending.

    `foreign`: how many children are no broker's id. `problem`: why the children cannot be read, null if they can.
    """

    path: str
    ids: list[int]
    foreign: int
    problem: str | None


class MigrationDescription(msgspec.Struct, frozen=True):
    """Where the migration from ZooKeeper is, as the leader knows it.

    `phase`: a MigrationPhase in lower case. `next_producer_id`: the quorum's. `zookeeper`: why the znode cannot be
    read, null if it can. `trouble`: why the step under way cannot go on. `refusals`: for each of start, finalize and
    rollback why it would be refused now, null if it would not. `brokers`: null only from a leader
    of a build that does not look at them.
    """

    phase: str
    claimed_by: str | None
    next_producer_id: int
    block_size: int
    metadata_version: int
    znode: ZnodeDescription | None
    zookeeper: str | None
    trouble: str | None
    refusals: dict[str, str | None]
    brokers: ZookeeperBrokers | None = None


class FinalizeMigrationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`agreed`: the operator knows that there is no way back, and that brokers find no ID in ZooKeeper any more.

    `force`: although brokers are still in ZooKeeper, or nobody can tell.
    """

    agreed: bool = False
    force: bool = False


class MigrationOrderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order without parameters."""


class MigrationOrderResponse(msgspec.Struct, frozen=True):
    """`phase`: the one in force once the order was committed, or that was in force already."""

    phase: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An RFC 9457 problem document.

    `code` and `error_code` are Kafka's name and number; `retryable` says whether the same request may be sent again;
    `leader` is the base URL of the leader where that helps; `throttle_time_ms` says how long to wait.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    error_code: int
    retryable: bool
    leader: str | None = None
    leader_id: int | None = None
    throttle_time_ms: int = 0
