"""The storage thread: runs the log's writes in order, so that an fdatasync never stops the event loop.

Appends that pile up while one is being synced become one write and one fdatasync. Any failure is final: nothing of it
is acknowledged, and the member stops (docs/invariants.md).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.errors import LogFull
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.service.histogram import SHORT_BOUNDS_US, durations

logger = logging.getLogger(__name__)

ROOM_CHECK_SECONDS: Final = 1.0
"""Between two attempts to preallocate a segment on a full disk: each of them is a line in the log at most once."""

MAX_QUEUED_JOBS: Final = 4096
"""Writes waiting for the disk. The core's window of uncommitted bytes fills long before; above it the member stops."""


class Append(msgspec.Struct, frozen=True):
    """Make these durable, then acknowledge `token`."""

    token: int
    entries: list[Entry]
    hard_state: HardState | None


MAX_MERGED_BYTES: Final = 4 * 1024 * 1024
"""Payload in one merged write: half a second of the busiest load, and far below what the log takes as one batch."""

Job = Append | Callable[[], None]


class LogEvents(Protocol):
    """What the driver hears from the storage thread. Called on the event loop."""

    def durable(self, tokens: list[int]) -> None:
        """The writes of `tokens` are durable, in the order in which they were queued."""

    def fault(self, error: BaseException) -> None:
        """A write or sync failed, so nothing is written any more and this member must stop."""


class StorageWorker:
    """Runs jobs on one thread, from `start` on.

    `no_room`: why the log cannot go on behind its newest segment; None while it can. `write_duration`: how long each
    write took, its sync included.
    """

    events: LogEvents

    def __init__(self, wal: WriteAheadLog) -> None:
        self.wal = wal
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self.failed = False
        self.write_duration = durations(SHORT_BOUNDS_US)
        self.no_room: str | None = None
        self._prepare_at = 0.0
        self._preparing: asyncio.Task[None] | None = None

    def start(self, events: LogEvents) -> None:
        """Start the thread."""
        self.events = events
        self._thread.start()

    def append(self, token: int, entries: list[Entry], hard_state: HardState | None) -> None:
        """Queue one write of the log."""
        assert self._jobs.qsize() < MAX_QUEUED_JOBS, f"the disk is {MAX_QUEUED_JOBS} writes behind"
        self._jobs.put(Append(token, entries, hard_state))

    def run(self, job: Callable[[], None]) -> None:
        """Queue other work on the log's files. It reports back by itself."""
        self._jobs.put(job)

    def prepare_segment(self) -> None:
        """Have the log's next segment preallocated on another thread in time, so that no append has to wait for it."""
        if not self.wal.wants_next_segment:
            # An append may have found room and made the segment itself, which may take days to be half full.
            if not self.failed:
                self._has_room()
        elif self._preparing is None and self._loop.time() >= self._prepare_at:
            self._preparing = self._loop.create_task(self._prepare_segment(), name="prepare-segment")

    async def _prepare_segment(self) -> None:
        try:
            await asyncio.to_thread(self._prepare)
        except LogFull as error:
            self._prepare_at = self._loop.time() + ROOM_CHECK_SECONDS
            if self.no_room is None:
                self.no_room = f"{error}; this member stops when its segment is full"
                logger.error("%s", self.no_room)  # noqa: TRY400 - no bug to trace
        except Exception as error:  # noqa: BLE001 - the same disk holds the log
            self.events.fault(error)
        else:
            self._has_room()
        finally:
            self._preparing = None

    def _prepare(self) -> None:
        # An append may have made a segment since this was begun, and nobody needs the one after that yet.
        if self.wal.wants_next_segment:
            self.wal.prepare_next()

    def _has_room(self) -> None:
        if self.no_room is not None:
            self.no_room = None
            logger.info("there is room for the next segment of the log again")

    async def stop(self) -> None:
        """Finish what is queued, then end the thread."""
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def waiting(self) -> int:
        """Jobs not started yet."""
        return self._jobs.qsize()

    def report(self, callback: Callable[..., None], *args: object) -> None:
        """Call back on the event loop; from the storage thread."""
        self._loop.call_soon_threadsafe(callback, *args)

    def _run(self) -> None:
        try:
            job: Job | None = self._jobs.get()
            while job is not None:
                if isinstance(job, Append):
                    job = self._append(job)
                else:
                    job()
                    job = self._jobs.get()
            self.wal.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, no write may be acknowledged after it
            self.failed = True
            self.report(self.events.fault, error)

    def _append(self, first: Append) -> Job | None:
        """Write `first` and whatever continues it. Returns the job after those."""
        entries, hard_state, tokens = first.entries, first.hard_state, [first.token]
        size = _payload(entries)
        following: list[Job | None] = []
        while not following and not self._jobs.empty():
            job = self._jobs.get()
            if isinstance(job, Append) and _continues(entries, job.entries) and size <= MAX_MERGED_BYTES:
                size += _payload(job.entries)
                entries = entries + job.entries
                hard_state = job.hard_state or hard_state
                tokens.append(job.token)
            else:
                following.append(job)
        started = time.perf_counter_ns()
        self.wal.append(entries, hard_state)
        self.write_duration.observe(time.perf_counter_ns() - started)
        self.report(self.events.durable, tokens)
        return following[0] if following else self._jobs.get()


def _continues(entries: list[Entry], more: list[Entry]) -> bool:
    """Whether `more` only adds to the end of `entries`: a replaced suffix is a write of its own."""
    return not entries or not more or more[0].index == entries[-1].index + 1


def _payload(entries: list[Entry]) -> int:
    return sum([len(entry.data) for entry in entries])
