"""What may be appended. The docstrings name the tests of Kafka whose rule a test holds."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.producer_state import (
    AppendOrigin,
    Batch,
    BatchMetadata,
    CompletedTransaction,
    ControlBatch,
    DataBatch,
    Duplicate,
    EndTxnMarker,
    New,
    ProducerStateEntry,
    ProducerStateManager,
    RefusalCode,
    Refused,
)
from pidkeeper.broker_agent.producer_state.batches import MAX_OFFSET, MAX_SEQUENCE, NO_SEQUENCE

PID = 1
OUT_OF_ORDER = RefusalCode.OUT_OF_ORDER_SEQUENCE_NUMBER
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION


def data(
    sequence: int,
    offset: int,
    *,
    records: int = 1,
    pid: int = PID,
    epoch: int = 0,
    timestamp: int = 1000,
    transactional: bool = False,
) -> DataBatch:
    last = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + records - 1) % 2**31
    return DataBatch(pid, epoch, sequence, last, offset, offset + records - 1, timestamp, transactional)


def marker(
    offset: int, *, pid: int = PID, epoch: int = 0, committed: bool = True, coordinator: int = 0, timestamp: int = 1000
) -> ControlBatch:
    return ControlBatch(pid, epoch, offset, timestamp, EndTxnMarker(committed, coordinator))


def append(
    state: ProducerStateManager, *batches: Batch, origin: AppendOrigin = AppendOrigin.CLIENT, version: int = 0
) -> list[CompletedTransaction]:
    answer = state.check(*batches, origin=origin, transaction_version=version)
    assert isinstance(answer, New), answer
    return state.append(answer)


def end(state: ProducerStateManager, batch: ControlBatch, *, version: int = 0) -> list[CompletedTransaction]:
    return append(state, batch, origin=COORDINATOR, version=version)


def refusal(
    state: ProducerStateManager, *batches: Batch, origin: AppendOrigin = AppendOrigin.CLIENT, version: int = 0
) -> RefusalCode:
    """The code; that nothing has changed is checked on the way."""
    before = state.snapshot()
    answer = state.check(*batches, origin=origin, transaction_version=version)
    assert isinstance(answer, Refused), answer
    assert state.snapshot() == before
    return answer.code


def entry(state: ProducerStateManager, pid: int = PID) -> ProducerStateEntry:
    found = state.entry(pid)
    assert found is not None
    return found


@pytest.fixture
def state() -> ProducerStateManager:
    return ProducerStateManager("orders-0", expiration_ms=60_000, max_transaction_timeout_ms=300_000)


# --- sequences


def test_a_repeat_a_gap_and_an_old_epoch_are_refused(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testBasicIdMapping."""
    append(state, data(0, 0))
    append(state, data(1, 1))
    assert state.check(data(1, 2)) == Duplicate(1, 1, 1000)
    assert refusal(state, data(5, 2)) is OUT_OF_ORDER
    append(state, data(0, 3, epoch=1))
    assert refusal(state, data(0, 4)) is RefusalCode.INVALID_PRODUCER_EPOCH
    assert [int(code) for code in RefusalCode] == [45, 47, 48, 52, 89]


