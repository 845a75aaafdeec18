"""Transactional ids at an agent: what a producer asks for, and what it is told (KIP-98, KIP-360).

The quorum decides. The agent refuses what needs no decision, and gives a candidate along as long as it has not heard
that the quorum takes these IDs itself. It keeps the controllers' troubles from the producer: whatever does not concern
its transaction is COORDINATOR_LOAD_IN_PROGRESS, the one code on which every client library comes again. That no ID is
left is no such trouble: nobody need come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from pidkeeper.broker_agent.controllers.client import MAX_TRANSACTIONAL_CALLS, ControllerClient
from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.checks import (
    check_allowed,
    check_init,
    check_producer,
    topics_of,
)
from pidkeeper.broker_agent.coordinator.late_requests import LateRequestError, LateRequests
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionalInitRequest,
    TransactionResponse,
)
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS, TRANSACTIONAL_BLOCKS
from pidkeeper.service.histogram import durations

MAX_CANDIDATES: Final = 4
"""In the attempts of one call: for the leader as far as was known, for two members that do not lead either, and for the
one that they name. Attempts behind them have none, lest calls use up the reserve while no leader answers."""

KINDS: Final[dict[type, str]] = {
    InitProducerIdRequest: "init_producer_id",
    AddPartitionsToTxn: "add_partitions",
    AddOffsetsToTxn: "add_offsets",
    EndTxn: "end",
}

_TOLD_AS_THEY_ARE: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.PRODUCER_IDS_EXHAUSTED,
    }
)
"""The controllers' refusals that a producer is told: what is wrong with its transaction, and what never passes."""

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_Request = TypeVar("_Request")


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class SessionView(Protocol):
    """What requests take from the session: who asks, under which registration, and whom to tell of a stale one.

    `metadata_version`: the quorum's, as far as was heard.
    """

    broker_id: int
    broker_epoch: int | None
    metadata_version: int

    def doubt_epoch(self, epoch: int) -> None: ...


