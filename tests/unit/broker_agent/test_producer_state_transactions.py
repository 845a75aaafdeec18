"""Open, completed and late transactions. The docstrings name the tests of Kafka whose rule a test holds."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.producer_state import AppendOrigin, CompletedTransaction, ProducerStateManager
from pidkeeper.broker_agent.producer_state import transactions as transactions_module
from pidkeeper.broker_agent.producer_state.transactions import Transactions
from tests.unit.broker_agent.test_producer_state import append, data, end, entry, marker

PARTITION = "orders-0"
LATE_MS = 300_000 + 5 * 60 * 1000


@pytest.fixture
def state() -> ProducerStateManager:
    return ProducerStateManager(PARTITION, expiration_ms=60_000, max_transaction_timeout_ms=300_000)


def begin(state: ProducerStateManager, pid: int, offset: int, timestamp: int = 1000) -> None:
    append(state, data(0, offset, pid=pid, timestamp=timestamp, transactional=True))


def test_the_first_offset_of_a_transaction_is_unstable(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testTxnFirstOffsetMetadataCached."""
    append(state, data(0, 992_342, records=3, transactional=True))
    assert (state.first_unstable_offset, entry(state).txn_first_offset) == (992_342, 992_342)


def test_the_first_unstable_offset_waits_for_the_high_watermark(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testFirstUnstableOffset."""
    assert (state.first_undecided_offset, state.first_unstable_offset) == (None, None)
    begin(state, 1, 99)
    begin(state, 2, 105)
    assert (state.first_undecided_offset, state.first_unstable_offset) == (99, 99)
    end(state, marker(109, pid=1))
    assert (state.first_undecided_offset, state.first_unstable_offset) == (105, 99)
    state.update_high_watermark(100)
    assert state.first_unstable_offset == 99
    state.update_high_watermark(109)
    assert state.first_unstable_offset == 99
    state.update_high_watermark(110)
    assert state.first_unstable_offset == 105
    end(state, marker(112, pid=2, committed=False))
    assert (state.first_undecided_offset, state.first_unstable_offset) == (None, 105)
    state.update_high_watermark(113)
    assert state.first_unstable_offset is None


def test_the_first_unstable_offset_comes_back_by_truncation(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testFirstUnstableOffsetAfterTruncation."""
    begin(state, 1, 99)
    opened = state.snapshot()
    end(state, marker(105))
    state.update_high_watermark(106)
    ended = state.snapshot()
    append(state, data(1, 106))
    assert state.truncate_and_reload(0, 106, [ended, opened], 1000).replay_from == 106
    assert state.first_unstable_offset is None
    reloaded = state.truncate_and_reload(0, 100, [ended, opened], 1000)
    assert (reloaded.replay_from, len(reloaded.rejected)) == (100, 1)
    assert state.first_unstable_offset == 99


def test_the_last_stable_offset_of_a_completed_transaction_is_the_next_open_one(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testLastStableOffsetCompletedTxn."""
    for pid, offset in ((1, 1000), (2, 1025), (3, 1057)):
        begin(state, pid, offset)
    for pid, offset, stable, unstable in ((1, 1072, 1025, 1025), (3, 1092, 1025, 1025), (2, 1170, 1171, None)):
        assert end(state, marker(offset, pid=pid))[0].last_stable_offset == stable
        state.update_high_watermark(offset + 1)
        assert state.first_unstable_offset == unstable


def test_a_read_committed_consumer_reads_to_the_last_stable_offset(state: ProducerStateManager) -> None:
    append(state, data(0, 0, pid=2))
    assert state.last_stable_offset(1) == 1
    begin(state, 1, 1)
    assert [state.last_stable_offset(watermark) for watermark in (0, 1, 2)] == [0, 1, 1]
    end(state, marker(2))
    assert [state.last_stable_offset(watermark) for watermark in (2, 3)] == [1, 1]
    state.update_high_watermark(3)
    assert state.last_stable_offset(3) == 3


def test_markers_without_data_complete_nothing(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testSkipEmptyTransactions."""
    append(state, data(0, 16, records=5, transactional=True))
    state.update_high_watermark(21)
    assert state.first_unstable_offset == 16
    ended = append(
        state,
        marker(21),
        marker(22),
        marker(23, committed=False),
        data(5, 24, records=4, transactional=True),
        marker(28, committed=False),
        marker(29, committed=False),
        data(9, 30, records=2, transactional=True),
        origin=AppendOrigin.REPLICATION,
    )
    assert ended == [
        CompletedTransaction(1, 16, 21, committed=True, last_stable_offset=22),
        CompletedTransaction(1, 24, 28, committed=False, last_stable_offset=29),
    ]
    assert state.first_unstable_offset == 16
    state.update_high_watermark(32)
    assert state.first_unstable_offset == 30


def test_a_transaction_that_ends_first_hides_none_that_began_before(state: ProducerStateManager) -> None:
    for pid, offset in ((1, 0), (2, 1), (3, 2)):
        begin(state, pid, offset)
    for pid, offset in ((2, 3), (1, 4), (3, 5)):
        end(state, marker(offset, pid=pid))
    assert state.first_unstable_offset == 0
    state.update_high_watermark(4)
    assert state.first_unstable_offset == 0
    state.update_high_watermark(5)
    assert state.first_unstable_offset == 2


def test_too_many_completed_transactions_count_as_one_and_never_read_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "MAX_UNREPLICATED", 2)
    transactions = Transactions()
    for first in (0, 2, 4, 6):
        transactions.start(first, 1)
        transactions.complete(first, first + 1)
    assert transactions.unreplicated == ((0, 1), (2, 7))
    transactions.replicated_to(6)
    assert transactions.first_unstable_offset == 2
    transactions.replicated_to(8)
    assert transactions.first_unstable_offset is None


def test_two_transactions_of_one_offset_and_one_that_is_not_open_are_asserted_away() -> None:
    transactions = Transactions()
    transactions.start(5, 1)
    with pytest.raises(AssertionError, match="S3: two transactions begin at offset 5"):
        transactions.start(5, 2)
    with pytest.raises(AssertionError, match="S3: no transaction is open from offset 4 on"):
        transactions.complete(4, 9)


# --- late transactions


def test_a_transaction_is_late_after_the_longest_timeout_and_the_buffer(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testHasLateTransaction."""
    assert not state.has_late_transaction(10**15)
    begin(state, 39, 100, timestamp=1000)
    begin(state, 57, 150, timestamp=1500)
    assert not state.has_late_transaction(1000 + LATE_MS)
    assert state.has_late_transaction(1000 + LATE_MS + 1)
    end(state, marker(200, pid=39))
    assert not state.has_late_transaction(1500 + LATE_MS)
    assert state.has_late_transaction(1500 + LATE_MS + 1)
    end(state, marker(250, pid=57))
    assert not state.has_late_transaction(10**15)


def test_a_late_transaction_is_late_after_a_restart(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testHasLateTransactionInitializedAfterReload."""
    begin(state, 39, 100)
    begin(state, 57, 150, timestamp=1500)
    again = ProducerStateManager(PARTITION, expiration_ms=60_000, max_transaction_timeout_ms=300_000)
    again.truncate_and_reload(0, 151, [state.snapshot()], 1000 + LATE_MS + 1)
    assert again.has_late_transaction(1000 + LATE_MS + 1)
    assert not again.has_late_transaction(1000 + LATE_MS)


def test_a_truncated_transaction_is_not_late(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testHasLateTransactionUpdatedAfterPartialTruncation."""
    begin(state, 39, 100)
    assert state.truncate_and_reload(0, 80, [], 1000).replay_from == 0
    assert not state.has_late_transaction(10**15)


def test_no_transaction_is_late_after_a_full_truncation(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testHasLateTransactionUpdatedAfterFullTruncation."""
    begin(state, 39, 100)
    state.truncate_fully_and_start_at(150)
    assert not state.has_late_transaction(10**15)
    assert (len(state), state.end_offset, state.first_unstable_offset) == (0, 150, None)


def test_a_transaction_without_a_time_is_never_late(state: ProducerStateManager) -> None:
    begin(state, 1, 0, timestamp=-1)
    assert not state.has_late_transaction(10**15)
