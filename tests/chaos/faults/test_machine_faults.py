"""Disks, files and certificates of real members go bad: each fault bites, and says so, and is undone."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.faults import full_disks, lost_disks
from tests.chaos.faults.full_disks import DISK_BYTES, SMALL_LOG, small_disks, why_no_small_disks
from tests.chaos.faults.lost_disks import OldDisk, all_follow, end_of_log, told_by_others
from tests.chaos.looking import sample, until
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, ready, small_cluster, stage_of, victim
from tests.chaos.stage import ChaosCluster, Stage
from tests.integration.test_disk_faults import many_registrations
from tests.support.checking_client import CheckingClient
from tests.support.cluster import WAIT_SECONDS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    directory = tmp_path_factory.mktemp("machine")
    with small_disks(directory, (1, 2, 3)), small_cluster(directory, **SMALL_LOG) as cluster:
        yield cluster


async def test_a_full_disk_is_told_by_its_member_and_nothing_is_lost(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    if (reason := why_no_small_disks(stage)) is not None:
        pytest.skip(reason)
    fault = fault_of(stage, kind_of(full_disks.KINDS, "full_disk"), Target.FOLLOWER)
    with CheckingClient(cluster) as client:
        await asyncio.to_thread(client.more)
        await fault.begin()
        assert os.statvfs(victim(fault).data_dir).f_bavail == 0
        with many_registrations(cluster):
            assert await until(lambda: bool(fault._log.lines("no room")), WAIT_SECONDS)  # type: ignore[attr-defined]
        await asyncio.to_thread(client.more)
        await fault.end()
        assert await fault.bites() > 0
        await ready(stage)
        await asyncio.to_thread(client.more)
    client.check()


async def test_a_disk_that_nobody_writes_to_may_be_full_unnoticed(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    if (reason := why_no_small_disks(stage)) is not None:
        pytest.skip(reason)
    fault = fault_of(stage, kind_of(full_disks.KINDS, "full_disk"), Target.FOLLOWER)
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 0


def test_without_small_disks_none_is_filled(tmp_path: Path) -> None:
    assert "no small disks" in str(why_no_small_disks(Stage(ChaosCluster(tmp_path))))


def test_small_disks_are_gone_afterwards(tmp_path: Path) -> None:
    with small_disks(tmp_path, [1]) as reason:
        assert reason is not None or os.path.ismount(tmp_path / "data" / "controller-1")
    assert not os.path.ismount(tmp_path / "data" / "controller-1")


def test_without_ext4_a_small_disk_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if shutil.which("mkfs.ext4") is not None:
        pytest.skip("mkfs.ext4 is where mount is")
    with small_disks(tmp_path, [1]) as reason:
        if reason is not None:
            pytest.skip(reason)
        path = tmp_path / "data" / "controller-1"
        (mount,) = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {path} " in line]
        assert mount.split()[2] == "tmpfs"
        assert shutil.disk_usage(path).total == DISK_BYTES


async def test_a_member_whose_disk_is_lost_joins_again_on_a_blank_one(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(lost_disks.KINDS, "lost_disk"), Target.LEADER)
    with CheckingClient(cluster) as client:
        await asyncio.to_thread(client.more)
        await fault.begin()
        assert not await asyncio.to_thread(os.listdir, victim(fault).data_dir)
        await asyncio.to_thread(client.more)
        await fault.end()
        assert await fault.bites() == 1
        await ready(stage)
        assert sample(cluster, victim(fault), "pidkeeper_raft_recovering") == 0
        await asyncio.to_thread(client.more)
    client.check()


async def test_a_killed_member_that_kept_its_disk_did_not_lose_it(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(lost_disks.KINDS, "lost_disk"), Target.FOLLOWER)
    await stage.kill(victim(fault))
    await stage.start(victim(fault))
    await ready(stage)
    assert not fault._log.lines(lost_disks.JOINED)  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", [Target.LEADER, Target.FOLLOWER])
async def test_a_member_on_an_old_disk_catches_up_or_stops_and_lacks_nothing_at_the_end(
    cluster: ChaosCluster, target: Target
) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(lost_disks.KINDS, "old_disk"), target, seconds=30.0)
    assert isinstance(fault, OldDisk)
    with CheckingClient(cluster) as client:
        await fault.begin()
        while not (fault.caught_up or fault.stopped()):
            await asyncio.to_thread(client.more)
        await fault.end()
        assert await fault.bites() == 1
        await ready(stage)
        await asyncio.to_thread(client.more)
        committed = sample(cluster, cluster.leader(), "pidkeeper_raft_commit_index")
        assert committed is not None
        assert await until(lambda: (_applied(fault) or 0) >= committed, WAIT_SECONDS)
    client.check()


async def test_a_disk_that_was_put_back_has_what_the_copy_had(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(lost_disks.KINDS, "old_disk"), Target.FOLLOWER)
    assert isinstance(fault, OldDisk)
    member = victim(fault)
    await stage.kill(member)
    await asyncio.to_thread(shutil.copytree, fault.data, fault.copy)
    copied = _log_in(fault.copy)
    assert not fault.restore(), "it lacks nothing, for nothing came since"
    assert _log_in(fault.data) == copied
    await stage.start(member)
    with CheckingClient(cluster) as client:
        await ready(stage)
        await asyncio.to_thread(client.more)
        committed = sample(cluster, cluster.leader(), "pidkeeper_raft_commit_index")
        assert committed is not None
        assert await until(lambda: (_applied(fault) or 0) >= committed, WAIT_SECONDS)
        await stage.kill(member)
        assert fault.restore()
        assert _log_in(fault.data) == copied
        await asyncio.to_thread(lost_disks.wipe, fault.data)
        await stage.start(member)
        await ready(stage)
    client.check()


async def test_no_old_disk_is_put_back_unless_all_others_follow_and_have_everything(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    leader = cluster.leader()
    one, other = (member for member in cluster.layout.controllers if member is not leader)
    end = end_of_log(told_by_others(cluster, one))
    assert end is not None
    assert end_of_log(told_by_others(cluster, leader)) is None
    assert not all_follow(told_by_others(cluster, leader), 0, without=leader.id), "nobody else leads"
    assert await until(lambda: all_follow(told_by_others(cluster, one), end, without=one.id), WAIT_SECONDS)
    told = told_by_others(cluster, one)
    assert not all_follow(told, end + 10**9, without=one.id)
    newer = {other.id: told[other.id] | {"term": told[leader.id]["term"] + 1}}
    assert not all_follow({**told, **newer}, 0, without=one.id)
    await stage.kill(other)
    told = told_by_others(cluster, one)
    assert not all_follow(told, 0, without=one.id), "what only a killed member and this one hold would be lost"


def _log_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "wal").iterdir()}


def _applied(fault: OldDisk) -> float | None:
    return sample(fault.stage.cluster, victim(fault), "pidkeeper_raft_applied_index")
