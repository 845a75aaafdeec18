from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve, RejectedBlockError
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, ProducerIdBlock

blocks = st.builds(ProducerIdBlock, st.integers(0, 300), st.integers(1, 12))


def drained(reserve: BlockReserve) -> list[int]:
    ids = [reserve.claim() for _ in range(reserve.remaining)]
    assert reserve.claim() == NO_ID
    return ids


def test_claims_every_id_of_a_block_once_and_in_order() -> None:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(5, 3))
    reserve.offer(ProducerIdBlock(8, 1))
    reserve.offer(ProducerIdBlock(20, 2))
    assert drained(reserve) == [5, 6, 7, 8, 20, 21]
    assert (reserve.claimed, reserve.remaining, reserve.failed_claims, reserve.blocks_held) == (6, 0, 1, 0)


def test_an_empty_reserve_has_no_id_and_recovers() -> None:
    reserve = BlockReserve()
    assert [reserve.claim(), reserve.claim()] == [NO_ID, NO_ID]
    reserve.offer(ProducerIdBlock(0, 1))
    assert [reserve.claim(), reserve.claim()] == [0, NO_ID]
    reserve.offer(ProducerIdBlock(1, 1))
    assert [reserve.claim(), reserve.claim()] == [1, NO_ID]


@pytest.mark.parametrize("claims_before", [0, 1, 3])
def test_the_block_after_the_highest_held_id_is_taken(claims_before: int) -> None:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(10, 3))
    for _ in range(claims_before):
        reserve.claim()
    reserve.offer(ProducerIdBlock(13, 2))
    assert drained(reserve)[-2:] == [13, 14]


@pytest.mark.parametrize("first", [0, 10, 11, 12])
@pytest.mark.parametrize("claims_before", [0, 1, 3])
def test_a_block_that_starts_at_or_below_the_highest_held_id_is_refused(first: int, claims_before: int) -> None:
    """KAFKA-20031: with `<` in place of `<=`, a block from 12 on would hand out 12 twice."""
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(10, 3))
    for _ in range(claims_before):
        reserve.claim()
    with pytest.raises(RejectedBlockError, match="not above 12"):
        reserve.offer(ProducerIdBlock(first, 5))
    assert (reserve.remaining, reserve.blocks_accepted, reserve.highest_held) == (3 - claims_before, 1, 12)


def test_the_last_block_of_the_id_space_ends_without_a_wrap() -> None:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(MAX_PRODUCER_ID - 2, 2))
    assert [reserve.claim() for _ in range(5)] == [MAX_PRODUCER_ID - 2, MAX_PRODUCER_ID - 1, NO_ID, NO_ID, NO_ID]


@pytest.mark.parametrize(
    ("length", "fraction", "calls_at"),
    [
        (10, 0.9, [1, 9]),  # the first claim of a block, and the ninth: 9/10 are used then
        (10, 0.85, [1, 9]),
        (10, 1.0, [1, 10]),
        (10, 0.0, [1]),
        (1, 0.9, [1]),
    ],
)
def test_calls_on_low_when_the_used_part_reaches_the_threshold(
    length: int, fraction: float, calls_at: list[int]
) -> None:
    calls: list[int] = []
    reserve = BlockReserve(lambda: calls.append(reserve.claimed), ask_fraction=fraction)
    reserve.offer(ProducerIdBlock(100, length))
    for _ in range(length):
        reserve.claim()
    assert calls == calls_at
    reserve.claim()
    assert calls == [*calls_at, length], "a claim that fails calls as well"


def test_the_threshold_is_silent_with_a_block_behind() -> None:
    calls: list[int] = []
    reserve = BlockReserve(lambda: calls.append(reserve.claimed))
    reserve.offer(ProducerIdBlock(0, 10))
    reserve.offer(ProducerIdBlock(10, 10))
    for _ in range(20):
        reserve.claim()
    assert calls == [1, 11, 19]


def test_fractions_and_counts_of_blocks() -> None:
    reserve = BlockReserve()
    assert (reserve.used_fraction, reserve.blocks_behind, reserve.blocks_held) == (1.0, 0, 0)
    reserve.offer(ProducerIdBlock(0, 4))
    assert (reserve.used_fraction, reserve.blocks_behind, reserve.blocks_held) == (0.0, 0, 1)
    reserve.offer(ProducerIdBlock(4, 4))
    reserve.claim()
    assert (reserve.used_fraction, reserve.blocks_behind, reserve.blocks_held) == (0.25, 1, 2)


def test_the_used_fraction_counts_from_the_start_of_the_block() -> None:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(1000, 4))
    reserve.claim()
    reserve.claim()
    assert reserve.used_fraction == 0.5


def test_the_length_of_the_latest_block_is_known_once_there_is_one() -> None:
    reserve = BlockReserve()
    assert reserve.last_block_length == 0
    reserve.offer(ProducerIdBlock(0, 4))
    assert reserve.last_block_length == 4


def test_a_run_may_end_where_the_short_way_ends() -> None:
    reserve = BlockReserve(ask_fraction=0.5)
    reserve.offer(ProducerIdBlock(100, 10))
    assert reserve.claim() == 100
    assert reserve.claim_run(4) == NO_ID
    assert reserve.claim_run(3) == 101
    assert reserve.claim() == 104


