"""A dict of which a snapshot can be taken while it changes, at no cost to whoever changes it. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Other = TypeVar("Other")


class Captured(Mapping[Key, Value]):
    """A SharedDict as it was at a moment, to be read on any thread."""

    __slots__ = ("__weakref__", "_items")

    def __init__(self, items: dict[Key, Value]) -> None:
        self._items = items

    def __getitem__(self, key: Key) -> Value:
        return self._items[key]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Key]:
        # Whoever iterates holds the capture.
        for key in self._items:  # noqa: UP028
            yield key


class SharedDict(Generic[Key, Value]):
    """In the order in which keys came, as a dict.

    A copy of 200,000 entries, and its end, would hold the event loop for 10 ms. So `share` gives the dict itself away
    to be read, and as long as somebody has that, what changes is kept beside: `_later` has keys that came since, in
    their order, `_replaced` new values of keys that stay where they are, `_gone` keys that went.
    """

    __slots__ = ("_base", "_gone", "_later", "_reader", "_replaced")

    def __init__(self, items: Iterable[tuple[Key, Value]] = ()) -> None:
        self._base: dict[Key, Value] = dict(items)
        self._later: dict[Key, Value] = {}
        self._replaced: dict[Key, Value] = {}
        self._gone: set[Key] = set()
        self._reader: weakref.ref[Captured[Key, Value]] | None = None

    def share(self) -> Captured[Key, Value]:
        """What it is now. Those who have one already make the next one cost a copy."""
        if self._is_read():
            return Captured(dict(self.items()))
        captured = Captured(self._base)
        self._reader = weakref.ref(captured)
        return captured

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._later)

    def __contains__(self, key: Key) -> bool:
        if self._reader is None:
            return key in self._base
        return key in self._later or (key in self._base and key not in self._gone)

    def __getitem__(self, key: Key) -> Value:
        if self._reader is None:
            return self._base[key]
        if key in self._later:
            return self._later[key]
        if key in self._gone:
            raise KeyError(key)
        return self._replaced[key] if key in self._replaced else self._base[key]

    @overload
    def get(self, key: Key) -> Value | None: ...
    @overload
    def get(self, key: Key, default: Other) -> Value | Other: ...
    def get(self, key: Key, default: object = None) -> object:
        """As of a dict."""
        if self._reader is None:
            return self._base.get(key, default)
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[Key]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[Key, Value]]:
        """In their order; to be used up before the next change."""
        if self._reader is None:
            yield from self._base.items()
            return
        for key, value in self._base.items():
            if key not in self._gone:
                yield key, self._replaced.get(key, value)
        yield from self._later.items()

    def __setitem__(self, key: Key, value: Value) -> None:
        if self._reader is None or not self._is_read():
            self._base[key] = value
        elif key in self._base and key not in self._gone:
            self._replaced[key] = value
        else:
            self._later[key] = value

    def __delitem__(self, key: Key) -> None:
        if self._reader is None or not self._is_read():
            del self._base[key]
        elif key in self._later:
            del self._later[key]
        elif key in self._base and key not in self._gone:
            self._replaced.pop(key, None)
            self._gone.add(key)
        else:
            raise KeyError(key)

    def pop(self, key: Key) -> Value | None:
        """Remove a key; its value, None if it was not there."""
        if self._reader is None or not self._is_read():
            return self._base.pop(key, None)
        if key not in self:
            return None
        value = self[key]
        del self[key]
        return value

    def _is_read(self) -> bool:
        """Whether somebody has the base; if that has ended, what changed meanwhile joins it."""
        if self._reader is None:
            return False
        if self._reader() is not None:
            return True
        self._reader = None
        for key in self._gone:
            del self._base[key]
        self._base |= self._replaced
        self._base |= self._later
        self._gone.clear()
        self._replaced.clear()
        self._later.clear()
        return False
