"""`python -m tests.explore.run_logs [SCOPE ...]`: decisions about a partition log through every state of the scopes.

Breadth first, so what is wrong is found on a shortest course. Prints a table and writes build/explore-logs.json. Exit
code 1 if anything is wrong; its course is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.explore.logs_moves import LogMoves
from tests.explore.logs_promises import check
from tests.explore.logs_state import BrokenError, LogScope, World, beginning

REPORT: Final = Path("build/explore-logs.json")
SHOWN_EVERY: Final = 100_000

SCOPES: Final = (
    LogScope(name="duplicates", objects=3, pairs=True),
    LogScope(name="zombies", objects=2, registrations=1, pairs=True),
    LogScope(name="transactions", agents=1, objects=3, transactions=2),
    LogScope(name="rollers", objects=2, segments=2),
    LogScope(name="starts", objects=2, segments=1, start=2),
    LogScope(name="rolled-transactions", agents=1, objects=2, segments=1, transactions=2),
)
"""What `make explore` exhausts."""


class ExploredLogs(msgspec.Struct, frozen=True):
    """One scope. `wrong`: what was found, with the course to it; empty if nothing was."""

    scope: LogScope
    states: int
    moves: int
    depth: int
    seconds: float
    wrong: list[str]


def explore(scope: LogScope) -> ExploredLogs:
    """All states of a scope, or those up to the first that is wrong."""
    begun, first, moves = time.monotonic(), beginning(scope), LogMoves(scope)
    seen = {_key(first)}
    # By which move of which state each was found first; states by number.
    found: list[tuple[int, str]] = [(-1, "")]
    frontier, moved, depth = [(0, first)], 0, 0
    while frontier:
        deeper: list[tuple[int, World]] = []
        for number, world in frontier:
            wrong, at = "", ""
            try:
                for what, after in moves.of(world):
                    at = what
                    moved += 1
                    if (key := _key(after)) not in seen:
                        check(after)
                        seen.add(key)
                        found.append((number, what))
                        deeper.append((len(found) - 1, after))
                    at = ""
            except BrokenError as broken:
                # Where the decision itself is wrong, what it says tells which it was.
                wrong = str(broken)
            if wrong:
                course = [*_course(found, number), *filter(None, (at, wrong))]
                return _explored(scope, len(seen), moved, depth, begun, course)
        frontier, depth = deeper, depth + 1
    return _explored(scope, len(seen), moved, depth, begun, [])


def _explored(scope: LogScope, states: int, moves: int, depth: int, begun: float, wrong: list[str]) -> ExploredLogs:
    return ExploredLogs(scope, states, moves, depth, round(time.monotonic() - begun, 1), wrong)


def _key(world: World) -> bytes:
    """What tells worlds apart. Sets are put in order: those of equal worlds may differ in it."""
    ordered = msgspec.structs.astuple(world)
    told = tuple(sorted(one) if isinstance(one, frozenset) else one for one in ordered)
    return hashlib.blake2b(msgspec.msgpack.encode(told), digest_size=12).digest()


def _course(found: list[tuple[int, str]], number: int) -> list[str]:
    course = []
    while number > 0:
        number, what = found[number]
        course.append(what)
    return course[::-1]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = {scope.name: scope for scope in SCOPES}
    parser.add_argument("scope", nargs="*", help=f"which of {', '.join(known)}; all without any")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.scope) - known.keys()):
        parser.error(f"there is no scope {unknown[0]}: there are {', '.join(known)}")
    results = []
    print(f"{'scope':24}{'states':>14}{'moves':>14}{'depth':>7}{'s':>9}")
    for name in arguments.scope or known:
        one = explore(known[name])
        results.append(one)
        print(f"{name:24}{one.states:>14,}{one.moves:>14,}{one.depth:>7}{one.seconds:>9,.0f}", flush=True)
        for number, what in enumerate(one.wrong, 1):
            print(f"  {number}. {what}")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return 1 if any(one.wrong for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
