"""Damages what a member had synced, in every way and place, and looks at what its next start makes of it.

It has to do one of three things: hold all that it had, know that it does not (it counts as recovering, see
docs/decisions/0005), or refuse to start and name the file. What it holds must never be other than what was written.

One case is left over. A fault that takes the end of the log away just between two batches leaves what the disk held
once. No format can tell that from a disk on which nothing more was ever written: such an old copy is for the quorum to
find out. It is counted as `undetectable`, never as whole, and only if the log is exactly one that was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Iterator
from typing import Any, Final
from unittest import mock

import msgspec

from pidkeeper.controller.node.opening import InconsistentStorage
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.storage import frames, segment
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption
from pidkeeper.snapshots import archive_format, owner_format, snapshot_format
from pidkeeper.snapshots.archive_format import ArchiveError
from tests.crash.damage import Damage, RecordingDisk
from tests.crash.disk import CrashDisk, key
from tests.crash.facts import DATA, Broken, Facts
from tests.crash.history import KINDS, History
from tests.crash.oracle import Oracle, View

OPERATIONS: Final = 24
DISKS: Final = 10
"""Of each history so many disks are damaged, evenly spaced, the last one among them."""

MAX_VIOLATIONS: Final = 3
MAX_NAMED: Final = 3
"""Undetectable faults of a history that are named; all are counted."""

_REFUSALS: Final = (DirectoryError, LogCorruption, ArchiveError, InconsistentStorage)


class Verdict(enum.Enum):
    """What a start made of the damage."""

    WHOLE = "whole"
    RECOVERING = "recovering"
    REFUSED = "refused"
    UNDETECTABLE = "undetectable"


class DamageResult(msgspec.Struct):
    """One history. `counts`: by "fault area" and verdict."""

    kind: str
    seed: int
    disks: int = 0
    states: int = 0
    counts: dict[str, dict[str, int]] = {}
    undetectable: list[str] = []
    violations: list[str] = []
    unfinished: bool = False


class Damager:
    """Goes through one history: first to see how many settled disks it has, then to damage some of them.

    `area`: the only one that is damaged; None: all.
    """

    def __init__(self, kind: str, seed: int, deadline: float | None, area: str | None) -> None:
        self.result = DamageResult(kind, seed)
        self._deadline = deadline
        self._area = area
        self._logs: list[View] = []
        self._written: dict[int, set[Entry]] = {}
        self._noted: View | None = None
        self._last = 0
        self._wanted: set[int] | None = None
        self._seen = 0
        self.history: History

    def run(self, operations: int, disks: int) -> None:
        """Both passes."""
        self._pass(operations)
        count = self._seen
        self._wanted = {count * (number + 1) // disks for number in range(disks)}
        self._logs, self._written, self._last, self._seen = [], {}, 0, 0
        self._pass(operations)

    def _pass(self, operations: int) -> None:
        kind = next(known for known in KINDS if known.name == self.result.kind)
        self.history = History(kind, self.result.seed, RecordingDisk(), DATA, self._visit)
        asyncio.run(self.history.run(operations))
        self.result.violations += self.history.violations

    def _visit(self) -> None:
        disk = self.history.disk
        assert isinstance(disk, RecordingDisk), f"{disk} does not record"
        self._note(self.history.oracle)
        if self.result.violations or not disk.settled:
            return
        image = disk.lost()
        if key(image) == self._last:
            return
        self._last = key(image)
        self._seen += 1
        if self._wanted is None:
            return
        if self._seen in self._wanted:
            self.result.disks += 1
            self._damage(disk, self.history.recoverer.recover(image, disk.directories))

    def _note(self, oracle: Oracle) -> None:
        """The log as acknowledged, and what is being written: a crash may keep it."""
        if not self._logs or self._logs[-1] is not oracle.durable:
            self._logs.append(oracle.durable)
        for view in (oracle.durable, oracle.wanted):
            if view is not self._noted:
                self._noted = view
                for entry in view.entries.values():
                    self._written.setdefault(entry.index, set()).add(entry)

    def _damage(self, disk: RecordingDisk, clean: Facts) -> None:
        for damage in disk.damages():
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.result.unfinished = True
                return
            if self._area not in {None, damage.area}:
                continue
            self.result.states += 1
            where = f"{self.result.kind}:{self.result.seed}, operation {self.history.operations}, {damage.fault}"
            try:
                verdict = self._judge(disk, damage, clean)
            except Broken as broken:
                self.result.violations.append(f"{where}: {damage.place}: {broken}")
                if len(self.result.violations) >= MAX_VIOLATIONS:
                    return
                continue
            counts = self.result.counts.setdefault(f"{damage.fault} {damage.area}", {})
            counts[verdict.value] = counts.get(verdict.value, 0) + 1
            if verdict is Verdict.UNDETECTABLE and len(self.result.undetectable) < MAX_NAMED:
                self.result.undetectable.append(f"{where}: {damage.place}")

    def _judge(self, disk: RecordingDisk, damage: Damage, clean: Facts) -> Verdict:
        """Raises Broken if the member starts with less or other than it had and does not know it."""
        damaged = CrashDisk.of(damage.image, disk.directories)
        try:
            storage = self.history.recoverer.start(damaged)
        except _REFUSALS as refusal:
            _check_named(refusal, damage)
            return Verdict.REFUSED
        except Exception as error:
            raise Broken(f"the start ends by accident: {type(error).__name__}: {error}") from error
        found = self.history.recoverer.read(damaged, storage)
        self._check_written(found)
        lacking = self._lacking(found, clean)
        if not lacking:
            return Verdict.WHOLE
        if found.hard_state.recovering and not clean.hard_state.recovering:
            return Verdict.RECOVERING
        if self._is_acknowledged(found):
            return Verdict.WHOLE
        if damage.fault != "flipped" and any(_is_log(found, earlier) for earlier in self._logs):
            return Verdict.UNDETECTABLE
        if found.hard_state.recovering:
            return Verdict.RECOVERING
        raise Broken(f"the member does not know that {lacking}")

    def _check_written(self, found: Facts) -> None:
        """What is served is what was written, wherever it is from."""
        for entry in found.entries:
            if entry not in self._written.get(entry.index, ()):
                raise Broken(f"{entry} was never written")
        if found.snapshot.index and found.image != self.history.oracle.images.get(found.snapshot):
            raise Broken(f"snapshot {found.snapshot} holds {found.image}, which was never a state")

    def _lacking(self, found: Facts, clean: Facts) -> str | None:
        """What of the acknowledged is not there any more."""
        if (found.next_index, found.hard_state) != (clean.next_index, clean.hard_state):
            return (
                f"it had {clean.hard_state} and entries to {clean.next_index - 1}, "
                f"and starts with {found.hard_state} and entries to {found.next_index - 1}"
            )
        known = {entry.index: entry for entry in found.entries}
        for entry in clean.entries:
            if entry.index > found.snapshot.index and known.get(entry.index) != entry:
                return f"{entry} is gone, or {known.get(entry.index)} in its place"
        if any(index not in known for index in range(found.snapshot.index + 1, found.next_index)):
            return f"the log does not reach from {found.snapshot} to {found.next_index}"
        if lost := clean.labels - found.labels - self._replayed(found):
            return f"{len(lost)} allocations or owners are in neither archive nor log"
        return None

    def _is_acknowledged(self, found: Facts) -> bool:
        """A snapshot that was being installed is not: without it the member is where it was."""
        try:
            self.history.oracle.check(found)
        except Broken:
            return False
        return True

    def _replayed(self, found: Facts) -> set[int]:
        labels = self.history.oracle.labels
        return {label for entry in found.entries if entry.index > found.snapshot.index for label in labels[entry.data]}


def _is_log(found: Facts, earlier: View) -> bool:
    """Whether the log that was found is one that was acknowledged."""
    same_end = (found.hard_state, found.next_index) == (earlier.hard_state, earlier.last + 1)
    return same_end and all(earlier.entries.get(entry.index) == entry for entry in found.entries)


def _check_named(refusal: Exception, damage: Damage) -> None:
    """A refusal names a file that was damaged, and in a log the place, which is where reading stops to make sense."""
    text = str(refusal)
    names = [path.name for path in damage.paths]
    if damage.area == "meta":
        names += [str(DATA), "segment"]  # an identity that is another one is not a matter of that file alone
    named = any(name in text for name in names)
    if not named:
        raise Broken(f"the refusal names none of {names}: {text}")
    if isinstance(refusal, LogCorruption) and damage.fault == "flipped" and refusal.offset > damage.offset:
        raise Broken(f"the refusal names a place behind the damage: {text}")


def run_damage(
    kind: str,
    seed: int,
    operations: int = OPERATIONS,
    disks: int = DISKS,
    *,
    area: str | None = None,
    deadline: float | None = None,
) -> DamageResult:
    """Damage `disks` disks of one history in every way, or one `area` of them. After `deadline` (monotonic seconds) it
    stops looking."""
    damager = Damager(kind, seed, deadline, area)
    logging.disable(logging.CRITICAL)  # most of what happens is an error to the member
    try:
        damager.run(operations, disks)
    except Exception as error:  # noqa: BLE001 - whatever stops the history is a finding
        damager.result.violations.append(f"{kind}:{seed}: {type(error).__name__}: {error}")
    finally:
        logging.disable(logging.NOTSET)
    return damager.result


class _NoChecksums:
    """In place of google_crc32c: every checksum is 0, so that none ever differs."""

    @staticmethod
    def value(data: bytes) -> int:
        return 0

    @staticmethod
    def extend(checksum: int, data: bytes) -> int:
        return 0


@contextlib.contextmanager
def no_checksums() -> Iterator[None]:
    """A control: nobody compares checksums. The enumeration has to find that out."""
    users: tuple[Any, ...] = (frames, segment, archive_format, owner_format, snapshot_format)
    with contextlib.ExitStack() as stack:
        for user in users:
            stack.enter_context(mock.patch.object(user, "google_crc32c", _NoChecksums))
        yield
