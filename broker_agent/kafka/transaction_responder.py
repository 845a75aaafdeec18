"""Answers over the wire that take a decision of the quorum: the connection waits for them, and nothing else does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.broker_agent.kafka.dispatch import SERVED, TransactionalCall
from pidkeeper.broker_agent.kafka.wire.init_producer_id import init_producer_id_frame
from pidkeeper.broker_agent.kafka.wire.transactions import (
    add_partitions_to_txn_response,
    end_txn_response,
    error_response,
)
from pidkeeper.broker_agent.security.resources import GROUP_READ
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionResponse,
    TransactionTopic,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.primitives import int32
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
)

OPERATION_NOT_ATTEMPTED: Final = 55
"""Of a partition that might have joined, had another one."""

_NO_PAIR: Final = (-1, -1)

_KNOWS_FENCED: Final = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
"""The first version of each API whose clients know PRODUCER_FENCED (KIP-588)."""


class TransactionCalls(Protocol):
    """What serves transactional requests. `Transactions` is one."""

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        """The pair for a transactional id. Raises RequestError."""
        ...

    async def step(self, request: TransactionStep, caller: Caller) -> TransactionResponse:
        """A step of a transaction. Raises RequestError."""
        ...


Refused = Callable[[list[TransactionTopic], Caller], Awaitable[Mapping[tuple[str, int], int]]]
"""Kafka's code for each topic and partition that may not join a transaction. Raises RequestError."""


async def nothing(_: list[TransactionTopic], __: Caller) -> Mapping[tuple[str, int], int]:
    """Where nobody knows topics, every partition may join."""
    return {}


class TransactionResponder:
    """Turns a call into the frame that answers it. `refused`: of partitions that want to join; `serves_groups`: whether
    rules for groups count, which where none are served nobody has given."""

    def __init__(
        self, transactions: TransactionCalls, refused: Refused = nothing, *, serves_groups: bool = False
    ) -> None:
        self._transactions = transactions
        self._refused = refused
        self._serves_groups = serves_groups

    async def answer(self, call: TransactionalCall) -> bytes:
        """The whole response frame, length field included."""
        header, request = call.header, call.request
        if isinstance(request, InitProducerIdRequest):
            response = await self._init_producer_id(call, request)
            return init_producer_id_frame(header.api_version, int32(header.correlation_id), response)
        versions = SERVED[header.api_key]
        if isinstance(request, AddPartitionsToTxn):
            body = await self._add_partitions(call, request)
        else:
            code, producer = await self._step(call, request)
            if isinstance(request, EndTxn):
                body = end_txn_response(header.api_version, code, producer)
            else:
                body = error_response(code, flexible=versions.is_flexible(header.api_version))
        return frame_response(header, versions, body)

    async def _add_partitions(self, call: TransactionalCall, request: AddPartitionsToTxn) -> bytes:
        """The body of the answer. If one of the partitions may not join, none does."""
        version = call.header.api_version
        try:
            refused = await self._refused(request.topics, call.caller)
        except RequestError:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code
            return add_partitions_to_txn_response(version, request.topics, code)
        code = OPERATION_NOT_ATTEMPTED if refused else (await self._step(call, request))[0]
        return add_partitions_to_txn_response(version, request.topics, code, refused)

    async def _step(self, call: TransactionalCall, request: TransactionStep) -> tuple[int, tuple[int, int]]:
        """Kafka's code, and the pair that the producer goes on with, if it is another one."""
        if self._serves_groups and isinstance(request, AddOffsetsToTxn):
            caller = call.caller
            # Whoever may not use the transactional id is told that.
            if caller.may_use(request.transactional_id) and not caller.may(GROUP_READ, request.group_id):
                return ErrorCode.GROUP_AUTHORIZATION_FAILED.kafka_code, _NO_PAIR
        try:
            answer = await self._transactions.step(request, call.caller)
        except RequestError as error:
            return wire_code(call.header, error.code), _NO_PAIR
        return 0, (answer.producer_id, answer.producer_epoch)

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