class Transactions:
    """Serves the requests of transactional producers, MAX_TRANSACTIONAL_CALLS at a time.

    Every call takes at most the deadline of the controller client. Raises RequestError with what the producer is told.
    `outcomes`: requests by kind, and by code or why they may be late; `durations`: by kind, for the metrics.
    `highest_given`: the highest ID that a producer was told, -1 before the first; it never falls. Cancelled, a request
    leaves its candidate unused for ever. `late_requests` judges each attempt. `clock`: seconds, for what is measured
    alone.
    """

    def __init__(
        self,
        session: SessionView,
        client: ControllerClient,
        candidates: Candidates,
        late_requests: LateRequests,
        clock: Callable[[], float] = _loop_time,
    ) -> None:
        self._session = session
        self._client = client
        self._candidates = candidates
        self._late_requests = late_requests
        self.under_way = 0
        self.highest_given = NO_ID
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._clock = clock
        self.durations = {kind: durations() for kind in KINDS.values()}

    async def init_producer_id(
        self, request: InitProducerIdRequest, caller: Caller = ANYBODY
    ) -> InitProducerIdResponse:
        """The pair for a transactional id. Needs one: without it the reserve alone answers."""
        return await self._counted(KINDS[InitProducerIdRequest], self._init_producer_id(request, caller))

    async def step(self, request: TransactionStep, caller: Caller = ANYBODY) -> TransactionResponse:
        """A step of the transaction that `request.transactional_id` has or begins."""
        return await self._counted(KINDS[type(request)], self._step(request, caller))

    async def _counted(self, kind: str, answer: Awaitable[_Answer]) -> _Answer:
        began = self._clock()
        try:
            served = await answer
        except RequestError as error:
            outcome = error.outcome if isinstance(error, LateRequestError) else error.code.name
            self.outcomes[kind, outcome] += 1
            raise
        finally:
            self.durations[kind].observe(int((self._clock() - began) * 1e9))
        self.outcomes[kind, ErrorCode.NONE.name] += 1
        return served

    async def _init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        transactional_id = request.transactional_id
        assert transactional_id is not None, "a null transactional id is for the reserve"
        check_allowed(transactional_id, caller.may_use)
        check_init(request)
        epoch = self._begin()
        candidates = self._candidates
        taken: list[int] = []
        given, certain = None, False

        def attempt() -> TransactionalInitRequest:
            self._late_requests.refuse(caller)
            # With a candidate of its own: an attempt that was given up on may still take effect, however late.
            needed = self._session.metadata_version < TRANSACTIONAL_BLOCKS and len(taken) < MAX_CANDIDATES
            taken.append(candidates.take() if needed else NO_ID)
            return TransactionalInitRequest(
                self._session.broker_id,
                epoch,
                transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
                taken[-1],
            )

        try:
            outcome = await self._client.init_producer_id(attempt)
            answer = outcome.answer
            if isinstance(answer, InitProducerIdResponse):
                given, certain = answer.producer_id, outcome.certain
                self.highest_given = max(self.highest_given, given)
                return InitProducerIdResponse(0, answer.producer_id, answer.producer_epoch)
            # The request was in order, so what the controller calls invalid can be the candidate alone.
            certain = outcome.certain and answer.code is not ErrorCode.INVALID_REQUEST
            raise self._told(answer, epoch)
        finally:
            self.under_way -= 1
            for candidate in taken:
                candidates.settle(candidate, given=given, certain=certain)

    async def _step(self, request: TransactionStep, caller: Caller) -> TransactionResponse:
        check_allowed(request.transactional_id, caller.may_use)
        check_producer(request)
        topics = topics_of(request)
        if topics == []:
            return TransactionResponse(0)
        if isinstance(request, EndTxn) and request.new_epoch and self._session.metadata_version < TRANSACTION_EPOCHS:
            raise _come_again("not all controllers are known to give epochs with the end of transactions")
        epoch = self._begin()
        client = self._client
        common = (self._session.broker_id, epoch, request.transactional_id, request.producer_id, request.producer_epoch)
        try:
            if isinstance(request, EndTxn):
                ended = EndTxnRequest(*common, request.committed, request.new_epoch)
                answer = await client.end_txn(self._unless_late(ended, caller))
                self.highest_given = max(self.highest_given, answer.producer_id)
                return answer
            assert topics is not None, f"no topics in {request}"
            added = AddPartitionsToTxnRequest(*common, topics)
            return await client.add_partitions_to_txn(self._unless_late(added, caller))
        except RequestError as error:
            raise self._told(error, epoch) from None
        finally:
            self.under_way -= 1

    def _unless_late(self, request: _Request, caller: Caller) -> Callable[[], _Request]:
        """`request` for each attempt: a later one may come after the agent stood still, or the caller has gone."""

        def attempt() -> _Request:
            self._late_requests.refuse(caller)
            return request

        return attempt

    def _begin(self) -> int:
        """Count a request as under way and return the broker epoch for it."""
        epoch = self._session.broker_epoch
        if epoch is None:
            raise _come_again("this agent is not registered with the controllers yet")
        if self.under_way >= MAX_TRANSACTIONAL_CALLS:
            raise _come_again(f"{MAX_TRANSACTIONAL_CALLS} transactional requests are under way here already")
        self.under_way += 1
        return epoch

    def _told(self, error: RequestError, epoch: int) -> RequestError:
        """What the producer is told when the controllers answer `error`."""
        if isinstance(error, LateRequestError):
            return error
        if error.code in _TOLD_AS_THEY_ARE:
            return RequestError(error.code, error.detail)
        if error.code in STALE:
            self._session.doubt_epoch(epoch)
        level = logging.ERROR if error.code is ErrorCode.INVALID_REQUEST else logging.DEBUG
        _log.log(level, "the controllers do not serve a transactional request: %s", error)
        return _come_again("the transaction coordinator cannot answer right now")


def _come_again(detail: str) -> RequestError:
    return RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
