"""Server spans for the requests of Kafka's protocol that wait for the quorum.

They begin a trace: Kafka's protocol carries none. What the reserve answers gets no span, nor does it come this way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionCalls
from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, TransactionResponse
from pidkeeper.service.tracing import Span, Tracer

_NAMES: Final[dict[type, str]] = {
    InitProducerIdRequest: "InitProducerId",
    AddPartitionsToTxn: "AddPartitionsToTxn",
    AddOffsetsToTxn: "AddOffsetsToTxn",
    EndTxn: "EndTxn",
}


class TracedTransactions:
    """As `TransactionCalls`, each within a span."""

    def __init__(self, transactions: TransactionCalls, tracer: Tracer) -> None:
        self._transactions = transactions
        self._tracer = tracer

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        """As `TransactionCalls.init_producer_id`."""
        with self._span(request):
            return await self._transactions.init_producer_id(request, caller)

    async def step(self, request: TransactionStep, caller: Caller) -> TransactionResponse:
        """As `TransactionCalls.step`."""
        with self._span(request):
            return await self._transactions.step(request, caller)

    def _span(self, request: InitProducerIdRequest | TransactionStep) -> AbstractContextManager[Span]:
        name = _NAMES[type(request)]
        return self._tracer.server_span(name, {"rpc.system.name": "kafka", "rpc.method": name})
