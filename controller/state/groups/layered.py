"""A dict, and a dict of sets, that can be changed for the length of a batch while what is below them stays. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Layered(Generic[Key, Value]):
    """Values by key. With `below` it has what that has, but for its own changes."""

    __slots__ = ("_below", "_own")

    def __init__(self, below: Layered[Key, Value] | None = None) -> None:
        self._below = below
        # None: it is gone from here on, though it is below.
        self._own: dict[Key, Value | None] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key, if it has one."""
        if self._below is None or key in self._own:
            return self._own.get(key)
        return self._below.get(key)

    def put(self, key: Key, value: Value) -> None:
        """A key has this value from now on."""
        self._own[key] = value

    def remove(self, key: Key) -> None:
        """A key has no value any more; it had one."""
        if self._below is None:
            del self._own[key]
        else:
            self._own[key] = None

    def copied(self) -> dict[Key, Value]:
        """All of it; for one that has nothing below."""
        assert self._below is None, "what lies above another one has changes alone"
        return self._own.copy()  # type: ignore[return-value]  # None is a value only above something


class Index(Generic[Key, Value]):
    """Sets of values by key; an empty one is none. `below`: as of Layered."""

    __slots__ = ("_below", "_own")

    def __init__(self, below: Index[Key, Value] | None = None) -> None:
        self._below = below
        self._own: dict[Key, set[Value]] = {}

    def of(self, key: Key) -> Collection[Value]:
        """What a key has, to be looked at only, and before the next change."""
        if self._below is None or key in self._own:
            return self._own.get(key, ())
        return self._below.of(key)

    def add(self, key: Key, value: Value) -> None:
        """A key has this value too."""
        self._changing(key).add(value)

    def discard(self, key: Key, value: Value) -> None:
        """A key has this value no more, if it had it."""
        values = self._changing(key)
        values.discard(value)
        if not values and self._below is None:
            del self._own[key]

    def clear(self, key: Key) -> Collection[Value]:
        """A key has nothing any more; what it had."""
        values = self.of(key)
        if self._below is not None:
            self._own[key] = set()
        elif values:
            del self._own[key]
        return values

    def _changing(self, key: Key) -> set[Value]:
        values = self._own.get(key)
        if values is None:
            values = self._own[key] = set() if self._below is None else set(self._below.of(key))
        return values
