"""The chunk thread: one read of each peer, what comes of errors, and a read that hangs."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePath
from typing import Any

import pytest

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.chunk_reader import ChunkReader
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.raft.messages import InstallSnapshot, Message
from pidkeeper.controller.raft.ready import ChunkRequest
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.loopback_cluster import CLUSTER_ID, LoopbackCluster, eventually
from tests.support.memory_files import MemoryFiles
from tests.support.snapshot_file import snapshot_file

FOLDER = PurePath("/snapshots")
IMAGE = StateMachine(CLUSTER_ID).image(7, 2)
SNAPSHOT = SnapshotId(7, 2)
CONTENT = snapshot_file(CLUSTER_ID, IMAGE)
CHUNK = len(CONTENT) // 2 + 1


class HangingReads(MemoryFiles):
    """A disk whose reads of snapshots wait while it does not `work`. `reads`: their offsets; `error`: of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.works = threading.Event()
        self.works.set()
        self.reads: list[int] = []
        self.error: BaseException | None = None

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if self._handles[handle][0].suffix == ".snap":
            self.reads.append(offset)
            self.works.wait()
            if self.error is not None:
                raise self.error
        return super().pread(handle, size, offset)


class Bench:
    """A reader of a snapshot in two chunks."""

    def __init__(self) -> None:
        self.files = HangingReads()
        self.files.make_directory(FOLDER)
        catalog = SnapshotCatalog(self.files, FOLDER, CLUSTER_ID)
        catalog.save(IMAGE)
        self.reader = ChunkReader(catalog, CHUNK)
        self.read: list[tuple[ChunkRequest, bytes, bool]] = []
        self.faults: list[BaseException] = []

    def chunk_read(self, request: ChunkRequest, data: bytes, done: bool) -> None:
        self.read.append((request, data, done))

    def fault(self, error: BaseException) -> None:
        self.faults.append(error)

    def ask(self, peer: int, offset: int = 0, snapshot: SnapshotId = SNAPSHOT, term: int = 3) -> ChunkRequest:
        request = ChunkRequest(term, peer, snapshot, offset)
        self.reader.read(request)
        return request


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.reader.start(bench)
    yield bench
    bench.reader.stop()
    bench.files.works.set()
    await asyncio.to_thread(bench.reader._thread.join)


async def test_chunks_are_read_as_they_are_asked_for(bench: Bench) -> None:
    first = bench.ask(2)
    await eventually(lambda: len(bench.read) == 1)
    last = bench.ask(2, CHUNK)
    await eventually(lambda: len(bench.read) == 2)
    assert bench.read == [(first, CONTENT[:CHUNK], False), (last, CONTENT[CHUNK:], True)]
    assert (bench.reader.age, bench.reader.trouble()) == (0.0, None)


async def test_one_read_of_each_peer_is_under_way(bench: Bench) -> None:
    """The core repeats a request with every heartbeat, and may want another chunk, or another snapshot, by then."""
    bench.files.works.clear()
    asked = [bench.ask(2), bench.ask(3, CHUNK)]
    for _ in range(100):
        bench.ask(2)
        bench.ask(2, CHUNK)
        bench.ask(3, 0, SnapshotId(9, 2), term=4)
    assert bench.reader._requests.qsize() <= 2
    bench.files.works.set()
    await eventually(lambda: len(bench.read) == 2)
    assert [request for request, _, _ in bench.read] == asked
    assert bench.files.reads == [0, CHUNK]
    later = bench.ask(2, CHUNK)
    await eventually(lambda: len(bench.read) == 3)
    assert bench.read[-1][0] == later


async def test_what_is_not_there_is_logged_and_may_be_asked_for_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (offset, snapshot) in enumerate([(0, SnapshotId(8, 2)), (len(CONTENT) + 1, SNAPSHOT)], start=1):
        bench.ask(2, offset, snapshot)
        await eventually(lambda n=number: caplog.text.count("cannot send a part of a snapshot to member 2") == n)  # type: ignore[misc]
    # The file went between the look at its size and the read.
    bench.files.error = FileNotFoundError(SNAPSHOT.name)
    bench.ask(2)
    await eventually(lambda: caplog.text.count("cannot send a part of a snapshot to member 2") == 3)
    bench.files.error = None
    bench.ask(2)
    await eventually(lambda: len(bench.read) == 1)
    assert bench.faults == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), AssertionError("broken"), MemoryError()])
async def test_any_other_error_stops_the_member(bench: Bench, error: BaseException) -> None:
    bench.files.error = error
    bench.ask(2)
    await eventually(lambda: bench.faults == [error])
    assert bench.read == []


async def test_after_a_stop_nothing_is_reported_and_none_is_waited_for(bench: Bench) -> None:
    bench.files.works.clear()
    bench.ask(2)
    bench.ask(3)
    await eventually(lambda: bench.files.reads == [0])
    bench.reader.stop()
    bench.files.error = OSError(errno.EIO, "Input/output error")
    bench.files.works.set()
    await asyncio.to_thread(bench.reader._thread.join)
    await asyncio.sleep(0)
    assert (bench.read, bench.faults) == ([], [])


