"""Which transactions hold the last stable offset of a log, behind which `read_committed` sees nothing. Pure."""

from __future__ import annotations

from typing import NamedTuple

from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.protocol.transactions import TransactionRecord


class Holder(NamedTuple):
    """What holds the last stable offset of a log: the transaction that was open in it first.

    `transaction`: None if its transactional id is unknown, which cannot be in a sound quorum.
    """

    producer_id: int
    transaction: TransactionRecord | None


class StableOffsets(NamedTuple):
    """Over all logs. `lag`: offsets behind the last stable one, of the log with the most.

    `oldest_ms`: when the oldest transaction that is open in a log began, by the clock of that time's leader; None
    without one.
    """

    lag: int
    oldest_ms: int | None


def holder(log: PartitionLog, transactions: TransactionsState) -> Holder | None:
    """None if the last stable offset is the end of the log."""
    producer_id = next(iter(log.open), None)
    if producer_id is None:
        return None
    user = transactions.user_of(producer_id)
    return Holder(producer_id, None if user is None else transactions.get(user))


def stable_offsets(logs: LogsState, transactions: TransactionsState) -> StableOffsets:
    """With 10,000 partitions, all of them held, some ten milliseconds; nothing without an open transaction."""
    lag, oldest = 0, None
    for log in logs.with_open():
        lag = max(lag, log.end - log.last_stable)
        began = _began_ms(holder(log, transactions))
        if began is not None and (oldest is None or began < oldest):
            oldest = began
    return StableOffsets(lag, oldest)


def _began_ms(held: Holder | None) -> int | None:
    if held is None or held.transaction is None or held.transaction.start_ms < 0:
        return None
    return held.transaction.start_ms
