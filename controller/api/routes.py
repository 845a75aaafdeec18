"""The route table: one row for each call. Handlers, metrics labels and `/openapi.json` are all made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from pidkeeper.controller.api.models import (
    BlocksQuery,
    BrokerPath,
    ProducerPath,
    TransactionQuery,
    TransactionsQuery,
    TransferLeadershipRequest,
    VoterPath,
)
from pidkeeper.controller.api.operations import Operations
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import (
    AbortTransactionRequest,
    AddPartitionsToTxnRequest,
    AddVoterRequest,
    AddVoterResponse,
    AllocatedBlock,
    AllocatedBlocksPage,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokersResponse,
    EndTxnRequest,
    FinalizeMigrationRequest,
    InitProducerIdResponse,
    MigrationDescription,
    MigrationOrderRequest,
    MigrationOrderResponse,
    QuorumDescription,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RemoveVoterResponse,
    TransactionalInitRequest,
    TransactionDescription,
    TransactionResponse,
    TransactionsPage,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

Handler = Callable[[Operations, Any, Any], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    `name` is its operation id and metrics label. `path_model` and `query_model` (one of them at most) hold the
    parameters, which the handler gets before the decoded `request`; they are integers, but for `query_texts`. `errors`
    are the rows that the handler raises itself; those that every call can raise are in COMMON_ERRORS.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    response: type[Any]
    request: type[Any] | None = None
    path_model: type[Any] | None = None
    query_model: type[Any] | None = None
    query_texts: frozenset[str] = frozenset()
    errors: tuple[ErrorCode, ...] = ()


COMMON_ERRORS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Any call may be malformed, and any call may meet a fault of the server."""

