"""What may become of one transactional id: Kafka's decision table with KIP-360's last pair, as pure functions.

Each takes the newest record of the id (None: unknown) and returns the next one; the same record means that there is
nothing to write. A refusal is a RequestError and changes nothing. Times are the leader's wall clock in ms since the
epoch: they label records, and decide nothing here.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    TopicPartitions,
    TransactionRecord,
    shared,
)

MAX_EPOCH: Final = 2**15 - 2
"""The highest epoch that a producer is given. One more is left for the fence of whoever holds it (Kafka's
`isEpochExhausted`)."""

COMMITTED_EPOCH: Final = MAX_EPOCH + 1
"""Of a last pair: EndTxn committed the transaction at MAX_EPOCH, and gave a new producer ID. No producer has it."""

MAX_TRANSACTION_BYTES: Final = 64 * 1024
"""Bytes of the partitions of one transaction, as `TransactionRecord.partition_bytes` counts them: 13,000 partitions of
one topic, or 250 topics with the longest names. A quarter of what fits into one entry of the log."""

NO_PAIR: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionStatus(enum.IntEnum):
    """Kafka's states by Kafka's numbers. DEAD is what a ForgetTransactionRecord makes; no record holds it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


_S = TransactionStatus
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is under way: the id may be initialised, begin one, or be forgotten."""

PREPARED: Final[Mapping[int, TransactionStatus]] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}
"""Decided, with markers still to be written; and what that leads to."""

LEGAL: Final[Mapping[int, frozenset[TransactionStatus]]] = {
    **dict.fromkeys(IDLE, frozenset({_S.EMPTY, _S.ONGOING, _S.DEAD})),
    _S.ONGOING: frozenset(_S) - {_S.DEAD},
    **{before: frozenset({after}) for before, after in PREPARED.items()},
}
"""Which states may follow a state (Kafka's `TransactionState.validPreviousStates`, read the other way, and
`ends_at_once`)."""


def initialise(
    before: TransactionRecord | None,
    transactional_id: str,
    *,
    timeout_ms: int,
    supplied: tuple[int, int],
    new_id: Callable[[], int],
    now_ms: int,
    at_once: bool,
) -> TransactionRecord:
    """InitProducerId: the record whose pair the caller is to use (KIP-360).

    supplied: the pair that the caller has, or NO_PAIR. new_id: gives a producer ID that nobody has; asked only where
    one is needed. at_once: the record may abort the transaction under way along with it. Without that, if the record is
    in PREPARE_ABORT, its pair is for nobody: the caller is told CONCURRENT_TRANSACTIONS and asks again when the abort
    is complete.

    Raises PRODUCER_FENCED for any pair but the current and the last one, CONCURRENT_TRANSACTIONS while markers are
    being written, and what `new_id` raises.
    """
    if before is None:
        # A supplied pair is of a mapping that expired (KIP-360, "Prolonged retention").
        return TransactionRecord(transactional_id, new_id(), 0, *NO_PAIR, timeout_ms, _S.EMPTY, now_ms)
    current, last = (before.producer_id, before.producer_epoch), _last_pair(before)
    if supplied not in {NO_PAIR, current, last} or supplied[1] > MAX_EPOCH:
        raise _fenced(before, supplied)
    if before.status in PREPARED:
        raise _concurrent(before)
    if before.status == _S.ONGOING:
        if supplied not in {NO_PAIR, current}:
            # The answer that this pair asks for again has arrived: somebody began a transaction with it.
            raise _fenced(before, supplied)
        if not at_once:
            return _fence(before, last=supplied, now_ms=now_ms)
    retried = supplied == last != NO_PAIR
    if retried and before.producer_epoch <= MAX_EPOCH:
        return before
    return replace(_renewed(before, last=supplied, new_id=new_id, now_ms=now_ms), timeout_ms=timeout_ms)


def add_partitions(
    before: TransactionRecord | None,
    transactional_id: str,
    *,
    producer: tuple[int, int],
    topics: Iterable[TopicPartitions],
    now_ms: int,
) -> tuple[TransactionRecord, AddPartitionsRecord | None]:
    """AddPartitionsToTxn: the partitions of `topics` belong to the transaction, which begins with the first of them.

    Returns the next record of the id, and what led to it: None if all of them had joined before. Raises
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, MESSAGE_TOO_LARGE.
    """
    record = _owned(before, transactional_id, producer)
    if record.status in PREPARED:
        raise _concurrent(record)
    new = _numbers(topics)
    if record.status == _S.ONGOING:
        for topic in record.partitions:
            if topic.topic in new and not new[topic.topic].difference(topic.partitions):
                del new[topic.topic]
            elif topic.topic in new:
                new[topic.topic].difference_update(topic.partitions)
        if not new:
            return record, None
    joined = AddPartitionsRecord(transactional_id, *producer, _in_order(new), now_ms)
    after = join(record, joined)
    if after.partition_bytes > MAX_TRANSACTION_BYTES:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the partitions of transaction {transactional_id!r} would take {after.partition_bytes} bytes, "
            f"{MAX_TRANSACTION_BYTES} are allowed: end it and begin another",
        )
    return after, joined


def join(before: TransactionRecord, joined: AddPartitionsRecord) -> TransactionRecord:
    """What `joined` makes of the newest record of its id."""
    ongoing = before.status == _S.ONGOING
    known = {topic.topic: topic for topic in before.partitions} if ongoing else {}
    for topic in joined.topics:
        others = known[topic.topic].partitions if topic.topic in known else ()
        known[topic.topic] = TopicPartitions(topic.topic, _merged(others, shared(topic.partitions)))
    return replace(
        before,
        status=_S.ONGOING,
        partitions=tuple(known[name] for name in sorted(known)),
        start_ms=before.start_ms if ongoing else joined.update_ms,
        update_ms=joined.update_ms,
    )


def end(
    before: TransactionRecord | None,
    transactional_id: str,
    *,
    producer: tuple[int, int],
    committed: bool,
    now_ms: int,
) -> TransactionRecord:
    """EndTxn below version 5: the outcome is decided; markers follow. Asked again for the same, it is granted again.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while markers are being written,
    INVALID_TXN_STATE without a transaction, or if the other outcome was decided.
    """
    record = _owned(before, transactional_id, producer)
    prepared = _S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT
    if record.status == _S.ONGOING:
        return replace(record, status=prepared, update_ms=now_ms)
    if record.status == PREPARED[prepared]:
        return record
    if record.status == prepared:
        raise _concurrent(record)
    raise _cannot_end(record, committed=committed)


def end_with_new_epoch(
    before: TransactionRecord | None,
    transactional_id: str,
    *,
    producer: tuple[int, int],
    committed: bool,
    new_id: Callable[[], int],
    now_ms: int,
) -> tuple[tuple[TransactionRecord, ...], TransactionRecord]:
    """EndTxn from version 5 on (KIP-890): the transaction ends, and its producer goes on with a pair of its own.

    Returns what to write, and the record whose pair the producer goes on with. Asked again with the pair before, which
    is the last one, it is answered alike; but once a transaction has begun with the newer pair, that answer is known to
    have arrived, and whoever comes is late. An abort without a transaction gives the next pair too: the producer may
    not know whether any of its partitions joined. `new_id`: as of `initialise`, for when the epochs are used up.

    Raises as `end`, and what `new_id` raises.
    """
    if before is not None and producer == _last_pair(before) != NO_PAIR:
        return _told_again(before, committed=committed, new_id=new_id, now_ms=now_ms)
    record = _owned(before, transactional_id, producer)
    if record.status in IDLE:
        if committed:
            raise _cannot_end(record, committed=committed)
        renewed = _renewed(record, last=producer, new_id=new_id, now_ms=now_ms)
        return (renewed,), renewed
    ended = end(record, transactional_id, producer=producer, committed=committed, now_ms=now_ms)
    if record.producer_epoch < MAX_EPOCH:
        ended = replace(
            completed(ended),
            producer_epoch=record.producer_epoch + 1,
            last_producer_id=producer[0],
            last_producer_epoch=producer[1],
        )
        return (ended,), ended
    # A record that gives an ID leaves its transactional id Empty, so the outcome is told by the last pair.
    last = (producer[0], COMMITTED_EPOCH) if committed else producer
    renewed = _renewed(record, last=last, new_id=new_id, now_ms=now_ms)
    return (completed(ended), renewed), renewed


def _last_pair(record: TransactionRecord) -> tuple[int, int]:
    """The pair before the newest one, as its producer has it."""
    return record.last_producer_id, min(record.last_producer_epoch, MAX_EPOCH)


def _told_again(
    record: TransactionRecord, *, committed: bool, new_id: Callable[[], int], now_ms: int
) -> tuple[tuple[TransactionRecord, ...], TransactionRecord]:
    """What EndTxn answers to the last pair: as it did, or would have, unless the outcome is another one."""
    if record.status == _S.ONGOING:
        raise _fenced(record, _last_pair(record))
    if record.status in PREPARED:
        raise _concurrent(record)
    was_committed = record.status == _S.COMPLETE_COMMIT or record.last_producer_epoch == COMMITTED_EPOCH
    if committed != was_committed:
        raise _cannot_end(record, committed=committed)
    if record.producer_epoch <= MAX_EPOCH:
        return (), record
    # Its time was up at the last epoch, and the one that fences it is for nobody.
    renewed = _renewed(record, last=_last_pair(record), new_id=new_id, now_ms=now_ms)
    return (renewed,), renewed


def _renewed(
    record: TransactionRecord, *, last: tuple[int, int], new_id: Callable[[], int], now_ms: int
) -> TransactionRecord:
    """The id without a transaction, at the next epoch, or with a new producer ID if the epochs are used up."""
    pair = (new_id(), 0) if record.producer_epoch >= MAX_EPOCH else (record.producer_id, record.producer_epoch + 1)
    return TransactionRecord(record.transactional_id, *pair, *last, record.timeout_ms, _S.EMPTY, now_ms)


def check_joined(
    before: TransactionRecord | None, transactional_id: str, *, producer: tuple[int, int], topic: str, partition: int
) -> None:
    """TxnOffsetCommit: raise RequestError unless a partition belongs to the transaction of a producer.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED and CONCURRENT_TRANSACTIONS as `end`, INVALID_TXN_STATE for all else.
    """
    record = _owned(before, transactional_id, producer)
    if record.status in PREPARED:
        raise _concurrent(record)
    if not has_joined(record, topic, partition):
        detail = f"{topic}-{partition} is not in a transaction of {transactional_id!r}: add it first"
        raise RequestError(ErrorCode.INVALID_TXN_STATE, detail)


def has_joined(record: TransactionRecord, topic: str, partition: int) -> bool:
    """Whether a partition belongs to the transaction under way."""
    if record.status != _S.ONGOING:
        return False
    for joined in record.partitions:
        if joined.topic == topic:
            place = bisect_left(joined.partitions, partition)
            return place < len(joined.partitions) and joined.partitions[place] == partition
    return False


def complete(before: TransactionRecord | None, *, producer: tuple[int, int], now_ms: int) -> TransactionRecord | None:
    """All markers of `producer`'s transaction are written. None if that is done already, by whomever."""
    if before is None or (before.producer_id, before.producer_epoch) != producer or before.status not in PREPARED:
        return None
    return replace(completed(before), update_ms=now_ms)


