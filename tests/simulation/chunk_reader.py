"""The chunk thread of a simulated member: the product's reader, with virtual time in place of the thread.

A read takes as long as any work on the disk, and sees the disk at the moment when it ends.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import TYPE_CHECKING

from pidkeeper.controller.node.chunk_reader import ChunkEvents, ChunkReader
from pidkeeper.controller.raft.ready import ChunkRequest
from pidkeeper.snapshots.catalog import SnapshotCatalog

if TYPE_CHECKING:
    from tests.simulation.process import Process


class SimChunkReader(ChunkReader):
    """Reads one chunk after the other, each as one event."""

    def __init__(self, process: Process, catalog: SnapshotCatalog, chunk_bytes: int) -> None:
        super().__init__(catalog, chunk_bytes)
        self._process = process
        self._waiting: deque[ChunkRequest] = deque()

    def start(self, events: ChunkEvents) -> None:
        """Begin."""
        self.events = events

    def _queue(self, request: ChunkRequest | None) -> None:
        if request is None:
            self._waiting.clear()
            return
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._process.after_disk(self._finish)

    def _finish(self) -> None:
        if not self._waiting:
            return
        request = self._waiting.popleft()
        outcome = self._process.work(functools.partial(self._read, request))
        if self._waiting:
            self._process.after_disk(self._finish)
        self._ended(request, outcome)
