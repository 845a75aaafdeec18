"""Token buckets: the bound that they promise, the one bucket per broker, the bound on the table."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.service import throttle
from pidkeeper.service.throttle import NANOSECONDS, Rate, Throttle

WIDE = Rate(1_000_000.0, 1_000_000)


def rates() -> st.SearchStrategy[Rate]:
    return st.builds(Rate, st.floats(0.1, 100_000.0), st.integers(1, 50))


def gaps() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 3 * NANOSECONDS) | st.integers(0, 1000), min_size=1, max_size=120)


def granted_at(bucket: Throttle, waits: list[int], brokers: int = 1) -> list[int]:
    """The times at which a request was let through, one request after each gap."""
    now, granted = NANOSECONDS, []
    for turn, gap in enumerate(waits):
        now += gap
        if bucket.admit(turn % brokers, now) is None:
            granted.append(now)
    return granted


def within_bound(granted: list[int], rate: Rate) -> bool:
    """Whether every span between two grants holds at most burst + per_second * span."""
    return all(
        last - first + 1 <= rate.burst + Fraction(rate.per_second) * (granted[last] - granted[first]) / NANOSECONDS
        for first in range(len(granted))
        for last in range(first, len(granted))
    )


@given(st.floats(0.001, 1_000_000.0))
def test_the_interval_is_rounded_up_and_by_less_than_a_nanosecond(per_second: float) -> None:
    exact = NANOSECONDS / Fraction(per_second)
    assert exact <= Rate(per_second, 1).interval_ns < exact + 1


@given(rates(), gaps())
def test_a_broker_never_gets_more_than_burst_plus_rate_times_span(rate: Rate, waits: list[int]) -> None:
    assert within_bound(granted_at(Throttle(rate, WIDE), waits), rate)


@given(rates(), gaps())
def test_all_brokers_together_never_get_more_than_the_shared_bucket(rate: Rate, waits: list[int]) -> None:
    assert within_bound(granted_at(Throttle(WIDE, rate), waits, brokers=7), rate)


@given(rates())
def test_a_full_bucket_grants_its_whole_burst_at_once_and_no_more(rate: Rate) -> None:
    bucket = Throttle(rate, WIDE)
    assert [bucket.admit(1, NANOSECONDS) for _ in range(rate.burst)] == [None] * rate.burst
    assert bucket.admit(1, NANOSECONDS) is not None


@given(rates(), gaps())
def test_whoever_waits_as_long_as_told_gets_a_token_and_not_earlier(rate: Rate, waits: list[int]) -> None:
    bucket, now = Throttle(rate, WIDE), NANOSECONDS
    for gap in waits:
        now += gap
        if (refusal := bucket.admit(1, now)) is not None:
            assert bucket.admit(1, now + refusal.wait_ns - 1) is not None
            now += refusal.wait_ns
            assert bucket.admit(1, now) is None


def test_one_broker_does_not_use_up_another_ones_bucket() -> None:
    bucket = Throttle(Rate(1.0, 2), WIDE)
    assert [bucket.admit(1, 0) is None for _ in range(3)] == [True, True, False]
    assert bucket.admit(2, 0) is None


def test_a_request_that_the_cluster_refuses_costs_the_broker_no_token() -> None:
    bucket = Throttle(Rate(0.001, 1), Rate(1.0, 1))
    assert bucket.admit(1, 0) is None
    refusal = bucket.admit(2, 0)
    assert refusal is not None
    assert refusal.quota == "cluster"
    assert bucket.admit(2, NANOSECONDS) is None


def test_a_request_that_the_broker_quota_refuses_costs_the_cluster_no_token() -> None:
    bucket = Throttle(Rate(0.001, 1), Rate(0.001, 2))
    assert bucket.admit(1, 0) is None
    refusal = bucket.admit(1, 0)
    assert refusal is not None
    assert refusal.quota == "broker"
    assert bucket.admit(2, 0) is None


def test_the_table_is_bounded_and_only_full_buckets_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_BUCKETS", 2)
    bucket = Throttle(Rate(1.0, 2), WIDE)
    assert bucket.admit(1, 0) is None
    assert bucket.admit(2, NANOSECONDS // 2) is None
    refusal = bucket.admit(3, NANOSECONDS // 2)
    assert refusal is not None
    assert (refusal.quota, refusal.wait_ns) == ("buckets", NANOSECONDS // 2)
    assert bucket.admit(3, NANOSECONDS // 2) == refusal, "the refusal made no room"
    assert bucket.admit(3, NANOSECONDS) is None
    assert len(bucket) == 2
    assert bucket.admit(2, NANOSECONDS) is None, "the bucket in use was kept"


def test_the_least_recently_used_bucket_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_BUCKETS", 2)
    bucket = Throttle(Rate(1.0, 5), WIDE)
    for broker, now in ((1, 0), (2, 0), (1, NANOSECONDS)):
        assert bucket.admit(broker, now) is None
    assert bucket.admit(3, NANOSECONDS) is None
    assert bucket.admit(2, NANOSECONDS) is not None, "1 and 3 are in use, so there is no room for 2"
