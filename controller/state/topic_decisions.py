"""The decisions about topics, and about what is forgotten of their producers."""

from __future__ import annotations

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.logs.producers import NOT_OPEN
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import DeleteTopicResponse, TopicDescription
from pidkeeper.protocol.logs import (
    PRODUCER_BYTES,
    TOPIC_BYTES,
    ProducersExpiredRecord,
    TopicRecord,
)
from pidkeeper.protocol.metadata_version import PARTITION_LOGS
from pidkeeper.protocol.topic_names import RULE, is_topic_name


def create_topic(draft: Draft, request: requests.CreateTopic) -> TopicDescription:
    """Create a topic; the same answer when it is asked again.

    Raises INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, THROTTLING_QUOTA_EXCEEDED at the bound.
    """
    draft.require(PARTITION_LOGS)
    _check_caller(draft, request.broker)
    if (known := draft.logs.of_id(request.topic_id)) is not None and known.name == request.name:
        return described(known)
    if not is_topic_name(request.name):
        detail = f"{request.name!r}: a topic's name is {RULE}"
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
    if known is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"topic {known.name!r} has the id {request.topic_id}")
    if draft.logs.topic(request.name) is not None:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {request.name!r} already")
    _check_room(draft, request.partitions)
    record = TopicRecord(
        request.topic_id,
        request.name,
        request.partitions,
        draft.logs.next_log,
        request.retention_ms,
        request.retention_bytes,
        draft.timestamp_ms,
    )
    if not request.validate_only:
        draft.logs.create(record)
        draft.records.append(record)
    return described(record)


def delete_topic(draft: Draft, request: requests.DeleteTopic) -> DeleteTopicResponse:
    """Delete a topic. Raises UNKNOWN_TOPIC_OR_PARTITION, also if it is another one by now."""
    draft.require(PARTITION_LOGS)
    _check_caller(draft, request.broker)
    topic = draft.logs.topic(request.name)
    if topic is None or request.topic_id not in {None, topic.topic_id}:
        detail = f"there is no topic {request.name!r}" + (f" with id {request.topic_id}" if request.topic_id else "")
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    draft.remove_topic(topic)
    return DeleteTopicResponse(topic.topic_id, topic.name)


def expire_producers(draft: Draft, request: requests.ExpireProducers) -> None:
    """Forget producers that were silent (KIP-854), but none whose transaction is open."""
    draft.require(PARTITION_LOGS)
    silent = []
    for log, producer_id, timestamp_ms in request.producers:
        entry = None if draft.logs.topic_of(log) is None else draft.logs.producer(log, producer_id)
        if entry is not None and entry.timestamp_ms == timestamp_ms and entry.open_since == NOT_OPEN:
            silent.append((log, producer_id))
            draft.logs.forget(log, producer_id)
    if silent:
        draft.records.append(ProducersExpiredRecord(tuple(silent)))


def confirm_state(_: Draft, __: requests.ConfirmState) -> None:
    """Nothing to decide: the answer waits for an entry behind it."""


def most_bytes(request: requests.CreateTopic | requests.ExpireProducers) -> int:
    """Bytes that the record takes at most."""
    if isinstance(request, requests.CreateTopic):
        return TOPIC_BYTES + len(request.name.encode())
    return TOPIC_BYTES + PRODUCER_BYTES * len(request.producers)


def described(topic: TopicRecord) -> TopicDescription:
    """A topic, as callers are told of it."""
    return TopicDescription(
        topic.topic_id, topic.name, topic.partitions, topic.first_log, topic.retention_ms, topic.retention_bytes
    )


def _check_caller(draft: Draft, broker: tuple[int, int] | None) -> None:
    if broker is not None:
        draft.check_broker(*broker)


def _check_room(draft: Draft, partitions: int) -> None:
    if partitions > limits.MAX_PARTITIONS:
        detail = f"{partitions} partitions, and at most {limits.MAX_PARTITIONS} are kept of all topics together"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, detail)
    if draft.logs.partitions + partitions > limits.MAX_PARTITIONS:
        detail = (
            f"{draft.logs.partitions} partitions are kept, {limits.MAX_PARTITIONS} is the bound: delete topics first"
        )
        raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail)
