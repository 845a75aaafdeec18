"""A dict that is captured while it changes, beside a plain dict and copies of it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.controller.state.shared_dict import Captured, SharedDict

KEYS = st.integers(0, 9)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers()),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("capture")),
        st.tuples(st.just("let go"), st.integers(0, 3)),
    ),
    max_size=60,
)


class Beside:
    """The same done to both."""

    def __init__(self) -> None:
        self.shared: SharedDict[int, int] = SharedDict(((0, -1), (5, -2)))
        self.plain = {0: -1, 5: -2}
        self.captured: list[tuple[Captured[int, int], dict[int, int]]] = []

    def do(self, change: tuple[Any, ...]) -> None:
        match change:
            case ("set", key, value):
                self.shared[key] = self.plain[key] = value
            case ("delete", key) if key in self.plain:
                del self.shared[key], self.plain[key]
            case ("delete", key):
                with pytest.raises(KeyError):
                    del self.shared[key]
            case ("pop", key):
                assert self.shared.pop(key) == self.plain.pop(key, None)
            case ("capture",):
                self.captured.append((self.shared.share(), self.plain.copy()))
            case ("let go", number) if number < len(self.captured):
                del self.captured[number]

    def check(self) -> None:
        assert list(self.shared.items()) == list(self.plain.items())
        assert list(self.shared) == list(self.plain)
        assert len(self.shared) == len(self.plain)
        for key in range(11):
            assert (key in self.shared) is (key in self.plain)
            assert self.shared.get(key) == self.plain.get(key)
            assert self.shared.get(key, "none") == self.plain.get(key, "none")
            if key in self.plain:
                assert self.shared[key] == self.plain[key]
            else:
                with pytest.raises(KeyError):
                    _ = self.shared[key]
        for captured, then in self.captured:
            assert list(captured.items()) == list(then.items())
            assert len(captured) == len(then)


@given(CHANGES)
def test_it_is_a_dict_and_what_was_captured_stays(changes: list[tuple[Any, ...]]) -> None:
    beside = Beside()
    for change in changes:
        beside.do(change)
        beside.check()


def test_who_iterates_over_a_capture_holds_it() -> None:
    shared = SharedDict((number, number) for number in range(3))
    rest = iter(shared.share())
    assert next(rest) == 0
    gc.collect()
    shared[7] = 7
    del shared[1]
    assert list(rest) == [1, 2]
    assert list(shared.items()) == [(0, 0), (2, 2), (7, 7)]


def test_changes_join_it_once_nobody_reads_it() -> None:
    shared = SharedDict(((1, 1),))
    captured = shared.share()
    shared[2] = 2
    del captured
    shared[3] = 3
    assert shared._base == {1: 1, 2: 2, 3: 3}
    assert not shared._later
