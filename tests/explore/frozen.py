"""Whatever a member consists of, as one hashable value, or once more with other names in it."""

from __future__ import annotations

import enum
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import msgspec

from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.raft.core import RaftConfig
from pidkeeper.protocol.records import VotersRecord, encode_batch, read_voters

_LEAVES = (int, float, str, bool, type(None), enum.Enum, type, uuid.UUID, FunctionType, MemberSettings)
"""What has no parts, or the same ones for everybody."""

_METHODS = (BuiltinMethodType, MethodType)
_Applied = list[tuple[int, int, bytes]]
"""What a snapshot holds, and before an explored member has applied anything as well."""


def _content(value: bytes) -> VotersRecord | _Applied | None:
    """What bytes say that names members: a configuration, or a snapshot that may hold some."""
    if (record := read_voters(value)) is not None:
        return record
    try:
        return msgspec.msgpack.decode(value, type=_Applied)
    except msgspec.DecodeError:
        return None


def frozen(value: Any) -> Any:
    """`value` with all that it refers to, by content alone; a part that is met again is named by its class.

    Raises TypeError for what has no content that could be compared.
    """
    return _Freezer(_itself).freeze(value)


def shape(value: Any, rename: Callable[[int], int]) -> Any:
    """As `frozen`, with integers renamed, and nothing kept of the order in which things of one kind are held.

    So it stays the same for one who changes names that `rename` makes equal.
    """
    return _Freezer(rename, ordered=False).freeze(value)


def _itself(value: int) -> int:
    return value


class _Freezer:
    def __init__(self, rename: Callable[[int], int], *, ordered: bool = True) -> None:
        self._rename = rename
        self._ordered = ordered
        self._met: set[int] = set()
        # What bytes said: kept, for what is met is known by its identity.
        self._read: list[Any] = []

    def freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return self._rename(value)
        if isinstance(value, _LEAVES):
            return value
        if kind is bytes:
            return self._said(value)
        if kind in {list, tuple, deque}:
            return self._held([self.freeze(one) for one in value])
        if kind in {set, frozenset}:
            return frozenset([self.freeze(one) for one in value])
        if kind is dict:
            return self._held([(self.freeze(key), self.freeze(one)) for key, one in sorted(value.items())])
        if kind in _METHODS:
            return value.__name__
        # The same for everybody.
        if kind is RaftConfig:
            return self.freeze(value.node_id)
        if id(value) in self._met:
            return kind.__name__
        self._met.add(id(value))
        return (kind.__name__, *[self.freeze(getattr(value, name)) for name in _fields(value)])

    def _said(self, value: bytes) -> Any:
        content = None if self._ordered else _content(value)
        if content is None:
            return value
        self._read.append(content)
        return self.freeze(content)

    def _held(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items if self._ordered else sorted(items, key=repr))


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    found = tuple(name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()))
    found += tuple(sorted(getattr(value, "__dict__", ())))
    if not found and not hasattr(value, "__dict__"):
        raise TypeError(f"{value!r} has no fields that are known")
    return found


def renamed(value: Any, names: Mapping[int, int]) -> Any:
    """A copy of `value` and of all that it refers to, in which each integer that `names` has is another."""
    return _Renamer(names).copy(value)


class _Renamer:
    def __init__(self, names: Mapping[int, int]) -> None:
        self._names = names
        self._copies: dict[int, Any] = {}
        self._read: list[Any] = []

    def copy(self, value: Any) -> Any:
        kind = type(value)
        if kind is int:
            return self._names.get(value, value)
        if isinstance(value, _LEAVES):
            return value
        if kind is bytes:
            return self._renamed(value)
        found = self._copies.get(id(value))
        if found is None:
            found = self._copied(value, kind)
            self._copies[id(value)] = found
        return found

    def _renamed(self, value: bytes) -> bytes:
        content = _content(value)
        if content is None:
            return value
        self._read.append(content)
        copied = self.copy(content)
        return encode_batch([copied]) if isinstance(content, VotersRecord) else msgspec.msgpack.encode(copied)

    def _copied(self, value: Any, kind: type) -> Any:
        if kind is list:
            # Before what is in it: others hold its methods.
            made = self._copies[id(value)] = []
            made += [self.copy(one) for one in value]
            return made
        if kind in {tuple, set, frozenset}:
            return kind(self.copy(one) for one in value)
        if kind is deque:
            return deque((self.copy(one) for one in value), value.maxlen)
        if kind is dict:
            return {self.copy(key): self.copy(one) for key, one in value.items()}
        if kind in _METHODS:
            return getattr(self.copy(value.__self__), value.__name__)
        if kind is VotersRecord:
            return VotersRecord(tuple(sorted([self.copy(one) for one in value.members], key=lambda one: one.id)))
        if kind is RaftConfig:
            voters = tuple(sorted([self.copy(one) for one in value.voters]))
            return msgspec.structs.replace(value, node_id=self.copy(value.node_id), voters=voters)
        if isinstance(value, msgspec.Struct):
            return kind(*[self.copy(getattr(value, name)) for name in value.__struct_fields__])
        return self._copied_by_fields(value, kind)

    def _copied_by_fields(self, value: Any, kind: Any) -> Any:
        made = self._copies[id(value)] = kind.__new__(kind)
        for name in _fields(value):
            setattr(made, name, self.copy(getattr(value, name)))
        return made
