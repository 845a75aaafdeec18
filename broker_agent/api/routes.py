"""The route table of an agent: one row for each call."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.api.models import AgentStatus
from pidkeeper.broker_agent.api.operations import Operations
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from pidkeeper.broker_agent.data.store_report import StoreReport
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, TransactionResponse
from pidkeeper.service.access import Access
from pidkeeper.service.routes import Route

_TRANSACTION: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""What `Transactions` tells a producer."""

ROUTES: Final[tuple[Route[Operations], ...]] = (
    Route(
        method="POST",
        path="/v1/init-producer-id",
        name="init_producer_id",
        summary="Get a producer ID; with a transactional id, its new producer ID and epoch (KIP-98, KIP-360).",
        access=Access.PRODUCER,
        handler=Operations.init_producer_id,
        request=InitProducerIdRequest,
        response=InitProducerIdResponse,
        errors=(*_TRANSACTION, ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.PRODUCER_IDS_EXHAUSTED),
    ),
    Route(
        method="POST",
        path="/v1/transactions/add-partitions",
        name="add_partitions_to_txn",
        summary="Add partitions to a transaction; the first one begins it (KIP-98).",
        access=Access.PRODUCER,
        handler=Operations.step,
        request=AddPartitionsToTxn,
        response=TransactionResponse,
        errors=_TRANSACTION,
    ),
    Route(
        method="POST",
        path="/v1/transactions/add-offsets",
        name="add_offsets_to_txn",
        summary="Add the offsets of a consumer group to a transaction (KIP-98).",
        access=Access.PRODUCER,
        handler=Operations.step,
        request=AddOffsetsToTxn,
        response=TransactionResponse,
        errors=_TRANSACTION,
    ),
    Route(
        method="POST",
        path="/v1/transactions/end",
        name="end_txn",
        summary="Commit or abort a transaction (KIP-98).",
        access=Access.PRODUCER,
        handler=Operations.step,
        request=EndTxn,
        response=TransactionResponse,
        errors=_TRANSACTION,
    ),
    Route(
        method="GET",
        path="/v1/status",
        name="describe_agent",
        summary="Describe the agent: registration, reserve, readiness.",
        access=Access.VIEWER,
        handler=Operations.status,
        response=AgentStatus,
    ),
    Route(
        method="GET",
        path="/v1/store/report",
        name="report_store",
        summary="Report what is in the store that no log names, and what logs name that is not there.",
        access=Access.OPERATOR,
        handler=Operations.store_report,
        response=StoreReport,
        errors=(
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    ),
)
