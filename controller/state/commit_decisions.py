"""The decision about an object of record batches: which of them join their logs, and at which offset."""

from __future__ import annotations

import uuid
from typing import Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.logs import producers
from pidkeeper.controller.state.transitions import add_partitions, has_joined
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import CommitObjectResponse, OfferedBatch
from pidkeeper.protocol.logs import (
    BATCH_BYTES,
    MAX_OBJECT_BATCHES,
    OBJECT_BYTES,
    BatchCoordinates,
    ObjectId,
    ObjectRecord,
    TopicRecord,
)
from pidkeeper.protocol.metadata_version import PARTITION_LOGS, TRANSACTION_EPOCHS
from pidkeeper.protocol.transactions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartitions

MAX_COMMIT_BYTES: Final = OBJECT_BYTES + BATCH_BYTES * MAX_OBJECT_BATCHES
"""Of one entry, for commits of objects: the largest one, or several smaller ones. All else waits for the decision about
so many batches at most, some 10 ms."""

_NEVER_JOINS: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Why a partition does not join, as a producer of records is told: the transaction has too many, or is not its own."""


def commit_object(draft: Draft, request: requests.CommitObject) -> CommitObjectResponse:
    """Let the batches of an object join their logs, each that may; the same answer when it is asked again.

    A partition that joins its producer's transaction has a record before the object's. Raises UNSUPPORTED_VERSION,
    BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, STORE_REFUSED, NOT_ENOUGH_REPLICAS if too many brokers commit,
    and INVALID_REQUEST for what no agent asks.
    """
    draft.require(PARTITION_LOGS)
    name, logs = request.object, draft.logs
    check_committer(draft, name, request.founding_id)
    last = logs.last_commit(name.broker_id)
    if last is not None and last.broker_epoch == name.broker_epoch and last.number >= name.number:
        if last.number > name.number:
            detail = f"object {name.number} comes after {last.number}: they are committed in their order"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        if len(last.outcomes) != len(request.batches):
            detail = f"object {name.number} has {len(request.batches)} batches now, it had {len(last.outcomes)}"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        return CommitObjectResponse(list(last.outcomes), last.referenced)
    _check_layout(request)
    joining_ids = _joining(draft, request)
    if last is None and not logs.has_room_for_committer():
        raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, "no more brokers may commit objects: unregister some")
    outcomes, joining = [], []
    for number, batch in enumerate(request.batches):
        outcome = _join(draft, batch, joining_ids.get(number))
        if isinstance(outcome, BatchCoordinates):
            joining.append(outcome)
            outcomes.append(outcome.base_offset)
        else:
            outcomes.append(outcome if isinstance(outcome, int) else -outcome.kafka_code)
    # Also if none joins: the agent deletes the object then, and an earlier attempt may still come and be granted.
    record = ObjectRecord(name, request.size, tuple(outcomes), tuple(joining), draft.timestamp_ms)
    logs.commit(record)
    draft.records.append(record)
    return CommitObjectResponse(outcomes, referenced=bool(joining))


def most_bytes(request: requests.CommitObject) -> int:
    """Bytes that the records take at most. One that would take more than the largest is refused."""
    joining = sum(one.encoded_bytes for one in request.joining)
    return min(OBJECT_BYTES + BATCH_BYTES * len(request.batches) + joining, MAX_COMMIT_BYTES)


def check_committer(draft: Draft, name: ObjectId, founding_id: uuid.UUID) -> None:
    """Raise RequestError unless a broker may commit an object of that name, in the cluster's store.

    `founding_id`: of the founding that the object is named after.
    """
    registration = draft.check_broker(name.broker_id, name.broker_epoch)
    store_id = draft.logs.store_id
    if registration.store_id is None or registration.store_id != store_id:
        detail = f"broker {name.broker_id} came with store {registration.store_id}, the cluster's is {store_id}"
        raise RequestError(ErrorCode.STORE_REFUSED, f"{detail}: register it with that one")
    own = draft.foundings.founding_id
    if own is None or own != founding_id:
        # Its name has that of another founding, under which nobody would find it.
        detail = f"the object is named after founding {founding_id}, and this is {own}: register anew"
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH, detail)


def _check_layout(request: requests.CommitObject) -> None:
    """Raise INVALID_REQUEST unless the batches lie in the object one behind another."""
    position = 0
    for number, batch in enumerate(request.batches):
        idempotent = batch.producer_id != NO_PRODUCER_ID
        if batch.position < position:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"batch {number} begins within the one before it")
        if idempotent != (batch.producer_epoch != NO_PRODUCER_EPOCH) or idempotent != (batch.base_sequence >= 0):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"batch {number} has only a part of id, epoch and sequence")
        if batch.transactional and not idempotent:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"batch {number} is transactional and has no producer id")
        position = batch.position + batch.size
    if position > request.size:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"the batches reach to byte {position}, the object has {request.size}"
        )


def _joining(draft: Draft, request: requests.CommitObject) -> dict[int, str]:
    """Under which transactional id the partition of a batch may join a transaction, by the batch's index."""
    if not request.joining:
        return {}
    draft.require(TRANSACTION_EPOCHS)
    if any(
        one.batch >= len(request.batches) or not request.batches[one.batch].transactional for one in request.joining
    ):
        raise RequestError(ErrorCode.INVALID_REQUEST, "only transactional batches of the object join a transaction")
    size = sum(one.encoded_bytes for one in request.joining)
    if OBJECT_BYTES + BATCH_BYTES * len(request.batches) + size > MAX_COMMIT_BYTES:
        detail = f"{len(request.batches)} batches and {size} bytes of partitions that join are too much for one object"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    return {one.batch: one.transactional_id for one in request.joining}


