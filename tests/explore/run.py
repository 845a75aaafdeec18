"""`python -m tests.explore.run [SCOPE ...]`: the shipped core through every state of the scopes, all by default.

Prints a table and writes build/explore.json. A scope that was begun goes on where it was: what was found so far is kept
in build/explore/ at least once a minute. What breaks a promise is written there as a scenario. Exit code 1 if anything
does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.explore.scope import SCOPES, Scope
from tests.explore.search import Search, resumed
from tests.explore.story import told

REPORT: Final = Path("build/explore.json")
FOLDER: Final = Path("build/explore")
SAVE_SECONDS: Final = 60.0


class Explored(msgspec.Struct, frozen=True):
    """One scope. `seconds`: of this run alone; `resumed_at`: the states that an earlier run had found; `left_alone`:
    states of all members that were."""

    scope: Scope
    states: int
    moves: int
    depth: int
    exhausted: bool
    members: int
    left_alone: int
    seconds: float
    resumed_at: int
    violations: list[str]


class Report(msgspec.Struct, frozen=True):
    """All scopes of a run."""

    scopes: list[Explored]
    states: int
    violations: int


def explore(scope: Scope, folder: Path | None) -> Explored:
    """Exhaust one scope, or end with the first violation. `folder`: for checkpoints and scenarios, none without it."""
    begun = saved = time.monotonic()
    path = None if folder is None else folder / f"{scope.name}.checkpoint"
    search = None if path is None else resumed(path)
    if search is None or search.cluster.scope != scope:
        search = Search(scope)
    before = search.states if search.depth else 0
    while not search.exhausted and search.finding is None:
        search.deepen()
        if path is not None and time.monotonic() - saved > SAVE_SECONDS:
            search.save(path)
            saved = time.monotonic()
    violations = []
    if search.finding is not None:
        violations.append(search.finding.what)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            story = told(scope, search.cluster.automaton, search.finding)
            (folder / f"{scope.name}.txt").write_text(story)
    if path is not None:
        path.unlink(missing_ok=True)
    return Explored(
        scope,
        search.states,
        search.moves,
        search.depth,
        search.exhausted,
        len(search.cluster.automaton.facts),
        search.left_alone,
        round(time.monotonic() - begun, 1),
        before,
        violations,
    )


def explore_all(scopes: Sequence[Scope], jobs: int) -> Iterator[Explored]:
    """The results, as they come."""
    if jobs == 1:
        yield from (_explore_kept(scope) for scope in scopes)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_explore_kept, scopes)


def _explore_kept(scope: Scope) -> Explored:
    return explore(scope, FOLDER)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = {scope.name: scope for scope in SCOPES}
    parser.add_argument("scope", nargs="*", help=f"which of {', '.join(known)}; all without any")
    parser.add_argument("--jobs", type=int, default=2, help="scopes side by side")
    parser.add_argument("--afresh", action="store_true", help="forget what an earlier run has found")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.scope) - known.keys()):
        parser.error(f"there is no scope {unknown[0]}: there are {', '.join(known)}")
    if arguments.afresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    found = []
    print(f"{'scope':24}{'states':>14}{'moves':>14}{'depth':>7}{'left alone':>12}{'s':>9}")
    for one in explore_all([known[name] for name in arguments.scope or known], arguments.jobs):
        found.append(one)
        counts = f"{one.states:>14,}{one.moves:>14,}{one.depth:>7}{one.left_alone:>12,}"
        print(f"{one.scope.name:24}{counts}{one.seconds:>9,.0f}", flush=True)
        for what in one.violations:
            print(f"  VIOLATION {what}: {FOLDER / one.scope.name}.txt tells the course")
    violations = sum(len(one.violations) for one in found)
    report = Report(found, sum(one.states for one in found), violations)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    print(f"\n{report.states:,} states, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
