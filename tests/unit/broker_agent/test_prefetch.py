from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.backoff import backoff_seconds
from pidkeeper.broker_agent.ids.prefetch import (
    BACKOFF_BASE_SECONDS,
    BACKOFF_MAX_SECONDS,
    MAX_BURST,
    RATE_FALL_SECONDS,
    RATE_WINDOW_SECONDS,
    PrefetchPolicy,
    PrefetchSettings,
)
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.protocol.ids import ProducerIdBlock


def make(**settings: float) -> tuple[PrefetchPolicy, BlockReserve]:
    values = {"min_reserve_ids": 0, "reserve_seconds": 0.0, "min_blocks": 1} | settings
    return PrefetchPolicy(PrefetchSettings(**values), random.Random(1)), BlockReserve()  # type: ignore[arg-type]


class Highest:
    """Chance that always draws the upper end."""

    def uniform(self, a: float, b: float) -> float:
        assert a <= b
        return b


class Lowest:
    """Chance that always draws the lower end."""

    def uniform(self, a: float, b: float) -> float:
        assert a <= b
        return a


def fill(reserve: BlockReserve, blocks: int, length: int = 1000) -> None:
    for _ in range(blocks):
        reserve.offer(ProducerIdBlock(reserve.highest_held + 1, length))


@pytest.mark.parametrize(("claims", "wanted"), [(0, 0), (899, 0), (900, 1), (901, 1), (1000, 1), (1001, 1)])
def test_asks_for_one_block_from_nine_tenths_on(claims: int, wanted: int) -> None:
    policy, reserve = make()
    fill(reserve, 1)
    for _ in range(claims):
        reserve.claim()
    assert policy.blocks_to_ask(reserve, now=0.0) == wanted


def test_does_not_ask_with_a_block_behind_the_current_one() -> None:
    policy, reserve = make()
    fill(reserve, 2)
    for _ in range(950):
        reserve.claim()
    assert policy.blocks_to_ask(reserve, now=0.0) == 0


def test_a_failed_round_is_repeated_before_the_block_is_empty() -> None:
    """Kafka tests the threshold by equality and never asks again when that one attempt failed."""
    policy, reserve = make()
    fill(reserve, 1)
    for _ in range(950):
        reserve.claim()
    policy.round_failed(now=0.0)
    assert policy.blocks_to_ask(reserve, now=0.0) == 0
    assert policy.blocks_to_ask(reserve, now=policy.seconds_to_wait(0.0)) == 1


def test_the_first_fill_asks_for_its_blocks_and_then_is_done() -> None:
    policy, reserve = make(min_blocks=3)
    assert (policy.blocks_to_ask(reserve, now=0.0), policy.is_filled(reserve)) == (3, False)
    fill(reserve, 2)
    assert (policy.blocks_to_ask(reserve, now=0.0), policy.is_filled(reserve)) == (1, False)
    fill(reserve, 1)
    assert (policy.blocks_to_ask(reserve, now=0.0), policy.is_filled(reserve)) == (0, True)


def test_keeps_the_standing_minimum() -> None:
    policy, reserve = make(min_reserve_ids=5000)
    fill(reserve, 3)
    assert policy.blocks_to_ask(reserve, now=0.0) == 2
    fill(reserve, 2)
    assert policy.blocks_to_ask(reserve, now=0.0) == 0
    reserve.claim()
    assert policy.blocks_to_ask(reserve, now=0.0) == 1


def test_keeps_seconds_of_supply_at_the_measured_rate() -> None:
    policy, reserve = make(reserve_seconds=2.0)
    fill(reserve, 1)
    policy.observe(claimed=2500, elapsed=1.0)
    assert (policy.target_ids(), policy.blocks_to_ask(reserve, now=0.0)) == (5000, 4)


def test_counts_in_blocks_of_the_length_that_the_controller_gives() -> None:
    policy, reserve = make(min_reserve_ids=100)
    fill(reserve, 1, length=20)
    assert policy.blocks_to_ask(reserve, now=0.0) == 4


def test_a_round_is_bounded_by_the_burst_and_by_what_may_be_held() -> None:
    policy, reserve = make(min_reserve_ids=10**6, max_burst=8, max_reserve_blocks=10)
    assert policy.blocks_to_ask(reserve, now=0.0) == 8
    fill(reserve, 7)
    assert policy.blocks_to_ask(reserve, now=0.0) == 3
    fill(reserve, 3)
    assert policy.blocks_to_ask(reserve, now=0.0) == 0


