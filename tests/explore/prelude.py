"""How a scope begins that is not explored from the very first step on: one course, on which all goes well.

Everything that a message or a write is waited for happens at once, and nothing is lost. What such a course uses up is
gone for what is explored behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.explore.cluster import Cluster, State
from tests.explore.moves import Move

MOST_MOVES: Final = 1_000
"""Until all is quiet."""


def prelude(cluster: Cluster) -> Iterator[tuple[int, State]]:
    """Each move of it, by its place among all that are possible, and the canonical state that it leads to."""
    scope = cluster.scope
    begins = {"": 0, "led": 1, "joined": 1 + scope.spares}[scope.begins]
    state = cluster.canonical(cluster.first())[0]
    for wanted in [_stands(scope.voters // 2), *[_takes_in] * scope.spares][:begins]:
        for place, after in _until_quiet(cluster, state, wanted):
            state = after
            yield place, after


def _until_quiet(cluster: Cluster, state: State, wanted: Callable[[Move], bool]) -> Iterator[tuple[int, State]]:
    for _ in range(MOST_MOVES):
        all_next = cluster.after(state)
        found = next((place for place, (move, lost, _) in enumerate(all_next) if wanted(move) and not lost), None)
        if found is None:
            return
        state = cluster.canonical(all_next[found][2])[0]
        yield found, state
        wanted = _goes_on
    raise AssertionError(f"{MOST_MOVES} moves, and no end")


def _stands(peers: int) -> Callable[[Move], bool]:
    """Somebody stands with the answers of so many peers, all at once."""
    return lambda move: move.event[0] == "stand" and len(move.event[1]) == peers


def _takes_in(move: Move) -> bool:
    return move.event[:2] == ("change", "add")


def _goes_on(move: Move) -> bool:
    return move.event[0] == "sync" or (move.event[0] == "receive" and not move.repeated)
