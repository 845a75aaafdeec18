from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.service.kafka.calls_in_order import MAX_OVERLAPPING, CallsInOrder


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_answers_leave_in_the_order_of_the_requests_up_to_the_first_that_failed(
    ends: list[int], failing: set[int]
) -> None:
    calls = CallsInOrder()
    begun = [calls.begin() for _ in range(6)]
    left: list[bytes] = []
    ended: set[int] = set()
    for number in ends:
        leaving, failed = calls.end(begun[number], None if number in failing else b"%d" % number)
        left += leaving
        ended.add(number)
        first_missing = next(at for at in range(7) if at not in ended or at in failing)
        assert left == [b"%d" % at for at in range(first_missing)]
        assert failed == (first_missing in ended)
        assert calls.failed == bool(ended & failing)
        if failed:
            break
    else:
        assert not calls.under_way


def test_it_is_full_at_its_bound_and_after_a_failure() -> None:
    calls = CallsInOrder()
    begun = [calls.begin() for _ in range(MAX_OVERLAPPING - 1)]
    assert not calls.full()
    last = calls.begin()
    assert calls.full()
    calls.end(begun[1], b"")
    assert calls.full(), "its answer waits for another one"
    calls.end(begun[0], b"")
    assert not calls.full()
    calls.end(last, None)
    assert calls.full()
