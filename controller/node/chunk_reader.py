"""The chunk thread: reads the parts of snapshots that peers are sent, so that a read never stops the event loop.

It is not the storage thread: a read must not wait behind an fdatasync that stalls, nor a write behind a read that
hangs. Nothing rests on a read but the transfer to its peer, so a stop does not wait for one either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from typing import Protocol

from pidkeeper.controller.node.disk_watch import TROUBLE_SECONDS
from pidkeeper.controller.raft.ready import ChunkRequest
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.snapshot_format import SnapshotError

logger = logging.getLogger(__name__)

Outcome = tuple[bytes, bool] | BaseException
"""A chunk, and whether it is the last one of its snapshot; or why it could not be read."""


class ChunkEvents(Protocol):
    """What the driver hears from the chunk thread. Called on the event loop."""

    def chunk_read(self, request: ChunkRequest, data: bytes, done: bool) -> None:
        """The chunk of `request` is `data`; `done`: it is the last one. What was asked for may be out of date."""

    def fault(self, error: BaseException) -> None:
        """The disk cannot be read, so this member must stop."""


class ChunkReader:
    """Reads one chunk after another on one thread, from `start` on: at most one for each peer is under way.

    `chunk_bytes`: the most that is read at once.
    """

    events: ChunkEvents

    def __init__(self, catalog: SnapshotCatalog, chunk_bytes: int) -> None:
        self._catalog = catalog
        self._chunk_bytes = chunk_bytes
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[ChunkRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="chunks", daemon=True)
        # The peers whose reads did not return, the first first, and when each was asked for by the loop's clock.
        self._under_way: dict[int, float] = {}
        self._stopped = self._told = False

    def start(self, events: ChunkEvents) -> None:
        """Start the thread."""
        self.events = events
        self._thread.start()

    def read(self, request: ChunkRequest) -> None:
        """Have a chunk read. Dropped while an earlier one for the same peer is under way.

        The core asks again with every heartbeat, mostly for the same chunk: to read that once more would load a slow
        disk with what nobody needs. Whatever else it wants by then comes a heartbeat after the read under way.
        """
        if request.to not in self._under_way:
            self._under_way[request.to] = self._loop.time()
            self._queue(request)
        elif not self._told and (trouble := self.trouble()) is not None:
            self._told = True
            logger.warning("%s", trouble)

    def stop(self) -> None:
        """Report nothing any more, and end the thread when its read returns; that is not waited for."""
        self._stopped = True
        self._queue(None)

    @property
    def age(self) -> float:
        """For how many seconds the oldest read has been under way; 0 if none is."""
        return self._loop.time() - next(iter(self._under_way.values())) if self._under_way else 0.0

    def trouble(self) -> str | None:
        """What an operator is told of a read that takes long; None if none does."""
        if (age := self.age) < TROUBLE_SECONDS:
            return None
        peer = next(iter(self._under_way))
        return f"the disk hangs: reading a part of a snapshot for member {peer} takes longer than {age:.0f} s"

    def _queue(self, request: ChunkRequest | None) -> None:
        self._requests.put(request)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            outcome = self._read(request)
            # A loop that is closed by now belongs to a member that has stopped and did not wait for this.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended, request, outcome)

    def _read(self, request: ChunkRequest) -> Outcome:
        try:
            return self._catalog.read_chunk(request.snapshot, request.offset, self._chunk_bytes)
        except BaseException as error:  # noqa: BLE001 - judged on the event loop; here it would end the thread unheard
            return error

    def _ended(self, request: ChunkRequest, outcome: Outcome) -> None:
        if self._stopped:
            return
        del self._under_way[request.to]
        if self._told and self.trouble() is None:
            self._told = False
            logger.info("the parts of snapshots are read from the disk again")
        if isinstance(outcome, SnapshotError | FileNotFoundError):
            # Newer snapshots replaced it, or the follower asks for what is not there: the core starts over.
            logger.warning("cannot send a part of a snapshot to member %d: %s", request.to, outcome)
        elif isinstance(outcome, BaseException):
            self.events.fault(outcome)
        else:
            self.events.chunk_read(request, *outcome)
