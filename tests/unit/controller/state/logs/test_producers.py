"""What one log lets one producer append: Kafka's rules of sequences, epochs and markers, each by itself."""

from __future__ import annotations

import pytest

from pidkeeper.controller.state.logs import producers
from pidkeeper.controller.state.logs.producers import NOT_OPEN, after_batch, after_marker, find_duplicate, refusal
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import MAX_SEQUENCE
from pidkeeper.snapshots.logs_image import ProducerEntry
from tests.support.log_state import NOW, data

GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
EPOCH = 3


def of(sequence: int, records: int = 1, *, epoch: int = EPOCH, transactional: bool = False) -> OfferedBatch:
    return data(0, (7, epoch), sequence, records=records, transactional=transactional)


def behind(*batches: OfferedBatch) -> ProducerEntry:
    entry, offset = None, 0
    for one in batches:
        assert refusal(entry, one) is None
        entry = after_batch(entry, one, offset, NOW)
        offset += one.records
    assert entry is not None
    return entry


def test_zero_follows_the_highest_sequence() -> None:
    assert refusal(behind(of(MAX_SEQUENCE)), of(0)) is None


@pytest.mark.parametrize("sequence", [1, 2, MAX_SEQUENCE, MAX_SEQUENCE - 1])
def test_nothing_but_0_follows_the_highest_sequence(sequence: int) -> None:
    assert refusal(behind(of(MAX_SEQUENCE)), of(sequence)) is GAP


def test_a_batch_may_wrap_within_itself() -> None:
    """Nine sequences up to the highest one, and 0 to 10."""
    entry = behind(of(MAX_SEQUENCE - 8, 20))
    assert entry.batches == ((MAX_SEQUENCE - 8, 10, 0),)
    assert find_duplicate(entry, of(MAX_SEQUENCE - 8, 20)) == 0
    assert (refusal(entry, of(11)), refusal(entry, of(0))) == (None, GAP)


def test_the_last_five_batches_of_the_epoch_are_known() -> None:
    entry = behind(*(of(number) for number in range(7)))
    assert [find_duplicate(entry, of(number)) for number in range(8)] == [None, None, 2, 3, 4, 5, 6, None]
    assert find_duplicate(entry, of(5, 2)) is None, "a part of two is no duplicate"
    assert find_duplicate(entry, of(5, epoch=EPOCH + 1)) is None
    assert find_duplicate(None, of(5)) is None
    newer = after_batch(entry, of(0, epoch=EPOCH + 1), 7, NOW)
    assert newer.batches == ((0, 0, 7),)


def test_a_marker_with_a_higher_epoch_clears_the_batches() -> None:
    entry = after_marker(behind(of(0, transactional=True)), EPOCH + 1, NOW + 5)
    assert entry == ProducerEntry(EPOCH + 1, NOW + 5, NOT_OPEN, ())
    assert refusal(entry, of(1)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("sequence", [1, 2, MAX_SEQUENCE])
def test_a_non_zero_sequence_after_a_marker_that_raised_the_epoch_is_refused(sequence: int) -> None:
    entry = after_marker(behind(of(0, transactional=True)), EPOCH + 1, NOW)
    assert refusal(entry, of(sequence, epoch=EPOCH + 1)) is GAP
    assert refusal(entry, of(0, epoch=EPOCH + 1)) is None


def test_a_marker_of_the_same_epoch_leaves_the_batches() -> None:
    open_entry = behind(of(0, transactional=True), of(1, transactional=True))
    assert open_entry.open_since == 0
    entry = after_marker(open_entry, EPOCH, NOW)
    assert (entry.open_since, entry.batches) == (NOT_OPEN, open_entry.batches)
    assert (refusal(entry, of(2)), find_duplicate(entry, of(1))) == (None, 1)


def test_a_batch_outside_of_an_open_transaction_is_refused() -> None:
    entry = behind(of(0), of(1, transactional=True))
    assert entry.open_since == 1
    assert refusal(entry, of(2)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(entry, of(2, transactional=True)) is None
    assert after_batch(entry, of(2, transactional=True), 9, NOW).open_since == 1


def test_as_many_batches_are_kept_as_may_be_under_way() -> None:
    assert producers.BATCHES_TO_RETAIN == 5
