"""Breadth first through all states of a scope, so that what is found is found on a shortest course.

States are numbered as they are found. Of each only a few bytes are kept for ever, and by which move of which other
state it was found; the course to a state is gone through again from the beginning.
"""

from __future__ import annotations

import os
import pickle
import zlib
from array import array
from pathlib import Path
from typing import NamedTuple

from tests.explore.automaton import inverse
from tests.explore.cluster import Cluster
from tests.explore.moves import FoundError, Move
from tests.explore.prelude import prelude
from tests.explore.scope import Scope


class Finding(NamedTuple):
    """What is wrong, and the shortest course that leads to it, with everybody under the name that they began with."""

    what: str
    course: list[Move]


class Search:
    """One exploration. `depth`: moves from the beginning to the states that are looked at next."""

    def __init__(self, scope: Scope) -> None:
        self.cluster = Cluster(scope)
        first = self.cluster.packed(*self.cluster.canonical(self.cluster.first())[0])
        self._seen: set[bytes] = {first}
        # By number: by which move of which state it was found first. The first state has no such move.
        self._parents = array("I", [0])
        self._moves = array("H", [0])
        # The states of this depth that are still to be looked at, by number from `_next` on.
        self._frontier: list[bytes] = [first]
        self._next = 0
        self._left_alone: set[bytes] = set()
        self.depth = 0
        self.moves = 0
        self.finding: Finding | None = None
        self._begin()

    def _begin(self) -> None:
        """Go to where the scope begins. What lies on the way there is not looked at, so not counted."""
        try:
            for place, state in prelude(self.cluster):
                self._frontier = [self.cluster.packed(*state)]
                self._seen = set(self._frontier)
                self._parents.append(self._next)
                self._moves.append(place)
                self._next += 1
                self.depth += 1
        except FoundError as wrong:
            self.finding = Finding(str(wrong), self._course(self._next, wrong.move))

    @property
    def states(self) -> int:
        """How many distinct states were found."""
        return len(self._seen)

    @property
    def left_alone(self) -> int:
        """How many states of all members were left alone."""
        return len(self._left_alone)

    @property
    def exhausted(self) -> bool:
        """Whether there is none left to look at."""
        return not self._frontier

    def deepen(self) -> None:
        """Look at all states of this depth, unless one of them shows something wrong, which `finding` then is."""
        seen, found = self._seen, list[bytes]()
        cluster, canonical, packed = self.cluster, self.cluster.canonical, self.cluster.packed
        for number, state in enumerate(self._frontier, self._next):
            try:
                all_next = cluster.after(cluster.unpacked(state))
            except FoundError as wrong:
                self.finding = Finding(str(wrong), self._course(number, wrong.move))
                return
            for place, (move, lost, after) in enumerate(all_next):
                state_after = canonical(after)[0]
                key = packed(*state_after)
                if key not in seen:
                    if self._is_to_be_left_alone(key) and (what := cluster.left_alone(state_after)) is not None:
                        self.finding = Finding(what, self._course(number, move._replace(lost=lost)))
                        return
                    seen.add(key)
                    found.append(key)
                    self._parents.append(number)
                    self._moves.append(place)
            self.moves += len(all_next)
        self._next += len(self._frontier)
        self._frontier = found
        self.depth += 1

    def _is_to_be_left_alone(self, key: bytes) -> bool:
        """Whether the members as they are there were not yet, and are among those that are chosen."""
        every, members = self.cluster.scope.calm, key[: 4 * self.cluster.scope.members]
        if not every or zlib.crc32(members) % every or members in self._left_alone:
            return False
        self._left_alone.add(members)
        return True

    def _course(self, number: int, last: Move) -> list[Move]:
        """The moves to the state with `number`, and `last` behind them."""
        places = []
        while number:
            places.append(self._moves[number])
            number = self._parents[number]
        cluster, named = self.cluster, self.cluster.moves.named
        state, names = cluster.canonical(cluster.first())
        course = []
        for place in reversed(places):
            move, lost, after = cluster.after(state)[place]
            course.append(named(move._replace(lost=lost), inverse(names)))
            state, then = cluster.canonical(after)
            names = tuple(then[names[one]] for one in range(len(names)))
        return [*course, named(last, inverse(names))]

    # Checkpoints.

    def save(self, path: Path) -> None:
        """Keep everything in a file, which is replaced as a whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            pickle.dump(self, file, 5)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def resumed(path: Path) -> Search | None:
    """The search that was kept in `path`; None if there is none. Only for files that `save` wrote."""
    try:
        with path.open("rb") as file:
            found = pickle.load(file)
    except FileNotFoundError:
        return None
    assert isinstance(found, Search), f"{path} holds {type(found).__name__}"
    return found
