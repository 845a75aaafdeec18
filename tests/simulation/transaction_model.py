"""What KIP-98 and KIP-360 ask of one transactional id, told apart from the code under test.

A state is what one record of the log says, a request is an attempt of a producer: the model says how it must be
answered in that state, and which state it leads to. Nothing here is taken from `controller.state`.
"""

from __future__ import annotations

from typing import NamedTuple

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.transactions import AddPartitionsRecord, TransactionRecord

Pair = tuple[int, int]
NOBODY: Pair = (-1, -1)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
OUTCOME = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
Request = requests.InitProducerId | requests.AddPartitionsToTxn | requests.EndTxn


class State(NamedTuple):
    """`last`: the pair with which the bump to `pair` was asked for, NOBODY if with none."""

    pair: Pair
    last: Pair
    status: int
    partitions: frozenset[tuple[str, int]]


class Expected(NamedTuple):
    """`answer`: a pair, NONE or the code of a refusal; None if it cannot have been decided so.

    `after`: the new state, None if there is nothing to write.
    """

    answer: Pair | ErrorCode | None
    after: State | None = None


def state_of(record: TransactionRecord) -> State:
    """What a record says, but for times."""
    return State(
        (record.producer_id, record.producer_epoch),
        (record.last_producer_id, record.last_producer_epoch),
        record.status,
        frozenset(record.each_partition()),
    )


def joined(before: State | None, record: AddPartitionsRecord) -> State | None:
    """What is said of an id by a record of the partitions that join; None if nothing was said of it before."""
    if before is None:
        return None
    known = before.partitions if before.status == ONGOING else frozenset()
    new = frozenset((topic.topic, number) for topic in record.topics for number in topic.partitions)
    return State((record.producer_id, record.producer_epoch), before.last, ONGOING, known | new)


def expected(before: State | None, request: Request, max_epoch: int, new_id: int | None) -> Expected:
    """How `request` is answered in the state `before`; None: the id is unknown.

    new_id: the producer ID that it gets if it needs one; -1 if it is to come again, None if it cannot have needed one.
    """
    if isinstance(request, requests.InitProducerId):
        return _initialised(before, (request.producer_id, request.producer_epoch), new_id, max_epoch)
    pair = (request.producer_id, request.producer_epoch)
    if before is None or before.pair[0] != pair[0]:
        return Expected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if before.pair != pair or pair[1] > max_epoch:
        return Expected(ErrorCode.PRODUCER_FENCED)
    if isinstance(request, requests.EndTxn):
        return _ended(before, request.committed)
    return _joined(before, request)


def _initialised(before: State | None, supplied: Pair, new_id: int | None, max_epoch: int) -> Expected:
    if before is None:
        return _renewed(new_id, NOBODY)
    comes_again = supplied == before.last
    if supplied not in {NOBODY, before.pair} and (not comes_again or before.status == ONGOING):
        return Expected(ErrorCode.PRODUCER_FENCED)
    number, epoch = before.pair
    if before.status in OUTCOME:
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.status == ONGOING:
        fence = State((number, epoch + 1), supplied, PREPARE_ABORT, before.partitions)
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS, fence)
    if comes_again and supplied != NOBODY and epoch <= max_epoch:
        return Expected(before.pair)
    if epoch >= max_epoch:
        return _renewed(new_id, supplied)
    pair = (number, epoch + 1)
    return Expected(pair, State(pair, supplied, EMPTY, frozenset()))


def _renewed(new_id: int | None, supplied: Pair) -> Expected:
    if new_id is None:
        return Expected(None)
    if new_id < 0:
        return Expected(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return Expected((new_id, 0), State((new_id, 0), supplied, EMPTY, frozenset()))


def _joined(before: State, request: requests.AddPartitionsToTxn) -> Expected:
    if before.status in OUTCOME:
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS)
    joining = frozenset((topic.topic, number) for topic in request.topics for number in topic.partitions)
    known = before.partitions if before.status == ONGOING else frozenset()
    if before.status == ONGOING and joining <= known:
        return Expected(ErrorCode.NONE)
    return Expected(ErrorCode.NONE, before._replace(status=ONGOING, partitions=known | joining))


def _ended(before: State, committed: bool) -> Expected:
    prepared = PREPARE_COMMIT if committed else PREPARE_ABORT
    if before.status == ONGOING:
        return Expected(ErrorCode.NONE, before._replace(status=prepared))
    if before.status == OUTCOME[prepared]:
        return Expected(ErrorCode.NONE)
    return Expected(ErrorCode.CONCURRENT_TRANSACTIONS if before.status == prepared else ErrorCode.INVALID_TXN_STATE)
