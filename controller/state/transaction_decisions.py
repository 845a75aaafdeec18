"""The decisions about transactional ids, on a draft: who may ask, what `transitions` says, what goes into the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pidkeeper.controller.state import requests, transitions
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.transitions import IDLE, MAX_TRANSACTION_BYTES, NO_PAIR, TransactionStatus
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.metadata_version import (
    ADDED_PARTITIONS,
    ENDS_AT_ONCE,
    TRANSACTION_EPOCHS,
    TRANSACTIONAL_BLOCKS,
    TRANSACTIONS,
)
from pidkeeper.protocol.transactions import (
    MAX_TIMEOUT_MS,
    MAX_TRANSACTIONAL_ID_LENGTH,
    NO_PRODUCER_ID,
    ForgetTransactionRecord,
    TransactionRecord,
)

RECORD_BYTES: Final = 128
"""At most, of an encoded TransactionRecord or AddPartitionsRecord without its transactional id and partitions: nine
integers and the frame."""

OWN_BLOCK_BYTES: Final = 40
"""At most, of an encoded TransactionalBlockRecord, which a new producer ID may need: three integers and the frame."""

MAX_NAME_BYTES: Final = 4 * MAX_TRANSACTIONAL_ID_LENGTH
"""Of a transactional id in UTF-8; a longer one is refused."""


def init_producer_id(draft: Draft, request: requests.InitProducerId) -> InitProducerIdResponse | RequestError:
    """Kafka's `handleInitProducerId`, in its order of checks; but the pair is compared before anything is aborted.

    A returned RequestError is the answer that goes with a record: the transaction under way is being aborted, and not
    all members read a record that does both.
    """
    draft.require(TRANSACTIONS)
    draft.check_broker(request.broker_id, request.broker_epoch)
    supplied = (request.producer_id, request.producer_epoch)
    _check_init(request.transactional_id, request.timeout_ms, supplied)
    before = draft.transaction(request.transactional_id)
    record = transitions.initialise(
        before,
        request.transactional_id,
        timeout_ms=request.timeout_ms,
        supplied=supplied,
        new_id=partial(_new_id, draft, request),
        now_ms=draft.timestamp_ms,
        at_once=draft.metadata_version >= ENDS_AT_ONCE,
    )
    if record is not before:
        draft.write_transaction(record)
    if record.status == TransactionStatus.PREPARE_ABORT:
        detail = f"the transaction of {record.transactional_id!r} that was under way is being aborted: ask again"
        return RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, detail)
    return InitProducerIdResponse(0, record.producer_id, record.producer_epoch)


def add_partitions_to_txn(draft: Draft, request: requests.AddPartitionsToTxn) -> TransactionResponse:
    """Kafka's `handleAddPartitionsToTransaction`."""
    before = _transaction(draft, request)
    record, joined = transitions.add_partitions(
        before,
        request.transactional_id,
        producer=(request.producer_id, request.producer_epoch),
        topics=request.topics,
        now_ms=draft.timestamp_ms,
    )
    if joined is not None:
        draft.write_transaction(record, joined if draft.metadata_version >= ADDED_PARTITIONS else record)
    return TransactionResponse(0)


def end_txn(draft: Draft, request: requests.EndTxn) -> TransactionResponse:
    """Kafka's `handleEndTransaction`."""
    before = _transaction(draft, request)
    if request.new_epoch:
        return _end_with_new_epoch(draft, request, before)
    record = transitions.end(
        before,
        request.transactional_id,
        producer=(request.producer_id, request.producer_epoch),
        committed=request.committed,
        now_ms=draft.timestamp_ms,
    )
    if record is not before:
        _write_decided(draft, record)
    return TransactionResponse(0)


def _end_with_new_epoch(
    draft: Draft, request: requests.EndTxn, before: TransactionRecord | None
) -> TransactionResponse:
    draft.require(TRANSACTION_EPOCHS)
    records, newest = transitions.end_with_new_epoch(
        before,
        request.transactional_id,
        producer=(request.producer_id, request.producer_epoch),
        committed=request.committed,
        new_id=partial(_new_id, draft, request),
        now_ms=draft.timestamp_ms,
    )
    for record in records:
        draft.write_transaction(record)
    return TransactionResponse(0, newest.producer_id, newest.producer_epoch)


def complete_transaction(draft: Draft, request: requests.CompleteTransaction) -> TransactionResponse:
    """Write that all markers are written, unless that is known."""
    before = draft.transaction(request.transactional_id)
    producer = (request.producer_id, request.producer_epoch)
    record = transitions.complete(before, producer=producer, now_ms=draft.timestamp_ms)
    if record is not None:
        draft.write_transaction(record)
    return TransactionResponse(0)


