"""Runs histories and recovers from every state in which a power cut at any write boundary may leave the disk."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import msgspec

from tests.crash.disk import CrashDisk, key
from tests.crash.facts import DATA, Broken, Facts
from tests.crash.history import KINDS, History, Kind

OPERATIONS: Final = 200
MAX_REMEMBERED: Final = 5000
"""Disks of a history whose recovery is not run again: most are those of the boundary before."""

MAX_VIOLATIONS: Final = 3
"""A history stops after as many."""


class Result(msgspec.Struct):
    """One history. `states`: boundaries times distinct disks there; `recoveries`: how many of these were opened.

    `unfinished`: the time was up before the end.
    """

    kind: str
    seed: int
    operations: int = 0
    boundaries: int = 0
    states: int = 0
    recoveries: int = 0
    violations: list[str] = []
    unfinished: bool = False


class Enumerator:
    """Checks every state at a boundary, from operation `since` on."""

    def __init__(self, kind: Kind, result: Result, disk: CrashDisk, deadline: float | None, since: int) -> None:
        self.history = History(kind, result.seed, disk, DATA, self._visit)
        self.result = result
        self._deadline = deadline
        self._since = since
        self._known: dict[int, Facts | Broken] = {}

    def _visit(self) -> None:
        """Go through all states of the disk now."""
        history, disk = self.history, self.history.disk
        assert isinstance(disk, CrashDisk), f"{disk} has no images"
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.result.unfinished = True
        if history.violations or self.result.unfinished or history.operations < self._since:
            return
        self.result.boundaries += 1
        for description, image in disk.images():
            self.result.states += 1
            number = key(image)
            if number not in self._known:
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                self.result.recoveries += 1
                try:
                    self._known[number] = history.recoverer.recover(image, disk.directories)
                except Broken as broken:
                    self._known[number] = broken
            try:
                found = self._known[number]
                if isinstance(found, Broken):
                    raise found
                history.oracle.check(found)
            except Broken as broken:
                place = f"operation {history.operations}, call {history.calls}, {description}"
                history.violations.append(f"{history.kind.name}:{self.result.seed}, {place}: {broken}")
                if len(history.violations) >= MAX_VIOLATIONS:
                    return


def run_history(
    kind: str,
    seed: int,
    operations: int = OPERATIONS,
    *,
    since: int = 0,
    deadline: float | None = None,
    disk: CrashDisk | None = None,
) -> Result:
    """Enumerate one history from operation `since` on. After `deadline` (monotonic seconds) it goes on without
    looking."""
    result = Result(kind, seed)
    history = Enumerator(_kind(kind), result, disk or CrashDisk(), deadline, since).history
    logging.disable(logging.CRITICAL)  # thousands of torn ends are expected
    try:
        asyncio.run(history.run(operations))
    except Exception as error:  # noqa: BLE001 - whatever stops the member is a finding
        history.violations.append(f"{kind}:{seed}, operation {history.operations}: {type(error).__name__}: {error}")
    finally:
        logging.disable(logging.NOTSET)
    result.operations, result.violations = history.operations, history.violations
    return result


class LyingDisk(CrashDisk):
    """A control: a disk whose fdatasync does nothing. The enumeration has to find that out."""

    def fdatasync(self, handle: int) -> None:
        self._change("fdatasync", self._handles[handle][0])


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)
