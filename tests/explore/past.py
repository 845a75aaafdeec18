"""What a course has shown so far, and Raft's promises about it (Raft paper, figure 3)."""

from __future__ import annotations

import msgspec

from tests.explore.automaton import Permutation
from tests.explore.scope import BUDGETS, Scope


class Past(msgspec.Struct, frozen=True):
    """What members cannot be asked for, as they may have forgotten it.

    leaders: by term from 1 on, the place of who came to lead, None: nobody. committed: by index from 1 on, the term of
    the committed entry and the lowest term in which somebody knew that it is. left: what may still happen, in the order
    of `BUDGETS`. granted: the blocks that were granted, by their first ID, in order; handed: the IDs that were handed
    out.
    """

    leaders: tuple[int | None, ...]
    committed: tuple[tuple[int, int], ...]
    left: tuple[int, ...]
    granted: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()

    def spent(self, budget: str) -> Past | None:
        """After what `budget` bounds has happened once more; None if it may not."""
        place = BUDGETS.index(budget)
        if not self.left[place]:
            return None
        left = (*self.left[:place], self.left[place] - 1, *self.left[place + 1 :])
        return msgspec.structs.replace(self, left=left)

    def renamed(self, permutation: Permutation) -> Past:
        """The same with everybody in another's place."""
        return msgspec.structs.replace(
            self, leaders=tuple(None if one is None else permutation[one] for one in self.leaders)
        )


class BrokenError(Exception):
    """A promise is broken."""


def beginning(scope: Scope) -> Past:
    """Nothing has happened."""
    return Past((None,) * scope.terms, (), tuple(getattr(scope, name) for name in BUDGETS))


def elected(past: Past, place: int, term: int, log: tuple[int, ...]) -> Past:
    """The member at `place` came to lead `term`; its log has entries of these terms, 0 where a snapshot took the place.

    Once in a term, and one of all: whoever lost its disk must not begin a second log in the term that it led. Raises
    BrokenError.
    """
    known = past.leaders[term - 1]
    if known is not None:
        whom = "one member comes to lead term {} twice" if known == place else "two members lead term {}"
        raise BrokenError(f"election safety: {whom.format(term)}")
    for index, (of_term, since) in enumerate(past.committed, 1):
        if since < term and (index > len(log) or log[index - 1] not in {0, of_term}):
            raise BrokenError(
                f"leader completeness: the leader of term {term} lacks {index}@{of_term}, committed in {since}"
            )
    return msgspec.structs.replace(past, leaders=(*past.leaders[: term - 1], place, *past.leaders[term:]))


def committed(past: Past, entries: tuple[tuple[int, int], ...], term: int) -> Past:
    """A member in `term` knows that these entries, (index, term) each, are committed. Raises BrokenError."""
    known = list(past.committed)
    for index, of_term in entries:
        if index > len(known):
            known.append((of_term, term))
        elif known[index - 1][0] != of_term:
            raise BrokenError(
                f"state machine safety: {index}@{of_term} and {index}@{known[index - 1][0]} are committed"
            )
        else:
            known[index - 1] = of_term, min(known[index - 1][1], term)
    return msgspec.structs.replace(past, committed=tuple(known))


def given(past: Past, granted: tuple[int, ...], ids: tuple[int, ...]) -> Past:
    """These blocks were granted, and these IDs handed out; neither is ever done again. Raises BrokenError."""
    for what, before, now in (("block", past.granted, granted), ("ID", past.handed, ids)):
        if again := set(before) & set(now):
            raise BrokenError(f"the {what} {min(again)} is given a second time")
    return msgspec.structs.replace(
        past, granted=tuple(sorted((*past.granted, *granted))), handed=tuple(sorted((*past.handed, *ids)))
    )


class Pasts:
    """The pasts of one scope by number, and what becomes of them."""

    def __init__(self) -> None:
        self._pasts: list[Past] = []
        self._numbers: dict[Past, int] = {}

    def all(self) -> list[Past]:
        """All that were met, by number."""
        return self._pasts

    def number(self, past: Past) -> int:
        """The number of a past."""
        found = self._numbers.get(past)
        if found is None:
            found = self._numbers[past] = len(self._pasts)
            self._pasts.append(past)
        return found

    def spent(self, past: int, budget: str) -> int | None:
        """See `Past.spent`."""
        found = self._pasts[past].spent(budget)
        return None if found is None else self.number(found)

    def elected(self, past: int, place: int, term: int, log: tuple[int, ...]) -> int:
        """See `elected`."""
        return self.number(elected(self._pasts[past], place, term, log))

    def committed(self, past: int, entries: tuple[tuple[int, int], ...], term: int) -> int:
        """See `committed`."""
        return self.number(committed(self._pasts[past], entries, term))

    def given(self, past: int, granted: tuple[int, ...], ids: tuple[int, ...]) -> int:
        """See `given`."""
        return self.number(given(self._pasts[past], granted, ids))

    def renamed(self, past: int, permutation: Permutation) -> int:
        """See `Past.renamed`."""
        return self.number(self._pasts[past].renamed(permutation))
