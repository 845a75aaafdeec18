"""Whom a fault strikes when it begins, and when a cluster is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.cli.local_cluster import member_name
from tests.chaos.course import Course, aim
from tests.chaos.faults.processes import KINDS
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.plan import Planned, Target
from tests.chaos.small_stage import kind_of, small_cluster, stage_of
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.cluster import followers, wait_until

KILL = kind_of(KINDS, "kill")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Of a cluster that nobody has started: a leader, two followers, two agents."""
    stage = Stage(ChaosCluster(tmp_path, agents=2))
    stage.leader_id = stage.cluster.layout.controllers[1].id
    return stage


def struck(stage: Stage, target: Target) -> str | None:
    aimed = aim(stage, Planned("kill", target, 0.0, 1.0, 0, 0.5, alone=False), KILL)
    if aimed is None:
        return None
    member = stage.chosen(aimed)
    assert member is not None
    return member_name(member)


def test_whom_it_is_planned_for_is_struck(stage: Stage) -> None:
    assert [struck(stage, target) for target in KILL.targets] == ["controller-2", "controller-1", "agent-1"]


def test_another_one_is_struck_when_that_one_is_down(stage: Stage) -> None:
    stage.down = {"controller-2", "controller-1"}
    assert struck(stage, Target.LEADER) == "controller-3"
    stage.down |= {"controller-3", "agent-1"}
    assert struck(stage, Target.LEADER) == "agent-2"


def test_nobody_is_struck_when_all_are_down(stage: Stage) -> None:
    stage.down = {member_name(member) for member in stage.cluster.members()}
    assert struck(stage, Target.AGENT) is None


def test_the_whole_cluster_is_struck_whoever_is_down(stage: Stage) -> None:
    stage.down = {member_name(member) for member in stage.cluster.members()}
    planned = Planned("kill_all", Target.CLUSTER, 0.0, 1.0, 0, 0.5, alone=False)
    assert aim(stage, planned, kind_of(KINDS, "kill_all")) == planned


def test_a_quorum_without_one_of_its_votes_is_not_whole(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        stage = stage_of(cluster)
        course = Course(stage, KINDS, LedgerKeeper(cluster, tmp_path))
        wait_until(course._has_its_leader_and_all_votes, "a quorum in which all votes count")
        lost = followers(cluster, cluster.leader())[0]
        cluster.kill(lost)
        wait_until(lambda: not course._has_its_leader_and_all_votes(), "a quorum that lacks a vote")
        cluster.start(lost)
        wait_until(course._has_its_leader_and_all_votes, "a quorum in which all votes count again")
