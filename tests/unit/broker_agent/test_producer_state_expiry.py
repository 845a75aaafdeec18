"""Expiry, retention, the bound, truncation. The docstrings name the tests of Kafka whose rule a test holds."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.producer_state import AppendOrigin, Duplicate, New, ProducerStateManager, RefusalCode
from pidkeeper.broker_agent.producer_state.manager import TRANSACTIONAL_ID_EXPIRATION_MS
from tests.unit.broker_agent.test_producer_state import append, data, end, entry, marker, refusal

PARTITION = "orders-0"
FULL = RefusalCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
def state() -> ProducerStateManager:
    return ProducerStateManager(PARTITION, expiration_ms=60_000)


def producers(state: ProducerStateManager) -> list[int]:
    return [known.producer_id for known in state]


def test_a_silent_producer_is_forgotten_and_starts_with_any_sequence(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testPidExpirationTimeout."""
    append(state, data(0, 1, epoch=5))
    assert state.remove_expired(60_999) == 0
    assert state.remove_expired(61_000) == 1
    assert len(state) == 0
    append(state, data(1, 2, epoch=5, timestamp=61_000))
    assert (entry(state).last_sequence, state.end_offset, len(state)) == (1, 3, 1)


def test_the_expiry_is_counted_from_the_last_batch_and_taken_at_intervals(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testPeriodicProducerIdExpiration."""
    append(state, data(0, 0, pid=23, timestamp=0))
    append(state, data(0, 1, pid=24, timestamp=0))
    append(state, data(1, 2, pid=24, timestamp=30_000))
    assert state.remove_expired(60_000) == 1
    assert producers(state) == [24]
    assert state.remove_expired(89_999) == 0
    assert state.remove_expired(90_000) == 1


def test_a_producer_with_an_open_transaction_never_expires(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire."""
    append(state, data(0, 99, transactional=True))
    for _ in range(2):
        assert state.remove_expired(10**15) == 0
    assert (producers(state), state.first_undecided_offset) == ([1], 99)
    end(state, marker(100, timestamp=2000))
    assert state.remove_expired(61_999) == 0
    assert state.remove_expired(62_000) == 1


def test_the_state_is_kept_for_the_expiration_of_a_transactional_id() -> None:
    """KIP-360, "Prolonged producer state retention": seven days unless configured otherwise."""
    state = ProducerStateManager(PARTITION)
    append(state, data(0, 0))
    assert state.remove_expired(1000 + TRANSACTIONAL_ID_EXPIRATION_MS - 1) == 0
    assert state.remove_expired(1000 + TRANSACTIONAL_ID_EXPIRATION_MS) == 1


def test_the_state_outlives_the_deletion_of_its_segments(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testProducerIdExpirationOnSegmentDeletion."""
    append(state, data(0, 0, pid=1))
    append(state, data(0, 1, pid=2, transactional=True))
    end(state, marker(2, pid=2))
    assert state.last_stable_offset(3) == 1
    state.on_log_start_offset(3)
    assert (producers(state), state.end_offset, state.last_stable_offset(3)) == ([1, 2], 3, 3)
    assert state.check(data(0, 3, pid=1)) == Duplicate(0, 0, 1000)
    assert refusal(state, data(5, 3, pid=1)) is RefusalCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.on_log_start_offset(10)
    assert state.end_offset == 10
    append(state, data(1, 10, pid=1))


def test_a_producer_that_expired_comes_back(state: ProducerStateManager) -> None:
    """ProducerIdExpirationTest.testProducerIdExpirationWithNoTransactions."""
    append(state, data(0, 0))
    state.remove_expired(61_000)
    assert len(state) == 0
    append(state, data(1, 1, timestamp=61_000))
    assert len(state) == 1


def test_the_state_of_a_producer_outlives_its_transaction(state: ProducerStateManager) -> None:
    """ProducerIdExpirationTest.testTransactionAfterTransactionIdExpiresButProducerIdRemains."""
    append(state, data(0, 0, transactional=True))
    end(state, marker(1, committed=False, timestamp=50_000))
    state.remove_expired(100_000)
    assert len(state) == 1
    append(state, data(0, 2, pid=2, epoch=0, transactional=True))
    end(state, marker(3, pid=2))
    state.remove_expired(110_000)
    assert producers(state) == []


def test_the_expiration_may_be_set_while_running(state: ProducerStateManager) -> None:
    """ProducerIdExpirationTest.testDynamicProducerIdExpirationMs."""
    append(state, data(0, 0))
    state.expiration_ms = 100
    with pytest.raises(ValueError, match="expiration must lie in 1"):
        state.expiration_ms = 0
    assert state.expiration_ms == 100
    assert state.remove_expired(1100) == 1
    append(state, data(1, 1, timestamp=1100))
    state.expiration_ms = 60_000
    assert state.remove_expired(61_099) == 0


# --- the bound


def test_a_client_that_is_not_known_waits_when_all_places_are_taken() -> None:
    state = ProducerStateManager(PARTITION, expiration_ms=60_000, max_producers=2)
    append(state, data(0, 0, pid=1))
    append(state, data(0, 1, pid=2, timestamp=2000))
    assert refusal(state, data(0, 2, pid=3)) is FULL
    append(state, data(1, 2, pid=1, timestamp=2000))
    state.remove_expired(62_000)
    append(state, data(0, 3, pid=3))
    assert producers(state) == [3]


def test_the_longest_silent_producer_gives_way_to_what_a_leader_or_coordinator_writes() -> None:
    state = ProducerStateManager(PARTITION, max_producers=3)
    append(state, data(0, 0, pid=1, transactional=True))
    append(state, data(0, 1, pid=2))
    append(state, data(0, 2, pid=3))
    append(state, data(1, 3, pid=2))
    end(state, marker(4, pid=4))
    assert producers(state) == [1, 2, 4]
    append(state, data(0, 5, pid=5), data(2, 6, pid=2), origin=AppendOrigin.REPLICATION)
    assert sorted(producers(state)) == [1, 2, 5]
    # Two new ones beside the open transaction of 1 fit, a third does not.
    run = [data(0, 7 + i, pid=6 + i, transactional=True) for i in range(3)]
    assert refusal(state, *run, origin=AppendOrigin.REPLICATION) is FULL
    append(state, *run[:2], origin=AppendOrigin.REPLICATION)
    assert sorted(producers(state)) == [1, 6, 7]
    assert refusal(state, marker(9, pid=9), origin=AppendOrigin.COORDINATOR) is FULL
    end(state, marker(9, pid=1))
    end(state, marker(10, pid=9))
    assert sorted(producers(state)) == [6, 7, 9]


def test_two_answers_do_not_take_the_same_place() -> None:
    state = ProducerStateManager(PARTITION, max_producers=2)
    append(state, data(0, 0, pid=1))
    first, second = state.check(data(0, 1, pid=2)), state.check(data(0, 2, pid=3))
    assert isinstance(first, New)
    assert isinstance(second, New)
    state.append(first)
    with pytest.raises(ValueError, match="and 2 producers"):
        state.append(second)
    assert producers(state) == [1, 2]


# --- truncation


def test_a_truncated_log_starts_with_nothing_known(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testTruncateFullyAndStartAt."""
    append(state, data(0, 0))
    append(state, data(1, 1, transactional=True))
    state.begin_verification(2, 0, 0, 1000)
    state.truncate_fully_and_start_at(0)
    assert (len(state), state.end_offset, state.first_unstable_offset, state.verification(2)) == (0, 0, None, None)
    append(state, data(0, 0))
    with pytest.raises(ValueError, match="the offset must lie in 0 to"):
        state.truncate_fully_and_start_at(-1)


def test_only_snapshots_within_the_log_are_used(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots."""
    kept = []
    for offset in range(5):
        append(state, data(offset, offset))
        kept.append(state.snapshot())
    reloaded = state.truncate_and_reload(1, 3, reversed(kept), 1000)
    assert reloaded.replay_from == 3
    assert [text.split(": ")[1] for text in reloaded.rejected] == [
        "its end offset 5 does not lie above 1 and up to 3",
        "its end offset 4 does not lie above 1 and up to 3",
    ]
    assert entry(state).last_sequence == 2
    assert state.truncate_and_reload(1, 2, kept[:1], 1000).replay_from == 1
    assert len(state) == 0


def test_an_end_that_has_not_moved_keeps_the_state(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers, its first half."""
    append(state, data(0, 0, pid=1))
    append(state, data(0, 1, pid=2))
    assert state.truncate_and_reload(1, 2, iter(()), 1000).replay_from == 2
    assert producers(state) == [1, 2]
    with pytest.raises(ValueError, match="log start offset must lie in 0 to 2, not 3"):
        state.truncate_and_reload(3, 2, [], 1000)
