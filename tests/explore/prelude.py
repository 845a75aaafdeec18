"""How a scope begins that is not explored from the very first step on: one course, on which all goes well.

Every message arrives and every write becomes durable as soon as it can, and nothing is lost. Of what a scope allows,
what such a course uses up is gone for what is explored behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.explore.cluster import Cluster, State
from tests.explore.moves import Move

MOST_MOVES: Final = 1_000
"""Until all is quiet."""


def prelude(cluster: Cluster) -> Iterator[tuple[int, State]]:
    """Each move of it, by its place among all that are possible, and the canonical state that it leads to.

    Raises ValueError for a scope that has not what it takes, FoundError for what is wrong on the way.
    """
    scope = cluster.scope
    begins = {"": 0, "led": 1, "joined": 1 + scope.spares}[scope.begins]
    state = cluster.canonical(cluster.first())[0]
    for wanted in [_stands(scope.voters // 2), *[_takes_in] * scope.spares][:begins]:
        if not any(wanted(move) for move, _, _ in cluster.after(state)):
            raise ValueError(f"the scope {scope.name} has not the timeouts, changes or spares to begin {scope.begins}")
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
