"""What logs read from, and what becomes of it once they do not any more, counted from the records alone.

- No agent asks to delete what a log reads from; nor what no log needs any more before its time.
- The quorum is told that an object is deleted once, after an agent asked for that, and only of what no log needs.
- While nothing may be deleted since a quorum took the place of another, agents delete what they themselves never
  committed, and nothing else; then objects of those foundings that the operator has named.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from pidkeeper.broker_agent.data.object_names import parsed
from pidkeeper.protocol.segments import LOG_SUFFIX, index_path
from tests.simulation.object_store import SimStore
from tests.simulation.world import MILLISECOND, Violation

TICK: Final = 10 * MILLISECOND
"""Of a member. Its time for garbage is counted in these, from the tick that comes next."""


class References:
    """Of all logs. `garbage`: what no log needs any more, by name, and since when. `collected`: objects, in the end.

    `founding`: of the quorum that the records are of. `held`: nothing of other foundings may be deleted, or of what was
    committed. `released`: the foundings that the operator has named last, None before the first time. `pinned`: whether
    an agent has told the quorum of its store.
    """

    def __init__(self, store: SimStore, garbage: int) -> None:
        self.store = store
        self.garbage: dict[str, int] = {}
        self.collected = 0
        self.founding: uuid.UUID | None = None
        self.held = self.pinned = False
        self.released: tuple[uuid.UUID, ...] | None = None
        self._garbage = garbage
        self._crcs: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._keys: list[tuple[str, ...]] = []
        self._deleted: set[int] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._crcs

    def names(self) -> set[str]:
        """All that logs read from."""
        return set(self._crcs)

    def succeed(self) -> None:
        """The quorum takes the place of another. One that had no store yet collects its own objects, and no others."""
        self.held, self.released = self.pinned, None if self.pinned else ()

    def add(self, name: str, rows: int) -> None:
        """An object that logs read so many rows from, or none; a segment with its index. Raises Violation."""
        names = (name, index_path(name)) if name.endswith(LOG_SUFFIX) else (name,)
        self._keys.append(names)
        if name in self._crcs:
            raise Violation("object-twice", name)
        if rows:
            self._rows[name] = rows
        for one in names:
            if rows:
                # Of what the store lacks for the moment, as a copy of the quorum was restored, what it had.
                self._crcs[one] = zlib.crc32(self.store.ever[one])
            else:
                self.garbage[one] = self.store.world.now

    def let_go(self, names: Iterable[str]) -> None:
        """A row each is not read from these any more; nothing for a marker of a tail."""
        for name in names:
            if not name:
                continue
            self._rows[name] -= 1
            if not self._rows[name]:
                del self._rows[name]
                for one in (name, index_path(name)) if name.endswith(LOG_SUFFIX) else (name,):
                    del self._crcs[one]
                    self.garbage[one] = self.store.world.now

    def told_deleted(self, keys: Sequence[int], *, trusted: bool) -> None:
        """The quorum was told that objects are deleted. Raises Violation. `trusted`: it was looked at before."""
        for key in keys:
            names = self._keys[key]
            if key in self._deleted or not all(name in self.garbage for name in names):
                raise Violation("deleted-in-use", f"object {key}, {names}, is told to be deleted")
            if not trusted and not all(name in self.store.discarded for name in names):
                raise Violation("deleted-untried", f"object {key}, {names}, is told to be deleted")
            self._deleted.add(key)
            self.collected += 1

    def deleting(self, name: str) -> None:
        """An agent asks to delete. Raises Violation."""
        if name in self._crcs:
            raise Violation("referenced-then-discarded", f"an agent asks to delete {name}")
        since = self.garbage.get(name)
        if since is not None and self.store.world.now - since < self._garbage - TICK:
            age = (self.store.world.now - since) // MILLISECOND
            raise Violation("deleted-too-early", f"{name}, which logs needed {age} ms ago")
        self._check_release(name, committed=since is not None)

    def _check_release(self, name: str, *, committed: bool) -> None:
        known = parsed(name)
        assert known is not None, f"an agent asks to delete {name}, which none has named"
        foreign = known.founding_id != self.founding
        if self.held and (foreign or committed):
            raise Violation("deleted-while-held", name)
        if self.released is not None and foreign and known.founding_id not in self.released:
            raise Violation("deleted-unreleased", f"{name}, released are {self.released}")

    def check(self) -> None:
        """All that is referred to is there as it was. Raises Violation."""
        for name, crc in self._crcs.items():
            data = self.store.content(name)
            if data is None or zlib.crc32(data) != crc:
                raise Violation("object-lost", f"logs refer to {name}, of which there is {data and len(data)}")

    def left_over(self) -> set[str]:
        """What the store has and no log needs."""
        return self.store.names() - self._crcs.keys()
