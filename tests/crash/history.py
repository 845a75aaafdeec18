"""The life of one member's disk: real log, snapshots and archive, through the real snapshot keeper, in a seeded order.

The core, the storage thread and the driver are stood in for: they decide what is written when, not how.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, Protocol, Self
from unittest import mock

import msgspec

from pidkeeper.controller.node.durable_voters import founding_by
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.opening import OpenedStorage
from pidkeeper.controller.node.snapshot_due import SnapshotEvery
from pidkeeper.controller.node.snapshot_keeper import SnapshotKeeper
from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot
from pidkeeper.controller.state.machine import allocations, owners
from pidkeeper.controller.storage import owner_archive
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.founding import write_founding
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import Files
from pidkeeper.protocol.records import decode_batch
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.crash.background import Gate
from tests.crash.book import Book
from tests.crash.facts import CLUSTER_ID, Facts, Recoverer, settings
from tests.crash.oracle import Hole, Oracle, View
from tests.support.memory_files import PowerCut
from tests.support.snapshot_file import snapshot_file

DIRECTORY_ID: Final = uuid.UUID(int=0xC7A54)
RESTARTS: Final = ("close", "kill", "cut")
FOUNDING_ID: Final = uuid.UUID(int=0xF0)
CHUNKS: Final = 3
MAX_KILL_CALLS: Final = 12
"""How many changing calls of the operation that is killed are made at most."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of history: how often it does what, after how many entries it takes a snapshot, and what runs meanwhile.

    `interleaved`: snapshots are taken while other operations go on, rather than between them. `own_ids`: transactional
    ids get IDs, so that there are files of owners, merged two at a time. `most_operations`: that a history has.
    """

    name: str
    weights: dict[str, int]
    snapshot_entries: int = 1_000_000
    interleaved: bool = False
    own_ids: bool = False
    most_operations: int = 1_000_000


KINDS: Final = (
    Kind("append", {"append": 80, "replace": 10, "vote": 10, "prepare": 10}),
    Kind("snapshot", {"append": 80, "replace": 8, "vote": 6, "prepare": 6}, snapshot_entries=7),
    Kind("concurrent", {"append": 80, "replace": 8, "vote": 6, "prepare": 6}, snapshot_entries=7, interleaved=True),
    Kind("install", {"append": 70, "replace": 6, "vote": 4, "prepare": 4, "install": 16}, snapshot_entries=9),
    Kind("reopen", {"append": 70, "vote": 4, "prepare": 4, "close": 8, "kill": 16, "cut": 16}, snapshot_entries=9),
    Kind("killed", {"append": 30, "install": 20, "prepare": 4, "kill": 50}, snapshot_entries=4),
    Kind("ahead", {"append": 60, "vote": 4, "ahead": 16, "cut": 10, "kill": 10}, snapshot_entries=5, interleaved=True),
    Kind(
        "mixed",
        {
            "append": 70,
            "replace": 6,
            "vote": 4,
            "prepare": 4,
            "install": 8,
            "ahead": 4,
            "close": 4,
            "kill": 8,
            "cut": 8,
        },
        snapshot_entries=8,
        interleaved=True,
    ),
    Kind(
        "owners",
        {"append": 70, "replace": 6, "vote": 2, "install": 2, "close": 4, "kill": 8, "cut": 8},
        snapshot_entries=5,
        interleaved=True,
        own_ids=True,
        most_operations=80,
    ),
)


class Disk(Files, Protocol):
    """A disk whose power can be cut; `boundary` is called before every changing call, with its kind and path."""

    boundary: Callable[[str, PurePath], None] | None

    def forget_processes(self) -> None:
        """The process was killed: its handles and locks are gone, the page cache stays."""
        ...

    def preview(self) -> Files | None:
        """A copy of what a process sees, where that is to be had."""
        ...

    def cut(self, rng: random.Random) -> Self:
        """The disk after a power cut."""
        ...


class Member:
    """What stands in for the core, the storage thread and the driver, between two starts."""

    def __init__(self, history: History, storage: OpenedStorage, snapshot_entries: int) -> None:
        self.history = history
        self.storage = storage
        self.wal: WriteAheadLog = storage.wal
        self.machine = storage.machine
        self.snapshot = storage.snapshot
        self.first_index = storage.snapshot.index + 1
        if storage.log.entries:
            self.first_index = storage.log.entries[0].index
        self.applied = storage.snapshot.index
        self.ledger = Ledger(
            storage.archive, storage.owners, self.machine.next_offset, self.machine.producer_ids.next_producer_id
        )
        stand_in: Any = self
        self.keeper = SnapshotKeeper(
            storage.catalog,
            stand_in,
            self.machine,
            self.ledger,
            stand_in,
            SnapshotEvery(snapshot_entries, log_bytes=2**30, allocations=1_000_000),
        )
        self.keeper.start(self)

    @property
    def needed_from(self) -> int:
        """As of the core of a member that does not lead: nobody has to be sent anything."""
        return self.wal.next_index

    def tail(self, high: int, max_entries: int, max_bytes: int) -> int:
        """As of the core; its entries are too small for `max_bytes`."""
        assert max_bytes > 1024 * max_entries, f"{max_bytes} bytes for {max_entries} entries"
        return max(high + 1 - max_entries, self.first_index)

    def apply(self, entry: Entry) -> None:
        """As the driver applies a committed entry."""
        records = decode_batch(entry.data)
        first_offset, version = self.machine.next_offset, self.machine.metadata_version
        self.machine.replay(records)
        self.ledger.record(allocations(records, first_offset), owners(records, first_offset, version))
        self.applied = entry.index
        self.keeper.applied(entry)

    def compact(self, snapshot: SnapshotId, keep_from: int) -> None:
        """The core's: the snapshot is durable."""
        self.snapshot, self.first_index = snapshot, keep_from
        self.history.snapshot_taken(snapshot, keep_from)

    def run(self, job: Callable[[], None]) -> None:
        """The storage thread's: one job after another, behind the appends that wait."""
        self.history.write_waiting()
        job()

    def report(self, callback: Callable[..., None], *args: object) -> None:
        """The storage thread's: back to the event loop."""
        callback(*args)

    def snapshot_installed(self, snapshot: SnapshotId, image: StateImage) -> None:
        """As the driver takes a received snapshot over."""
        self.machine.restore(image)
        self.ledger.restart(image.next_offset, image.next_producer_id)
        self.snapshot, self.first_index, self.applied = snapshot, snapshot.index + 1, snapshot.index
        self.history.snapshot_installed(snapshot)

    def snapshot_failed(self, snapshot: SnapshotId) -> None:
        """Never: the chunks are good."""
        self.history.violations.append(f"the received snapshot {snapshot} is unusable")

    def pump(self) -> None:
        """Nothing waits for it."""

    def fault(self, error: BaseException) -> None:
        """The keeper gave up."""
        self.history.violations.append(f"the snapshot keeper stopped: {error!r}")