_PROPOSAL: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_IDS: Final = (*_PROPOSAL, ErrorCode.ZOOKEEPER_UNAVAILABLE, ErrorCode.MIGRATION_UNDER_WAY)
_ORDER: Final = (*_PROPOSAL, ErrorCode.MIGRATION_REFUSED, ErrorCode.UNSUPPORTED_VERSION)
_CHANGE: Final = (*_PROPOSAL, ErrorCode.REASSIGNMENT_IN_PROGRESS)
_SESSION: Final = (*_PROPOSAL, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
_PRODUCER: Final = (
    *_SESSION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
)

# The hottest call first: a path without a parameter is found by one look-up, whatever the order, but a reader
# should not have to know that.
ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/producer-ids/allocate",
        name="allocate_producer_ids",
        summary="Give a registered broker the next block of producer IDs (KIP-730).",
        handler=Operations.allocate,
        request=AllocateProducerIdsRequest,
        response=AllocateProducerIdsResponse,
        errors=(
            *_SESSION,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            ErrorCode.PRODUCER_IDS_EXHAUSTED,
            ErrorCode.ZOOKEEPER_UNAVAILABLE,
            ErrorCode.MIGRATION_UNDER_WAY,
        ),
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/register",
        name="register_broker",
        summary="Register a process as a broker; older epochs of the id are stale from then on.",
        handler=Operations.register,
        path_model=BrokerPath,
        request=RegisterBrokerRequest,
        response=RegisterBrokerResponse,
        errors=(*_PROPOSAL, ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/heartbeat",
        name="broker_heartbeat",
        summary="Keep a registration unfenced.",
        handler=Operations.heartbeat,
        path_model=BrokerPath,
        request=BrokerHeartbeatRequest,
        response=BrokerHeartbeatResponse,
        errors=_SESSION,
    ),
    Route(
        method="POST",
        path="/v1/brokers/{id}/unregister",
        name="unregister_broker",
        summary="End a registration.",
        handler=Operations.unregister,
        path_model=BrokerPath,
        request=UnregisterBrokerRequest,
        response=UnregisterBrokerResponse,
        errors=_SESSION,
    ),
    Route(
        method="GET",
        path="/v1/producer-ids/blocks",
        name="list_blocks",
        summary="The allocation history in order of ID, a page at a time.",
        handler=Operations.blocks,
        query_model=BlocksQuery,
        response=AllocatedBlocksPage,
    ),
    Route(
        method="GET",
        path="/v1/producer-ids/{id}/owner",
        name="producer_id_owner",
        summary="Which broker was given a producer ID, and when.",
        handler=Operations.owner,
        path_model=ProducerPath,
        response=AllocatedBlock,
        errors=(ErrorCode.RESOURCE_NOT_FOUND,),
    ),
    Route(
        method="POST",
        path="/v1/producer-ids/floor",
        name="raise_floor",
        summary="Raise the next producer ID; it never goes back.",
        handler=Operations.raise_floor,
        request=RaiseFloorRequest,
        response=RaiseFloorResponse,
        errors=(*_IDS, ErrorCode.PRODUCER_IDS_EXHAUSTED),
    ),
    Route(
        method="GET",
        path="/v1/brokers",
        name="list_brokers",
        summary="The registered brokers, and where Kafka clients reach them.",
        handler=Operations.brokers,
        response=BrokersResponse,
    ),
    Route(
        method="POST",
        path="/v1/transactions/init-producer-id",
        name="init_producer_id",
        summary="Give a transactional id its newest producer ID and epoch; older ones are fenced (KIP-98, KIP-360).",
        handler=Operations.init_producer_id,
        request=TransactionalInitRequest,
        response=InitProducerIdResponse,
        errors=(*_PRODUCER, ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ),
    Route(
        method="POST",
        path="/v1/transactions/add-partitions",
        name="add_partitions_to_txn",
        summary="Let partitions join a transaction, which begins with the first of them (KIP-98).",
        handler=Operations.add_partitions,
        request=AddPartitionsToTxnRequest,
        response=TransactionResponse,
        errors=(*_PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.MESSAGE_TOO_LARGE),
    ),
    Route(
        method="POST",
        path="/v1/transactions/end",
        name="end_txn",
        summary="Commit or abort a transaction (KIP-98).",
        handler=Operations.end_transaction,
        request=EndTxnRequest,
        response=TransactionResponse,
        errors=(*_PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE),
    ),
    Route(
        method="POST",
        path="/v1/transactions/abort",
        name="abort_transaction",
        summary="Abort a transaction over the head of its producer, which is fenced (KIP-664).",
        handler=Operations.abort_transaction,
        request=AbortTransactionRequest,
        response=TransactionResponse,
        errors=(*_PROPOSAL, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_TXN_STATE),
    ),
    Route(
        method="GET",
        path="/v1/transactions",
        name="list_transactions",
        summary="The transactional ids in order, a page at a time (KIP-664).",
        handler=Operations.transactions,
        query_model=TransactionsQuery,
        query_texts=frozenset({"after", "state"}),
        response=TransactionsPage,
        errors=(ErrorCode.NOT_CONTROLLER,),
    ),
    Route(
        method="GET",
        path="/v1/transactions/describe",
        name="describe_transaction",
        summary="One transactional id and the transaction under way (KIP-664).",
        handler=Operations.transaction,
        query_model=TransactionQuery,
        query_texts=frozenset({"transactional_id"}),
        response=TransactionDescription,
        errors=(ErrorCode.NOT_CONTROLLER, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ),
    Route(
        method="GET",
        path="/v1/migration/zookeeper",
        name="describe_migration",
        summary="Where the migration from ZooKeeper is, what the znode holds now, and which order would be refused.",
        handler=Operations.migration,
        response=MigrationDescription,
        errors=(ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="POST",
        path="/v1/migration/zookeeper/start",
        name="start_migration",
        summary="Import what ZooKeeper has handed out, and claim every block in ZooKeeper from then on (KIP-730).",
        handler=Operations.start_migration,
        request=MigrationOrderRequest,
        response=MigrationOrderResponse,
        errors=_ORDER,
    ),
    Route(
        method="POST",
        path="/v1/migration/zookeeper/finalize",
        name="finalize_migration",
        summary="Seal the znode, so that brokers find no ID in ZooKeeper any more; there is no way back.",
        handler=Operations.finalize_migration,
        request=FinalizeMigrationRequest,
        response=MigrationOrderResponse,
        errors=_ORDER,
    ),
    Route(
        method="POST",
        path="/v1/migration/zookeeper/rollback",
        name="roll_back_migration",
        summary="Set the znode to the next free ID, and leave allocation to ZooKeeper.",
        handler=Operations.roll_back_migration,
        request=MigrationOrderRequest,
        response=MigrationOrderResponse,
        errors=_ORDER,
    ),
    Route(
        method="GET",
        path="/v1/quorum",
        name="describe_quorum",
        summary="Leader, term, commit and voters as this member sees them.",
        handler=Operations.quorum,
        response=QuorumDescription,
    ),
    Route(
        method="POST",
        path="/v1/quorum/transfer",
        name="transfer_leadership",
        summary="Begin to hand leadership over; the answer is the quorum as it is at that moment.",
        handler=Operations.transfer,
        request=TransferLeadershipRequest,
        response=QuorumDescription,
        errors=(ErrorCode.NOT_CONTROLLER, ErrorCode.RESOURCE_NOT_FOUND),
    ),
    Route(
        method="POST",
        path="/v1/quorum/voters",
        name="add_voter",
        summary="Go one step towards a new voter: make it a learner, or make the caught-up learner a voter (KIP-853).",
        handler=Operations.add_voter,
        request=AddVoterRequest,
        response=AddVoterResponse,
        errors=_CHANGE,
    ),
    Route(
        method="DELETE",
        path="/v1/quorum/voters/{id}",
        name="remove_voter",
        summary="Remove a voter or a learner from the quorum (KIP-853).",
        handler=Operations.remove_voter,
        path_model=VoterPath,
        response=RemoveVoterResponse,
        errors=(*_CHANGE, ErrorCode.RESOURCE_NOT_FOUND),
    ),
)