def _join(draft: Draft, batch: OfferedBatch, joining_id: str | None) -> BatchCoordinates | int | ErrorCode:
    """The place that a batch gets, the offset that it has already, or why it must not join.

    `joining_id`: its partition joins the transaction under way with it, or begins one.
    """
    logs, log, producer_id = draft.logs, batch.log, batch.producer_id
    topic = logs.topic_of(log)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    entry = None
    if producer_id != NO_PRODUCER_ID:
        if (refused := _refuse_pair(draft, topic, batch, joining_id)) is not None:
            return refused
        entry = logs.producer(log, producer_id)
        if (offset := producers.find_duplicate(entry, batch)) is not None:
            return offset
        if (refused := producers.refusal(entry, batch)) is not None:
            return refused
        if entry is None and joining_id is not None and batch.base_sequence:
            # Each of its transactions has an epoch that begins here: batches before this one are missing (KAFKA-18202).
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if not logs.has_room(entry, producer_id, transactional=batch.transactional):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if joining_id is not None and (refused := _join_transaction(draft, topic, batch, joining_id)) is not None:
        return refused
    placed = BatchCoordinates(
        log,
        logs.end(log),
        batch.records,
        batch.position,
        batch.size,
        producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.max_timestamp,
        batch.transactional,
    )
    logs.append(placed, entry, draft.timestamp_ms)
    return placed


def _join_transaction(draft: Draft, topic: TopicRecord, batch: OfferedBatch, joining_id: str) -> ErrorCode | None:
    """Have the partition of a batch join its producer's transaction, or why it must not."""
    try:
        record, joined = add_partitions(
            draft.transaction(joining_id),
            joining_id,
            producer=(batch.producer_id, batch.producer_epoch),
            topics=(TopicPartitions(topic.name, (batch.log - topic.first_log,)),),
            now_ms=draft.timestamp_ms,
        )
        if joined is not None:
            draft.write_transaction(record, joined)
    except RequestError as error:
        # What is full or under way passes.
        return _NEVER_JOINS.get(error.code, ErrorCode.NOT_ENOUGH_REPLICAS)
    return None


def _refuse_pair(draft: Draft, topic: TopicRecord, batch: OfferedBatch, joining_id: str | None) -> ErrorCode | None:
    """Why a producer with that pair may not write here, or not in a transaction; what KIP-890 asks a coordinator."""
    if batch.producer_id >= draft.next_producer_id or draft.own_ids.holds(batch.producer_id):
        # Nobody was given it: whoever has it is of another cluster, or of a past that a backup does not know.
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    user = draft.user_of(batch.producer_id)
    record = None if user is None else draft.transaction(user)
    if record is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if batch.transactional else None
    if (record.producer_id, record.producer_epoch) != (batch.producer_id, batch.producer_epoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if joining_id is not None:
        # Somebody else's transaction is nothing that the caller was allowed to begin.
        return None if record.transactional_id == joining_id else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if batch.transactional and not has_joined(record, topic.name, batch.log - topic.first_log):
        return ErrorCode.INVALID_TXN_STATE
    return None
