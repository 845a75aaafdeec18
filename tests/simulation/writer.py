"""The storage thread of a simulated member: the product's worker, with virtual time in place of the thread.

A job takes effect on the disk at the moment when it ends. Nobody but the job sees the disk in between; a crash in
between runs the job up to one of its calls.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pidkeeper.controller.node.storage_worker import Append, LogEvents, StorageWorker
from pidkeeper.controller.node.storage_worker import Job as LogJob
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.wal import WriteAheadLog
from tests.support.memory_files import PowerCut

if TYPE_CHECKING:
    from tests.simulation.process import Process

Job = Callable[[], Any]


class _Queue:
    """Stands in for the thread's queue: what arrives while a job runs is not seen before the next one starts."""

    def __init__(self) -> None:
        self._seen: deque[LogJob | None] = deque()
        self._arrived: deque[LogJob | None] = deque()

    def put(self, job: LogJob | None) -> None:
        self._arrived.append(job)

    def look(self) -> None:
        """See what has arrived."""
        self._seen.extend(self._arrived)
        self._arrived.clear()

    def get(self) -> LogJob | None:
        """The next job seen, None if there is none."""
        return self._seen.popleft() if self._seen else None

    def empty(self) -> bool:
        """Whether nothing was seen."""
        return not self._seen

    def qsize(self) -> int:
        """Jobs, seen or not."""
        return len(self._seen) + len(self._arrived)


class SimWriter(StorageWorker):
    """Runs one job after the other, each as one event."""

    def __init__(self, process: Process, wal: WriteAheadLog) -> None:
        super().__init__(wal)
        self._process = process
        self._queue = _Queue()
        self._jobs = self._queue  # type: ignore[assignment]
        self._issued: deque[Append] = deque()
        self._early = process.member.cluster.bug == "ack-before-write"
        self._idle: asyncio.Event = asyncio.Event()
        self.current: LogJob | None = None

    def start(self, events: LogEvents) -> None:
        """Begin."""
        self.events = events
        self._begin()

    async def stop(self) -> None:
        """Finish what is queued, and close the log."""
        while self._preparing is not None or not self.idle():
            if self._preparing is not None:
                await asyncio.wait([self._preparing])
            else:
                self._idle.clear()
                await self._idle.wait()
        try:
            await asyncio.to_thread(self.wal.close)
        except Exception as error:  # noqa: BLE001 - as in the product's thread
            self.failed = True
            self.events.fault(error)

    def append(self, token: int, entries: list[Entry], hard_state: HardState | None) -> None:
        """Queue one write of the log."""
        self._issued.append(Append(token, entries, hard_state))
        super().append(token, entries, hard_state)
        if self._early:
            self._process.soon(self.events.durable, [token])
        self._begin()

    def run(self, job: Callable[[], None]) -> None:
        """Queue other work on the log's files."""
        super().run(job)
        self._begin()

    def report(self, callback: Callable[..., None], *args: Any) -> None:
        """Call back; a job is an event of its own already."""
        if not self._process.alive:
            return
        if callback == self.events.durable:
            for _ in args[0]:
                done = self._issued.popleft()
                self._process.wrote(done.entries, done.hard_state)
            if self._early:
                return
        # The product's thread reports as the last thing in a job; what follows is the event loop's.
        self._process.member.disk.off_limits = True
        callback(*args)

    def merging(self) -> list[Entry]:
        """The entries of all writes that were issued and did not return, the lowest index first."""
        issued = [entry for write in self._issued for entry in write.entries]
        return sorted(issued, key=lambda entry: entry.index)

    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return self.failed or (self.current is None and self._queue.qsize() == 0)

    def execute(self, job: LogJob) -> LogJob | None:
        """Run a job now; the one after it. PowerCut comes through."""
        if isinstance(job, Append):
            return self._append(job)
        job()
        return self._jobs.get()

    def _begin(self) -> None:
        if self.current is None and not self.failed:
            self._queue.look()
            self.current = self._queue.get()
            if self.current is not None:
                self._process.after_disk(self._finish)
            else:
                self._idle.set()

    def _finish(self) -> None:
        job = self.current
        assert job is not None, "a job ended that never began"
        try:
            following = self._process.work(functools.partial(self.execute, job))
        except PowerCut:
            self._process.member.power_failed(self._process)
            return
        except Exception as error:  # noqa: BLE001 - as in the product's thread: nothing is written after it
            self.failed = True
            self.current = None
            self._idle.set()
            self.report(self.events.fault, error)
            return
        self.current = following
        if following is None:
            self._begin()
        else:
            self._queue.look()
            self._process.after_disk(self._finish)