def completed(record: TransactionRecord) -> TransactionRecord:
    """A transaction that was decided, once nothing is left to be done about it."""
    return replace(record, status=PREPARED[record.status], partitions=(), start_ms=-1)


def ends_at_once(before: TransactionRecord | None, after: TransactionRecord) -> bool:
    """Whether `after` ends the transaction of `before` with no record between, as from ENDS_AT_ONCE on."""
    return before is not None and before.status == _S.ONGOING and after.status in IDLE


def abort(
    before: TransactionRecord | None, *, producer: tuple[int, int], timed_out: bool, now_ms: int
) -> TransactionRecord | None:
    """Abort `producer`'s transaction over its head: because its time is up, or because an operator wants that.

    A producer whose time was up gets the next epoch when it asks with its pair (KIP-588), unless another instance was
    given a newer pair since; an operator fences it for good. None if that transaction is over.
    """
    if before is None or (before.producer_id, before.producer_epoch) != producer or before.status != _S.ONGOING:
        return None
    return _fence(before, last=producer if timed_out else NO_PAIR, now_ms=now_ms)


def next_to(before: TransactionRecord, after: TransactionRecord) -> bool:
    """Whether the pair of `after` may follow that of `before`: no epoch ever comes back, and none leaves an int16."""
    if after.producer_epoch > MAX_EPOCH + (after.status in {_S.PREPARE_ABORT, _S.COMPLETE_ABORT}):
        return False
    if before.producer_id == after.producer_id:
        # Whoever had the pair goes on writing unless it is a new one.
        least = 1 if before.status == _S.ONGOING and after.status == _S.EMPTY else 0
        return least <= after.producer_epoch - before.producer_epoch <= 1
    return after.producer_epoch == 0 and before.status not in PREPARED and before.producer_epoch >= MAX_EPOCH


