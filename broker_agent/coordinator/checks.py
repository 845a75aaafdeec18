"""What a producer may ask for at all, decided before anybody is asked. Pure: no clock, no I/O."""

from __future__ import annotations

from pidkeeper.broker_agent.coordinator.caller import MayUse
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, EndTxn, TransactionStep
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.groups import OFFSETS_TOPIC, offsets_partition
from pidkeeper.protocol.messages import InitProducerIdRequest, TransactionTopic
from pidkeeper.protocol.transactions import (
    MAX_TIMEOUT_MS,
    MAX_TOPIC_LENGTH,
    MAX_TRANSACTIONAL_ID_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
)


def check_allowed(transactional_id: str, may_use: MayUse) -> None:
    """Raise RequestError if the caller may not use it."""
    if not may_use(transactional_id):
        detail = f"no rule allows this caller the transactional id {transactional_id[:MAX_TRANSACTIONAL_ID_LENGTH]!r}"
        raise RequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, detail)


def check_init(request: InitProducerIdRequest) -> None:
    """Kafka's checks of an InitProducerId, in Kafka's order. Raises RequestError."""
    _check_pair(request.producer_id, request.producer_epoch)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {request.producer_id} with epoch {request.producer_epoch}: give both, or -1 for both",
        )
    if request.transactional_id is None:
        return
    _check_transactional_id(request.transactional_id)
    if not 1 <= request.transaction_timeout_ms <= MAX_TIMEOUT_MS:
        raise RequestError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"the timeout is {request.transaction_timeout_ms} ms, 1 to {MAX_TIMEOUT_MS} is allowed",
        )


def check_producer(request: TransactionStep) -> None:
    """The checks of the id and the pair that every step has. Raises RequestError."""
    _check_transactional_id(request.transactional_id)
    _check_pair(request.producer_id, request.producer_epoch)


def _check_transactional_id(transactional_id: str) -> None:
    if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id has 1 to {MAX_TRANSACTIONAL_ID_LENGTH} characters, not {len(transactional_id)}",
        )


def _check_pair(producer_id: int, producer_epoch: int) -> None:
    if producer_id < NO_PRODUCER_ID or producer_epoch < NO_PRODUCER_EPOCH:
        detail = f"producer id {producer_id} with epoch {producer_epoch}: neither is below -1"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)


def topics_of(request: TransactionStep) -> list[TransactionTopic] | None:
    """The partitions that `request` adds, without topics that have none; None if it ends the transaction.

    Raises RequestError.
    """
    if isinstance(request, EndTxn):
        return None
    if isinstance(request, AddOffsetsToTxn):
        return [TransactionTopic(OFFSETS_TOPIC, [offsets_partition(request.group_id)])]
    for topic in request.topics:
        if not 1 <= len(topic.topic) <= MAX_TOPIC_LENGTH:
            detail = f"a topic has 1 to {MAX_TOPIC_LENGTH} characters, not {len(topic.topic)}"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        if any(number < 0 for number in topic.partitions):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"partition {min(topic.partitions)} of {topic.topic!r}")
    return [topic for topic in request.topics if topic.partitions]
