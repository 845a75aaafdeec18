"""`make chains`: franz-go's chains of groups, COUNT courses while brokers, or agents and the leader, are killed.

What is killed has an address that stays. The client retries what is cut, but looks up a group's offsets once: where
nobody listens, each of its tests ends, at Kafka's broker and at agents, because a member was "unable to join group
session". That may still come of a machine that is slow to start what was killed: the test gave up, and shows nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.crash.run import exit_on_sigterm
from tests.support.kafka_broker import why_unavailable
from tests.witnesses import franz_go, places

PLACES: Final = {"kafka": places.fronted_kafka, "pidkeeper": places.fronted_ours}
COUNT: Final = 20
KILLS: Final = 3
GAP_SECONDS: Final = (2.0, 6.0)
"""Before each of them."""

OUTPUT: Final = Path("build/chains.json")
LOGS: Final = Path("build/chains")
"""What the tests print, of the last run."""

Kind = Literal["passed", "gave up", "wrong"]
_GAVE_UP: Final = "unable to join group session"
_LOST: Final = re.compile(r".*(?:keys != exp|out of order|unexpected produce err|body not what).*")
_TWICE: Final = re.compile(r".*(?:saw double offset|consumed too much).*")


class Course(msgspec.Struct, frozen=True):
    """`kinds`: how each test came out; `told`: what was wrong."""

    seed: int
    seconds: float
    kills: list[str]
    kinds: dict[str, Kind]
    told: list[str]


def main() -> int:
    """Run from the command line; the exit code: 0 if all is well, 1 if not, 2 if nothing could run."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at", choices=PLACES, default="pidkeeper")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, help="of the first course; the time by default")
    options = parser.parse_args()
    missing = franz_go.why_unavailable() or (why_unavailable() if options.at == "kafka" else None)
    if missing is not None:
        print(missing, file=sys.stderr)
        return 2
    first = int(time.time()) if options.seed is None else options.seed
    LOGS.mkdir(parents=True, exist_ok=True)
    courses = []
    with tempfile.TemporaryDirectory(prefix="pidkeeper-chains-") as name, PLACES[options.at](Path(name)) as place:
        for seed in range(first, first + options.count):
            courses.append(run(place, seed, LOGS))
            _print(courses[-1])
    OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(courses)))
    counts = Counter(kind for course in courses for kind in course.kinds.values())
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["wrong"] or not counts["passed"] else 0


def run(place: places.Place, seed: int, logs: Path) -> Course:
    """Both tests at once, and KILLS meanwhile; what they print goes to `logs`."""
    rng = random.Random(seed)
    began = time.monotonic()
    kills: list[str] = []
    paths = {test: logs / f"{place.name}-{seed}-{test}.log" for test in franz_go.TESTS}
    with ExitStack() as stack:
        running = [_started(stack, place, test, path) for test, path in paths.items()]
        for _ in range(KILLS):
            time.sleep(rng.uniform(*GAP_SECONDS))
            if all(one.poll() is not None for one in running):
                break
            kills.append(rng.choice(sorted(fault for fault in place.faults if fault.endswith("is killed"))))
            place.faults[kills[-1]]()
        for one in running:
            one.wait()
    judged = {test: judge(test, path.read_text(errors="replace")) for test, path in paths.items()}
    told = [f"{test}: {why}" for test, (kind, why) in judged.items() if kind == "wrong"]
    kinds = {test: kind for test, (kind, _) in judged.items()}
    return Course(seed, round(time.monotonic() - began, 1), kills, kinds, told)


def _started(stack: ExitStack, place: places.Place, test: str, path: Path) -> subprocess.Popen[bytes]:
    with path.open("wb") as out:
        process = subprocess.Popen(
            franz_go.command(test),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=franz_go.DIRECTORY,
            env={**os.environ, **franz_go.variables(place)},
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def judge(test: str, text: str) -> tuple[Kind, str]:
    """How a test came out by what it printed, and what was wrong.

    A member that is thrown out has not committed what it consumed: then a record comes twice, except in a transaction.
    """
    if (found := _LOST.search(text)) or (test == franz_go.TRANSACTIONAL and (found := _TWICE.search(text))):
        return "wrong", found[0].strip()
    if f"\n--- PASS: {test} " in text:
        return "passed", ""
    if _GAVE_UP in text:
        return "gave up", ""
    return "wrong", text[-500:]


def _print(course: Course) -> None:
    kinds = ", ".join(f"{test} {kind}" for test, kind in course.kinds.items())
    print(f"seed {course.seed}, {course.seconds:g} s: {kinds}; {', '.join(course.kills)}", flush=True)
    for why in course.told:
        print(f"    {why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
