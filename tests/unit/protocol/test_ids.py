"""Blocks of producer IDs: their ends, their bounds, and that they overlap just when they share an ID."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdBlock

small_blocks = st.builds(ProducerIdBlock, st.integers(0, 40), st.integers(1, 20))


def ids(block: ProducerIdBlock) -> set[int]:
    return set(range(block.first, block.first + block.length))


def test_the_last_id_is_inclusive() -> None:
    block = ProducerIdBlock(3000, DEFAULT_BLOCK_SIZE)
    assert (block.last, block.next) == (3999, 4000)
    assert 3000 in block
    assert 3999 in block
    assert 2999 not in block
    assert 4000 not in block


@pytest.mark.parametrize("first", [-1, -1000, -(2**63)])
def test_a_negative_first_id_is_refused(first: int) -> None:
    with pytest.raises(ValueError, match=f"cannot start at {first}"):
        ProducerIdBlock(first, 1)


@pytest.mark.parametrize("length", [0, -1])
def test_an_empty_block_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"a block of {length} IDs is not a block"):
        ProducerIdBlock(0, length)


def test_the_next_id_stays_representable() -> None:
    highest = ProducerIdBlock(MAX_PRODUCER_ID - 1000, 1000)
    assert highest.next == MAX_PRODUCER_ID == 2**63 - 1
    assert MAX_PRODUCER_ID not in highest


@pytest.mark.parametrize(
    ("first", "length"),
    [(MAX_PRODUCER_ID - 999, 1000), (MAX_PRODUCER_ID, 1), (0, MAX_PRODUCER_ID + 1), (2**64, 1), (1, 2**64)],
)
def test_a_block_that_passes_the_highest_id_is_refused(first: int, length: int) -> None:
    with pytest.raises(ValueError, match=f"would pass {MAX_PRODUCER_ID}"):
        ProducerIdBlock(first, length)


@given(small_blocks, small_blocks)
def test_blocks_overlap_just_when_they_share_an_id(one: ProducerIdBlock, other: ProducerIdBlock) -> None:
    assert one.overlaps(other) == bool(ids(one) & ids(other))
    assert one.overlaps(other) == other.overlaps(one)


@given(small_blocks, st.integers(-5, 70))
def test_membership_is_that_of_the_set(block: ProducerIdBlock, producer_id: int) -> None:
    assert (producer_id in block) == (producer_id in ids(block))
    assert block.last == max(ids(block))
    assert block.next == max(ids(block)) + 1


@given(small_blocks, small_blocks)
def test_blocks_sort_by_their_first_id(one: ProducerIdBlock, other: ProducerIdBlock) -> None:
    assert [block.first for block in sorted([one, other])] == sorted([one.first, other.first])
