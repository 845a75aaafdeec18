"""All members, what is on its way between them, and all that can happen next."""

from __future__ import annotations

import itertools
import struct
from typing import Any

from tests.explore.automaton import Automaton, Permutation, inverse
from tests.explore.calm import stands_still
from tests.explore.flights import Flights
from tests.explore.moves import Changes, Move, Moves
from tests.explore.past import Pasts, beginning
from tests.explore.scope import Scope
from tests.explore.table import Table

State = tuple[int, ...]
"""The members by place, then what has happened, then what is on its way, each by number."""


Next = tuple[Move, tuple[int, ...], State]
"""A move, what it pushes out of full links, and the state that it leads to."""


class Cluster:
    """The states of one scope, and what comes after each."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.automaton = Automaton(scope)
        self.pasts = Pasts()
        self._flights = Flights(self.automaton, scope.capacity)
        self._begin()

    def _begin(self) -> None:
        packing = struct.Struct(f"{self.scope.places + 2}I")
        self.packed, self.unpacked = packing.pack, packing.unpack
        self.moves = Moves(self.scope, self.automaton, self.pasts)
        self._orders = Table(self._ordering)
        self._renamings = Table(self._renaming)

    def __getstate__(self) -> dict[str, Any]:
        """What cannot be worked out again: the numbers."""
        kept = ("scope", "automaton", "pasts", "_flights")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._begin()

    def first(self) -> State:
        """All members are up, and nothing has happened."""
        return (*self.automaton.first(), self.pasts.number(beginning(self.scope)), self._flights.number(()))

    # What can happen.

    def after(self, state: State) -> list[Next]:
        """Every move that is possible, and the state that it leads to, always in the same order. Raises FoundError."""
        moves, found = self.moves, list[Next]()
        members, past, flight = state[:-2], state[-2], state[-1]
        may_lose = self._may_lose(members)
        for place, member in enumerate(members):
            self._follow(state, place, moves.local[member, past, may_lose[place]], flight, found)
            self._follow(state, place, moves.candidacies(members, place, past), flight, found)
        for message, place, rest in self._flights.arrivals[flight]:
            self._follow(state, place, moves.arrivals[message, members[place], past], rest, found)
        return found

    def _follow(self, state: State, place: int, changes: Changes, rest: int, found: list[Next]) -> None:
        """Add where `changes` of the member at `place` lead. `rest`: what is on its way beside what has arrived."""
        member, flight = state[place], state[-1]
        before, behind = state[:place], state[place + 1 : -2]
        for move, then, past, sent in changes:
            ways = self._flights.joined[flight if move.repeated else rest, sent]
            if then == member and ways[0] == (flight, ()):
                continue
            for on_its_way, lost in ways:
                found.append((move, lost, (*before, then, *behind, past, on_its_way)))

    def _may_lose(self, members: tuple[int, ...]) -> list[bool]:
        """By place. Of each quorum fewer than a majority have lost data and not yet recovered: no protocol survives
        more."""
        if not self.scope.losses:
            return [False] * len(members)
        facts = [self.automaton.facts[member] for member in members]
        lost = frozenset(place for place, one in enumerate(facts) if one.lost)
        quorums = {frozenset(range(self.scope.voters)), *itertools.chain.from_iterable(one.voters for one in facts)}
        together = [lost | {place} for place in range(len(members))]
        return [all(2 * len(quorum & some) < len(quorum) for quorum in quorums) for some in together]

    def left_alone(self, state: State) -> str | None:
        """What is wrong once the members of `state` are left alone; None if somebody comes to serve."""
        dumped = [self.automaton.dumped(member) for member in state[: self.scope.members]]
        try:
            return "nobody comes to serve, though everybody is up" if stands_still(dumped) else None
        except AssertionError as broken:
            return str(broken)

    # Who is who makes no difference.

    def canonical(self, state: State) -> tuple[State, Permutation]:
        """The state that stands for all that differ from `state` in names alone, and who takes whose place in it."""
        shapes = self.automaton.shapes
        orders = self._orders[tuple([shapes[member] for member in state[:-2]])]
        first = orders[0]
        best = first.state(state), first.permutation
        for order in orders[1:]:
            found = order.state(state)
            if found < best[0]:
                best = found, order.permutation
        return best

    def _ordering(self, shapes: tuple[int, ...]) -> tuple[_Renaming, ...]:
        """All ways to put the shapes in order."""
        order = sorted(range(len(shapes)), key=shapes.__getitem__)
        groups = [list(group) for _, group in itertools.groupby(order, key=shapes.__getitem__)]
        choices = itertools.product(*[itertools.permutations(group) for group in groups])
        return tuple([self._renamings[inverse(tuple(itertools.chain.from_iterable(choice)))] for choice in choices])

    def _renaming(self, permutation: Permutation) -> _Renaming:
        return _Renaming(permutation, self.automaton, self.pasts, self._flights)


class _Renaming:
    """Everybody in another's place, number by number."""

    def __init__(self, permutation: Permutation, automaton: Automaton, pasts: Pasts, flights: Flights) -> None:
        self.permutation = permutation
        self._none = permutation == tuple(range(len(permutation)))
        self._from = inverse(permutation)
        self._members: Table[int, int] = Table(lambda member: automaton.renamed(member, permutation))
        self._pasts: Table[int, int] = Table(lambda past: pasts.renamed(past, permutation))
        self._flights: Table[int, int] = Table(lambda flight: flights.renamed(flight, permutation))

    def state(self, state: State) -> State:
        """The state in which everybody has taken another's place."""
        if self._none:
            return state
        members = self._members
        renamed = [members[state[place]] for place in self._from]
        return (*renamed, self._pasts[state[-2]], self._flights[state[-1]])
