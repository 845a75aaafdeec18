"""Syncs that fail, stall or hang inside of a real member under load: what it does, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from pidkeeper.cli.local_cluster import Member
from tests.chaos.fault import FaultKind
from tests.chaos.faults.disks import KINDS, SyncsFault
from tests.chaos.links.laying import Links
from tests.chaos.links.own_proxies import OwnProxies
from tests.chaos.plan import Planned, Target
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.checking_client import CheckingClient
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    bring_back,
    exit_code,
    log_of,
    metrics,
    new_leader,
    wait_until,
)

pytestmark = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three controllers with the library preloaded. No link is laid: they are connected as ever."""
    directory = tmp_path_factory.mktemp("syncs")
    shim = Shim(directory / "shim")
    cluster = ChaosCluster(directory, (shim,), agents=0, controller_options=CONTROLLER_OPTIONS)
    try:
        bring_back(cluster)
        yield Stage(cluster, Links(cluster, shim, OwnProxies()))
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@pytest.fixture
def stage(shared: Stage) -> Stage:
    """It, with all members ready, and who leads."""
    bring_back(shared.cluster)
    shared.leader_id = shared.cluster.leader().id
    return shared


def fault(stage: Stage, name: str, target: Target, *, strength: float = 0.0) -> SyncsFault:
    made = BY_NAME[name].make(stage, Planned(name, target, 0.0, 1.0, 0, strength, alone=True))
    assert isinstance(made, SyncsFault)
    return made


@contextlib.asynccontextmanager
async def under_load(stage: Stage) -> AsyncIterator[CheckingClient]:
    """Blocks are taken without pause; at the end every one that was given is checked."""
    with CheckingClient(stage.cluster) as client:
        await asyncio.to_thread(client.more)
        yield client
        await asyncio.to_thread(client.more)
    await asyncio.to_thread(bring_back, stage.cluster)
    await asyncio.to_thread(client.check)


@pytest.mark.parametrize("target", [Target.LEADER, Target.FOLLOWER])
async def test_a_member_whose_sync_fails_ends_by_itself_and_is_started_again(stage: Stage, target: Target) -> None:
    hurt = fault(stage, "fsync_fails", target)
    async with under_load(stage) as client:
        await hurt.begin()
        assert await asyncio.to_thread(exit_code, stage.cluster, hurt.member) == 1
        await asyncio.to_thread(client.more)
        await hurt.end()
        assert stage.cluster.running(hurt.member)
        assert await hurt.bites() == 1
    lines = [line for line in log_of(stage.cluster, hurt.member).splitlines() if "CRITICAL" in line]
    assert "Input/output error" in lines[-1]


async def test_a_member_that_still_ends_at_the_end_is_started_once_it_has(stage: Stage) -> None:
    hurt = fault(stage, "fsync_fails", Target.LEADER)
    async with under_load(stage):
        await hurt.begin()
        await asyncio.to_thread(wait_until, lambda: hurt.hit, "a sync to fail")
        await hurt.end()
        assert stage.cluster.running(hurt.member)
        assert await hurt.bites() == 1


async def test_without_a_sync_there_is_no_bite_and_no_restart(stage: Stage) -> None:
    hurt = fault(stage, "fsync_fails", Target.FOLLOWER)
    pid = hurt.member.pid
    await hurt.begin()
    await hurt.end()
    assert await hurt.bites() == hurt.hit == 0
    assert (hurt.member.pid, stage.cluster.running(hurt.member)) == (pid, True)


async def test_syncs_that_stall_take_as_long_as_they_are_told_and_are_counted(stage: Stage) -> None:
    hurt = fault(stage, "fsync_stalls", Target.FOLLOWER, strength=1.0)
    async with under_load(stage) as client:
        await hurt.begin()
        # Of a second and more; healthy ones take milliseconds.
        await asyncio.to_thread(wait_until, lambda: write_age(hurt.member) >= 1, "a write that stalls")
        await asyncio.to_thread(client.more)
        await hurt.end()
        assert await hurt.bites() >= 1


def write_age(member: Member) -> float:
    """For how many seconds the member's oldest write is under way, by its own clock."""
    return metrics(member)["pidkeeper_raft_log_write_age_seconds"]


async def test_a_leader_whose_syncs_hang_is_replaced_and_goes_on_once_it_is_healed(stage: Stage) -> None:
    old = stage.cluster.leader()
    hurt = fault(stage, "fsync_hangs", Target.LEADER)
    async with under_load(stage) as client:
        await hurt.begin()
        await asyncio.to_thread(new_leader, stage.cluster, old)
        await asyncio.to_thread(client.more)
        assert write_age(old) > 0
        await hurt.end()
        await asyncio.to_thread(wait_until, lambda: stage.cluster.ready(old), "the old leader to be ready again")
    assert await hurt.bites() >= 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_without_a_library_the_reason_is_told(shared: Stage, kind: FaultKind) -> None:
    assert kind.why_not(shared) is None
    assert kind.why_not(Stage(shared.cluster)) == "nothing is preloaded into the members"
