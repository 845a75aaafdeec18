"""The course of one partition's log, for `spec/LogsTrace.tla`."""

from __future__ import annotations

from typing import Any, Final

from tests.traces.course import _tla
from tests.traces.log_recorder import PLAIN, LogRecorder, LogStep, Name
from tests.traces.told_course import ToldCourse, ToldStep

WINDOW: Final = 5
"""Batches of a producer of which duplicates are known (KIP-98)."""


class LogCourse(ToldCourse):
    """The steps of one log, at most `limit`: those that are about it, or about objects that it has ever had."""

    def __init__(self, recorder: LogRecorder, log: int, limit: int) -> None:
        self.recorder = recorder
        self.log = log
        mine: set[Name] = {one.of for one in recorder.steps if one.log == log and one.of is not None}
        steps: list[ToldStep] = []
        for place, step in enumerate(recorder.steps, 1):
            if self._concerns(step, mine):
                steps.append(ToldStep(step.action, step.arguments))
            shown = recorder.shown.get(place, {}).get(log)
            if shown is not None and steps:
                steps[-1] = steps[-1]._replace(shown=shown)
        super().__init__(f"log {log}", steps[:limit])

    def _concerns(self, step: LogStep, mine: set[Name]) -> bool:
        if step.log is not None:
            return step.log == self.log
        return step.of is None or step.of in mine

    def root(self) -> str:
        return "---- MODULE Root ----\nEXTENDS LogsTrace\nModelBrokerOf == [agent \\in Agents |-> agent]\n====\n"

    def configuration(self) -> str:
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
