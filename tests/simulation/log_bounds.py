"""The log is bounded in bytes: what `controller/node/snapshot_due.py` promises, counted anew from the entries.

- While no snapshot is under way, and none has failed, less than `snapshot_bytes` of entries were applied since the
  newest one. It is begun with the entry that reaches that bound. What is applied while it is taken comes on top, but
  with the entry after that the next one is begun.
- Behind a snapshot that a process has taken, no more entries and bytes stay than lie between two snapshots: where it
  led, somebody may have needed them.
- Once all is quiet, the files of the log take no more than docs/operations.md states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidkeeper.controller.raft.messages import ENTRY_BYTES, Entry
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.process import Process


class LogBounds:
    """Watches one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._settings = process.member.settings
        self._snapshot = process.storage.snapshot.index
        self._bytes = 0

    def applied(self, entry: Entry) -> None:
        """`entry` was applied, and a snapshot begun if one is due by that. Raises Violation."""
        core, keeper = self._process.core, self._process.node.keeper
        if core.snapshot.index == self._snapshot:
            self._bytes += _cost(entry)
        else:
            self._snapshot = core.snapshot.index
            self._bytes = sum(map(_cost, core.log.slice(self._snapshot + 1, entry.index)))
            self._check_kept()
        most = self._settings.snapshot_bytes
        if self._bytes >= most and not self._process.taking_snapshot() and keeper.failure is None:
            facts = f"member {self._process.node_id}, applied {entry.index}, snapshot {core.snapshot}"
            raise Violation("log-grows", f"{self._bytes} bytes, {most} between two snapshots: {facts}")

    def _check_kept(self) -> None:
        """A snapshot of this process is new; one that a leader sent leaves nothing behind it."""
        core, settings = self._process.core, self._settings
        kept = core.log.slice(core.first_index, core.snapshot.index)
        size = sum(map(_cost, kept))
        if len(kept) > settings.snapshot_entries or size > settings.snapshot_bytes:
            facts = f"{len(kept)} entries with {size} bytes behind {core.snapshot}"
            raise Violation("log-grows", f"member {self._process.node_id} keeps {facts}")


def check_files(process: Process) -> None:
    """All is quiet: no snapshot is under way, and what was appended was applied. Raises Violation."""
    settings, disk, wal = process.node.settings, process.member.disk, process.storage.directory.wal
    names = disk.listdir(wal)
    sizes = {name: disk.size(wal / name) for name in names}
    # Of most seeds a segment is shorter than the longest write, and is then made as long as that.
    most = 2 * settings.snapshot_bytes + 4 * max(settings.segment_bytes, *sizes.values())
    # The end of a segment stays free if the next write is too long for it: here that may be most of the segment.
    closed = [name for name in names if name.endswith(".wal")][:-1]
    size = sum(sizes.values()) - sum(sizes[name] - disk.used(wal / name) for name in closed)
    # A snapshot that could not be taken while the disk was full is tried again by entries, and there are none any more.
    if size > most and process.node.keeper.failure is None:
        raise Violation("log-grows", f"the files of member {process.node_id} take {size} bytes, {most} may be")


def _cost(entry: Entry) -> int:
    return ENTRY_BYTES + len(entry.data)
