"""The objects of the store: how many batches of each some log has, and which nobody needs any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pidkeeper.controller.state.logs.columns import empty, packed, unpacked
from pidkeeper.protocol.logs import ObjectId

_CODES: Final = "qHqqqIq"
"""Key, founding, broker id, broker epoch, number, size, batches."""


class StoredObject(NamedTuple):
    """An object. `founding`: an index of `Objects.foundings`; `size`: in bytes."""

    founding: int
    id: ObjectId
    size: int


class Objects:
    """Objects by a key that is never given again.

    `foundings`: of the quorums whose objects there were, oldest first. `garbage`: objects that no log has a batch in,
    oldest first; they are to be deleted from the store.
    """

    __slots__ = ("_batches", "_stored", "foundings", "garbage", "next_key")

    def __init__(self) -> None:
        self.next_key = 0
        self.foundings: list[uuid.UUID] = []
        self.garbage: dict[int, None] = {}
        self._stored: dict[int, StoredObject] = {}
        self._batches: dict[int, int] = {}

    def __len__(self) -> int:
        """Objects that are not deleted."""
        return len(self._stored)

    def path(self, key: int) -> str:
        """The name of an object in the store."""
        stored = self._stored[key]
        return stored.id.path(self.foundings[stored.founding])

    def collectable(self, most: int) -> list[int]:
        """Objects that are to be deleted, the oldest first, at most so many."""
        return list(islice(self.garbage, most))

    def add(self, founding_id: uuid.UUID, object_id: ObjectId, size: int, batches: int) -> int:
        """A new object, in which logs have so many batches; its key."""
        if not self.foundings or self.foundings[-1] != founding_id:
            self.foundings.append(founding_id)
        key = self.next_key
        self.next_key = key + 1
        self._stored[key] = StoredObject(len(self.foundings) - 1, object_id, size)
        self._batches[key] = batches
        return key

    def release(self, keys: Iterable[int]) -> None:
        """For each time that an object is named, a log needs one batch of it no more."""
        for key in keys:
            left = self._batches[key] = self._batches[key] - 1
            assert left >= 0, f"L5: {self._stored[key]} has {left} batches"
            if left == 0:
                self.garbage[key] = None

    def deleted(self, keys: Sequence[int], offset: int) -> None:
        """Objects are deleted from the store."""
        for key in keys:
            assert key in self.garbage, f"L5: offset {offset} deletes object {key}, which logs have batches in"
            del self.garbage[key], self._stored[key], self._batches[key]

    def captured(self) -> Callable[[], tuple[bytes, ...]]:
        """What gives the columns of this moment, on any thread."""
        stored, batches = self._stored.copy(), self._batches.copy()
        return lambda: _pack(stored, batches)

    def restore(self, columns: Sequence[bytes], foundings: Iterable[uuid.UUID], next_key: int) -> None:
        """Become what a snapshot kept. Raises ValueError."""
        self.foundings = list(foundings)
        self.next_key = next_key
        for key, founding, broker_id, broker_epoch, number, size, batches in zip(
            *unpacked(_CODES, columns), strict=True
        ):
            if founding >= len(self.foundings) or key >= next_key or batches < 0:
                raise ValueError(f"object {key} of founding {founding} with {batches} batches")
            self._stored[key] = StoredObject(founding, ObjectId(broker_id, broker_epoch, number), size)
            self._batches[key] = batches
            if batches == 0:
                self.garbage[key] = None


def _pack(stored: dict[int, StoredObject], batches: dict[int, int]) -> tuple[bytes, ...]:
    columns = empty(_CODES)
    for key, (founding, name, size) in stored.items():
        row = key, founding, name.broker_id, name.broker_epoch, name.number, size, batches[key]
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return packed(columns)
