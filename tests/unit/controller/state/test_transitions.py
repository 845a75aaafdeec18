"""The decision table of a transactional id. Docstrings name Kafka's test where there is one (docs/conformance.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import transitions
from pidkeeper.controller.state.transitions import (
    MAX_EPOCH,
    MAX_TRANSACTION_BYTES,
    NO_PAIR,
    TransactionStatus,
    next_to,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.transactions import AddPartitionsRecord, TopicPartitions, TransactionRecord

S = TransactionStatus
EMPTY = TransactionRecord("tx", 7, 10, *NO_PAIR, 60_000, S.EMPTY, 1)
ONGOING = replace(EMPTY, status=S.ONGOING, partitions=(TopicPartitions("t", (0, 3)),), start_ms=5, update_ms=5)
IDLE = [EMPTY, replace(EMPTY, status=S.COMPLETE_COMMIT), replace(EMPTY, status=S.COMPLETE_ABORT)]
PREPARED = [replace(ONGOING, status=S.PREPARE_COMMIT), replace(ONGOING, status=S.PREPARE_ABORT)]
NEW_ID = 900


def initialise(
    before: TransactionRecord | None,
    supplied: tuple[int, int] = NO_PAIR,
    new_id: Callable[[], int] = lambda: NEW_ID,
    *,
    at_once: bool = False,
) -> TransactionRecord:
    return transitions.initialise(
        before, "tx", timeout_ms=30_000, supplied=supplied, new_id=new_id, now_ms=99, at_once=at_once
    )


def none() -> int:
    raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def pair(record: TransactionRecord) -> tuple[int, int]:
    return record.producer_id, record.producer_epoch


def last(record: TransactionRecord) -> tuple[int, int]:
    return record.last_producer_id, record.last_producer_epoch


def refusal(code: ErrorCode) -> pytest.RaisesExc[RequestError]:
    return pytest.raises(RequestError, match=f"^{code.name}: ")


def idle(**changes: object) -> list[TransactionRecord]:
    return [replace(record, **changes) for record in IDLE]


# InitProducerId.


@pytest.mark.parametrize("supplied", [NO_PAIR, (3, 4), (NEW_ID, 0)])
def test_an_unknown_id_gets_a_new_one_with_epoch_0(supplied: tuple[int, int]) -> None:
    """shouldInitPidWithEpochZeroForNewTransactionalId, testInitializeEpoch,
    shouldGenerateNewProducerIdIfNoStateAndProducerIdAndEpochProvided,
    testAttemptedEpochBumpWithNewlyCreatedMetadata."""
    record = initialise(None, supplied)
    assert record == TransactionRecord("tx", NEW_ID, 0, *NO_PAIR, 30_000, S.EMPTY, 99)


def test_without_a_new_one_an_id_that_needs_it_has_to_wait() -> None:
    with refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        initialise(None, new_id=none)
    with refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        initialise(replace(EMPTY, producer_epoch=MAX_EPOCH), new_id=none)
    assert pair(initialise(EMPTY, new_id=none)) == (7, 11), "none is needed here"


@pytest.mark.parametrize("before", IDLE)
def test_a_new_instance_gets_the_next_epoch(before: TransactionRecord) -> None:
    """shouldIncrementEpochAndUpdateMetadataOnHandleInitPidWhenExisting{EmptyTransaction,CompleteTransaction,
    CompleteCommitTransaction}, testNormalEpochBump."""
    record = initialise(before)
    assert (pair(record), last(record)) == ((7, 11), NO_PAIR)
    assert (record.status, record.timeout_ms, record.partitions, record.start_ms) == (S.EMPTY, 30_000, (), -1)


@pytest.mark.parametrize("before", idle(producer_epoch=MAX_EPOCH))
def test_an_exhausted_epoch_takes_a_new_id(before: TransactionRecord) -> None:
    """shouldGenerateNewProducerIdIfEpochsExhausted, testRotateProducerId, testBumpEpochNotAllowedIfEpochsExhausted."""
    record = initialise(before)
    assert (pair(record), last(record)) == ((NEW_ID, 0), NO_PAIR)
    record = initialise(before, (7, MAX_EPOCH))
    assert (pair(record), last(record)) == ((NEW_ID, 0), (7, MAX_EPOCH))


@pytest.mark.parametrize("before", IDLE)
def test_the_current_pair_is_bumped_and_its_repetition_answered_alike(before: TransactionRecord) -> None:
    """testInitProducerIdWithCurrentEpochProvided, testEpochBumpWithCurrentEpochProvided,
    testAttemptedEpochBumpWithLastEpoch."""
    record = initialise(before, (7, 10))
    assert (pair(record), last(record)) == ((7, 11), (7, 10))
    assert initialise(record, (7, 10)) is record
    done = replace(record, status=S.COMPLETE_COMMIT)
    assert initialise(done, (7, 10)) is done


def test_a_newer_instance_fences_the_older_one() -> None:
    """testInitProducerIdStaleCurrentEpochProvided, testAttemptedEpochBumpWithFencedEpoch,
    testInitProducerIdWithNoLastProducerData."""
    newer = initialise(EMPTY)
    for supplied in ((7, 10), (7, 12), (6, 11), (8, 11), (7, 0)):
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(newer, supplied)


def test_after_a_new_id_only_the_very_last_pair_may_come_again() -> None:
    """testRetryInitProducerIdAfterProducerIdRotation, testInitProducerIdWithInvalidEpochAfterProducerIdRotation,
    testFenceProducerWhenMappingExistsWithDifferentProducerId. Kafka takes (new id, 32766), which nobody ever had."""
    rotated = initialise(replace(EMPTY, producer_epoch=MAX_EPOCH), (7, MAX_EPOCH))
    assert initialise(rotated, (7, MAX_EPOCH), new_id=none) is rotated
    for supplied in ((7, MAX_EPOCH - 1), (NEW_ID, MAX_EPOCH), (7, 0), (NEW_ID, 1)):
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(rotated, supplied)


def test_the_repetition_of_the_bump_that_exhausted_the_epochs_is_answered() -> None:
    """Kafka ends this with an IllegalStateException."""
    exhausted = initialise(replace(EMPTY, producer_epoch=MAX_EPOCH - 1), (7, MAX_EPOCH - 1))
    assert pair(exhausted) == (7, MAX_EPOCH)
    assert initialise(exhausted, (7, MAX_EPOCH - 1)) is exhausted


@pytest.mark.parametrize("supplied", [NO_PAIR, (7, 10)])
def test_a_transaction_under_way_may_end_with_the_record_that_gives_the_next_pair(supplied: tuple[int, int]) -> None:
    begun = replace(ONGOING, last_producer_id=7, last_producer_epoch=9)
    record = initialise(begun, supplied, none, at_once=True)
    assert (pair(record), last(record), record.status) == ((7, 11), supplied, S.EMPTY)
    assert (record.partitions, record.start_ms, record.update_ms) == ((), -1, 99)
    assert transitions.ends_at_once(begun, record)
    for zombie in ((7, 9), (7, 8), (8, 10)):
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(begun, zombie, at_once=True)
    if supplied == NO_PAIR:
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(record, (7, 10), at_once=True)
    else:
        assert initialise(record, supplied, none, at_once=True) is record, "a repetition"


def test_a_transaction_under_the_last_epoch_ends_with_the_next_producer_id() -> None:
    begun = replace(ONGOING, producer_epoch=MAX_EPOCH)
    record = initialise(begun, at_once=True)
    assert (pair(record), record.status) == ((NEW_ID, 0), S.EMPTY)
    assert next_to(begun, record)
    with refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        initialise(begun, new_id=none, at_once=True)


def test_what_ends_at_once_is_told_from_what_is_prepared() -> None:
    for after in (EMPTY, *IDLE):
        assert transitions.ends_at_once(ONGOING, after)
        assert not any(transitions.ends_at_once(before, after) for before in (None, *IDLE, *PREPARED))
    assert not any(transitions.ends_at_once(ONGOING, after) for after in (ONGOING, *PREPARED))


@pytest.mark.parametrize("before", PREPARED)
def test_while_markers_are_written_everybody_waits_and_strangers_are_fenced(before: TransactionRecord) -> None:
    """shouldWaitForCommitToCompleteOnHandleInitPidAndExistingTransactionInPrepare{Commit,Abort}State,
    testRotateProducerIdIn{PrepareAbort,PrepareCommit}State."""
    for supplied in (NO_PAIR, (7, 10)):
        with refusal(ErrorCode.CONCURRENT_TRANSACTIONS):
            initialise(before, supplied)
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialise(before, (7, 9))


def test_a_transaction_under_way_is_fenced_and_aborted() -> None:
    """shouldAbortTransactionOnHandleInitPidWhenExistingTransactionInOngoingState."""
    record = initialise(ONGOING)
    assert (pair(record), last(record), record.status) == ((7, 11), NO_PAIR, S.PREPARE_ABORT)
    assert record.partitions == ONGOING.partitions
    assert record.start_ms == 5
    done = transitions.complete(record, producer=(7, 11), now_ms=100)
    assert done is not None
    assert pair(initialise(done)) == (7, 12), "the caller asks again"


def test_the_supplied_pair_is_compared_before_anything_is_aborted() -> None:
    """shouldFailToAbortTransactionOnHandleInitPidWhenProducerEpochIsSmaller. Kafka ignores the pair here, so that a
    zombie aborts the transaction of the live producer (docs/decisions/0011)."""
    bumped = replace(ONGOING, last_producer_id=7, last_producer_epoch=9)
    for supplied in ((7, 9), (7, 11), (6, 10)):
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(bumped, supplied)


def test_the_producer_of_the_transaction_may_abort_it_and_go_on_with_the_epoch_of_the_fence() -> None:
    record = initialise(ONGOING, (7, 10))
    assert (pair(record), last(record), record.status) == ((7, 11), (7, 10), S.PREPARE_ABORT)
    done = transitions.complete(record, producer=(7, 11), now_ms=100)
    assert done is not None
    assert initialise(done, (7, 10)) is done


@pytest.mark.parametrize("supplied", [NO_PAIR, (7, MAX_EPOCH)])
def test_the_epoch_above_all_is_for_fences_alone(supplied: tuple[int, int]) -> None:
    """shouldUseLastEpochToFenceWhenEpochsAreExhausted, testFenceProducerAfterEpochsExhausted,
    testRotateProducerIdInOngoingState."""
    fenced = initialise(replace(ONGOING, producer_epoch=MAX_EPOCH), supplied)
    assert (pair(fenced), fenced.status) == ((7, MAX_EPOCH + 1), S.PREPARE_ABORT)
    done = transitions.complete(fenced, producer=(7, MAX_EPOCH + 1), now_ms=100)
    assert done is not None
    again = initialise(done, supplied)
    assert (pair(again), last(again)) == ((NEW_ID, 0), supplied)
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialise(again, (7, MAX_EPOCH + 1))


def test_with_the_last_epoch_of_a_producer_a_transaction_goes_through() -> None:
    begun = add(replace(EMPTY, producer_epoch=MAX_EPOCH), ("t", 0), producer=(7, MAX_EPOCH))
    assert end(begun, producer=(7, MAX_EPOCH)).status == S.PREPARE_COMMIT


def test_nobody_begins_or_ends_a_transaction_with_the_epoch_above_all() -> None:
    """Nobody was told of it, and a fence above it would not fit into a record."""
    for status in (S.PREPARE_ABORT, S.COMPLETE_ABORT):
        fenced = replace(ONGOING, producer_epoch=MAX_EPOCH + 1, status=status)
        with refusal(ErrorCode.PRODUCER_FENCED):
            add(fenced, ("t", 0), producer=(7, MAX_EPOCH + 1))
        with refusal(ErrorCode.PRODUCER_FENCED):
            end(fenced, committed=False, producer=(7, MAX_EPOCH + 1))


# Partitions and the end.


def add(
    before: TransactionRecord | None, *partitions: tuple[str, int], producer: tuple[int, int] = (7, 10)
) -> TransactionRecord:
    return joining(before, *partitions, producer=producer)[0]


def joining(
    before: TransactionRecord | None, *partitions: tuple[str, int], producer: tuple[int, int] = (7, 10)
) -> tuple[TransactionRecord, AddPartitionsRecord | None]:
    topics = [TopicPartitions(topic, (number,)) for topic, number in partitions]
    return transitions.add_partitions(before, "tx", producer=producer, topics=topics, now_ms=50)


def end(
    before: TransactionRecord | None, *, committed: bool = True, producer: tuple[int, int] = (7, 10)
) -> TransactionRecord:
    return transitions.end(before, "tx", producer=producer, committed=committed, now_ms=60)


@pytest.mark.parametrize("before", IDLE)
def test_a_transaction_begins_with_its_first_partitions(before: TransactionRecord) -> None:
    record = add(before, ("u", 2), ("t", 1), ("u", 0), ("t", 1))
    assert record.status == S.ONGOING
    assert record.partitions == (TopicPartitions("t", (1,)), TopicPartitions("u", (0, 2)))
    assert (record.start_ms, record.update_ms) == (50, 50)


def test_more_partitions_join_and_known_ones_change_nothing() -> None:
    record = add(ONGOING, ("t", 1), ("t", 3))
    assert record.partitions == (TopicPartitions("t", (0, 1, 3)),)
    assert (record.start_ms, record.update_ms) == (5, 50)
    assert add(ONGOING, ("t", 3)) is ONGOING
    assert add(ONGOING) is ONGOING


def test_only_what_had_not_joined_before_goes_into_the_log() -> None:
    record, joined = joining(ONGOING, ("t", 1), ("u", 4), ("t", 3), ("s", 2), ("s", 0))
    topics = TopicPartitions("s", (0, 2)), TopicPartitions("t", (1,)), TopicPartitions("u", (4,))
    assert joined == AddPartitionsRecord("tx", 7, 10, topics, 50)
    assert record == transitions.join(ONGOING, joined)
    assert joining(record, ("s", 2), ("t", 0))[1] is None


def test_partitions_that_join_between_those_that_had_are_put_in_order() -> None:
    record, _ = joining(EMPTY, ("t", 1), ("t", 5))
    record, _ = joining(record, ("t", 3), ("t", 9))
    assert record.partitions == (TopicPartitions("t", (1, 3, 5, 9)),)


def test_a_topic_without_partitions_is_none() -> None:
    topics = [TopicPartitions("t", ()), TopicPartitions("u", (1,)), TopicPartitions("u", (1, 0))]
    record, _ = transitions.add_partitions(EMPTY, "tx", producer=(7, 10), topics=topics, now_ms=50)
    assert record.partitions == (TopicPartitions("u", (0, 1)),)


def test_a_transaction_may_begin_without_partitions() -> None:
    record, joined = joining(EMPTY)
    assert joined == AddPartitionsRecord("tx", 7, 10, (), 50)
    assert (record.status, record.partitions) == (S.ONGOING, ())


def test_a_clock_that_goes_back_is_no_error() -> None:
    """testTolerateUpdateTimeShiftDuringEpochBump, testTolerateUpdateTimeResetDuringProducerIdRotation,
    testTolerateTimeShiftDuring{AddPartitions,PrepareCommit,PrepareAbort,CompleteCommit,CompleteAbort}."""
    late = replace(ONGOING, update_ms=10**15, start_ms=10**15)
    added = add(late, ("v", 0))
    assert (added.start_ms, added.update_ms) == (10**15, 50)
    for committed in (True, False):
        ended = end(added, committed=committed)
        assert ended.update_ms == 60
        done = transitions.complete(ended, producer=(7, 10), now_ms=3)
        assert done is not None
        assert done.update_ms == 3
        assert pair(initialise(replace(done, producer_epoch=MAX_EPOCH))) == (NEW_ID, 0)


def test_the_partitions_of_a_transaction_are_bounded() -> None:
    many = add(EMPTY, *[("t", number) for number in range(13_000)])
    assert many.partition_bytes <= MAX_TRANSACTION_BYTES
    with refusal(ErrorCode.MESSAGE_TOO_LARGE):
        add(many, *[("t", number) for number in range(14_000)])
    full = add(EMPTY, *[("abc", number) for number in range(13_105)])
    assert full.partition_bytes == MAX_TRANSACTION_BYTES == 8 + 3 + 5 * 13_105


@pytest.mark.parametrize("before", PREPARED)
def test_no_partition_joins_while_markers_are_written(before: TransactionRecord) -> None:
    with refusal(ErrorCode.CONCURRENT_TRANSACTIONS):
        add(before, ("t", 9))


def test_whoever_is_not_the_newest_producer_adds_and_ends_nothing() -> None:
    for before, producer, code in (
        (None, (7, 10), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, (8, 10), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, (7, 9), ErrorCode.PRODUCER_FENCED),
        (ONGOING, (7, 11), ErrorCode.PRODUCER_FENCED),
    ):
        with refusal(code):
            add(before, ("t", 9), producer=producer)
        with refusal(code):
            end(before, producer=producer)


@pytest.mark.parametrize(
    ("committed", "prepared", "complete"),
    [
        (True, S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
        (False, S.PREPARE_ABORT, S.COMPLETE_ABORT),
    ],
)
def test_an_outcome_is_decided_once_completed_and_granted_again(
    committed: bool, prepared: TransactionStatus, complete: TransactionStatus
) -> None:
    ended = end(ONGOING, committed=committed)
    assert (ended.status, pair(ended), ended.partitions) == (prepared, (7, 10), ONGOING.partitions)
    with refusal(ErrorCode.CONCURRENT_TRANSACTIONS):
        end(ended, committed=committed)
    with refusal(ErrorCode.INVALID_TXN_STATE):
        end(ended, committed=not committed)
    done = transitions.complete(ended, producer=(7, 10), now_ms=70)
    assert done is not None
    assert (done.status, done.partitions, done.start_ms) == (complete, (), -1)
    assert end(done, committed=committed) is done
    with refusal(ErrorCode.INVALID_TXN_STATE):
        end(done, committed=not committed)
    assert transitions.complete(done, producer=(7, 10), now_ms=71) is None, "it is complete already"


def test_without_a_transaction_there_is_nothing_to_end() -> None:
    for committed in (True, False):
        with refusal(ErrorCode.INVALID_TXN_STATE):
            end(EMPTY, committed=committed)


def test_only_the_transaction_that_was_meant_is_completed() -> None:
    for before in (None, EMPTY, ONGOING):
        assert transitions.complete(before, producer=(7, 10), now_ms=1) is None
    assert transitions.complete(PREPARED[0], producer=(7, 9), now_ms=1) is None


def test_a_transaction_whose_time_is_up_is_aborted_at_the_next_epoch() -> None:
    """shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch, shouldNotAcceptSmallerEpochDuringTransactionExpiration,
    shouldNotAbortExpiredTransactionsThatHaveAPendingStateTransition, shouldNotBumpEpochWithPendingTransaction."""
    record = transitions.abort(ONGOING, producer=(7, 10), timed_out=True, now_ms=80)
    assert record is not None
    assert (pair(record), last(record), record.status) == ((7, 11), (7, 10), S.PREPARE_ABORT)
    for timed_out in (False, True):
        assert transitions.abort(ONGOING, producer=(7, 9), timed_out=timed_out, now_ms=80) is None
        for before in (None, *IDLE, *PREPARED):
            assert transitions.abort(before, producer=(7, 10), timed_out=timed_out, now_ms=80) is None


def test_a_producer_whose_time_was_up_goes_on_unless_somebody_was_there_before_it() -> None:
    """KIP-588: its pair asks for the epoch of the abort, again if the answer was lost. Whoever came meanwhile stays."""
    record = transitions.abort(ONGOING, producer=(7, 10), timed_out=True, now_ms=80)
    with refusal(ErrorCode.CONCURRENT_TRANSACTIONS):
        initialise(record, (7, 10))
    done = transitions.complete(record, producer=(7, 11), now_ms=81)
    for _ in range(2):
        assert pair(initialise(done, (7, 10))) == (7, 11)
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialise(done, (7, 9))
    newer = initialise(done)
    assert pair(newer) == (7, 12)
    for late in ((7, 10), (7, 11)):
        with refusal(ErrorCode.PRODUCER_FENCED):
            initialise(newer, late)


def test_a_producer_that_an_operator_aborted_is_fenced_for_good() -> None:
    record = transitions.abort(ONGOING, producer=(7, 10), timed_out=False, now_ms=80)
    assert record is not None
    assert (pair(record), last(record)) == ((7, 11), NO_PAIR)
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialise(transitions.complete(record, producer=(7, 11), now_ms=81), (7, 10))


def test_no_pair_ever_comes_back() -> None:
    assert next_to(EMPTY, EMPTY)
    assert next_to(EMPTY, replace(EMPTY, producer_epoch=11))
    assert not next_to(EMPTY, replace(EMPTY, producer_epoch=12))
    assert not next_to(EMPTY, replace(EMPTY, producer_epoch=9))
    assert not next_to(EMPTY, replace(EMPTY, producer_id=8, producer_epoch=0)), "epochs are left"
    exhausted = replace(EMPTY, producer_epoch=MAX_EPOCH)
    assert next_to(exhausted, replace(EMPTY, producer_id=8, producer_epoch=0))
    assert not next_to(exhausted, replace(EMPTY, producer_id=8, producer_epoch=1))
    assert next_to(replace(exhausted, status=S.ONGOING), replace(EMPTY, producer_id=8, producer_epoch=0))
    assert not next_to(replace(exhausted, status=S.PREPARE_ABORT), replace(EMPTY, producer_id=8, producer_epoch=0))
    assert next_to(exhausted, replace(PREPARED[1], producer_epoch=MAX_EPOCH + 1))
    assert not next_to(exhausted, replace(EMPTY, producer_epoch=MAX_EPOCH + 1)), "for fences alone"
    assert not next_to(exhausted, replace(ONGOING, producer_epoch=MAX_EPOCH + 1)), "for fences alone"


def test_every_status_has_kafkas_number() -> None:
    """testTransactionStateIdAndNameMapping, testAllTransactionStatesAreMapped."""
    assert {status.name: status.value for status in S} == {
        "EMPTY": 0, "ONGOING": 1, "PREPARE_COMMIT": 2, "PREPARE_ABORT": 3,
        "COMPLETE_COMMIT": 4, "COMPLETE_ABORT": 5, "DEAD": 6,
    }  # fmt: skip
    assert set(transitions.LEGAL) == set(S) - {S.DEAD}


@pytest.mark.parametrize("supplied", [(7, MAX_EPOCH), NO_PAIR])
def test_a_timeout_with_the_last_epoch_leaves_a_new_id_to_whoever_comes_first(supplied: tuple[int, int]) -> None:
    """shouldHandleTimeoutAtEpochOverflowBoundaryCorrectlyTV2, shouldNotCauseEpochOverflowWhenInitPidDuringOngoingTxnV2.
    The producer whose time was up, or another instance."""
    late = replace(ONGOING, producer_epoch=MAX_EPOCH)
    fenced = transitions.abort(late, producer=(7, MAX_EPOCH), timed_out=True, now_ms=80)
    assert fenced is not None
    done = transitions.complete(fenced, producer=(7, MAX_EPOCH + 1), now_ms=81)
    assert done is not None
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialise(done, (7, MAX_EPOCH - 1))
    renewed = initialise(done, supplied)
    assert (pair(renewed), last(renewed)) == ((NEW_ID, 0), supplied)
