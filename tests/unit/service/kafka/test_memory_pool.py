from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.service.kafka.memory_pool import MemoryPool


def never() -> None:
    raise AssertionError("it was called by the pool itself")


def test_nothing_overtakes_whoever_waits() -> None:
    pool: MemoryPool[str] = MemoryPool(100)
    order: list[str] = []
    assert pool.allocate("a", 60, never)
    assert not pool.allocate("large", 50, lambda: order.append("large"))
    assert not pool.allocate("small", 10, lambda: order.append("small")), "it would fit"
    for granted in pool.release(60):
        granted()
    assert (order, pool.used) == (["large", "small"], 60)


def test_the_last_byte_is_granted_and_none_beyond() -> None:
    pool: MemoryPool[str] = MemoryPool(100)
    assert pool.allocate("a", 99, never)
    assert pool.allocate("b", 1, never)
    assert not pool.allocate("c", 1, never)


def test_what_is_larger_than_the_pool_is_granted_when_nothing_else_is() -> None:
    pool: MemoryPool[str] = MemoryPool(100)
    assert pool.allocate("a", 1, never)
    assert not pool.allocate("giant", 101, never)
    assert pool.release(1) == [never]
    assert pool.used == 101


def test_who_is_gone_keeps_nobody_waiting() -> None:
    pool: MemoryPool[str] = MemoryPool(100)
    assert pool.allocate("a", 60, never)
    assert not pool.allocate("large", 50, never)
    assert not pool.allocate("small", 40, never)
    assert pool.forget("nobody") == []
    assert pool.forget("large") == [never]
    assert pool.used == 100


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "leave"]), st.integers(1, 120)), max_size=60))
def test_the_pool_is_never_over_and_everybody_is_served_in_the_end(steps: list[tuple[str, int]]) -> None:
    pool: MemoryPool[int] = MemoryPool(100)
    held: deque[int] = deque()
    waiting: dict[int, int] = {}

    def allocate(number: int, size: int) -> None:
        def granted() -> None:
            assert next(iter(waiting)) == number, "somebody was overtaken"
            held.append(waiting.pop(number))

        if pool.allocate(number, size, granted):
            assert not waiting
            held.append(size)
        else:
            waiting[number] = size

    def give_back() -> None:
        for granted in pool.release(held.popleft()):
            granted()

    for number, (step, size) in enumerate(steps):
        if step == "take":
            allocate(number, size)
        elif step == "give" and held:
            give_back()
        elif step == "leave" and waiting:
            gone = next(iter(waiting))
            del waiting[gone]
            for granted in pool.forget(gone):
                granted()
        assert pool.used == sum(held)
        assert sum(held) <= 100 or len(held) == 1
        assert held or not waiting, "all wait, and for nobody"
    while held:
        give_back()
    assert not waiting
