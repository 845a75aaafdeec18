"""Kills, pauses and rolls of real processes: each does what it says, is undone, and says whether it did."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.faults.processes import KINDS
from tests.chaos.looking import STOPPED, process_state, until
from tests.chaos.plan import Target
from tests.chaos.small_stage import fault_of, kind_of, ready, small_cluster, stage_of, victim
from tests.chaos.stage import ChaosCluster
from tests.support.cluster import WAIT_SECONDS, new_leader


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with small_cluster(tmp_path_factory.mktemp("processes"), agents=2) as cluster:
        yield cluster


async def test_a_killed_leader_is_gone_and_comes_back_as_another_process(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "kill"), Target.LEADER)
    killed = victim(fault)
    pid = killed.pid
    assert killed.id == stage.leader_id
    await fault.begin()
    assert not process_state(pid)
    assert new_leader(cluster, killed).id != killed.id
    await fault.end()
    assert killed.pid != pid
    assert await fault.bites() == 1
    await ready(stage)


async def test_a_kill_of_a_process_that_had_ended_by_itself_did_not_bite(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "kill"), Target.AGENT)
    cluster.signal(victim(fault), signal.SIGTERM)
    assert await until(lambda: not cluster.running(victim(fault)), WAIT_SECONDS)
    await fault.begin()
    await fault.end()
    assert await fault.bites() == 0
    assert cluster.running(victim(fault))


async def test_as_many_are_killed_at_once_as_may_be(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "kill_several"), Target.CLUSTER, pick=7)
    await fault.begin()
    dead = [member_name(member) for member in cluster.dead()]
    assert sorted(dead) == sorted(fault.victims)
    assert [name.partition("-")[0] for name in sorted(dead)] == ["agent", "controller"]
    await fault.end()
    assert await fault.bites() == 2


async def test_all_are_killed_at_once_and_come_back(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "kill_all"), Target.CLUSTER)
    await fault.begin()
    assert len(cluster.dead()) == 5
    await fault.end()
    assert await fault.bites() == 5
    await ready(stage)


async def test_as_many_stand_still_at_once_as_may_be(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "pause_several"), Target.CLUSTER, pick=7)
    await fault.begin()
    stood = [member_name(member) for member in cluster.members() if process_state(member.pid) == STOPPED]
    assert sorted(stood) == sorted(fault.victims)
    assert [name.partition("-")[0] for name in sorted(stood)] == ["agent", "controller"]
    await fault.end()
    assert await fault.bites() == 2
    await ready(stage)


@pytest.mark.parametrize("target", [Target.LEADER, Target.AGENT])
async def test_a_paused_process_stands_still_until_the_end(cluster: ChaosCluster, target: Target) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "pause"), target)
    paused = victim(fault)
    pid = paused.pid
    await fault.begin()
    assert process_state(pid) == STOPPED
    assert not cluster.ready(paused)
    await fault.end()
    assert await until(lambda: cluster.ready(paused), WAIT_SECONDS)
    assert paused.pid == pid
    assert await fault.bites() == 1


async def test_a_pause_that_somebody_ends_did_not_bite(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "pause"), Target.FOLLOWER)
    await fault.begin()
    cluster.signal(victim(fault), signal.SIGCONT)
    assert await until(lambda: process_state(victim(fault).pid) != STOPPED, WAIT_SECONDS)
    await fault.end()
    assert await fault.bites() == 0


async def test_a_roll_restarts_one_after_the_other_and_each_stops_with_0(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    pids = {member_name(member): member.pid for member in cluster.members()}
    fault = fault_of(stage, kind_of(KINDS, "rolling_restart"), Target.CLUSTER)
    await fault.begin()
    assert await until(lambda: _all_others(cluster, pids), WAIT_SECONDS)
    # The roll looks for itself whether the last one is ready.
    await fault.hold()
    await fault.end()
    assert await fault.bites() == 5
    assert {cluster.exit_code(member) for member in cluster.members()} == {None}


async def test_a_roll_that_is_broken_off_leaves_everybody_running(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "rolling_restart"), Target.CLUSTER)
    await fault.begin()
    assert await until(lambda: bool(cluster.dead()), WAIT_SECONDS)
    await fault.end()
    assert await fault.bites() < 5
    await ready(stage)


async def test_a_process_that_stops_with_another_code_than_0_is_told(cluster: ChaosCluster) -> None:
    stage = stage_of(cluster)
    fault = fault_of(stage, kind_of(KINDS, "rolling_restart"), Target.CLUSTER)
    first = cluster.member(fault.victims[0])
    cluster.signal(first, signal.SIGSTOP)
    await fault.begin()
    # SIGTERM waits for whoever stands still; SIGKILL does not.
    cluster.signal(first, signal.SIGKILL)
    assert await until(lambda: cluster.ready(first), WAIT_SECONDS)
    await fault.end()
    with pytest.raises(AssertionError, match="controller-1"):
        await fault.bites()


def _all_others(cluster: ChaosCluster, pids: dict[str, int]) -> bool:
    return all(member.pid != pids[member_name(member)] and cluster.ready(member) for member in cluster.members())
