"""A course that committed records tell: its steps as a module of TLA+, and how far TLC can follow it."""

from __future__ import annotations

import abc
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from spec.run import run_tlc
from tests.traces.course import STEPS_PER_PART, _tla

MOST_SECONDS: Final = 300
"""For which TLC follows one course."""

SHOWN_BEFORE: Final = 5
"""Steps that are told before one that is not allowed."""

_COUNTS: Final = re.compile(r"^\d+ states generated, (\d+) distinct states found", re.MULTILINE)
_BROKEN: Final = re.compile(r"Invariant \w+ is violated")


class ToldStep(NamedTuple):
    """One step. `shown`: what a member has behind it; None if it was not looked at."""

    action: str
    arguments: Mapping[str, Any]
    shown: tuple[Any, ...] | None = None


class FollowedCourse(msgspec.Struct, frozen=True):
    """How far the specification allows one course; `refused`: the first step that it does not, in words."""

    name: str
    steps: int
    actions: Counter[str]
    refused: str | None


class ToldCourse(abc.ABC):
    """The steps of one course, by `name`."""

    def __init__(self, name: str, steps: list[ToldStep]) -> None:
        self.name = name
        self.steps = steps

    @abc.abstractmethod
    def root(self) -> str:
        """The module that TLC starts with."""

    @abc.abstractmethod
    def configuration(self) -> str:
        """The file that TLC reads."""

    def follow(self) -> FollowedCourse:
        """Have TLC follow it. Raises RuntimeError with what TLC said."""
        followed, broken = self._followed() if self.steps else (0, None)
        refused = None
        if followed < len(self.steps) or broken is not None:
            refused = f"{broken or 'no step of the specification'}:\n{self.around(followed)}"
        return FollowedCourse(self.name, followed, Counter(step.action for step in self.steps[:followed]), refused)

    def around(self, place: int) -> str:
        """The step at `place` in words, behind those before it."""
        first = max(place - SHOWN_BEFORE, 0)
        return "\n".join(
            f"    step {number}: {step.action} {step.arguments}, then {step.shown}"
            for number, step in enumerate(self.steps[first : place + 1], first)
        )

    def module(self) -> str:
        """The data module that the specification of courses is checked with."""
        told = [_record(step) for step in self.steps]
        parts = [told[first : first + STEPS_PER_PART] for first in range(0, len(told), STEPS_PER_PART)]
        lines = ["---- MODULE Course ----", "EXTENDS Integers, Sequences"]
        for number, part in enumerate(parts):
            lines += [f"Part{number} == <<", ",\n".join(part), ">>"]
        lines.append("Steps == " + (" \\o ".join(f"Part{number}" for number in range(len(parts))) or "<<>>"))
        return "\n".join([*lines, "===="]) + "\n"

    def _followed(self) -> tuple[int, str | None]:
        """How many steps TLC finds allowed, one after the other, and what they broke."""
        files = {"Course.tla": self.module(), "Root.tla": self.root(), "Root.cfg": self.configuration()}
        # Long tuples are parsed by recursion.
        done = run_tlc(files, "-Xss64m", "-XX:+UseSerialGC", workers="1", seconds=MOST_SECONDS)
        counts, broken = _COUNTS.findall(done.stdout), _BROKEN.search(done.stdout)
        if not counts or (done.returncode and not broken):
            raise RuntimeError(f"TLC did not follow the course:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return int(counts[-1]) - 1, broken and broken[0]


def _record(step: ToldStep) -> str:
    said = "".join(f", {name} |-> {_tla(value)}" for name, value in step.arguments.items())
    return f'[a |-> "{step.action}"{said}, x |-> {"<<>>" if step.shown is None else _tla(tuple(step.shown))}]'
