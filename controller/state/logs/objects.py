"""The objects of the store: how many batches of each some log has, and which nobody needs any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pidkeeper.controller.state.logs.columns import empty, packed, unpacked
from pidkeeper.controller.state.shared_dict import SharedDict
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName, index_path

_CODES: Final = "qHqqqIq"
"""Key, founding, broker id, broker epoch, number, size, batches."""


class StoredObject(NamedTuple):
    """An object. `founding`: an index of `Objects.foundings`; `size`: in bytes; `segment`: what it is of, if it is."""

    founding: int
    id: ObjectId
    size: int
    segment: SegmentName | None = None


class Objects:
    """Objects by a key that is never given again.

    `foundings`: of the quorums whose objects there were, oldest first. `garbage`: objects that no log needs, and which
    of all that became so each is, the oldest first; they are to be deleted from the store.
    """

    __slots__ = ("_batches", "_numbers", "_stored", "became_garbage", "foundings", "garbage", "next_key")

    def __init__(self) -> None:
        self.next_key = 0
        self.foundings: list[uuid.UUID] = []
        self.garbage: dict[int, int] = {}
        self.became_garbage = 0
        self._stored: SharedDict[int, StoredObject] = SharedDict()
        self._batches: SharedDict[int, int] = SharedDict()
        # Of each founding, kind, broker and epoch.
        self._numbers: dict[tuple[int, bool, int, int], set[int]] = {}

    def __len__(self) -> int:
        """Objects that are not deleted."""
        return len(self._stored)

    def path(self, key: int) -> str:
        """The name of an object in the store."""
        stored = self._stored[key]
        founding_id = self.foundings[stored.founding]
        return stored.id.path(founding_id) if stored.segment is None else stored.segment.path(stored.id, founding_id)

    def names(self, key: int) -> list[str]:
        """All that the store has of an object: a segment has its index beside it."""
        path = self.path(key)
        return [path] if self._stored[key].segment is None else [path, index_path(path)]

    def collectable(
        self, most: int, before: int | None = None, foundings: Collection[uuid.UUID] | None = None
    ) -> list[int]:
        """Objects that are to be deleted, the oldest first, at most so many: of the first `before` that became so.

        `foundings`: of these alone.
        """
        named = range(len(self.foundings)) if foundings is None else self._indices(foundings)
        oldest = (key for key, which in self.garbage.items() if self._stored[key].founding in named)
        return [key for key in islice(oldest, most) if before is None or self.garbage[key] < before]

    def _indices(self, foundings: Collection[uuid.UUID]) -> set[int]:
        return {index for index, known in enumerate(self.foundings) if known in foundings}

    def holds(self, founding_id: uuid.UUID, object_id: ObjectId, *, segment: bool) -> bool:
        """Whether it is one of these, garbage included."""
        places = (
            (index, segment, object_id.broker_id, object_id.broker_epoch)
            for index, known in enumerate(self.foundings)
            if known == founding_id
        )
        return any(object_id.number in self._numbers.get(place, ()) for place in places)

    def page(self, after: int, limit: int) -> list[tuple[int, StoredObject, int]]:
        """The first of those whose keys are above `after`, at most `limit`: key, object, and batches."""
        # They ascend: each was added with the next key.
        keys = islice((key for key in self._stored if key > after), limit)
        return [(key, self._stored[key], self._batches[key]) for key in keys]

    def add(
        self, founding_id: uuid.UUID, object_id: ObjectId, size: int, batches: int, segment: SegmentName | None = None
    ) -> int:
        """A new object, in which logs have so many batches, a segment being one; its key. Without any it is garbage."""
        if not self.foundings or self.foundings[-1] != founding_id:
            self.foundings.append(founding_id)
        key = self.next_key
        self.next_key = key + 1
        self._keep(key, StoredObject(len(self.foundings) - 1, object_id, size, segment), batches)
        return key

    def _keep(self, key: int, stored: StoredObject, batches: int) -> None:
        self._stored[key] = stored
        self._batches[key] = batches
        self._numbers.setdefault(_place(stored), set()).add(stored.id.number)
        if batches == 0:
            self._discard(key)

    def _discard(self, key: int) -> None:
        self.garbage[key] = self.became_garbage
        self.became_garbage += 1

    def release(self, keys: Iterable[int]) -> None:
        """For each time that an object is named, a log needs one batch of it no more."""
        for key in keys:
            left = self._batches[key] = self._batches[key] - 1
            assert left >= 0, f"L5: {self._stored[key]} has {left} batches"
            if left == 0:
                self._discard(key)

    def deleted(self, keys: Sequence[int], offset: int) -> None:
        """Objects are deleted from the store."""
        for key in keys:
            assert key in self.garbage, f"L5: offset {offset} deletes object {key}, which logs have batches in"
            stored = self._stored[key]
            del self.garbage[key], self._stored[key], self._batches[key]
            numbers = self._numbers[_place(stored)]
            numbers.discard(stored.id.number)
            if not numbers:
                del self._numbers[_place(stored)]

    def captured(self) -> Callable[[], tuple[tuple[bytes, ...], dict[int, SegmentName]]]:
        """What gives the columns of this moment, and which objects are segments, on any thread."""
        stored, batches = self._stored.share(), self._batches.share()
        return lambda: (
            _pack(stored, batches),
            {key: one.segment for key, one in stored.items() if one.segment is not None},
        )

    def restore(
        self,
        columns: Sequence[bytes],
        segments: Mapping[int, SegmentName],
        foundings: Iterable[uuid.UUID],
        next_key: int,
    ) -> None:
        """Become what a snapshot kept. Raises ValueError."""
        self.foundings = list(foundings)
        self.next_key = next_key
        for key, founding, broker_id, broker_epoch, number, size, batches in zip(
            *unpacked(_CODES, columns), strict=True
        ):
            if founding >= len(self.foundings) or key >= next_key or batches < 0:
                raise ValueError(f"object {key} of founding {founding} with {batches} batches")
            object_id = ObjectId(broker_id, broker_epoch, number)
            self._keep(key, StoredObject(founding, object_id, size, segments.get(key)), batches)


def _place(stored: StoredObject) -> tuple[int, bool, int, int]:
    name = stored.id
    return stored.founding, stored.segment is not None, name.broker_id, name.broker_epoch


def _pack(stored: Mapping[int, StoredObject], batches: Mapping[int, int]) -> tuple[bytes, ...]:
    columns = empty(_CODES)
    for key, (founding, name, size, _) in stored.items():
        row = key, founding, name.broker_id, name.broker_epoch, name.number, size, batches[key]
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return packed(columns)