def abort_transaction(draft: Draft, request: requests.AbortTransaction) -> TransactionResponse:
    """Abort a transaction over its producer's head. Raises TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE.

    A pair of which one is missing is an INVALID_REQUEST.
    """
    producer = (request.producer_id, request.producer_epoch)
    _check_pair(producer)
    before = _known(draft, request.transactional_id)
    if producer == NO_PAIR:
        producer = (before.producer_id, before.producer_epoch)
    record = transitions.abort(before, producer=producer, timed_out=request.timed_out, now_ms=draft.timestamp_ms)
    if record is None:
        state = TransactionStatus(before.status).name
        detail = f"{request.transactional_id!r} has no such transaction under way: it is in {state}"
        raise RequestError(ErrorCode.INVALID_TXN_STATE, detail)
    _write_decided(draft, record)
    return TransactionResponse(0)


def forget_transactional_id(draft: Draft, request: requests.ForgetTransactionalId) -> TransactionResponse:
    """Forget an id that is idle and has still the pair that was seen to be old. Raises as `abort_transaction`."""
    before = _known(draft, request.transactional_id)
    if (before.producer_id, before.producer_epoch) != (request.producer_id, request.producer_epoch) or (
        before.status not in IDLE
    ):
        raise RequestError(ErrorCode.INVALID_TXN_STATE, f"{request.transactional_id!r} is in use again")
    draft.write_transaction(ForgetTransactionRecord(request.transactional_id))
    return TransactionResponse(0)


def most_bytes(draft: Draft, request: Any) -> int:
    """Bytes that the record of a transaction's request takes at most; 0 for a request of another kind.

    A request that would make more of a transaction than may be is refused, so it needs no more room than the largest:
    one that asked for more than a whole entry would wait for ever, and all others behind it.
    """
    if type(request) not in DECIDERS:
        return 0
    known = draft.transaction(request.transactional_id)
    partitions = 0 if known is None else known.partition_bytes
    if isinstance(request, requests.AddPartitionsToTxn):
        joining = sum(topic.encoded_bytes for topic in request.topics)
        partitions = joining if draft.metadata_version >= ADDED_PARTITIONS else partitions + joining
    name = min(len(request.transactional_id.encode()), MAX_NAME_BYTES)
    size = RECORD_BYTES + name + min(partitions, MAX_TRANSACTION_BYTES)
    if isinstance(request, requests.EndTxn) and request.new_epoch:
        return OWN_BLOCK_BYTES + 2 * (RECORD_BYTES + name)
    return size + (OWN_BLOCK_BYTES if isinstance(request, requests.InitProducerId) else 0)


def _write_decided(draft: Draft, record: TransactionRecord) -> None:
    """The outcome of a transaction. It was two entries of the log as long as markers were written between them."""
    at_once = draft.metadata_version >= ENDS_AT_ONCE
    draft.write_transaction(transitions.completed(record) if at_once else record)


def _check_init(transactional_id: str, timeout_ms: int, supplied: tuple[int, int]) -> None:
    _check_pair(supplied)
    _check_name(transactional_id)
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise RequestError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"the timeout is {timeout_ms} ms, 1 to {MAX_TIMEOUT_MS} is allowed"
        )


def _check_pair(supplied: tuple[int, int]) -> None:
    if (supplied[0] == NO_PAIR[0]) != (supplied[1] == NO_PAIR[1]):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {supplied[0]} with epoch {supplied[1]}: give both of a pair, or -1 for both",
        )


def _check_name(transactional_id: str) -> None:
    if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id has 1 to {MAX_TRANSACTIONAL_ID_LENGTH} characters, not {len(transactional_id)}",
        )


def _new_id(draft: Draft, request: requests.InitProducerId | requests.EndTxn) -> int:
    """A producer ID that nobody has: the quorum's own, or as long as not all members read that, the agent's word."""
    if not request.may_get_id:
        detail = "a new producer ID is needed, and the quorum hands out none yet; ask again"
        raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
    if draft.metadata_version >= TRANSACTIONAL_BLOCKS:
        return draft.next_own_id(may_take_block=request.may_take_block)
    return _checked(draft, request.candidate if isinstance(request, requests.InitProducerId) else NO_PRODUCER_ID)


def _checked(draft: Draft, candidate: int) -> int:
    if candidate == NO_PRODUCER_ID:
        raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a new producer ID is needed and none is at hand")
    if not NO_PRODUCER_ID < candidate < draft.next_producer_id:
        detail = f"producer ID {candidate} was never allocated: the next one is {draft.next_producer_id}"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    if (user := draft.user_of(candidate)) is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"producer ID {candidate} belongs to {user!r} already")
    return candidate


def _transaction(draft: Draft, request: requests.AddPartitionsToTxn | requests.EndTxn) -> TransactionRecord | None:
    draft.require(TRANSACTIONS)
    draft.check_broker(request.broker_id, request.broker_epoch)
    _check_name(request.transactional_id)
    return draft.transaction(request.transactional_id)


def _known(draft: Draft, transactional_id: str) -> TransactionRecord:
    record = draft.transaction(transactional_id)
    if record is None:
        raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"nothing is known of {transactional_id!r}")
    return record


DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.InitProducerId: init_producer_id,
    requests.AddPartitionsToTxn: add_partitions_to_txn,
    requests.EndTxn: end_txn,
    requests.CompleteTransaction: complete_transaction,
    requests.AbortTransaction: abort_transaction,
    requests.ForgetTransactionalId: forget_transactional_id,
}
