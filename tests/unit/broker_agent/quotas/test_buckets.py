"""The arithmetic of quotas: what they let through in any span of time, and what is kept of principals."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.quotas.accounts import Accounts
from pidkeeper.broker_agent.kafka.quotas.bucket import (
    BURST_SECONDS,
    MAX_THROTTLE_SECONDS,
    NANOSECONDS,
    Bucket,
)

rates = st.integers(1, 1 << 40)


class Client:
    """Asks whenever it owes nothing. `taken`: when, and how much."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.bucket = Bucket()
        self.now = 0
        self.taken: list[tuple[int, int]] = []

    def ask(self, amount: int) -> None:
        self.now += self.bucket.wait_ns(self.rate, self.now)
        assert self.bucket.wait_ns(self.rate, self.now) == 0, "it waited as long as it was told"
        self.bucket.charge(amount, self.rate, self.now)
        self.taken.append((self.now, amount))


@given(rates, st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3 * NANOSECONDS)), min_size=1, max_size=30))
def test_no_span_has_more_than_the_rate_a_burst_and_what_the_last_request_goes_beyond(
    rate: int, asked: list[tuple[float, int]]
) -> None:
    client = Client(rate)
    for share, pause in asked:
        client.now += pause
        client.ask(int(share * MAX_THROTTLE_SECONDS * rate))
    for first, last in itertools.combinations_with_replacement(range(len(asked)), 2):
        span = client.taken[last][0] - client.taken[first][0]
        total = sum(amount for _, amount in client.taken[first : last + 1])
        assert (total - client.taken[last][1] - BURST_SECONDS * rate) * NANOSECONDS <= rate * span


@given(rates, st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_who_asks_whenever_it_may_gets_the_rate(rate: int, shares: list[float]) -> None:
    client = Client(rate)
    for share in shares:
        client.ask(int(share * MAX_THROTTLE_SECONDS * rate))
    total = sum(amount for _, amount in client.taken)
    last = client.taken[-1][1]
    assert total - last >= rate * client.now // NANOSECONDS - len(shares), "it never waits for longer than it has to"


@given(rates, st.lists(st.tuples(st.integers(0, 1 << 44), st.integers(0, 20 * NANOSECONDS)), max_size=20))
def test_no_wait_is_longer_than_the_bound_and_room_means_no_wait(rate: int, charges: list[tuple[int, int]]) -> None:
    bucket, now = Bucket(), 0
    for amount, pause in charges:
        bucket.charge(amount, rate, now)
        wait = bucket.wait_ns(rate, now)
        assert 0 <= wait <= MAX_THROTTLE_SECONDS * NANOSECONDS
        room = bucket.room(rate, now)
        assert room == 0 or wait == 0
        bucket.charge(room, rate, now)
        assert bucket.wait_ns(rate, now) == wait, "what fits costs no wait"
        assert bucket.wait_ns(rate, now + MAX_THROTTLE_SECONDS * NANOSECONDS) == 0
        now += MAX_THROTTLE_SECONDS * NANOSECONDS + pause


def test_what_is_owed_beyond_the_bound_is_forgotten() -> None:
    bucket = Bucket()
    bucket.charge(1 << 23, 1, 0)
    assert bucket.wait_ns(1, 0) == MAX_THROTTLE_SECONDS * NANOSECONDS
    assert bucket.wait_ns(1, 5 * NANOSECONDS) == (MAX_THROTTLE_SECONDS - 5) * NANOSECONDS
    assert bucket.idle_at == (MAX_THROTTLE_SECONDS + BURST_SECONDS) * NANOSECONDS


def test_a_new_rate_is_in_force_at_once() -> None:
    bucket = Bucket()
    bucket.charge(1100, 100, 0)
    assert bucket.wait_ns(100, 0) == 10 * NANOSECONDS
    assert bucket.wait_ns(1000, 0) == NANOSECONDS // 10
    assert bucket.wait_ns(10, 0) == MAX_THROTTLE_SECONDS * NANOSECONDS


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    bucket = Bucket()
    bucket.charge(300, 100, 10 * NANOSECONDS)
    assert bucket.wait_ns(100, 5 * NANOSECONDS) == bucket.wait_ns(100, 10 * NANOSECONDS) == 2 * NANOSECONDS


def test_accounts_that_are_paid_off_are_dropped_and_a_crowd_shares_one() -> None:
    accounts = Accounts(limit=3)
    for name in "abc":
        accounts.of(name, 0).requests.charge(1, 1, 0)
    shared = accounts.of("d", 0)
    assert accounts.of("e", 0) is shared, "those without a place have one account together"
    assert accounts.of("a", 0) is not shared
    assert len(accounts) == 3
    accounts.of("a", 0).requests.charge(5, 1, 0)
    assert accounts.of("d", NANOSECONDS) is not shared
    assert len(accounts) == 2, "b and c owed nothing any more"
    assert accounts.of("a", NANOSECONDS).requests.wait_ns(1, NANOSECONDS) > 0


@pytest.mark.parametrize("limit", [1, 5])
def test_any_number_of_names_takes_no_more_places(limit: int) -> None:
    accounts = Accounts(limit=limit)
    for number in range(1000):
        accounts.of(str(number), number).produce.charge(100, 1, number)
        assert len(accounts) <= limit
