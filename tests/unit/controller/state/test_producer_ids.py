"""The next producer ID: each block starts at it, only a floor jumps ahead, and the end of the space is an error."""

from __future__ import annotations

import pytest

from pidkeeper.controller.state.producer_ids import ProducerIdsState, check_block_left
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.records import AllocateProducerIdsRecord, ProducerIdFloorRecord


def allocation(start: int, length: int = 1000, *, end: int | None = None) -> AllocateProducerIdsRecord:
    last = start + length - 1 if end is None else end
    return AllocateProducerIdsRecord(1, 4, last, start, length, timestamp_ms=99)


def test_a_block_moves_the_next_id_behind_its_inclusive_end() -> None:
    state = ProducerIdsState()
    state.replay_allocation(allocation(0), offset=5)
    assert state.next_producer_id == 1000
    block = state.last_block
    assert block is not None
    assert (block.first, block.length, block.broker_id, block.broker_epoch) == (0, 1000, 1, 4)
    assert (block.offset, block.timestamp_ms) == (5, 99)


@pytest.mark.parametrize("start", [0, 999, 1001, 2000])
def test_s1_a_block_that_does_not_start_at_the_next_id(start: int) -> None:
    state = ProducerIdsState(1000)
    with pytest.raises(AssertionError, match=f"S1: offset 7 allocates from {start}, but the next producer ID is 1000"):
        state.replay_allocation(allocation(start), offset=7)
    assert state.next_producer_id == 1000
    assert state.last_block is None


@pytest.mark.parametrize("end", [998, 1000])
def test_s2_a_block_whose_end_is_not_the_last_id(end: int) -> None:
    state = ProducerIdsState()
    with pytest.raises(AssertionError, match=f"S2: offset 7 ends at {end}, but its block ends at 999"):
        state.replay_allocation(allocation(0, end=end), offset=7)
    assert state.next_producer_id == 0


def test_a_floor_jumps_ahead_and_keeps_the_last_block() -> None:
    state = ProducerIdsState()
    state.replay_allocation(allocation(0), offset=1)
    state.replay_jump(ProducerIdFloorRecord(5000, 0), offset=2)
    assert state.next_producer_id == 5000
    assert state.last_block is not None
    assert state.last_block.first == 0
    state.replay_allocation(allocation(5000), offset=3)
    assert state.next_producer_id == 6000


@pytest.mark.parametrize("floor", [0, 999, 1000])
def test_s3_a_floor_never_goes_back(floor: int) -> None:
    state = ProducerIdsState(1000)
    with pytest.raises(AssertionError, match=f"S3: offset 7 lowers the next producer ID from 1000 to {floor}"):
        state.replay_jump(ProducerIdFloorRecord(floor, 0), offset=7)
    assert state.next_producer_id == 1000


def test_the_last_whole_block_is_given_and_no_remainder_after_it() -> None:
    check_block_left(MAX_PRODUCER_ID - 1000, 1000)
    for next_id in (MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID - 1, MAX_PRODUCER_ID):
        with pytest.raises(RequestError, match=f"next producer ID is {next_id}: no block of 1000") as refused:
            check_block_left(next_id, 1000)
        assert refused.value.code is ErrorCode.PRODUCER_IDS_EXHAUSTED


def test_replay_takes_the_last_block_and_never_wraps() -> None:
    state = ProducerIdsState(MAX_PRODUCER_ID - 1000)
    state.replay_allocation(allocation(MAX_PRODUCER_ID - 1000), offset=1)
    assert state.next_producer_id == MAX_PRODUCER_ID
    with pytest.raises(AssertionError, match="S2: offset 2 ends at 9223372036854775807, but its block ends at"):
        state.replay_allocation(
            AllocateProducerIdsRecord(1, 4, MAX_PRODUCER_ID, MAX_PRODUCER_ID, 1000, 0),
            offset=2,
        )
    assert state.next_producer_id == MAX_PRODUCER_ID


def test_s2_a_block_that_reaches_the_end_of_the_id_space() -> None:
    start = MAX_PRODUCER_ID - 999
    state = ProducerIdsState(start)
    with pytest.raises(AssertionError, match=f"S2: offset 1 ends at {MAX_PRODUCER_ID}"):
        state.replay_allocation(AllocateProducerIdsRecord(1, 4, MAX_PRODUCER_ID, start, 1000, 0), offset=1)
    assert state.next_producer_id == start