def _claimed_all_and_one_more_block() -> BlockReserve:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(10, 10))
    assert len(drained(reserve)) == 10
    reserve.offer(ProducerIdBlock(20, 10))
    return reserve


def _claimed_one() -> BlockReserve:
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(10, 10))
    assert reserve.claim() == 10
    return reserve


def _rewind(reserve: BlockReserve) -> None:
    reserve._next = reserve._stop = 10


def _overshoot(reserve: BlockReserve) -> None:
    reserve._next = 25


def _lower_block_behind(reserve: BlockReserve) -> None:
    reserve._blocks[0] = ProducerIdBlock(19, 1)


def _forget_highest(reserve: BlockReserve) -> None:
    reserve.highest_held = 28


@pytest.mark.parametrize(
    ("build", "wrong", "message"),
    [
        (_claimed_one, _rewind, "A1: ID 10 does not rise above 10"),
        (_claimed_one, _overshoot, "A2: ID 25 is outside of the block 10-19"),
        (_claimed_all_and_one_more_block, _lower_block_behind, "A1: block at 19 follows one that ends 19"),
        (_claimed_all_and_one_more_block, _forget_highest, "A3: block to 29, highest held 28"),
    ],
)
def test_a_reserve_that_went_wrong_stops(
    build: Callable[[], BlockReserve], wrong: Callable[[BlockReserve], None], message: str
) -> None:
    reserve = build()
    wrong(reserve)
    with pytest.raises(AssertionError, match=message):
        reserve.claim()


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_a_senseless_threshold_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="ask_fraction"):
        BlockReserve(ask_fraction=fraction)


@given(st.lists(blocks | st.none(), max_size=80), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_any_history_of_offers_and_claims(steps: list[ProducerIdBlock | None], fraction: float) -> None:
    """Against a model that holds every ID: strictly rising, each at most once, only from accepted blocks."""
    reserve = BlockReserve(ask_fraction=fraction)
    model: list[int] = []
    claimed = failed = 0
    ids: list[int] = []
    highest = NO_ID
    for step in steps:
        if step is None:
            got = reserve.claim()
            assert got == (model.pop(0) if model else NO_ID)
            claimed, failed = (claimed + 1, failed) if got != NO_ID else (claimed, failed + 1)
            ids += [got] if got != NO_ID else []
        elif step.first > highest:
            reserve.offer(step)
            model += range(step.first, step.next)
            highest = step.last
        else:
            with pytest.raises(RejectedBlockError):
                reserve.offer(step)
        assert (reserve.remaining, reserve.claimed, reserve.failed_claims) == (len(model), claimed, failed)
        assert reserve.highest_held == highest
    assert ids == sorted(set(ids))


@given(st.integers(1, 40), st.lists(st.integers(1, 12), max_size=20), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_runs_are_claimed_within_what_single_claims_would_give(length: int, counts: list[int], fraction: float) -> None:
    lows: list[int] = []
    reserve = BlockReserve(lambda: lows.append(reserve.claimed), ask_fraction=fraction)
    reserve.offer(ProducerIdBlock(7, length))
    single = BlockReserve(ask_fraction=fraction)
    single.offer(ProducerIdBlock(7, length))
    for count in counts:
        first = reserve.claim_run(count)
        ids = [reserve.claim() for _ in range(count)] if first == NO_ID else list(range(first, first + count))
        assert ids == [single.claim() for _ in range(count)]
    assert reserve.remaining == single.remaining
    threshold = 7 + max(0, math.ceil(fraction * length) - 1)
    if reserve.claimed and 7 + reserve.claimed > threshold:
        assert lows, "the threshold was passed without a word"


def test_what_is_told_without_an_id_depends_on_whether_one_will_come() -> None:
    reserve = BlockReserve()
    assert (reserve.exhausted, reserve.refusal) == (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    reserve.exhaust()
    assert (reserve.exhausted, reserve.refusal) == (True, ErrorCode.PRODUCER_IDS_EXHAUSTED)
    assert reserve.claim() == NO_ID
    reserve.offer(ProducerIdBlock(0, 2))
    assert (reserve.exhausted, reserve.refusal) == (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    reserve.exhaust()
    assert [reserve.claim() for _ in range(3)] == [0, 1, NO_ID], "what is held is handed out first"
    with pytest.raises(RejectedBlockError):
        reserve.offer(ProducerIdBlock(1, 2))
    assert reserve.exhausted, "a block that is thrown away is none"


@pytest.mark.parametrize("claimed", [0, 1, 5, 10, 13, 20])
def test_what_is_discarded_is_never_claimed_and_what_comes_later_is_above_it(claimed: int) -> None:
    reserve = BlockReserve()
    for first in (0, 10):
        reserve.offer(ProducerIdBlock(first, 10))
    assert [reserve.claim() for _ in range(claimed)] == list(range(claimed))
    reserve.discard()
    assert (reserve.remaining, reserve.claimed, reserve.highest_held, reserve.claim()) == (0, claimed, 19, NO_ID)
    assert reserve.claim_run(1) == NO_ID
    with pytest.raises(RejectedBlockError):
        reserve.offer(ProducerIdBlock(15, 10))
    reserve.offer(ProducerIdBlock(20, 10))
    assert [reserve.claim() for _ in range(11)] == [*range(20, 30), NO_ID]
    assert reserve.claimed == claimed + 10
