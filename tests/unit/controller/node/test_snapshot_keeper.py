"""Snapshots: the order that makes a crash harmless, disks that are full, and snapshots that come from a leader."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path, PurePath
from typing import Any

import msgspec
import pytest

from pidkeeper.controller.node import pace
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.pace import Pace
from pidkeeper.controller.node.snapshot_keeper import SHORT_SECONDS
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.messages import ENTRY_BYTES, InstallSnapshot, Message
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.records import AllocateProducerIdsRecord, RegisterBrokerRecord
from pidkeeper.service.process import SWITCH_SECONDS
from pidkeeper.snapshots.archive_format import ArchiveError
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.loopback_cluster import CLUSTER_ID, LoopbackCluster, eventually, history
from tests.support.memory_files import MemoryFiles
from tests.support.snapshot_file import snapshot_file

LEADER = 2


@pytest.fixture
async def clusters() -> AsyncIterator[list[LoopbackCluster]]:
    made: list[LoopbackCluster] = []
    yield made
    for cluster in made:
        await cluster.close()


async def alone(clusters: list[LoopbackCluster], files: MemoryFiles, **options: object) -> LoopbackCluster:
    """A quorum of one over a disk in memory."""
    values: dict[str, Any] = {"snapshot_entries": 10, **options}
    cluster = LoopbackCluster(Path("/m"), voters=1, **values)
    clusters.append(cluster)
    files.make_directory(PurePath("/m/member-1"))
    await cluster.start(1, files=files)
    return cluster


async def fault_while_allocating(member: ClusterMember, epoch: int) -> BaseException | None:
    """Allocate until the member has ended; what ended it."""
    async with asyncio.timeout(10):
        while not member.ended.done():
            with contextlib.suppress(RequestError):
                await member.submit(requests.AllocateProducerIds(1, epoch))
        return await member.ended


async def test_archive_before_snapshot_before_compaction(clusters: list[LoopbackCluster]) -> None:
    files = MemoryFiles()
    # Small segments, so that compaction has something to remove.
    cluster = await alone(clusters, files, segment_bytes=8192)
    epoch = await cluster.register()
    await cluster.allocate(epoch, 120)
    member = cluster.members[1]
    await eventually(lambda: any(kind == "unlink" and "/wal/" in str(path) for kind, path in list(files.calls)))
    renamed = [path for kind, path in files.calls if kind == "rename"]
    first_archive = next(path for path in renamed if path.suffix == ".arc")
    first_snapshot = next(path for path in renamed if path.suffix == ".snap")
    order = [
        files.calls.index(("rename", first_archive)),
        files.calls.index(("fsync_directory", first_archive.parent), files.calls.index(("rename", first_archive))),
        files.calls.index(("rename", first_snapshot)),
        files.calls.index(("fsync_directory", first_snapshot.parent), files.calls.index(("rename", first_snapshot))),
        next(at for at, (kind, path) in enumerate(files.calls) if kind == "unlink" and "/wal/" in str(path)),
    ]
    assert order == sorted(order)
    assert member.core.first_index > 1


async def test_entries_for_a_follower_that_is_a_little_behind_stay(
    clusters: list[LoopbackCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await alone(clusters, MemoryFiles(), snapshot_entries=40)
    epoch = await cluster.register()
    member = cluster.members[1]
    kept_on_disk: list[int] = []
    monkeypatch.setattr(member.writer.wal, "compact", kept_on_disk.append)
    await cluster.allocate(epoch, 45)
    await eventually(lambda: member.keeper.taken == 1)
    core = member.core
    assert core.snapshot.index - core.first_index + 1 == 10
    await eventually(lambda: kept_on_disk == [core.first_index])


async def test_a_transfer_that_outlives_a_snapshot_is_not_followed_by_another(
    clusters: list[LoopbackCluster], tmp_path: Path
) -> None:
    """Else a member that takes longer for a snapshot than others need for the next one would never catch up."""
    cluster = LoopbackCluster(tmp_path, snapshot_entries=40)
    clusters.append(cluster)
    await cluster.start()
    epoch = await cluster.register()
    leader = await cluster.leader()
    behind = next(member.node_id for member in await cluster.followers())
    await cluster.stop(behind)
    # Nothing more than a quarter is kept for whoever is not heard any more.
    core = leader.core
    async with asyncio.timeout(20):
        while core.first_index < _transfer(leader, behind).match + 10 or core.snapshot.index - core.first_index > 10:
            await cluster.allocate(epoch, 20)

    part, read = threading.Semaphore(0), leader.storage.catalog.read_chunk

    def in_parts(snapshot: SnapshotId, offset: int, size: int) -> tuple[bytes, bool]:
        part.acquire()
        return read(snapshot, offset, min(size, 16))

    leader.storage.catalog.read_chunk = in_parts  # type: ignore[method-assign]
    await cluster.start(behind)
    await eventually(lambda: _transfer(leader, behind).snapshot is not None)
    sent, taken = _transfer(leader, behind).snapshot, leader.keeper.taken
    for _ in range(9):
        part.release()
        await cluster.allocate(epoch, 5)
    await eventually(lambda: leader.keeper.taken == taken + 1)
    assert _transfer(leader, behind).snapshot == sent
    for _ in range(1000):
        part.release()

    member = cluster.members[behind]
    await eventually(lambda: member.core.applied == leader.core.applied)
    assert member.keeper.installed == 1


def _transfer(leader: ClusterMember, peer: int) -> Progress:
    assert leader.core.leadership is not None
    return leader.core.leadership.progress[peer]


async def test_many_allocations_in_few_entries_make_a_snapshot_due(clusters: list[LoopbackCluster]) -> None:
    cluster = await alone(clusters, MemoryFiles(), snapshot_entries=10_000, snapshot_allocations=20)
    epoch = await cluster.register()
    await asyncio.gather(*(cluster.allocate(epoch) for _ in range(30)))
    member = cluster.members[1]
    await eventually(lambda: member.keeper.taken >= 1)
    assert member.core.commit < 20
    await eventually(lambda: len(member.ledger) < 20)
    assert len(await history(member)) == 30


async def test_many_bytes_in_few_entries_make_a_snapshot_due(clusters: list[LoopbackCluster]) -> None:
    cluster = await alone(clusters, MemoryFiles(), snapshot_entries=10_000, snapshot_bytes=20 * (ENTRY_BYTES + 30))
    epoch = await cluster.register()
    member = cluster.members[1]
    await cluster.allocate(epoch, 60)
    await eventually(lambda: member.keeper.taken >= 2)
    core = member.core
    kept = core.log.slice(core.first_index, core.snapshot.index)
    assert 0 < sum(ENTRY_BYTES + len(entry.data) for entry in kept) <= 5 * (ENTRY_BYTES + 30)


def _complaints(member: ClusterMember) -> list[str]:
    """What health tells. The member is ready all the same: it may take hours until a snapshot is tried again."""
    interface = MemberInterface(member)
    assert all(check.ok for check in interface.readiness())
    return interface.describe().reasons


@pytest.mark.parametrize("place", ["archive", "snapshots"])
async def test_a_full_disk_costs_space_and_not_safety(
    clusters: list[LoopbackCluster], caplog: pytest.LogCaptureFixture, place: str
) -> None:
    files = MemoryFiles()
    full = threading.Event()
    full.set()

    def before(kind: str, path: PurePath) -> None:
        if full.is_set() and f"/{place}/" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    files.before = before
    cluster = await alone(clusters, files)
    epoch = await cluster.register()
    assert await cluster.allocate(epoch, 30) == list(range(0, 300, 10))
    member = cluster.members[1]
    await eventually(lambda: "cannot take a snapshot" in caplog.text)
    assert member.keeper.taken == 0
    assert member.core.first_index == 1
    assert not member.ended.done()
    (told,) = _complaints(member)
    assert told.startswith("cannot take a snapshot at index ")
    full.clear()
    await cluster.allocate(epoch, 30)
    await eventually(lambda: member.keeper.taken >= 1)
    await eventually(lambda: _complaints(member) == [])
    assert [block.first for block in await history(member)] == list(range(0, 600, 10))


@pytest.mark.parametrize("full", [False, True])
async def test_while_one_is_made_the_loop_has_its_turn_sooner(clusters: list[LoopbackCluster], full: bool) -> None:
    files = MemoryFiles()
    seen: list[float] = []

    def before(kind: str, path: PurePath) -> None:
        if "/snapshots/" in str(path):
            seen.append(sys.getswitchinterval())
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")

    files.before = before
    cluster = await alone(clusters, files)
    await cluster.allocate(await cluster.register(), 30)
    keeper = cluster.members[1].keeper
    await eventually(lambda: (keeper.failure is not None) if full else keeper.taken > 0)
    await keeper.stop()
    assert seen == [pytest.approx(SHORT_SECONDS)] * len(seen)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)


async def test_a_stop_does_not_wait_for_the_pauses_of_a_snapshot(
    clusters: list[LoopbackCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = asyncio.Event()
    loop = asyncio.get_running_loop()
    pause = Pace.rest

    def noted(made: Pace) -> None:
        loop.call_soon_threadsafe(rests.set)
        pause(made)

    monkeypatch.setattr(Pace, "rest", noted)
    monkeypatch.setattr(pace, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "REST_SECONDS", 60.0)
    cluster = await alone(clusters, MemoryFiles())
    await cluster.allocate(await cluster.register(), 30)
    keeper = cluster.members[1].keeper
    async with asyncio.timeout(10):
        await rests.wait()
        assert keeper.taken == 0
        await keeper.stop()
    assert keeper.taken == 1


async def test_an_archive_that_contradicts_itself_ends_the_member(clusters: list[LoopbackCluster]) -> None:
    files = MemoryFiles()
    cluster = await alone(clusters, files)
    epoch = await cluster.register()
    member = cluster.members[1]
    await cluster.allocate(epoch, 2)
    member.ledger._recent.reverse()
    assert isinstance(await fault_while_allocating(member, epoch), ArchiveError)
    assert member.core.first_index == 1


async def test_a_compaction_that_breaks_an_invariant_ends_the_member(
    clusters: list[LoopbackCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await alone(clusters, MemoryFiles())
    member = cluster.members[1]
    epoch = await cluster.register()
    monkeypatch.setattr(RaftCore, "tail", lambda _, high, *__: high + 30)  # what no snapshot covers would be dropped
    assert "R12" in str(await fault_while_allocating(member, epoch))
    assert member.core.first_index == 1


# What a leader sends.


async def follower(clusters: list[LoopbackCluster]) -> ClusterMember:
    """Member 1 of three; the two others never start, and the test speaks for member 2."""
    cluster = LoopbackCluster(Path("/m"), voters=3)
    clusters.append(cluster)
    files = MemoryFiles()
    files.make_directory(PurePath("/m/member-1"))
    await cluster.start(1, files=files)
    return cluster.members[1]


def image(index: int, blocks: int) -> StateImage:
    machine = StateMachine(CLUSTER_ID, 10)
    machine.replay([RegisterBrokerRecord(1, 0, "one")])
    machine.replay([AllocateProducerIdsRecord(1, 0, 10 * n + 9, 10 * n, 10, 0) for n in range(blocks)])
    return machine.image(index, 3)


def chunks(data: bytes, snapshot: SnapshotId, size: int = 100) -> list[Message]:
    return [
        InstallSnapshot(5, LEADER, 1, snapshot, offset, data[offset : offset + size], offset + size >= len(data))
        for offset in range(0, len(data), size)
    ]


def names(member: ClusterMember) -> list[str]:
    storage = member.storage
    return [snapshot.name for snapshot in storage.catalog.ids()]


async def test_a_leaders_snapshot_replaces_state_and_log(clusters: list[LoopbackCluster]) -> None:
    member = await follower(clusters)
    member.keeper.failure = "an earlier one could not be taken"
    wanted = image(40, blocks=7)
    snapshot = SnapshotId(40, 3)
    member.driver.received(chunks(snapshot_file(CLUSTER_ID, wanted), snapshot))
    await eventually(lambda: member.keeper.installed == 1)
    assert "an earlier one could not be taken" not in MemberInterface(member).describe().reasons
    assert member.machine.image(40, 3) == wanted
    core = member.core
    assert (core.snapshot, core.commit, core.applied, core.last_index) == (snapshot, 40, 40, 40)
    assert member.writer.wal.next_index == 41
    assert names(member) == ["snapshot-00000000000000000040-0000000003.snap"]
    page = await MemberInterface(member).blocks(-1, 10)
    assert (page.blocks, page.complete_from) == ([], 70)
    assert not member.ended.done()


@pytest.mark.parametrize("damage", ["flipped", "another cluster", "another index"])
async def test_an_unusable_snapshot_changes_nothing_and_is_sent_anew(
    clusters: list[LoopbackCluster], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    member = await follower(clusters)
    good = snapshot_file(CLUSTER_ID, image(40, blocks=7))
    bad = {
        "flipped": good[:-5] + bytes([good[-5] ^ 1]) + good[-4:],
        "another cluster": snapshot_file("another", image(40, blocks=7)),
        "another index": snapshot_file(CLUSTER_ID, image(41, blocks=7)),
    }[damage]
    snapshot = SnapshotId(40, 3)
    before = member.machine.image(0, 0)
    member.driver.received(chunks(bad, snapshot))
    await eventually(lambda: "the leader's snapshot is unusable" in caplog.text)
    assert names(member) == []
    assert member.machine.image(0, 0) == before
    assert member.writer.wal.next_index == 1

    def installed() -> bool:
        member.driver.received(chunks(good, snapshot))
        return member.keeper.installed == 1

    await eventually(installed)
    assert member.machine.producer_ids.next_producer_id == 70
    assert not member.ended.done()


async def test_a_transfer_that_starts_over_leaves_no_half_of_the_first(clusters: list[LoopbackCluster]) -> None:
    member = await follower(clusters)
    old, new = snapshot_file(CLUSTER_ID, image(30, blocks=3)), snapshot_file(CLUSTER_ID, image(40, blocks=7))
    member.driver.received(chunks(old, SnapshotId(30, 3))[:2])
    parts = chunks(new, SnapshotId(40, 3))
    member.driver.received([parts[0], parts[0], parts[2], *parts[1:]])
    await eventually(lambda: member.keeper.installed == 1)
    assert member.machine.producer_ids.next_producer_id == 70
    assert not [
        name for name in member.storage.catalog._files.listdir(PurePath("/m/member-1/snapshots")) if "tmp" in name
    ]


async def test_an_older_state_from_a_leader_ends_the_member(clusters: list[LoopbackCluster]) -> None:
    """S6: the next ID never goes back, whoever says so."""
    member = await follower(clusters)
    ahead = image(20, blocks=9)
    member.driver.received(chunks(snapshot_file(CLUSTER_ID, ahead), SnapshotId(20, 3)))
    await eventually(lambda: member.keeper.installed == 1)
    behind = msgspec.structs.replace(image(40, blocks=7), next_offset=50)
    member.driver.received(chunks(snapshot_file(CLUSTER_ID, behind), SnapshotId(40, 3)))
    async with asyncio.timeout(10):
        fault = await member.ended
    assert "S6: a snapshot at index 40 would move the next producer ID back from 90 to 70" in str(fault)
    assert member.machine.producer_ids.next_producer_id == 90
