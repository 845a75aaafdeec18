"""The course of one simulated cluster as a module of TLA+: the steps of its members, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

STEPS_PER_PART: Final = 200
"""Of the tuple of all steps, which would be too long for the parser in one."""

SHOWN_BEFORE: Final = 5
"""Steps of a member that are shown before one that is not allowed."""

RESTS: Final = frozenset({"Written", "Rest", "Installed"})
"""Steps at which messages leave, so that those that nobody takes any more can be dropped."""


TERMS: Final = frozenset({"term", "asked", "lastTerm", "prevTerm"})
"""Arguments that are terms."""


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """What a member shows of itself. `following`: itself if it leads; 0: nobody."""

    term: int
    vote: int
    length: int
    last_term: int
    commit: int
    recovering: bool
    following: int


class Step(msgspec.Struct):
    """One action of one member."""

    action: str
    node: int
    arguments: dict[str, object]
    shown: Shown | None = None

    def __str__(self) -> str:
        """In words."""
        said = ", ".join(f"{name} {value}" for name, value in self.arguments.items())
        return f"member {self.node}: {self.action} {said}{'' if self.shown is None else f', then {self.shown}'}"


class Course:
    """The steps so far, at most `limit`. `ended`: why no more are taken, None while they are."""

    def __init__(self, limit: int) -> None:
        self.steps: list[Step] = []
        self.members: set[int] = set()
        self.ended: str | None = None
        self._limit = limit
        self._unshown = 0

    @property
    def length(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    def add(self, action: str, node: int, **arguments: object) -> None:
        """The next step."""
        self.insert(len(self.steps), action, node, **arguments)

    def insert(self, place: int, action: str, node: int, **arguments: object) -> None:
        """A step of the present event, before those from `place` on."""
        self.steps.insert(place, Step(action, node, arguments))

    def show(self, node: int, shown: Shown) -> bool:
        """An event at `node` is over; whether there was a step in it."""
        stepped = len(self.steps) > self._unshown
        if stepped:
            self.steps[-1].shown = shown
        self._unshown = len(self.steps)
        if len(self.steps) >= self._limit:
            self.end(f"{self._limit:,} steps")
        return stepped

    def undo(self) -> None:
        """Forget the steps of the present event."""
        del self.steps[self._unshown :]

    def end(self, why: str) -> None:
        """Take no more steps."""
        self.undo()
        self.ended = self.ended or why

    def terms(self) -> dict[int, int]:
        """The terms that are met, each with its place among them, from 0 on.

        One that somebody made up may be far away. How far makes no difference; a candidate goes to the next one.
        """
        met = {0}
        for step in self.steps:
            met |= _terms_in(step.arguments)
            if step.shown is not None:
                met |= {step.shown.term, step.shown.last_term}
        return {term: place for place, term in enumerate(sorted(met))}

    def around(self, place: int) -> str:
        """The step at `place` in words, behind what its member did before."""
        if place >= len(self.steps):
            return f"after {self.steps[-1]}"
        before = [one for one in self.steps[:place] if one.node == self.steps[place].node]
        lines = [f"    before: {one}" for one in before[-SHOWN_BEFORE:]]
        return "\n".join([*lines, f"    step {place}: {self.steps[place]}"])

    def module(self) -> str:
        """The data module that `Trace` is checked with."""
        terms = self.terms()
        steps = [_placed(step, terms) for step in self.steps]
        parts = [steps[first : first + STEPS_PER_PART] for first in range(0, len(steps), STEPS_PER_PART)]
        drops = _drops(steps)
        lines = ["---- MODULE Course ----", "EXTENDS Sequences"]
        place = 0
        for number, part in enumerate(parts):
            told = []
            for step in part:
                told.append(_record(step, drops.get(place, [])))
                place += 1
            lines += [f"Part{number} == <<", ",\n".join(told), ">>"]
        lines.append("Steps == " + (" \\o ".join(f"Part{number}" for number in range(len(parts))) or "<<>>"))
        lines.append("====")
        return "\n".join(lines) + "\n"


def _terms_in(arguments: Mapping[str, object]) -> set[int]:
    found: set[int] = set()
    for name, value in arguments.items():
        if isinstance(value, dict):
            found |= _terms_in(value)
        elif name in TERMS:
            assert isinstance(value, int), f"{name} {value!r} is no term"
            found.add(value)
    return found


def _placed(step: Step, terms: Mapping[int, int]) -> Step:
    shown = step.shown
    if shown is not None:
        shown = msgspec.structs.replace(shown, term=terms[shown.term], last_term=terms[shown.last_term])
    return Step(step.action, step.node, _with_places(step.arguments, terms), shown)


def _with_places(arguments: Mapping[str, object], terms: Mapping[int, int]) -> dict[str, object]:
    def placed(name: str, value: object) -> object:
        if isinstance(value, dict):
            return _with_places(value, terms)
        if isinstance(value, list):
            return [placed(name, one) for one in value]
        return terms[value] if name in TERMS and isinstance(value, int) else value

    return {name: placed(name, value) for name, value in arguments.items()}


def _drops(steps: Sequence[Step]) -> dict[int, list[dict[str, object]]]:
    """By step: the messages that were taken for the last time since the drop before."""
    last = {_tla(step.arguments["m"]): place for place, step in enumerate(steps) if "m" in step.arguments}
    due: dict[int, list[dict[str, object]]] = {}
    waiting: list[dict[str, object]] = []
    for place, step in enumerate(steps):
        message = step.arguments.get("m")
        if isinstance(message, dict) and message["type"] != "RequestVote" and last[_tla(message)] == place:
            waiting.append(message)
        if step.action in RESTS:
            due[place], waiting = waiting, []
    return due


def _record(step: Step, drop: list[dict[str, object]]) -> str:
    shown = "<<>>" if step.shown is None else _tla(msgspec.structs.astuple(step.shown))
    fields = {**step.arguments, **({"drop": drop} if step.action in RESTS else {})}
    said = "".join(f", {name} |-> {_tla(value)}" for name, value in fields.items())
    return f'[a |-> "{step.action}", i |-> {step.node}{said}, x |-> {shown}]'


def _tla(value: object) -> str:
    """A value as TLA+ writes it; lists are sets."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case dict():
            return "[" + ", ".join(f"{name} |-> {_tla(one)}" for name, one in value.items()) + "]"
        case tuple():
            return "<<" + ", ".join(_tla(one) for one in value) + ">>"
        case list() | AbstractSet():
            return "{" + ", ".join(_tla(one) for one in value) + "}"
        case _:
            raise TypeError(f"{value!r} has no form in TLA+")
