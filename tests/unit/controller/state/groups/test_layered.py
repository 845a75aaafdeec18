"""What lies above another one has all of it, but for its own changes, and changes nothing below."""

from __future__ import annotations

import random

import pytest

from pidkeeper.controller.state.groups.layered import Index, Layered


def test_a_layer_hides_what_it_changes() -> None:
    below: Layered[str, int] = Layered()
    below.put("kept", 1)
    below.put("changed", 2)
    below.put("gone", 3)
    above = Layered(below)
    above.put("changed", 4)
    above.put("new", 5)
    above.remove("gone")
    assert [above.get(key) for key in ("kept", "changed", "gone", "new", "never")] == [1, 4, None, 5, None]
    assert below.copied() == {"kept": 1, "changed": 2, "gone": 3}
    above.put("gone", 6)
    assert above.get("gone") == 6
    below.remove("gone")
    assert below.get("gone") is None
    with pytest.raises(KeyError):
        below.remove("gone")
    with pytest.raises(AssertionError, match="changes alone"):
        above.copied()


def test_a_copy_is_of_its_moment() -> None:
    one: Layered[int, int] = Layered()
    one.put(1, 1)
    copied = one.copied()
    one.put(2, 2)
    assert copied == {1: 1}


def test_an_index_above_another_one_follows_plain_sets() -> None:
    rng = random.Random(1)
    below: Index[int, int] = Index()
    sets: dict[int, set[int]] = {key: set() for key in range(4)}
    index, model = below, sets
    for step in range(2000):
        if step % 100 == 50:
            index, model = Index(below), {key: set(values) for key, values in sets.items()}
        elif step % 100 == 0:
            index, model = below, sets
        before = {key: set(below.of(key)) for key in sets}
        key, value = rng.randrange(4), rng.randrange(5)
        match rng.randrange(5):
            case 0 | 1 | 2:
                index.add(key, value)
                model[key].add(value)
            case 3:
                index.discard(key, value)
                model[key].discard(value)
            case _:
                assert set(index.clear(key)) == model[key]
                model[key] = set()
        assert {one: set(index.of(one)) for one in sets} == model
        if index is not below:
            assert {one: set(below.of(one)) for one in sets} == before
    assert len(below._own) == sum(bool(values) for values in sets.values()), "no empty set is kept"
