"""Takes snapshots, moves allocations to the archive, drops the log behind them; and stores snapshots of the leader.

The order makes a crash harmless: archive durable, then snapshot durable, then the log behind it goes. Whatever of that
is missing after a restart is done again, and the archive skips what it has.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.pace import Pace
from pidkeeper.controller.node.snapshot_due import SnapshotDue, SnapshotEvery
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.messages import Entry, InstallSnapshot
from pidkeeper.controller.state.machine import CapturedState, StateMachine
from pidkeeper.service.process import SWITCH_SECONDS
from pidkeeper.snapshots.catalog import RawSnapshotWriter, SnapshotCatalog
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import SnapshotError
from pidkeeper.snapshots.snapshot_id import SnapshotId

SHORT_SECONDS: Final = 0.0002
"""For how long the thread that makes a snapshot may keep the interpreter from the event loop, which waits as long with
each of its turns: a probe takes five. The snapshot of 200,000 rows takes a fifth longer than with a millisecond."""

logger = logging.getLogger(__name__)


class KeeperEvents(Protocol):
    """What the driver hears from the keeper. Called on the event loop."""

    def snapshot_installed(self, snapshot: SnapshotId, image: StateImage) -> None:
        """A received snapshot is durable, and the log restarts behind it."""

    def snapshot_failed(self, snapshot: SnapshotId) -> None:
        """A received snapshot could not be used."""

    def pump(self) -> None:
        """The core may have something ready."""

    def fault(self, error: BaseException) -> None:
        """This member must stop."""


class SnapshotKeeper:
    """Owns the catalogue. `every`: how often a snapshot is taken.

    `failure`: why the last snapshot could not be taken; None after one that was taken or installed.
    """

    events: KeeperEvents

    def __init__(
        self,
        catalog: SnapshotCatalog,
        core: RaftCore,
        machine: StateMachine,
        ledger: Ledger,
        worker: StorageWorker,
        every: SnapshotEvery,
    ) -> None:
        self._catalog = catalog
        self._core = core
        self._machine = machine
        self._ledger = ledger
        self._worker = worker
        self._every = every
        self._due = SnapshotDue(every)
        self._pace = Pace()
        self._task: asyncio.Task[None] | None = None
        self._receiver: RawSnapshotWriter | None = None
        self.failure: str | None = None
        self.taken = 0
        self.installed = 0

    def start(self, events: KeeperEvents) -> None:
        """Tell `events` from now on. Nothing may be applied or stored before."""
        self.events = events

    def applied(self, entry: Entry) -> None:
        """Take a snapshot if enough was applied since the last one and none is being taken."""
        self._due.applied(entry)
        if self._task is not None or not self._due.now(len(self._ledger)):
            return
        self._due.begun()
        state = self._machine.capture(entry.index, entry.term)
        self._task = asyncio.get_running_loop().create_task(self._take(state), name="snapshot")

    async def stop(self) -> None:
        """Wait for a snapshot that is being taken, which pauses no more."""
        self._pace.hurry()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _take(self, state: CapturedState) -> None:
        try:
            await self._ledger.archive(state.next_offset)
            await asyncio.to_thread(self._save, state)
            self._compact(state)
            self.failure = None
        except OSError as error:
            # The log still holds everything, so a full disk costs space, not safety: it is tried again later.
            self._due.failed()
            self.failure = f"cannot take a snapshot at index {state.index}: {error}"
            logger.error("%s", self.failure)  # noqa: TRY400 - no bug to trace
        except Exception as error:  # noqa: BLE001 - a broken archive or catalogue must not be built upon
            self.events.fault(error)
        finally:
            self._task = None

    def _save(self, state: CapturedState) -> None:
        with _short_turns():
            self._catalog.save(state.image(), self._pace.rest)
            self._catalog.prune()

    def _compact(self, state: CapturedState) -> None:
        snapshot = SnapshotId(state.index, state.term)
        if snapshot.index <= self._core.snapshot.index:
            return  # a snapshot from the leader overtook this one
        self._ledger.forget(state.next_offset)
        self.taken += 1
        keep_from = self._keep_from(snapshot.index)
        self._core.compact(snapshot, keep_from)
        self._worker.run(lambda: self._worker.wal.compact(keep_from))
        self.events.pump()

    def _keep_from(self, index: int) -> int:
        """The first entry that stays when a snapshot through `index` takes the place of the log.

        For a member that is sent an earlier snapshot, or what comes after one, all since the snapshot before this one
        may stay: else it would be sent one snapshot after another, and never catch up.
        """
        core, every = self._core, self._every
        usual = core.tail(index, every.kept_entries, every.kept_bytes)
        return max(core.tail(index, every.entries, every.log_bytes), min(usual, core.needed_from))

    # What the leader sends.

    def store(self, chunk: InstallSnapshot) -> None:
        """Store a received chunk, in the order of calls; the last one installs the snapshot and restarts the log."""
        self._worker.run(lambda: self._store(chunk))

    def _store(self, chunk: InstallSnapshot) -> None:
        """On the storage thread, so that no append comes in between."""
        if self._receiver is None or self._receiver.snapshot != chunk.snapshot or chunk.offset == 0:
            if self._receiver is not None:
                self._receiver.abort()
            self._receiver = self._catalog.receive(chunk.snapshot)
        receiver = self._receiver
        try:
            receiver.add(chunk.offset, chunk.data)
            if not chunk.done:
                return
            self._receiver = None
            image = receiver.install()
        except SnapshotError as error:
            logger.error("the leader's snapshot is unusable: %s", error)  # noqa: TRY400 - no bug to trace
            self._worker.report(self.events.snapshot_failed, chunk.snapshot)
            return
        wal = self._worker.wal
        wal.restart_at(chunk.snapshot, msgspec.structs.replace(wal.hard_state, commit=chunk.snapshot.index))
        self._worker.report(self._installed, chunk.snapshot, image)

    def _installed(self, snapshot: SnapshotId, image: StateImage) -> None:
        self.installed += 1
        self.failure = None
        self._due.begun()
        logger.info("installed the leader's snapshot at index %d of term %d", snapshot.index, snapshot.term)
        self.events.snapshot_installed(snapshot, image)


@contextmanager
def _short_turns() -> Iterator[None]:
    """Have the interpreter change threads every SHORT_SECONDS; not at other times, for each change costs some time."""
    sys.setswitchinterval(SHORT_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(SWITCH_SECONDS)
