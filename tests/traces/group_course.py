"""The course of one group in one partition that it reads, for `spec/GroupsTrace.tla`."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.group_model import NO_OFFSET, GroupsImage, Place
from tests.traces.course import _tla
from tests.traces.group_recorder import GroupRecorder, GroupStep, producer_name
from tests.traces.told_course import ToldCourse, ToldStep

_BOUNDS: Final = ("Inputs", "MaxGeneration", "MaxVersion", "MaxEpoch", "MaxOffsets", "MaxPlain")
"""Of models; a course has its own."""


class GroupCourse(ToldCourse):
    """The steps of one group and one partition, at most `limit`."""

    def __init__(self, recorder: GroupRecorder, place: Place, limit: int) -> None:
        self._place = place
        self._producers = recorder.places[place]
        steps: list[ToldStep] = []
        for number, step in enumerate(recorder.steps, 1):
            if self._concerns(step):
                steps.append(ToldStep(step.action, step.arguments))
            if number in recorder.shown and steps:
                steps[-1] = steps[-1]._replace(shown=self._shown(recorder.shown[number]))
        super().__init__(f"{place[1]}-{place[2]} of group {place[0]}", steps[:limit])

    def _concerns(self, step: GroupStep) -> bool:
        group_id, topic, _ = self._place
        return (
            step.place == self._place
            or step.group == group_id
            or step.topic == topic
            or step.producer in self._producers
        )

    def _shown(self, image: GroupsImage) -> tuple[Any, ...]:
        _, generation, members = image.generations.get(self._place[0], (0, 0, ()))
        kept = image.committed.get(self._place)
        held = [
            (producer_name(one), kept.offset) for (one, place), kept in image.pending.items() if place == self._place
        ]
        return generation, list(members), NO_OFFSET if kept is None else kept.offset, held

    def root(self) -> str:
        return "---- MODULE Root ----\nEXTENDS GroupsTrace\n====\n"

    def configuration(self) -> str:
        constants = {
            "Coordinators": "{}",
            "Members": _tla(sorted(self._producers)),
            **dict.fromkeys(_BOUNDS, 0),
        }
        lines = [
            "SPECIFICATION TraceSpec",
            "CONSTANTS",
            *(f"    {name} = {value}" for name, value in constants.items()),
        ]
        lines += ["    Rules <- AllRules", "INVARIANT NothingHangs", "VIEW Place"]
        return "\n".join(lines) + "\n"
