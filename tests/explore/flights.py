"""What is on its way between members: sets of messages by number, and what becomes of them, worked out once."""

from __future__ import annotations

from typing import Any

from tests.explore.automaton import Automaton, Permutation
from tests.explore.table import Table


class Flights:
    """The sets of messages of one scope. At most `capacity` are on their way from one member to another."""

    def __init__(self, automaton: Automaton, capacity: int) -> None:
        self.messages: list[tuple[int, ...]] = []
        self._automaton = automaton
        self._capacity = capacity
        self._numbers: dict[tuple[int, ...], int] = {}
        self._begin()

    def _begin(self) -> None:
        self.arrivals = Table(self._arrivals)
        """What may arrive: the message, the place of the member that it is for, and what is on its way after it."""
        self.joined = Table(self._joined)
        """What may be on its way once messages have left, and what was lost: a full link loses any of its messages."""

    def __getstate__(self) -> dict[str, Any]:
        """All but what can be worked out again."""
        return {name: value for name, value in self.__dict__.items() if name not in {"arrivals", "joined"}}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._begin()

    def number(self, messages: tuple[int, ...]) -> int:
        """The number of a set, whose messages are in order."""
        found = self._numbers.get(messages)
        if found is None:
            found = self._numbers[messages] = len(self.messages)
            self.messages.append(messages)
        return found

    def _arrivals(self, flight: int) -> tuple[tuple[int, int, int], ...]:
        messages, links = self.messages[flight], self._automaton.links
        rests = [self.number((*messages[:at], *messages[at + 1 :])) for at in range(len(messages))]
        return tuple([(message, links[message][1], rest) for message, rest in zip(messages, rests, strict=True)])

    def _joined(self, question: tuple[int, tuple[int, ...]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        flight, sent = question
        return tuple([(self.number(then), lost) for then, lost in self._join(self.messages[flight], sent)])

    def _join(self, flight: tuple[int, ...], sent: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        found: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(flight, ())]
        links = self._automaton.links
        for message in sent:
            link, after = links[message], []
            for then, lost in found:
                if message in then:
                    after.append((then, lost))
                    continue
                there = [one for one in then if links[one] == link]
                if len(there) < self._capacity:
                    after.append((tuple(sorted((*then, message))), lost))
                    continue
                after.append((then, (*lost, message)))
                for out in there:
                    rest = [one for one in then if one != out]
                    after.append((tuple(sorted((*rest, message))), (*lost, out)))
            found = after
        return found

    def renamed(self, flight: int, permutation: Permutation) -> int:
        """The same messages if everybody takes the place of another."""
        renamed = self._automaton.renamed_message
        return self.number(tuple(sorted([renamed(message, permutation) for message in self.messages[flight]])))
