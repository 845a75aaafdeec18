"""Breadth first through worlds around the replicated state alone, so that what is wrong is found on a shortest course.

Decisions and replay are those that ship. The replicated state of each world is its snapshot, so it is restored as often
as anything happens.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import RequestError
from pidkeeper.snapshots.image import StateImage
from tests.support.log_leader import CLUSTER_ID, NOW

WorldT = TypeVar("WorldT", bound=msgspec.Struct)


class BrokenError(Exception):
    """A rule or a promise is broken."""


class Explored(msgspec.Struct, frozen=True):
    """One scope. `wrong`: what was found, with the course to it; empty if nothing was."""

    scope: Any
    states: int
    moves: int
    depth: int
    seconds: float
    wrong: list[str]


# The replicated state.


def restored(image: bytes) -> StateMachine:
    """The replicated state, as a member has it that was restored from its snapshot. Raises BrokenError."""
    machine = StateMachine(CLUSTER_ID)
    try:
        machine.restore(msgspec.msgpack.decode(image, type=StateImage))
    except ValueError as error:
        raise BrokenError(f"the snapshot cannot be restored: {error}") from error
    return machine


def image_of(machine: StateMachine) -> bytes:
    """The snapshot of the replicated state."""
    return msgspec.msgpack.encode(machine.image(0, 0), enc_hook=list)


def ask(machine: StateMachine, asked: requests.Request) -> tuple[Any, list[Any]] | None:
    """The answer and the records, which the machine has replayed; None for a refusal. Raises BrokenError."""
    draft = Draft(machine, NOW)
    try:
        answer = decide(draft, asked)
        machine.replay(draft.records)
    except RequestError:
        return None
    except AssertionError as error:
        raise BrokenError(str(error) or repr(error)) from error
    return answer, draft.records


def demand(holds: bool, what: str) -> None:
    """Raise BrokenError unless it holds."""
    if not holds:
        raise BrokenError(what)


# All worlds of a scope.


def exhaust(
    scope: Any, first: WorldT, moves: Callable[[WorldT], Iterable[tuple[str, WorldT]]], check: Callable[[WorldT], None]
) -> Explored:
    """All states of a scope, or those up to the first that is wrong.

    moves: what can happen next, in words, and the world behind it, always in the same order; it and `check` raise
    BrokenError.
    """
    begun, seen = time.monotonic(), {_key(first)}
    # By which move of which state each was found first; states by number.
    found: list[tuple[int, str]] = [(-1, "")]
    frontier, moved, depth = [(0, first)], 0, 0
    wrong: list[str] = []
    while frontier and not wrong:
        deeper: list[tuple[int, WorldT]] = []
        for number, world in frontier:
            at = ""
            try:
                for what, after in moves(world):
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
                wrong = [*_course(found, number), *filter(None, (at, str(broken)))]
                break
        else:
            frontier, depth = deeper, depth + 1
    return Explored(scope, len(seen), moved, depth, round(time.monotonic() - begun, 1), wrong)


def _key(world: msgspec.Struct) -> bytes:
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


def main(title: str | None, scopes: Mapping[str, Any], explore: Callable[[Any], Explored], report: Path) -> int:
    """The command: those of `scopes` that it is asked for, all without any. Exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=title.splitlines()[0] if title else None)
    parser.add_argument("scope", nargs="*", help=f"which of {', '.join(scopes)}; all without any")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.scope) - scopes.keys()):
        parser.error(f"there is no scope {unknown[0]}: there are {', '.join(scopes)}")
    results = []
    print(f"{'scope':24}{'states':>14}{'moves':>14}{'depth':>7}{'s':>9}")
    for name in arguments.scope or scopes:
        one = explore(scopes[name])
        results.append(one)
        print(f"{name:24}{one.states:>14,}{one.moves:>14,}{one.depth:>7}{one.seconds:>9,.0f}", flush=True)
        for number, what in enumerate(one.wrong, 1):
            print(f"  {number}. {what}")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return 1 if any(one.wrong for one in results) else 0
