"""The course of one partition's log as a module of TLA+, and how far TLC can follow it in `spec/LogsTrace.tla`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import msgspec

from spec.run import run_tlc
from tests.traces.course import STEPS_PER_PART, _tla
from tests.traces.log_recorder import PLAIN, LogRecorder, LogShown, LogStep, Name

MOST_SECONDS: Final = 300
"""For which TLC follows one course."""

SHOWN_BEFORE: Final = 5
"""Steps that are told before one that is not allowed."""

WINDOW: Final = 5
"""Batches of a producer of which duplicates are known (KIP-98)."""

_COUNTS: Final = re.compile(r"^\d+ states generated, (\d+) distinct states found", re.MULTILINE)
_BROKEN: Final = re.compile(r"Invariant \w+ is violated")


class FollowedLog(msgspec.Struct, frozen=True):
    """How far the specification allows the course of one log; `refused`: the first step that it does not, in words."""

    log: int
    steps: int
    actions: Counter[str]
    refused: str | None


class LogCourse:
    """The steps of one log, at most `limit`: those that are about it, or about objects that it has ever had."""

    def __init__(self, recorder: LogRecorder, log: int, limit: int) -> None:
        self.recorder = recorder
        self.log = log
        mine: set[Name] = {one.of for one in recorder.steps if one.log == log and one.of is not None}
        self.steps: list[tuple[LogStep, LogShown | None]] = []
        for place, step in enumerate(recorder.steps, 1):
            if self._concerns(step, mine):
                self.steps.append((step, None))
            shown = recorder.shown.get(place, {}).get(log)
            if shown is not None and self.steps:
                self.steps[-1] = self.steps[-1][0], shown
        del self.steps[limit:]

    def _concerns(self, step: LogStep, mine: set[Name]) -> bool:
        if step.log is not None:
            return step.log == self.log
        return step.of is None or step.of in mine

    def follow(self) -> FollowedLog:
        """Have TLC follow it. Raises RuntimeError with what TLC said."""
        followed, broken = _followed(self) if self.steps else (0, None)
        refused = None
        if followed < len(self.steps) or broken is not None:
            refused = f"{broken or 'no step of the specification'}:\n{self.around(followed)}"
        actions = Counter(step.action for step, _ in self.steps[:followed])
        return FollowedLog(self.log, followed, actions, refused)

    def around(self, place: int) -> str:
        """The step at `place` in words, behind those before it."""
        first = max(place - SHOWN_BEFORE, 0)
        return "\n".join(
            f"    step {number}: {step.action} {step.arguments}, then {shown}"
            for number, (step, shown) in enumerate(self.steps[first : place + 1], first)
        )

    def module(self) -> str:
        """The data module that `LogsTrace` is checked with."""
        told = [_record(step, shown) for step, shown in self.steps]
        parts = [told[first : first + STEPS_PER_PART] for first in range(0, len(told), STEPS_PER_PART)]
        lines = ["---- MODULE Course ----", "EXTENDS Integers, Sequences"]
        for number, part in enumerate(parts):
            lines += [f"Part{number} == <<", ",\n".join(part), ">>"]
        lines.append("Steps == " + (" \\o ".join(f"Part{number}" for number in range(len(parts))) or "<<>>"))
        return "\n".join([*lines, "===="]) + "\n"

    def root(self) -> str:
        """The module that TLC starts with."""
        return "---- MODULE Root ----\nEXTENDS LogsTrace\nModelBrokerOf == [agent \\in Agents |-> agent]\n====\n"

    def configuration(self) -> str:
        """The file that TLC reads."""
        recorder = self.recorder
        constants: dict[str, Any] = {
            "Agents": _tla(sorted(recorder.brokers)),
            "Plain": _tla([PLAIN]),
            "Idempotent": _tla(sorted(recorder.producers - recorder.transactional - {PLAIN})),
            "Transactional": _tla(sorted(recorder.transactional)),
            "Pairs": "TRUE",
            "Window": WINDOW,
            **dict.fromkeys(_BOUNDS, 0),
        }
        lines = [
            "SPECIFICATION TraceSpec",
            "CONSTANTS",
            *(f"    {name} = {value}" for name, value in constants.items()),
        ]
        lines += ["    BrokerOf <- ModelBrokerOf", "    Rules <- AllRules", "INVARIANT Held", "VIEW Place"]
        return "\n".join(lines) + "\n"


_BOUNDS: Final = (
    "MaxEpoch",
    "MaxFence",
    "MaxObjects",
    "MaxSegments",
    "MaxLate",
    "MaxDiscarded",
    "MaxOffset",
    "MaxStart",
    "MaxTopics",
    "MaxQuorums",
)
"""Of models; a course has its own."""


def _record(step: LogStep, shown: LogShown | None) -> str:
    said = "".join(f", {name} |-> {_tla(value)}" for name, value in step.arguments.items())
    return f'[a |-> "{step.action}"{said}, x |-> {"<<>>" if shown is None else _tla(tuple(shown))}]'


def _followed(course: LogCourse) -> tuple[int, str | None]:
    """How many steps TLC finds allowed, one after the other, and what they broke."""
    files = {"Course.tla": course.module(), "Root.tla": course.root(), "Root.cfg": course.configuration()}
    # Long tuples are parsed by recursion.
    done = run_tlc(files, "-Xss64m", "-XX:+UseSerialGC", workers="1", seconds=MOST_SECONDS)
    counts, broken = _COUNTS.findall(done.stdout), _BROKEN.search(done.stdout)
    if not counts or (done.returncode and not broken):
        raise RuntimeError(f"TLC did not follow the course:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return int(counts[-1]) - 1, broken and broken[0]
