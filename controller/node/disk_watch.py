"""Tells operators of a disk that does not keep pace: log, health and metrics."""

from __future__ import annotations

import logging
from typing import Final

from pidkeeper.controller.raft.core import RaftCore, Role

logger = logging.getLogger(__name__)

TROUBLE_SECONDS: Final = 1.0
"""A write that takes this long is a matter of health. A shorter stall costs a leader its place and is only logged."""


class DiskWatch:
    """Looks at the core once a tick. Counters: `stalls`, and `handovers` that the leader began meanwhile.

    A stall begins when a write has been under way for an election timeout; it ends when the disk was fast for ten.
    """

    def __init__(self, core: RaftCore, tick_ms: int) -> None:
        self._core = core
        self._tick_ms = tick_ms
        self._longest_ms = 0
        self._successor: int | None = None
        self.stalls = 0
        self.handovers = 0

    @property
    def write_seconds(self) -> float:
        """For how long the oldest write has been under way."""
        return self._core.disk.age * self._tick_ms / 1000

    def trouble(self) -> str | None:
        """What is wrong with the pace of this member's disk; None if nothing is."""
        if self._longest_ms < TROUBLE_SECONDS * 1000:
            return None
        leads = self._core.role is Role.LEADER
        rest = "; it leads on until a majority of the other voters is faster" if leads else ""
        return f"the disk is slow: a write of the log took {self._longest_ms} ms{rest}"

    def tick(self) -> None:
        """A tick has passed."""
        disk = self._core.disk
        if disk.stalled:
            if not self._longest_ms:
                self.stalls += 1
                logger.warning("the disk stalls: a write of the log takes longer than %d ms", disk.age * self._tick_ms)
            self._longest_ms = max(self._longest_ms, disk.age * self._tick_ms)
        elif self._longest_ms and not disk.slow:
            logger.info("the disk keeps pace again; the longest write of the log took %d ms", self._longest_ms)
            self._longest_ms = 0
        self._note_handover(self._core.transferring if disk.slow else None)

    def _note_handover(self, successor: int | None) -> None:
        if successor != self._successor:
            self.handovers += successor is not None
            self._successor = successor
