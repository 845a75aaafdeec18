"""`python -m tests.mutants.methods [BUG ...]`: which method notices which bug of the protocol, and in what time.

Each bug of `protocol_bugs.py` is planted in a copy of the tree, and in the specification where that has words for it.
Every method is asked on its own, for a bounded time. Prints a table in Markdown, and writes build/methods.json. Exit
code 1 if a bug is noticed by nobody. Without Java the specification and the courses are not asked, and that is said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from spec.models import FOLDER
from spec.run import check, why_no_tlc
from tests.explore import hunt as explorer
from tests.mutants.hunting import Hunt as SimulatorHunt
from tests.mutants.planted import ROOT, catalogue, copy_tree, plant
from tests.mutants.protocol_bugs import PROTOCOL_BUGS, ProtocolBug
from tests.traces import hunt as courses

REPORT: Final = Path("build/methods.json")
METHODS: Final = ("specification", "explorer", "courses", "simulator", "scenarios", "unit tests")
SECONDS: Final = 30
"""For which the explorer and the simulator are asked, and TLC at most; all courses and tests take about as long."""

SEEDS: Final = 6
STEPS: Final = 2_500
PATIENCE: Final = 600
"""Seconds after which a method that does not end has itself been caught by the bug."""


class Answer(msgspec.Struct, frozen=True):
    """Of one method about one bug. `noticed`: how; None if it did not. `seconds`: until then, or in all."""

    noticed: str | None
    seconds: float


class Outcome(msgspec.Struct, frozen=True):
    """By method; None: it has no words for the bug, or cannot run here."""

    bug: str
    answers: dict[str, Answer | None]

    @property
    def noticed(self) -> bool:
        """Whether anybody noticed."""
        return any(answer is not None and answer.noticed is not None for answer in self.answers.values())


def _specification(bug: ProtocolBug, _: Path) -> str | None:
    rule = bug.rule
    assert rule is not None
    with tempfile.TemporaryDirectory() as folder:
        for module in FOLDER.glob("*.tla"):
            shutil.copy(module, folder)
        text = (FOLDER / f"{rule.module}.tla").read_text()
        if text.count(rule.right) != 1:
            raise RuntimeError(f"{bug.name}: {rule.right!r} stands {text.count(rule.right)} times in {rule.module}")
        (Path(folder) / f"{rule.module}.tla").write_text(text.replace(rule.right, rule.wrong))
        try:
            violation = check(rule.model, Path(folder), workers="1", seconds=SECONDS).violation
        except subprocess.TimeoutExpired:
            return None
    if violation is None:
        return None
    return next((line.strip() for line in violation.splitlines() if "violated" in line or '"R' in line), "an error")


def _run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": ""}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _explorer(bug: ProtocolBug, tree: Path) -> str | None:
    scope = msgspec.json.encode(bug.scope).decode()
    done = _run(tree, "tests.explore.hunt", str(SECONDS), scope)
    return msgspec.json.decode(_output(done), type=explorer.Hunt).found


def _courses(_: ProtocolBug, tree: Path) -> str | None:
    done = _run(tree, "tests.traces.hunt", "1", str(SEEDS), str(STEPS))
    return msgspec.json.decode(_output(done), type=courses.Hunt).refused


def _simulator(_: ProtocolBug, tree: Path) -> str | None:
    done = _run(tree, "tests.mutants.hunt", "1", "500", str(SECONDS))
    return msgspec.json.decode(_output(done), type=SimulatorHunt).found


def _output(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode != 0:
        raise RuntimeError(f"{done.args} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _tests(*paths: str) -> Callable[[ProtocolBug, Path], str | None]:
    def ask(bug: ProtocolBug, tree: Path) -> str | None:
        options = ("-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--tb=no")
        done = _run(tree, "pytest", *options, *(paths or bug.unit))
        if done.returncode not in {0, 1}:
            raise RuntimeError(f"{bug.name}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        failed = (line for line in done.stdout.splitlines() if line.startswith("FAILED"))
        return None if done.returncode == 0 else next(failed, "a test failed")

    return ask


def outcome(bug: ProtocolBug, tree: Path) -> Outcome:
    """Ask all methods about `bug`, which is planted in `tree`."""
    tlc = why_no_tlc() is None
    of_consensus = bug.scope is not None
    asked: dict[str, Callable[[ProtocolBug, Path], str | None] | None] = {
        "specification": _specification if tlc and bug.rule is not None else None,
        "explorer": _explorer if of_consensus else None,
        "courses": _courses if tlc and of_consensus else None,
        "simulator": _simulator,
        "scenarios": _tests("tests/scenarios") if of_consensus else None,
        "unit tests": _tests(),
    }
    return Outcome(bug.name, {name: None if ask is None else _timed(ask, bug, tree) for name, ask in asked.items()})


def _timed(ask: Callable[[ProtocolBug, Path], str | None], bug: ProtocolBug, tree: Path) -> Answer:
    begun = time.monotonic()
    try:
        noticed = ask(bug, tree)
    except subprocess.TimeoutExpired:
        noticed = f"it does not end within {PATIENCE} s"
    return Answer(noticed, round(time.monotonic() - begun, 1))


def outcomes(bugs: Sequence[ProtocolBug], jobs: int) -> Iterator[Outcome]:
    """In order, as they come. Raises PatchError; RuntimeError if a method itself fails."""
    planted = {bug.name: bug for bug in catalogue()}
    with tempfile.TemporaryDirectory(prefix="methods-") as base, ThreadPoolExecutor(jobs) as pool:

        def ask(bug: ProtocolBug) -> Outcome:
            tree = Path(base) / bug.name
            copy_tree(ROOT, tree)
            shutil.copytree(ROOT / "spec", tree / "spec")
            if (ROOT / ".tools").exists():
                (tree / ".tools").symlink_to(ROOT / ".tools")
            plant(planted[bug.name], tree)
            try:
                return outcome(bug, tree)
            finally:
                shutil.rmtree(tree)

        yield from pool.map(ask, bugs)


def row(one: Outcome) -> str:
    """A line of the table: seconds until it was noticed; `no` if it was not; empty if it was not asked."""
    cells = []
    for name in METHODS:
        answer = one.answers[name]
        cells.append("" if answer is None else "no" if answer.noticed is None else f"{answer.seconds:.0f} s")
    return f"| {one.bug} | {' | '.join(cells)} |"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = {bug.name: bug for bug in PROTOCOL_BUGS}
    parser.add_argument("bug", nargs="*", help="all without any")
    parser.add_argument("--jobs", type=int, default=2, help="bugs side by side")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.bug) - known.keys()):
        parser.error(f"there is no bug {unknown[0]}: there are {', '.join(known)}")
    if (missing := why_no_tlc()) is not None:
        print(f"SKIPPED {missing}")
    print(f"| planted bug | {' | '.join(METHODS)} |\n|{' --- |' * (len(METHODS) + 1)}")
    found = []
    for one in outcomes([known[name] for name in arguments.bug or known], arguments.jobs):
        found.append(one)
        print(row(one), flush=True)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    unnoticed = [one.bug for one in found if not one.noticed]
    print(f"\n{len(found)} bugs, {len(unnoticed)} noticed by nobody {' '.join(unnoticed)}")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