def _fence(record: TransactionRecord, *, last: tuple[int, int], now_ms: int) -> TransactionRecord:
    """Abort an ongoing transaction at one epoch higher; whoever comes with `last` is answered with that epoch."""
    return replace(
        record,
        producer_epoch=record.producer_epoch + 1,
        last_producer_id=last[0],
        last_producer_epoch=last[1],
        status=_S.PREPARE_ABORT,
        update_ms=now_ms,
    )


def _owned(before: TransactionRecord | None, transactional_id: str, producer: tuple[int, int]) -> TransactionRecord:
    if before is None or before.producer_id != producer[0]:
        known = "unknown" if before is None else f"mapped to {before.producer_id}"
        raise RequestError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is {known}, not to producer ID {producer[0]}"
        )
    if before.producer_epoch != producer[1] or producer[1] > MAX_EPOCH:
        # Above MAX_EPOCH is a fence that nobody was told of: whoever guesses it must not begin what no fence can end.
        raise _fenced(before, producer)
    return before


def _fenced(record: TransactionRecord, supplied: tuple[int, int]) -> RequestError:
    return RequestError(
        ErrorCode.PRODUCER_FENCED,
        f"{record.transactional_id!r} has a newer producer than {supplied[0]} with epoch {supplied[1]}",
    )


def _concurrent(record: TransactionRecord) -> RequestError:
    detail = f"{record.transactional_id!r} is in {TransactionStatus(record.status).name}: ask again"
    return RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, detail)


def _cannot_end(record: TransactionRecord, *, committed: bool) -> RequestError:
    wish, state = "commit" if committed else "abort", TransactionStatus(record.status).name
    return RequestError(ErrorCode.INVALID_TXN_STATE, f"cannot {wish} {record.transactional_id!r}: it is in {state}")


def _numbers(topics: Iterable[TopicPartitions]) -> dict[str, set[int]]:
    """The partitions of each topic; a request may name a topic more than once, or with none of its partitions."""
    found: dict[str, set[int]] = defaultdict(set)
    for topic in topics:
        if topic.partitions:
            found[topic.topic].update(topic.partitions)
    return found


def _merged(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Two ascending runs without a number in common as one. Every replay of a long transaction comes by here often."""
    both = one + other
    return both if not one or not other or one[-1] < other[0] else tuple(sorted(both))


def _in_order(numbers: Mapping[str, set[int]]) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic, tuple(sorted(numbers[topic]))) for topic in sorted(numbers))
