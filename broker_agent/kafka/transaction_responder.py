"""Answers over the wire that take a decision of the quorum: the connection waits for them, and nothing else does."""

from __future__ import annotations

from typing import Final, Protocol

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.requests import AddPartitionsToTxn, TransactionStep
from pidkeeper.broker_agent.kafka.dispatch import SERVED, TransactionalCall
from pidkeeper.broker_agent.kafka.wire.init_producer_id import init_producer_id_frame
from pidkeeper.broker_agent.kafka.wire.transactions import add_partitions_to_txn_response, error_response
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.primitives import int32
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
)

_KNOWS_FENCED: Final = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
"""The first version of each API whose clients know PRODUCER_FENCED (KIP-588)."""


class TransactionCalls(Protocol):
    """What serves transactional requests. `Transactions` is one."""

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        """The pair for a transactional id. Raises RequestError."""
        ...

    async def step(self, request: TransactionStep, caller: Caller) -> None:
        """A step of a transaction. Raises RequestError."""


class TransactionResponder:
    """Turns a call into the frame that answers it."""

    def __init__(self, transactions: TransactionCalls) -> None:
        self._transactions = transactions

    async def answer(self, call: TransactionalCall) -> bytes:
        """The whole response frame, length field included."""
        header, request = call.header, call.request
        if isinstance(request, InitProducerIdRequest):
            response = await self._init_producer_id(call, request)
            return init_producer_id_frame(header.api_version, int32(header.correlation_id), response)
        versions, code = SERVED[header.api_key], 0
        try:
            await self._transactions.step(request, call.caller)
        except RequestError as error:
            code = wire_code(header, error.code)
        if isinstance(request, AddPartitionsToTxn):
            body = add_partitions_to_txn_response(header.api_version, request.topics, code)
        else:
            body = error_response(code, flexible=versions.is_flexible(header.api_version))
        return frame_response(header, versions, body)

    async def _init_producer_id(
        self, call: TransactionalCall, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        try:
            return await self._transactions.init_producer_id(request, call.caller)
        except RequestError as error:
            return InitProducerIdResponse(wire_code(call.header, error.code), -1, -1)


def wire_code(header: RequestHeader, error: ErrorCode) -> int:
    """The number of `error` in this version: clients that do not know PRODUCER_FENCED get INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and header.api_version < _KNOWS_FENCED[header.api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH.kafka_code
    return error.kafka_code