def test_a_marker_alone_fences_and_makes_the_producer_start_at_0(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState."""
    assert end(state, marker(27, epoch=2)) == []
    assert entry(state) == ProducerStateEntry(PID, 2, 0, 1000, None, ())
    assert entry(state).last_sequence == NO_SEQUENCE
    assert refusal(state, data(0, 28)) is RefusalCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, data(17, 28, epoch=2)) is OUT_OF_ORDER
    assert refusal(state, data(17, 28, epoch=3)) is OUT_OF_ORDER
    append(state, data(0, 28, epoch=2))
    assert entry(state).last_sequence == 0


def test_the_sequence_wraps_to_0(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testProducerSequenceWrapAround."""
    append(state, data(MAX_SEQUENCE, 735, epoch=15), origin=REPLICATION)
    append(state, data(0, 1235, epoch=15))
    assert [batch.first_sequence for batch in entry(state).batches] == [MAX_SEQUENCE, 0]


@pytest.mark.parametrize("sequence", [1, 2, MAX_SEQUENCE - 1])
def test_nothing_but_0_follows_the_highest_sequence(state: ProducerStateManager, sequence: int) -> None:
    """ProducerStateManagerTest.testProducerSequenceInvalidWrapAround."""
    append(state, data(MAX_SEQUENCE, 735, epoch=15), origin=REPLICATION)
    assert refusal(state, data(sequence, 1235, epoch=15)) is OUT_OF_ORDER


def test_a_batch_may_wrap_within_itself(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord."""
    wrapping = data(MAX_SEQUENCE - 10, 2000, records=21, epoch=15)
    assert (wrapping.last_sequence, wrapping.last_offset) == (9, 2020)
    append(state, wrapping, origin=REPLICATION)
    assert entry(state).batches[0].first_offset == 2000
    assert state.check(data(MAX_SEQUENCE - 10, 3000, records=21, epoch=15)) == Duplicate(2000, 2020, 1000)
    assert refusal(state, data(9, 3000, epoch=15)) is OUT_OF_ORDER
    append(state, data(10, 3000, epoch=15))


def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog."""
    append(state, data(16, 735, epoch=5), origin=REPLICATION)
    assert entry(state) == ProducerStateEntry(PID, 5, -1, 1000, None, (BatchMetadata(16, 16, 735, 1000),))
    assert entry(state).batches[0].first_offset == 735


def test_a_first_append_may_have_any_sequence_and_epoch(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testAllowNonZeroSequenceOnFirstAppendNonZeroEpoch."""
    append(state, data(3, 0, epoch=5))
    assert entry(state).last_sequence == 3


def test_transaction_version_2_makes_an_unknown_producer_start_at_0(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testRejectNonZeroSequenceForTransactionsV2WithEmptyState."""
    assert refusal(state, data(3, 0, transactional=True), version=2) is OUT_OF_ORDER
    assert isinstance(state.check(data(3, 0, transactional=True), transaction_version=1), New)
    assert isinstance(state.check(data(3, 0), transaction_version=2), New)
    append(state, data(0, 0, transactional=True), version=2)
    append(state, data(1, 1, transactional=True), version=2)


def test_duplicates_of_the_last_five_batches_get_their_offsets_back(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testDuplicateAppends."""
    offset = 100
    for sequence in range(0, 18, 3):
        append(state, data(sequence, offset, records=3, timestamp=sequence))
        offset += 10
    assert len(entry(state).batches) == 5
    assert state.check(data(15, 200, records=3, timestamp=77)) == Duplicate(150, 152, 15)
    assert state.check(data(6, 200, records=3)) == Duplicate(120, 122, 6)
    assert state.check(data(3, 200, records=3)) == Duplicate(110, 112, 3)
    assert refusal(state, data(0, 200, records=3)) is OUT_OF_ORDER
    for overlap in (data(15, 200), data(16, 200, records=2), data(15, 200, records=6), data(12, 200, records=6)):
        assert refusal(state, overlap) is OUT_OF_ORDER
    append(state, data(18, 200, records=3))


def test_a_duplicate_is_one_only_in_its_own_epoch(state: ProducerStateManager) -> None:
    append(state, data(0, 0, epoch=1))
    assert isinstance(state.check(data(0, 1, epoch=2)), New)
    assert refusal(state, data(0, 1)) is RefusalCode.INVALID_PRODUCER_EPOCH


def test_a_leaders_run_of_batches_of_many_producers_is_taken_as_it_is(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testMultipleProducersWithDuplicatesInSingleAppend."""
    run = [data(0, 0, pid=1), data(0, 1, pid=2), data(0, 2, pid=3), data(1, 3, pid=1), data(1, 4, pid=2)]
    append(state, *run, *(data(1, 5 + i, pid=pid) for i, pid in enumerate((1, 2))), origin=REPLICATION)
    assert [
        [batch.first_sequence for batch in known.batches] for known in sorted(state, key=lambda e: e.producer_id)
    ] == [
        [0, 1, 1],
        [0, 1, 1],
        [0],
    ]
    assert state.check(data(1, 9, pid=2)) == Duplicate(4, 4, 1000)


def test_an_old_epoch_is_fenced(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testOldProducerEpoch."""
    append(state, data(0, 0, epoch=5))
    assert refusal(state, data(1, 1, epoch=4)) is RefusalCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, data(NO_SEQUENCE, 1, epoch=4), origin=COORDINATOR) is RefusalCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_0_and_forgets_the_batches(state: ProducerStateManager) -> None:
    append(state, data(0, 0))
    assert refusal(state, data(1, 1, epoch=1)) is OUT_OF_ORDER
    append(state, data(0, 1, epoch=1))
    assert entry(state).batches == (BatchMetadata(0, 0, 1, 1000),)


# --- markers


def test_a_marker_with_a_higher_epoch_clears_the_batches(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testControlRecordBumpsProducerEpoch."""
    append(state, data(0, 0, transactional=True))
    ended = end(state, marker(1, epoch=1, committed=False))
    assert ended == [CompletedTransaction(PID, 0, 1, committed=False, last_stable_offset=2)]
    assert entry(state) == ProducerStateEntry(PID, 1, 0, 1000, None, ())
    append(state, data(0, 2, epoch=1))
    assert entry(state).batches[0].first_sequence == 0


def test_a_marker_of_the_same_epoch_leaves_the_batches(state: ProducerStateManager) -> None:
    append(state, data(0, 0, transactional=True))
    end(state, marker(1, timestamp=2000))
    assert entry(state) == ProducerStateEntry(PID, 0, 0, 2000, None, (BatchMetadata(0, 0, 0, 1000),))
    assert state.check(data(0, 2, transactional=True)) == Duplicate(0, 0, 1000)


def test_a_non_zero_sequence_after_a_marker_that_raised_the_epoch_is_refused(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump."""
    append(state, data(0, 0, transactional=True))
    append(state, data(1, 1, transactional=True))
    end(state, marker(2, epoch=1, committed=False))
    assert refusal(state, data(2, 3, epoch=1, transactional=True)) is OUT_OF_ORDER
    assert refusal(state, data(2, 3, epoch=2, transactional=True)) is OUT_OF_ORDER
    append(state, data(0, 3, epoch=1, transactional=True))


def test_a_batch_outside_of_an_open_transaction_is_refused(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction."""
    append(state, data(0, 0, transactional=True))
    assert refusal(state, data(1, 1)) is RefusalCode.INVALID_TXN_STATE
    assert refusal(state, data(NO_SEQUENCE, 1), origin=COORDINATOR) is RefusalCode.INVALID_TXN_STATE
    append(state, data(1, 1, transactional=True))
    assert entry(state).txn_first_offset == 0


def test_a_marker_of_an_old_epoch_is_refused(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testOldEpochForControlRecord."""
    append(state, data(0, 99, epoch=5, transactional=True))
    assert refusal(state, marker(100, epoch=3), origin=COORDINATOR) is RefusalCode.INVALID_PRODUCER_EPOCH


def test_the_end_of_a_transaction_by_a_fenced_epoch_is_refused(state: ProducerStateManager) -> None:
    """UnifiedLogTest.testEndTxnWithFencedProducerEpoch."""
    end(state, marker(0, epoch=5, committed=False, coordinator=1))
    assert refusal(state, marker(1, epoch=4, coordinator=1), origin=COORDINATOR) is RefusalCode.INVALID_PRODUCER_EPOCH


def test_an_older_coordinator_is_fenced(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testCoordinatorFencing."""
    append(state, data(0, 99, transactional=True))
    end(state, marker(100, coordinator=1))
    assert entry(state).coordinator_epoch == 1
    end(state, marker(101, coordinator=1))
    end(state, marker(102, coordinator=2))
    fenced = marker(103, coordinator=1)
    assert refusal(state, fenced, origin=COORDINATOR) is RefusalCode.TRANSACTION_COORDINATOR_FENCED
    append(state, fenced, origin=REPLICATION)


def test_a_fencing_abort_leaves_the_epoch_and_no_transaction(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testProducerStateAfterFencingAbortMarker."""
    append(state, data(0, 0, transactional=True))
    end(state, marker(1, epoch=1, committed=False))
    assert (entry(state).txn_first_offset, entry(state).batches) == (None, ())
    assert state.remove_expired(1000) == 0
    assert entry(state).producer_epoch == 1


def test_with_transaction_version_2_a_marker_must_raise_the_epoch(state: ProducerStateManager) -> None:
    append(state, data(0, 0, transactional=True))
    late = marker(1)
    assert refusal(state, late, origin=COORDINATOR, version=2) is RefusalCode.INVALID_PRODUCER_EPOCH
    assert len(end(state, marker(1, epoch=1), version=2)) == 1
    assert end(state, marker(2, epoch=1), version=2) == []
    assert refusal(state, marker(3), origin=COORDINATOR, version=2) is RefusalCode.INVALID_PRODUCER_EPOCH


def test_an_empty_control_batch_changes_nothing_but_the_end(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testAppendEmptyControlBatch."""
    append(state, data(0, 0, transactional=True))
    before = entry(state)
    assert append(state, ControlBatch(PID, 0, 15, 5, None), origin=REPLICATION) == []
    assert append(state, ControlBatch(23423, 0, 16, 5, None), origin=REPLICATION) == []
    assert (entry(state), state.entry(23423), state.end_offset, len(state)) == (before, None, 17, 1)


# --- who appends


def test_a_replica_takes_a_producer_it_does_not_know(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testAcceptAppendWithoutProducerStateOnReplica."""
    append(state, data(0, 0, timestamp=0))
    append(state, data(1, 1, timestamp=1))
    state.restore(state.snapshot(), 70_000)
    assert state.entry(PID) is None
    append(state, data(2, 2, timestamp=70_001), origin=REPLICATION)
    assert entry(state).batches == (BatchMetadata(2, 2, 2, 70_001),)


def test_a_replica_takes_gaps_and_older_epochs(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica."""
    append(state, data(0, 0, epoch=3))
    assert refusal(state, data(3, 1, epoch=3)) is OUT_OF_ORDER
    append(state, data(3, 1, epoch=3), origin=REPLICATION)
    assert entry(state).last_sequence == 3
    append(state, data(8, 2, epoch=2), origin=REPLICATION)
    assert (entry(state).producer_epoch, entry(state).last_sequence) == (2, 8)
    append(state, data(9, 3, epoch=2, transactional=True), origin=REPLICATION)
    append(state, data(10, 4, epoch=2), origin=REPLICATION)
    assert append(state, marker(5, epoch=1), origin=REPLICATION)[0].first_offset == 3


def test_the_batches_of_a_coordinator_have_no_sequences(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic."""
    append(state, data(NO_SEQUENCE, 99, transactional=True), origin=COORDINATOR)
    append(state, data(NO_SEQUENCE, 100, records=3, transactional=True), origin=COORDINATOR)
    assert entry(state).batches[-1] == BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, 102, 1000)
    assert entry(state).batches[-1].first_offset == 102


# --- check and append


def test_a_check_changes_nothing(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testPrepareUpdateDoesNotMutate."""
    first = state.check(data(0, 15, records=6))
    assert isinstance(first, New)
    assert (state.entry(PID), state.end_offset) == (None, 0)
    state.append(first)
    second = state.check(data(6, 26, records=5))
    assert isinstance(second, New)
    assert (entry(state).last_sequence, state.end_offset) == (5, 21)
    state.append(second)
    assert [(b.first_sequence, b.last_sequence, b.last_offset) for b in entry(state).batches] == [
        (0, 5, 20),
        (6, 10, 30),
    ]


def test_an_answer_that_the_state_has_overtaken_is_not_appended(state: ProducerStateManager) -> None:
    append(state, data(0, 0))
    stale, other = state.check(data(1, 5)), state.check(data(0, 1, pid=2))
    overtaken = state.check(data(0, 3, pid=3))
    assert isinstance(stale, New)
    assert isinstance(other, New)
    assert isinstance(overtaken, New)
    append(state, data(1, 1))
    before = state.snapshot()
    with pytest.raises(ValueError, match=r"moved on since the check.*ones among them \[1\]"):
        state.append(stale)
    with pytest.raises(ValueError, match="to offset 2"):
        state.append(other)
    assert state.snapshot() == before
    state.append(overtaken)
    assert entry(state, 3).last_sequence == 0


def test_what_no_log_would_ask_is_refused_with_a_reason(state: ProducerStateManager) -> None:
    append(state, data(0, 10))
    with pytest.raises(ValueError, match="no batch"):
        state.check()
    with pytest.raises(ValueError, match="cannot begin at offset 10: the log goes to 11"):
        state.check(data(1, 10))
    with pytest.raises(ValueError, match="cannot begin at offset 13: the log goes to 14"):
        state.check(data(1, 11, records=3), data(4, 13), origin=REPLICATION)
    for batches in ([data(1, 11), data(2, 12)], [marker(11)], [data(NO_SEQUENCE, 11)]):
        with pytest.raises(ValueError, match="one batch at a time, of data, with sequences"):
            state.check(*batches)


def test_other_batches_move_the_end_of_the_log(state: ProducerStateManager) -> None:
    state.advance_end_offset(40)
    with pytest.raises(ValueError, match="must lie in 40 to"):
        state.advance_end_offset(39)
    with pytest.raises(ValueError, match="the log goes to 40"):
        state.check(data(0, 39))
    append(state, data(0, 40))
    assert state.end_offset == 41


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((-1, 0, 0, 0, 0, 0, 0), "producer id"),
        ((2**63, 0, 0, 0, 0, 0, 0), "producer id"),
        ((0, -1, 0, 0, 0, 0, 0), "producer epoch"),
        ((0, 2**15, 0, 0, 0, 0, 0), "producer epoch"),
        ((0, 0, -2, -2, 0, 0, 0), "first sequence"),
        ((0, 0, -1, 0, 0, 1, 0), "first sequence"),
        ((0, 0, 2**31, 2**31, 0, 0, 0), "first sequence"),
        ((0, 0, 0, 1, 0, 0, 0), "do not end at 1"),
        ((0, 0, 5, 5, 0, 2**31, 0), "do not end at 5"),
        ((0, 0, 0, 0, -1, -1, 0), "first offset"),
        ((0, 0, 0, 0, 5, 4, 0), "last offset"),
        ((0, 0, 0, 0, 2**63 - 1, 2**63 - 1, 0), "first offset"),
        ((0, 0, 0, 0, 0, 0, -2), "timestamp"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(fields: tuple[int, int, int, int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataBatch(*fields)


def test_the_numbers_at_the_edge_of_the_format_are_taken(state: ProducerStateManager) -> None:
    edge = DataBatch(2**63 - 1, 2**15 - 1, MAX_SEQUENCE, MAX_SEQUENCE, MAX_OFFSET, MAX_OFFSET, 2**63 - 1)
    append(state, edge)
    again = ProducerStateManager("orders-0", expiration_ms=60_000, max_transaction_timeout_ms=300_000)
    again.restore(state.snapshot(), 0)
    assert list(again) == list(state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((-1, 0, 0, 0), "producer id"),
        ((0, -1, 0, 0), "producer epoch"),
        ((0, 0, -1, 0), "offset"),
        ((0, 0, 0, -2), "timestamp"),
    ],
)
def test_a_control_batch_that_cannot_be_is_refused(fields: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControlBatch(*fields, None)
    with pytest.raises(ValueError, match="coordinator epoch"):
        EndTxnMarker(committed=True, coordinator_epoch=-1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expiration_ms": 0}, "expiration"),
        ({"max_transaction_timeout_ms": 0}, "timeout"),
        ({"max_producers": 0}, "number of producers"),
        ({"max_producers": 1_000_001}, "number of producers"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProducerStateManager("orders-0", **settings)
    for name in ("", "x" * 261):
        with pytest.raises(ValueError, match="1 to 260 bytes"):
            ProducerStateManager(name)


# --- verification


def test_an_entry_for_verification_goes_when_the_producer_appends(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testEntryForVerification."""
    state.begin_verification(PID, 0, 0, 1000)
    waiting = state.verification(PID)
    state.begin_verification(PID, 0, 0, 2000)
    assert state.verification(PID) == waiting
    append(state, data(0, 0, transactional=True))
    assert state.verification(PID) is None
    state.begin_verification(PID, 0, 1, 1000)
    end(state, marker(1))
    assert state.verification(PID) is None


def test_an_entry_for_verification_keeps_the_lowest_sequence_of_the_highest_epoch(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testSequenceAndEpochInVerificationEntry."""
    seen = []
    for epoch, sequence in ((0, 1), (0, 0), (0, 1), (1, 2), (0, 0)):
        state.begin_verification(PID, epoch, sequence, 1000)
        waiting = state.verification(PID)
        assert waiting is not None
        seen.append((waiting.producer_epoch, waiting.lowest_sequence))
    assert seen == [(0, 1), (0, 0), (0, 0), (1, 2), (1, 2)]


def test_a_sequence_above_one_that_waits_for_verification_is_refused(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testThrowOutOfOrderSequenceWithVerificationSequenceCheck."""
    state.begin_verification(PID, 0, 2, 1000)
    waiting = state.verification(PID)
    assert refusal(state, data(4, 0, transactional=True)) is OUT_OF_ORDER
    assert state.verification(PID) == waiting
    append(state, data(2, 0, transactional=True))
    append(state, data(3, 1, transactional=True))


def test_an_entry_for_verification_expires(state: ProducerStateManager) -> None:
    """ProducerStateManagerTest.testVerificationStateEntryExpiration."""
    state.begin_verification(PID, 0, 5, 1000)
    state.begin_verification(PID, 0, 4, 30_000)
    state.remove_expired(60_999)
    assert state.verification(PID) is not None
    state.remove_expired(61_000)
    assert state.verification(PID) is None


def test_entries_for_verification_are_bounded_and_checked() -> None:
    state = ProducerStateManager("orders-0", max_producers=2)
    for pid in (1, 2, 3):
        state.begin_verification(pid, 0, 0, 0)
    assert [state.verification(pid) is None for pid in (1, 2, 3)] == [True, False, False]
    for bad in ((-1, 0, 0), (1, -1, 0), (1, 0, -1)):
        with pytest.raises(ValueError, match="must lie in 0 to"):
            state.begin_verification(*bad, 0)