def test_a_round_is_a_tenth_of_the_supply_at_least_and_there_is_so_much_more_at_hand() -> None:
    policy, reserve = make(min_reserve_ids=50_000)
    fill(reserve, 49)
    assert policy.blocks_to_ask(reserve, now=0.0) == 5
    fill(reserve, 5)
    for _ in range(4000):
        reserve.claim()
        assert policy.blocks_to_ask(reserve, now=0.0) == 0, "what was asked for beyond the supply is used up first"
    reserve.claim()
    assert policy.blocks_to_ask(reserve, now=0.0) == 5


def test_where_no_more_may_be_held_a_round_waits_until_there_is_room_for_all_of_it() -> None:
    policy, reserve = make(min_reserve_ids=10**6, max_reserve_blocks=50)
    fill(reserve, 46)
    assert policy.blocks_to_ask(reserve, now=0.0) == 0
    for _ in range(1001):
        reserve.claim()
    assert policy.blocks_to_ask(reserve, now=0.0) == 5


def test_after_a_failure_one_request_finds_out_whether_the_controller_is_back() -> None:
    policy, reserve = make(min_reserve_ids=10**6)
    policy.round_failed(now=10.0)
    assert 0 < policy.seconds_to_wait(10.0) <= BACKOFF_BASE_SECONDS
    later = 10.0 + BACKOFF_BASE_SECONDS
    assert policy.blocks_to_ask(reserve, later) == 1
    policy.round_succeeded()
    assert policy.blocks_to_ask(reserve, later) == MAX_BURST


def test_failures_are_counted_until_a_round_succeeds_which_ends_the_back_off() -> None:
    policy, reserve = make(min_reserve_ids=10**6)
    for failures in (1, 2, 3):
        policy.round_failed(now=10.0)
        assert policy.failures_in_a_row == failures
    assert policy.seconds_to_wait(now=11.0) == 0.0
    assert policy.blocks_to_ask(reserve, now=10.0) == 0
    policy.round_succeeded()
    assert policy.failures_in_a_row == 0
    assert policy.blocks_to_ask(reserve, now=10.0) == MAX_BURST


def test_a_throttled_round_after_a_failure_is_followed_by_a_full_one() -> None:
    policy, reserve = make(min_reserve_ids=10**6)
    policy.round_failed(now=10.0)
    policy.round_throttled(now=10.0, throttle_time_ms=100)
    assert policy.blocks_to_ask(reserve, now=11.0) == MAX_BURST


@pytest.mark.parametrize(("rng", "seconds"), [(Lowest(), 0.7), (Highest(), 0.77)])
def test_a_throttle_is_stretched_by_a_tenth_at_most(rng: Lowest | Highest, seconds: float) -> None:
    policy = PrefetchPolicy(PrefetchSettings(), rng)
    policy.round_throttled(now=0.0, throttle_time_ms=700)
    assert policy.seconds_to_wait(now=0.0) == pytest.approx(seconds, rel=1e-9)


def test_a_throttled_round_waits_as_told_and_is_no_failure() -> None:
    policy, reserve = make(min_reserve_ids=10**6)
    policy.round_throttled(now=10.0, throttle_time_ms=700)
    assert policy.blocks_to_ask(reserve, 10.69) == 0
    assert policy.blocks_to_ask(reserve, 10.0 + 0.7 * 1.1) == MAX_BURST


def test_the_rate_rises_at_once_and_falls_slowly() -> None:
    policy, _ = make()
    policy.observe(claimed=50_000, elapsed=1.0)
    assert policy.claim_rate == 50_000
    policy.observe(claimed=0, elapsed=RATE_FALL_SECONDS)
    assert policy.claim_rate == pytest.approx(50_000 / 2.718281828)
    policy.observe(claimed=10_000 * 10, elapsed=RATE_FALL_SECONDS)
    assert policy.claim_rate == pytest.approx(10_000 + (50_000 / 2.718281828 - 10_000) / 2.718281828)
    policy.observe(claimed=60_000, elapsed=1.0)
    assert policy.claim_rate == 60_000