def test_a_read_may_outlive_the_event_loop() -> None:
    """An exception in the thread would fail this test."""

    async def hang() -> Bench:
        bench = Bench()
        bench.files.works.clear()
        bench.reader.start(bench)
        bench.ask(2)
        bench.reader.stop()
        return bench

    bench = asyncio.run(hang())
    assert bench.reader._thread.daemon, "the interpreter waits for other threads at its exit"
    bench.files.works.set()
    bench.reader._thread.join()
    assert bench.read == []


class Clock:
    """The event loop's clock, which the test moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)


async def test_a_read_that_takes_long_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(asyncio.get_running_loop())
    bench.reader._loop = clock  # type: ignore[assignment]
    for end in (1, 2):
        bench.files.works.clear()
        bench.ask(2)
        clock.now += 0.9
        bench.ask(2)
        assert bench.reader.age == pytest.approx(0.9)
        assert bench.reader.trouble() is None
        clock.now += 2.1
        for _ in range(3):
            bench.ask(2)
        told = "the disk hangs: reading a part of a snapshot for member 2 takes longer than 3 s"
        assert bench.reader.trouble() == told
        assert caplog.text.count(told) == end
        bench.files.works.set()
        await eventually(lambda n=end: len(bench.read) == n)  # type: ignore[misc]
        assert caplog.text.count("the parts of snapshots are read from the disk again") == end


# In a member.


async def test_a_read_does_not_wait_for_a_write_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    files, syncs = HangingReads(), threading.Event()
    syncs.set()
    files.before = lambda kind, path: _wait_to_sync(kind, path, syncs)
    files.make_directory(PurePath("/m/member-1"))
    cluster = LoopbackCluster(Path("/m"), voters=1, snapshot_entries=10)
    await cluster.start(1, files=files)
    try:
        epoch = await cluster.register()
        await cluster.allocate(epoch, 30)
        leader = cluster.members[1]
        await eventually(lambda: leader.keeper.taken > 0)
        syncs.clear()
        answer = leader.submit(requests.AllocateProducerIds(1, epoch))
        await eventually(lambda: leader.disk_watch.write_seconds > 0)
        sent: list[Message] = []
        monkeypatch.setattr(leader.links, "send", sent.extend)
        leader.chunk_reader.read(ChunkRequest(leader.core.term, 2, leader.core.snapshot, 0))
        await eventually(lambda: any(isinstance(message, InstallSnapshot) for message in sent))
        assert not answer.done()
        syncs.set()
        await answer
    finally:
        syncs.set()
        await cluster.close()


def _wait_to_sync(kind: str, path: PurePath, syncs: threading.Event) -> None:
    if kind == "fdatasync" and "/wal/" in str(path):
        syncs.wait()


@pytest.fixture
async def quorum() -> AsyncIterator[tuple[LoopbackCluster, dict[int, HangingReads]]]:
    """Three members with snapshots, on disks that all work at first and at the end."""
    disks: dict[int, HangingReads] = {}
    cluster = LoopbackCluster(Path("/m"), snapshot_entries=10)
    for node_id in (1, 2, 3):
        await start_blank(cluster, disks, node_id)
    yield cluster, disks
    for disk in disks.values():
        disk.works.set()
    await cluster.close()


async def start_blank(cluster: LoopbackCluster, disks: dict[int, HangingReads], node_id: int) -> ClusterMember:
    disks[node_id] = HangingReads()
    disks[node_id].make_directory(PurePath(f"/m/member-{node_id}"))
    await cluster.start(node_id, files=disks[node_id])
    return cluster.members[node_id]


async def test_a_leader_whose_reads_hang_leads_on_and_stops_when_it_is_told_to(
    quorum: tuple[LoopbackCluster, dict[int, HangingReads]],
) -> None:
    cluster, disks = quorum
    epoch = await cluster.register()
    before = await cluster.allocate(epoch, 60)
    leader = await cluster.leader()
    term = leader.core.term
    await eventually(lambda: leader.keeper.taken > 0)
    lost = (await cluster.followers())[0].node_id
    await cluster.stop(lost)
    hanging = disks[leader.node_id]
    hanging.works.clear()
    blank = await start_blank(cluster, disks, lost)
    await eventually(lambda: leader.chunk_reader.age > 1.5)  # two and a half of the longest election timeouts
    after = await cluster.allocate(epoch, 20)
    assert (leader.leadership.serving(), leader.core.term, blank.keeper.installed) == (True, term, 0)
    assert len(hanging.reads) == 1
    (told,) = [reason for reason in MemberInterface(leader).describe().reasons if "the disk" in reason]
    assert told.startswith(f"the disk hangs: reading a part of a snapshot for member {lost} takes longer than ")
    assert all(check.ok for check in MemberInterface(leader).readiness())
    await cluster.stop(leader.node_id)
    assert not hanging.works.is_set()
    hanging.works.set()
    # Two of three are no majority while one of them recovers.
    await cluster.start(leader.node_id, files=hanging)
    await eventually(lambda: blank.keeper.installed > 0)
    assert await cluster.allocate(epoch) > after > before
