"""What KIP-98, KIP-360 and KIP-890 ask of one transactional id, told apart from the code under test.

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
COMMITTED_EPOCH = 32_767
"""Of a last pair whose transaction was committed as a new producer ID was given."""

Request = requests.InitProducerId | requests.AddPartitionsToTxn | requests.EndTxn


class State(NamedTuple):
    """`last`: the pair with which the bump to `pair` was asked for, NOBODY if with none."""

    pair: Pair
    last: Pair
    status: int
    partitions: frozenset[tuple[str, int]]


class Expected(NamedTuple):
    """`answer`: a pair, NONE or the code of a refusal; None if it cannot have been decided so.

    `after`: the new state, None if there is nothing to write; and `then` the one behind it, if two are written.
    """

    answer: Pair | ErrorCode | None
    after: State | None = None
    then: State | None = None


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


def expected(before: State | None, request: Request, max_epoch: int, new_id: int | None, *, at_once: bool) -> Expected:
    """How `request` is answered in the state `before`; None: the id is unknown.

    new_id: the producer ID that it gets if it needs one; -1 if it is to come again, None if it cannot have needed one.
    at_once: a transaction is complete with the record that decides it.
    """
    if isinstance(request, requests.InitProducerId):
        supplied = (request.producer_id, request.producer_epoch)
        return _initialised(before, supplied, new_id, max_epoch, at_once=at_once)
    pair = (request.producer_id, request.producer_epoch)
    if before is None:
        return Expected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    comes_again = pair == _told_last(before, max_epoch) != NOBODY
    if isinstance(request, requests.EndTxn) and request.new_epoch and comes_again:
        return _ended_before(before, request.committed, max_epoch, new_id)
    if before.pair[0] != pair[0]:
        return Expected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if before.pair != pair or pair[1] > max_epoch:
        return Expected(ErrorCode.PRODUCER_FENCED)
    if isinstance(request, requests.AddPartitionsToTxn):
        return _joined(before, request)
    if request.new_epoch:
        return _ended_anew(before, request.committed, max_epoch, new_id)
    return _ended(before, request.committed, at_once=at_once)


def fence(before: State, last: Pair, *, at_once: bool) -> State:
    """What the abort of a transaction under way leaves: nobody has its pair, and `last` is given that."""
    aborting = State((before.pair[0], before.pair[1] + 1), last, PREPARE_ABORT, before.partitions)
    return completed(aborting) if at_once else aborting


def completed(before: State) -> State:
    """What is left of a transaction that was decided."""
    return before._replace(status=OUTCOME[before.status], partitions=frozenset())


def _initialised(
    before: State | None, supplied: Pair, new_id: int | None, max_epoch: int, *, at_once: bool
) -> Expected:
    if before is None:
        return _renewed(new_id, NOBODY)
    comes_again = supplied == _told_last(before, max_epoch)
    if supplied not in {NOBODY, before.pair} and (not comes_again or before.status == ONGOING):
        return Expected(ErrorCode.PRODUCER_FENCED)
    if before.status in OUTCOME:
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.status == ONGOING and not at_once:
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS, fence(before, supplied, at_once=False))
    if comes_again and before.status != ONGOING and supplied != NOBODY and before.pair[1] <= max_epoch:
        return Expected(before.pair)
    return _next_pair(before, supplied, max_epoch, new_id)


def _told_last(state: State, max_epoch: int) -> Pair:
    """The pair before the newest one, as its producer was told it."""
    return state.last[0], min(state.last[1], max_epoch)


def _next_pair(before: State, last: Pair, max_epoch: int, new_id: int | None) -> Expected:
    number, epoch = before.pair
    if epoch >= max_epoch:
        return _renewed(new_id, last)
    return Expected((number, epoch + 1), State((number, epoch + 1), last, EMPTY, frozenset()))


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


def _ended(before: State, committed: bool, *, at_once: bool) -> Expected:
    prepared = PREPARE_COMMIT if committed else PREPARE_ABORT
    if before.status == ONGOING:
        decided = before._replace(status=prepared)
        return Expected(ErrorCode.NONE, completed(decided) if at_once else decided)
    if before.status == OUTCOME[prepared]:
        return Expected(ErrorCode.NONE)
    return Expected(ErrorCode.CONCURRENT_TRANSACTIONS if before.status == prepared else ErrorCode.INVALID_TXN_STATE)


def _ended_anew(before: State, committed: bool, max_epoch: int, new_id: int | None) -> Expected:
    """EndTxn from version 5 on, with the newest pair."""
    if before.status not in {ONGOING, *OUTCOME} and not committed:
        return _next_pair(before, before.pair, max_epoch, new_id)
    if before.status == COMPLETE_COMMIT:
        return Expected(ErrorCode.INVALID_TXN_STATE)
    ended = _ended(before, committed, at_once=True)
    if ended.after is None:
        return ended
    number, epoch = before.pair
    if epoch < max_epoch:
        pair = (number, epoch + 1)
        return Expected(pair, ended.after._replace(pair=pair, last=before.pair))
    renewed = _renewed(new_id, (number, COMMITTED_EPOCH if committed else epoch))
    return renewed if renewed.after is None else Expected(renewed.answer, ended.after, renewed.after)


def _ended_before(before: State, committed: bool, max_epoch: int, new_id: int | None) -> Expected:
    """Likewise with the pair before, until a transaction has begun with the newest one."""
    if before.status == ONGOING:
        return Expected(ErrorCode.PRODUCER_FENCED)
    if before.status in OUTCOME:
        return Expected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if committed != (before.status == COMPLETE_COMMIT or before.last[1] == COMMITTED_EPOCH):
        return Expected(ErrorCode.INVALID_TXN_STATE)
    if before.pair[1] <= max_epoch:
        return Expected(before.pair)
    return _renewed(new_id, _told_last(before, max_epoch))