def test_short_samples_are_gathered() -> None:
    """A thousand IDs in the microsecond between two looks are no rate of 10^9/s."""
    policy, _ = make()
    policy.observe(claimed=1000, elapsed=1e-6)
    assert policy.claim_rate == 0
    policy.observe(claimed=0, elapsed=0.1)
    assert policy.claim_rate == pytest.approx(10_000, rel=0.01)


def test_a_sample_is_long_enough_from_the_window_on() -> None:
    policy, _ = make()
    policy.observe(claimed=1000, elapsed=RATE_WINDOW_SECONDS)
    assert policy.claim_rate == pytest.approx(1000 / RATE_WINDOW_SECONDS)


def test_the_default_reserve_outlasts_a_leader_kill_at_a_sudden_load() -> None:
    policy = PrefetchPolicy(PrefetchSettings(), random.Random(1))
    election, one_attempt, one_backoff = 0.9, 0.3, 0.2
    assert policy.target_ids() - 1000 > 50_000 * (election + one_attempt + one_backoff)


@pytest.mark.parametrize(
    "bad",
    [
        {"min_blocks": 0},
        {"max_burst": 0},
        {"min_blocks": 5, "max_reserve_blocks": 4},
        {"min_reserve_ids": -1},
        {"reserve_seconds": -0.5},
    ],
)
def test_senseless_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        PrefetchSettings(**bad)


@given(st.integers(1, 10_000), st.integers(0, 2**32))
def test_back_off_grows_within_its_bounds(attempt: int, seed: int) -> None:
    ceiling = min(BACKOFF_MAX_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(attempt - 1, 40))
    seconds = backoff_seconds(attempt, random.Random(seed), base=BACKOFF_BASE_SECONDS, maximum=BACKOFF_MAX_SECONDS)
    assert ceiling / 2 <= seconds <= ceiling


def test_backoff_doubles_up_to_its_maximum() -> None:
    waits = [backoff_seconds(attempt, Highest(), base=1.0, maximum=5.0) for attempt in (1, 2, 3, 4)]
    assert waits == [1.0, 2.0, 4.0, 5.0]


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.floats(0.001, 1.0), st.sampled_from(["ok", "fail", "throttle"]))),
    st.integers(0, 20_000),
    st.integers(1, 12),
    st.integers(1, 9),
)
def test_never_more_than_the_bounds_whatever_happens(
    steps: list[tuple[int, float, str]], min_ids: int, max_blocks: int, burst: int
) -> None:
    policy, reserve = make(min_reserve_ids=min_ids, max_reserve_blocks=max_blocks, max_burst=burst, reserve_seconds=5.0)
    now = 0.0
    for claims, elapsed, outcome in steps:
        now += elapsed
        before = reserve.claimed
        for _ in range(claims):
            reserve.claim()
        policy.observe(reserve.claimed - before, elapsed)
        wanted = policy.blocks_to_ask(reserve, now)
        assert 0 <= wanted <= burst
        assert reserve.blocks_held + wanted <= max_blocks
        assert wanted >= 1 or reserve.remaining > 0 or policy.seconds_to_wait(now) > 0, "starving, yet it does not ask"
        if outcome == "fail":
            policy.round_failed(now)
        elif outcome == "throttle":
            policy.round_throttled(now, 100)
        else:
            fill(reserve, wanted)
            policy.round_succeeded()


@pytest.mark.parametrize("warm_up_seconds", [0.0, 0.2, 3.0])
@pytest.mark.parametrize("rate", [1_000, 50_000])
def test_no_claim_fails_when_the_leader_dies_under_a_sudden_load(rate: int, warm_up_seconds: float) -> None:
    """Policy and reserve in steps of 5 ms, one answer time each: the load begins, then the leader is away for 1.4 s."""
    policy, reserve = PrefetchPolicy(PrefetchSettings(), random.Random(1)), BlockReserve()
    step, now = 0.005, 0.0
    while wanted := policy.blocks_to_ask(reserve, now):
        fill(reserve, wanted)
        policy.round_succeeded()
    while now < warm_up_seconds + 6.0:
        now += step
        for _ in range(int(rate * step)):
            reserve.claim()
        policy.observe(int(rate * step), step)
        wanted = policy.blocks_to_ask(reserve, now)
        if wanted and warm_up_seconds <= now < warm_up_seconds + 1.4:
            policy.round_failed(now)
        elif wanted:
            fill(reserve, wanted)
            policy.round_succeeded()
    assert reserve.failed_claims == 0
    assert reserve.remaining >= policy.target_ids() - 1000
