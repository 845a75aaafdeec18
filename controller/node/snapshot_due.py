"""When the next snapshot is due: by entries, by the bytes of the log, and by allocated blocks."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.raft.messages import ENTRY_BYTES, Entry

RETRY_SHARE: Final = 10
"""After a snapshot that failed, the next one is tried after a tenth of what is usual."""

KEPT_SHARE: Final = 4
"""A quarter of what lies between two snapshots stays in the log, for a follower that is only a little behind."""


class SnapshotEvery(msgspec.Struct, frozen=True):
    """How much may be applied between two snapshots: entries, bytes of them, allocated blocks."""

    entries: int
    log_bytes: int
    allocations: int

    @property
    def kept_entries(self) -> int:
        """Entries up to a snapshot that stay in the log behind it, at most."""
        return self.entries // KEPT_SHARE

    @property
    def kept_bytes(self) -> int:
        """Bytes of these, at most."""
        return self.log_bytes // KEPT_SHARE


class SnapshotDue:
    """Counts what was applied since the last snapshot was begun. That one may have failed."""

    __slots__ = ("_bytes", "_entries", "_every", "_failed")

    def __init__(self, every: SnapshotEvery) -> None:
        self._every = every
        self._entries = 0
        self._bytes = 0
        self._failed = False

    def applied(self, entry: Entry) -> None:
        """An entry was applied."""
        self._entries += 1
        self._bytes += ENTRY_BYTES + len(entry.data)

    def now(self, allocations: int) -> bool:
        """Whether enough was applied, where the log holds `allocations` blocks that are in no archive yet."""
        every = self._every
        if self._failed:
            return self._entries > every.entries // RETRY_SHARE or self._bytes > every.log_bytes // RETRY_SHARE
        return self._entries >= every.entries or self._bytes >= every.log_bytes or allocations >= every.allocations

    def begun(self) -> None:
        """A snapshot is being taken of what is applied by now, or was installed."""
        self._entries = self._bytes = 0
        self._failed = False

    def failed(self) -> None:
        """It could not be taken."""
        self._failed = True
