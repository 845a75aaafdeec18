"""One seed: the course that its members take, and how far TLC can follow it in `spec/Trace.tla`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from spec.run import run_tlc
from tests.traces.course import Course
from tests.traces.recorded import Recorded

MOST_SECONDS: Final = 600
"""For which TLC follows one course."""

_NO_BOUND: Final = 10**9
_COUNTS: Final = re.compile(r"^\d+ states generated, (\d+) distinct states found", re.MULTILINE)
_BROKEN: Final = re.compile(r'Invariant \w+ is violated|"([A-Z]\d+: [^"]*)"')
"""What TLC says of an invariant, or of an assertion within an action."""


class Followed(msgspec.Struct, frozen=True):
    """How far the specification allows the course of one seed.

    steps: that the specification allows. actions: which these were. ended: why the course was not taken to the end of
    the simulation, None if it was. faults: while it was taken. refused: the first step that is not allowed, with those
    before it; None if all are. violation: what the simulation itself found.
    """

    seed: int
    steps: int
    actions: Counter[str]
    faults: Counter[str]
    ended: str | None
    refused: str | None
    violation: str | None


def follow(seed: int, most_steps: int, without: AbstractSet[str] = frozenset()) -> Followed:
    """Simulate `seed`, and have TLC follow at most `most_steps` of it. `without`: faults that are not thrown.

    Raises RuntimeError with what TLC said.
    """
    recorded = Recorded(seed, most_steps, without)
    course = recorded.course
    followed, broken = _followed(course, recorded.cluster.swarm.members) if course.steps else (0, None)
    whole = followed == len(course.steps) and broken is None
    return Followed(
        seed,
        followed,
        Counter(step.action for step in course.steps[:followed]),
        recorded.faults,
        course.ended,
        None if whole else f"{broken or 'no step of the specification'}:\n{course.around(followed)}",
        recorded.result.violation,
    )


def _followed(course: Course, first_voters: int) -> tuple[int, str | None]:
    """How many steps TLC finds allowed, one after the other, and what they broke."""
    files = {
        "Course.tla": course.module(),
        "Root.tla": "---- MODULE Root ----\nEXTENDS Trace\n====\n",
        "Root.cfg": _configuration(course, first_voters),
    }
    # Long tuples are parsed by recursion.
    done = run_tlc(files, "-Xss64m", "-XX:+UseSerialGC", workers="1", seconds=MOST_SECONDS)
    counts, broken = _COUNTS.findall(done.stdout), _BROKEN.search(done.stdout)
    if not counts or (done.returncode and not broken):
        raise RuntimeError(f"TLC did not follow the course:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return int(counts[-1]) - 1, broken and broken[0]


def _configuration(course: Course, first_voters: int) -> str:
    constants: dict[str, object] = {
        "Members": _set(course.members),
        "FirstVoters": _set(range(1, first_voters + 1)),
        "Nobody": 0,
        "Blank": "TRUE",
        "Names": "{TRUE, FALSE}",
        "MaxTerm": len(course.terms()),
        **dict.fromkeys(("MaxLog", "MaxProposals", "MaxCrashes", "MaxLosses", "MaxChanges"), _NO_BOUND),
    }
    lines = ["SPECIFICATION TraceSpec", "CONSTANTS", *(f"    {name} = {value}" for name, value in constants.items())]
    return "\n".join([*lines, "    Farthest <- Wanted", "INVARIANT Held", "VIEW Place"]) + "\n"


def _set(ids: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(ids))) + "}"