class History:
    """One history. `visit` is called at every write boundary, where the power may go."""

    def __init__(self, kind: Kind, seed: int, disk: Disk, data_dir: PurePath, visit: Callable[[], None]) -> None:
        self.kind = kind
        self.disk = disk
        self.oracle = Oracle()
        self.violations: list[str] = []
        self.operations = 0
        self.calls = 0
        self._book = book = Book(own_ids=kind.own_ids)
        self.oracle.images, self.oracle.offsets, self.oracle.labels = book.images, book.offsets, book.labels
        self.recoverer = Recoverer(data_dir, book.blocks, book.owners)
        self._data_dir = data_dir
        self._visit = visit
        self._rng = random.Random(f"{kind.name}/{seed}")
        self._log: dict[int, Entry] = {}
        self._last = 0
        self._commit = 0
        self._counted = 0
        self._waiting: list[Entry] = []
        self._term = 0
        self._killed = False
        self._kill_in: int | None = None
        self._gate: Gate
        self._members: list[Member] = []

    async def run(self, operations: int) -> None:
        """Do `operations` of them, or less if a promise is broken."""
        self._gate = Gate()
        few = 1 if self.kind.own_ids else owner_archive.MAX_SMALL_FILES
        try:
            with mock.patch.object(owner_archive, "MAX_SMALL_FILES", few):
                await self._live(min(operations, self.kind.most_operations))
        finally:
            self._killed = True
            self._gate.open()
            for member in self._members:
                member.ledger.close()

    async def _live(self, operations: int) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_lost_exception)
        format_directory(self.disk, self._data_dir, CLUSTER_ID, 1, directory_id=DIRECTORY_ID)
        write_founding(self.disk, self._data_dir, founding_by(settings(self._data_dir), FOUNDING_ID))
        await self._start(self.disk)
        while self.operations < operations and not self.violations:
            self.operations += 1
            await self._operate(self._choose())
        if not self.violations:
            await self._finish_snapshot()
            self._member.wal.close()
            self._visit()
        await self._stop()

    @property
    def _member(self) -> Member:
        """The one that runs."""
        return self._members[0]

    # What the member reports.

    def snapshot_taken(self, snapshot: SnapshotId, keep_from: int) -> None:
        """`snapshot` is acknowledged, and the log may go up to `keep_from`."""
        self.oracle.snapshot, self.oracle.keep_from = snapshot, keep_from
        self.oracle.covered_to = self._book.images[snapshot].next_offset
        self.oracle.owners_to = self._member.storage.owners.covered_to
        self._acknowledge()

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        """The leader's `snapshot` is acknowledged."""
        self.oracle.durable, self.oracle.snapshot = self.oracle.wanted, snapshot
        self.oracle.keep_from = snapshot.index + 1
        self._log, self._last, self._commit = {}, snapshot.index, snapshot.index

    def write_waiting(self) -> None:
        """Write what the storage thread has not come to yet."""
        if self._waiting:
            entries, self._waiting = self._waiting, []
            self._write(entries, None)

    # Operations.

    def _choose(self) -> str:
        return self._rng.choices(list(self.kind.weights), list(self.kind.weights.values()))[0]

    def _choose_other(self) -> str:
        """What is to be interrupted."""
        others = {name: weight for name, weight in self.kind.weights.items() if name not in RESTARTS}
        return self._rng.choices(list(others), list(others.values()))[0]

    async def _operate(self, name: str) -> None:
        if name in RESTARTS:
            await self._restart(name)
            return
        await getattr(self, f"_{name}")()
        if (task := _snapshot_task()) is None:
            return
        await self._gate.settle(task)
        if self.kind.interleaved:
            for _ in range(self._rng.randrange(3)):
                await self._gate.step(task)
        else:
            await self._finish_snapshot()

    async def _append(self) -> None:
        state = self._hard_state() if self._rng.random() < 0.3 else None
        self._write(self._propose(self._last, self._rng.choice((1, 1, 1, 2, 3))), state)
        if self._rng.random() < 0.7:
            self._commit_to(self._rng.randint(self._commit, self._last))

    async def _replace(self) -> None:
        if self._last == self._commit or self._last < len(self._book.committed):
            return
        self._term += 1
        keep = self._rng.randint(self._commit, self._last - 1)
        self._write(self._propose(keep, self._rng.choice((1, 2))), self._hard_state())

    async def _vote(self) -> None:
        self._term += 1
        self._write([], self._hard_state(vote=self._rng.choice((None, 1, 2, 3))))

    async def _prepare(self) -> None:
        if self._member.wal.wants_next_segment:
            self._member.wal.prepare_next()

    async def _ahead(self) -> None:
        """A leader whose own disk is slow: the others commit its entries, and it takes a snapshot that covers them."""
        if self._waiting or self._last < len(self._book.committed):
            return
        self._commit_to(self._last)
        entries = self._propose(self._last, self.kind.snapshot_entries)
        self._remember(entries)
        self._waiting = entries
        self._commit_to(self._last)
        if (task := _snapshot_task()) is not None:
            for _ in range(self._rng.randrange(12)):
                await self._gate.step(task)
        self.write_waiting()
        self._acknowledge()

    async def _install(self) -> None:
        """A leader sends a snapshot that reaches beyond the commit index, perhaps beyond the log."""
        self._term += 1
        self._write([], self._hard_state())
        last = max(self._commit, len(self._book.committed)) + 1 + self._rng.randrange(6)
        for index in range(self._commit + 1, last + 1):
            self._book.commit(self._book.propose(self._data(index - 1, committed=True), index, self._term, 1))
        snapshot = SnapshotId(last, self._book.committed[last].term)
        image = self._book.images[snapshot]
        self.oracle.holes.append(Hole(last, self.oracle.covered_to, image.next_offset))
        data = snapshot_file(CLUSTER_ID, image)
        size = -(-len(data) // CHUNKS)
        for offset in range(0, len(data), size):
            done = offset + size >= len(data)
            if done:
                state = msgspec.structs.replace(self._member.wal.hard_state, commit=last)
                self.oracle.wanted = View(state, last, last, {})
            chunk = InstallSnapshot(self._term, 2, 1, snapshot, offset, data[offset : offset + size], done)
            self._member.keeper.store(chunk)
        self._acknowledge()

    async def _restart(self, name: str) -> None:
        """Start anew: after a stop, after a kill in the middle of an operation, or after a power cut there."""
        if name == "close":
            await self._finish_snapshot()
            self.write_waiting()
            self._member.wal.close()
            self._member.storage.directory.close()
        else:
            self._kill_in = self._rng.randrange(MAX_KILL_CALLS)
            try:
                await self._operate(self._choose_other())
            except PowerCut:
                assert self._killed, "the power went without having been cut"
        await self._stop()
        await self._start(self.disk.cut(self._rng) if name == "cut" else self.disk)

    # How they are done.

    async def _start(self, disk: Disk) -> None:
        disk.forget_processes()
        oracle = self.oracle
        seen = disk.preview()
        oracle.may_recover = seen is None or self.recoverer.open(seen)[1].truncated
        self._killed, self._kill_in, self._waiting = False, None, []
        self.disk = disk
        disk.boundary = self._boundary
        storage, facts = self.recoverer.open(disk)
        oracle.check(facts)
        oracle.settle(facts)
        oracle.may_recover = False
        self._take_over(storage, facts)

    def _take_over(self, storage: OpenedStorage, facts: Facts) -> None:
        self._log = {entry.index: entry for entry in facts.entries}
        self._last = facts.next_index - 1
        self._term = max(self._term, facts.hard_state.term)
        self._members = [Member(self, storage, self.kind.snapshot_entries)]
        known = min(max(self._commit, facts.hard_state.commit), self._last)
        self._commit = facts.snapshot.index
        for index in range(self._commit + 1, self._last + 1):
            if self._book.committed.get(index, self._log[index]) != self._log[index]:
                # The others committed something else meanwhile: their leader replaces what is here.
                self._commit_to(min(known, index - 1))
                self._write(self._propose(index - 1, 1), None)
                return
        self._commit_to(known)

    async def _stop(self) -> None:
        """End the threads of a member that is no more."""
        self._killed = True
        while (task := _snapshot_task()) is not None:
            await self._gate.step(task)
            if task.done():
                task.exception()
        self._member.ledger.close()

    async def _finish_snapshot(self) -> None:
        while (task := _snapshot_task()) is not None:
            await self._gate.step(task)
        self._acknowledge()

    def _on_lost_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), PowerCut):
            self.violations.append(f"nobody handled {context}")

    def _boundary(self, kind: str, path: PurePath) -> None:
        self._gate.wait_turn()
        if self._killed or self._kill_in == 0:
            self._killed = True
            raise PowerCut
        if self._kill_in is not None:
            self._kill_in -= 1
        self.calls += 1
        self._visit()

    def _write(self, entries: list[Entry], hard_state: HardState | None) -> None:
        self.write_waiting()
        if hard_state is None and self.oracle.durable.hard_state.term < self._term:
            hard_state = self._hard_state()
        self.oracle.wanted = self.oracle.durable.with_append(entries, hard_state)
        self._member.wal.append(entries, hard_state)
        self.oracle.durable = self.oracle.wanted
        self._remember(entries)
        self._acknowledge()

    def _remember(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._log[entry.index] = entry
            self._last = entry.index

    def _hard_state(self, vote: int | None = None) -> HardState:
        before = self.oracle.durable.hard_state
        self._term = max(self._term, 1)
        if before.term == self._term:
            vote = before.vote
        return HardState(term=self._term, vote=vote, commit=min(self._commit, self.oracle.durable.last))

    def _propose(self, after: int, count: int) -> list[Entry]:
        self._term = max(self._term, 1)
        entries: list[Entry] = []
        previous = self._data(after)
        for index in range(after + 1, after + 1 + count):
            entries.append(self._book.propose(previous, index, self._term, self._rng.choice((1, 1, 2))))
            previous = entries[-1].data
        return entries

    def _data(self, index: int, *, committed: bool = False) -> bytes:
        if index == 0:
            return b""
        if index in self._book.committed and (committed or index <= self._commit):
            return self._book.committed[index].data
        return self._log[index].data

    def _commit_to(self, index: int) -> None:
        while self._commit < index:
            self._commit += 1
            entry = self._log[self._commit]
            self._book.commit(entry)
            self._member.apply(entry)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Count what was given by entries that are committed and that this disk is answerable for."""
        on_disk = max(self.oracle.durable.last, self.oracle.snapshot.index)
        answerable = min(len(self._book.committed), self._commit, on_disk)
        if answerable <= self._counted:
            return
        entries = [self._book.committed[index] for index in range(self._counted + 1, answerable + 1)]
        self.oracle.needed |= {label for entry in entries for label in self._book.labels[entry.data]}
        self._counted = answerable


def _snapshot_task() -> asyncio.Task[Any] | None:
    return next((task for task in asyncio.all_tasks() if task.get_name() == "snapshot"), None)
