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


class Crowd:
    """Whoever holds some of a pool of 100, and whoever waits."""

    def __init__(self) -> None:
        self.pool: MemoryPool[int] = MemoryPool(100)
        self.held: deque[int] = deque()
        self.waiting: dict[int, int] = {}
        self._number = 0

    def take(self, size: int) -> None:
        self._number = number = self._number + 1
        if self.pool.allocate(number, size, lambda: self._granted(number)):
            assert not self.waiting
            self.held.append(size)
        else:
            self.waiting[number] = size

    def _granted(self, number: int) -> None:
        assert next(iter(self.waiting)) == number, "somebody was overtaken"
        self.held.append(self.waiting.pop(number))

    def give(self, _: int) -> None:
        if self.held:
            for granted in self.pool.release(self.held.popleft()):
                granted()

    def leave(self, which: int) -> None:
        if self.waiting:
            gone = list(self.waiting)[which % len(self.waiting)]
            del self.waiting[gone]
            for granted in self.pool.forget(gone):
                granted()


@given(st.lists(st.tuples(st.sampled_from(["take", "take", "give", "leave"]), st.integers(1, 120)), max_size=60))
def test_the_pool_is_never_over_and_everybody_is_served_in_the_end(steps: list[tuple[str, int]]) -> None:
    crowd = Crowd()
    for step, size in steps:
        getattr(crowd, step)(size)
        assert crowd.pool.used == sum(crowd.held)
        assert sum(crowd.held) <= 100 or len(crowd.held) == 1
        assert crowd.held or not crowd.waiting, "all wait, and for nobody"
    while crowd.held:
        crowd.give(0)
    assert not crowd.waiting
