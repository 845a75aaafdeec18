"""Breadth first through all states of a scope, so that what is found is found on a shortest course.

States are numbered as they are found. Of each only a few bytes are kept for ever, and by which move of which other
state it was found; the course to a state is gone through again from the beginning.
"""

from __future__ import annotations

import os
import pickle
from array import array
from pathlib import Path
from typing import NamedTuple

from tests.explore.cluster import Cluster, FoundError, Move, inverse
from tests.explore.scope import Scope


class Finding(NamedTuple):
    """What is wrong, and the shortest course that leads to it, with everybody under the name that they began with."""

    what: str
    course: list[Move]


class Search:
    """One exploration. `depth`: moves from the beginning to the states that are looked at next."""

    def __init__(self, scope: Scope) -> None:
        self.cluster = Cluster(scope)
        first, self._names = self.cluster.canonical(self.cluster.first())
        self._seen: set[bytes] = {first.packed()}
        # By number: by which move of which state it was found first. The first state has no such move.
        self._parents = array("I", [0])
        self._moves = array("H", [0])
        # The states of this depth that are still to be looked at, by number from `_next` on.
        self._frontier: list[bytes] = [first.packed()]
        self._next = 0
        self.depth = 0
        self.moves = 0
        self.finding: Finding | None = None

    @property
    def states(self) -> int:
        """How many distinct states were found."""
        return len(self._seen)

    @property
    def exhausted(self) -> bool:
        """Whether there is none left to look at."""
        return not self._frontier

    def deepen(self) -> None:
        """Look at all states of this depth, unless one of them shows something wrong, which `finding` then is."""
        cluster, seen, found = self.cluster, self._seen, []
        for number, packed in enumerate(self._frontier, self._next):
            place = 0
            try:
                for place, (_, after) in enumerate(cluster.moves(cluster.unpacked(packed)), 1):
                    key = cluster.canonical(after)[0].packed()
                    if key not in seen:
                        seen.add(key)
                        found.append(key)
                        self._parents.append(number)
                        self._moves.append(place - 1)
            except FoundError as wrong:
                self.finding = Finding(str(wrong), self._course(number, wrong.move))
                return
            self.moves += place
        self._next += len(self._frontier)
        self._frontier = found
        self.depth += 1

    def _course(self, number: int, last: Move) -> list[Move]:
        """The moves to the state with `number`, and `last` behind them."""
        places = []
        while number:
            places.append(self._moves[number])
            number = self._parents[number]
        cluster = self.cluster
        state, names = cluster.canonical(cluster.first())
        course = []
        for place in reversed(places):
            move, after = next(one for at, one in enumerate(cluster.moves(state)) if at == place)
            course.append(cluster.named(move, inverse(names)))
            state, then = cluster.canonical(after)
            names = tuple(then[names[one]] for one in range(len(names)))
        return [*course, cluster.named(last, inverse(names))]

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
