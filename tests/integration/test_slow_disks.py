"""Disks that hang or are slow in syncs or reads, without any error: who leads, what is told, and how a member stops."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.slow_disk import SlowDiskCluster
from pidkeeper.cli.local_cluster import Controller
from tests.support.checking_client import CheckingClient
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    allocate,
    bring_back,
    exit_code,
    followers,
    log_of,
    metrics,
    new_leader,
    quorum,
    register,
    wait_until,
)
from tests.support.http_calls import call

HANGS = float("inf")
HUNG_SECONDS = 2.0
"""How long a read hangs before it is looked at what became of the leader: several of the longest election timeouts."""

STOP_SECONDS = 5.0
"""Within which a signal is obeyed, whatever the disk does."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowDiskCluster]:
    cluster = SlowDiskCluster(tmp_path_factory.mktemp("slow"), agents=0, controller_options=CONTROLLER_OPTIONS)
    try:
        bring_back(cluster)
        yield cluster
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@pytest.fixture
def cluster(shared: SlowDiskCluster) -> Iterator[SlowDiskCluster]:
    bring_back(shared)
    yield shared
    shared.speed_up(*shared.members())


def trouble(member: Controller) -> str:
    """Why the member is not ready as far as the pace of its disk is concerned; nothing if it is."""
    answer = call(member.http, "GET", "/readyz/disk_pace")
    return answer.body.decode() if answer.status == 503 else ""


def told_of(cluster: SlowDiskCluster, member: Controller) -> tuple[int, int]:
    """How often the member's log tells that its disk stalls, and that it keeps pace again."""
    log = log_of(cluster, member)
    return log.count("the disk stalls: a write of the log takes longer than"), log.count("the disk keeps pace again")


def test_a_leader_whose_disk_hangs_hands_over_and_says_why(cluster: SlowDiskCluster) -> None:
    old = cluster.leader()
    handovers, stalls = metrics(old)["pidkeeper_raft_disk_handovers_total"], told_of(cluster, old)
    with CheckingClient(cluster) as client:
        client.more()
        cluster.slow_down(HANGS, old)
        new = new_leader(cluster, old)
        client.more()
        told = wait_until(lambda: trouble(old), "the member to tell of its disk")
        assert "the disk is slow: a write of the log took" in told
        description = quorum(old)
        assert (description["healthy"], description["leader_id"]) == (False, new.id)
        assert any("the disk is slow" in reason for reason in description["reasons"])
        assert call(old.http, "GET", "/livez").status == 200
        found = metrics(old)
        assert found["pidkeeper_raft_disk_slow"] == 1
        assert found["pidkeeper_raft_log_write_age_seconds"] >= 1
        assert found["pidkeeper_raft_disk_handovers_total"] > handovers
        assert trouble(new) == ""
        cluster.speed_up(old)
        wait_until(lambda: cluster.ready(old), "the member to be ready again")
        assert cluster.leader().id == new.id
        client.more()
    client.check()
    assert told_of(cluster, old) == (stalls[0] + 1, stalls[1] + 1)


def test_who_has_just_stalled_does_not_lead_next(cluster: SlowDiskCluster) -> None:
    """A disk that hangs once soon hangs again, so the other one leads although both hold the log."""
    stalled = cluster.leader()
    with CheckingClient(cluster) as client:
        client.more()
        cluster.slow_down(HANGS, stalled)
        second = new_leader(cluster, stalled)
        client.more()
        cluster.speed_up(stalled)
        wait_until(lambda: metrics(stalled)["pidkeeper_raft_log_write_age_seconds"] == 0, "the writes to end")
    client.check()
    # Nobody asks meanwhile: whoever has an entry that the other one lacks would have to lead.
    third = next(one for one in followers(cluster, second) if one.id != stalled.id)
    wait_until(
        lambda: len({quorum(one)["log_end_index"] for one in (stalled, second, third)}) == 1, "both to hold the log"
    )
    cluster.kill(second)
    assert new_leader(cluster, second).id == third.id
    with CheckingClient(cluster) as client:
        client.more()
        bring_back(cluster)
    client.check()


def test_equally_slow_disks_keep_their_leader_and_blocks_keep_coming(cluster: SlowDiskCluster) -> None:
    leader, controllers = cluster.leader(), cluster.layout.controllers
    epoch = register(leader, 31, "slow").json()["broker_epoch"]
    term, handovers = quorum(leader)["term"], metrics(leader)["pidkeeper_raft_disk_handovers_total"]
    cluster.slow_down(2.0, *controllers)
    try:
        answers = [allocate(leader, 31, epoch) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 200]
        told = quorum(leader)["reasons"]
        assert any("it leads on until a majority of the other voters is faster" in reason for reason in told)
        assert call(leader.http, "GET", "/readyz").status == 200, "somebody is ready where all disks are slow"
    finally:
        cluster.speed_up(*controllers)
    description = quorum(leader)
    assert (description["role"], description["term"]) == ("leader", term)
    assert metrics(leader)["pidkeeper_raft_disk_handovers_total"] == handovers


def test_a_followers_hanging_disk_costs_nothing(cluster: SlowDiskCluster) -> None:
    leader = cluster.leader()
    slow = followers(cluster, leader)[0]
    term = quorum(leader)["term"]
    cluster.slow_down(HANGS, slow)
    with CheckingClient(cluster) as client:
        client.more()
        wait_until(lambda: trouble(slow), "the follower to tell of its disk")
        client.more()
        assert (cluster.leader().id, quorum(leader)["term"]) == (leader.id, term)
        assert cluster.ready(leader)
    client.check()


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_whose_disk_hangs_obeys_a_signal(cluster: SlowDiskCluster, leads: bool) -> None:
    leader = cluster.leader()
    member = leader if leads else followers(cluster, leader)[0]
    # Before there is load, and the leader's first: one that has written what the others have not would write no more.
    cluster.slow_down(HANGS, member, *(followers(cluster, leader) if leads else []))
    with CheckingClient(cluster) as client:
        wait_until(lambda: metrics(member)["pidkeeper_raft_disk_slow"] == 1, "the disk to count as slow")
        assert (quorum(member)["role"] == "leader") == leads
        signalled = time.monotonic()
        cluster.signal(member, signal.SIGTERM)
        assert exit_code(cluster, member) == 1
        assert time.monotonic() - signalled < STOP_SECONDS
        assert "this process leaves as if it had crashed" in cluster.log_end(member)
        cluster.speed_up(*cluster.layout.controllers)
        bring_back(cluster)
        client.more()
    client.check()


@contextlib.contextmanager
def hanging_transfer(directory: Path) -> Iterator[tuple[SlowDiskCluster, Controller]]:
    """A leader that reads its snapshot for a member with a blank disk, from a disk whose reads hang for a while now."""
    options = CONTROLLER_OPTIONS | {"snapshot_entries": 40}
    cluster = SlowDiskCluster(directory, agents=0, controller_options=options)
    try:
        bring_back(cluster)
        leader = cluster.leader()
        blank = followers(cluster, leader)[0]
        with CheckingClient(cluster) as client:
            client.more()
            wait_until(lambda: quorum(leader)["snapshot_index"] > 0, "a snapshot of the leader")
            term = quorum(leader)["term"]
            cluster.kill(blank)
            shutil.rmtree(blank.data_dir)
            cluster.slow_reads_down(HANGS, leader)
            cluster.start(blank)
            wait_until(lambda: read_age(leader) >= HUNG_SECONDS, "a read of the snapshot to hang")
            assert (cluster.leader().id, quorum(leader)["term"]) == (leader.id, term)
            client.more()
            yield cluster, leader
            cluster.speed_up(leader)
            bring_back(cluster)
            client.more()
        client.check()
        assert metrics(blank)["pidkeeper_raft_snapshots_installed_total"] >= 1
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def read_age(member: Controller) -> float:
    """For how long the member has been reading a part of a snapshot."""
    return metrics(member)["pidkeeper_raft_chunk_read_age_seconds"]


def test_a_leader_whose_reads_hang_leads_on_and_says_so(tmp_path: Path) -> None:
    with hanging_transfer(tmp_path) as (cluster, leader):
        term, changes = quorum(leader)["term"], metrics(leader)["pidkeeper_raft_leader_changes_total"]
        epoch = register(leader, 31, "reads").json()["broker_epoch"]
        assert [allocate(leader, 31, epoch).status for _ in range(20)] == [200] * 20
        assert "the disk hangs: reading a part of a snapshot for member" in " ".join(quorum(leader)["reasons"])
        assert call(leader.http, "GET", "/readyz").status == 200
        cluster.speed_up(leader)
        bring_back(cluster)
        assert read_age(leader) < HUNG_SECONDS
        assert (cluster.leader().id, quorum(leader)["term"]) == (leader.id, term)
        assert metrics(leader)["pidkeeper_raft_leader_changes_total"] == changes
    log = log_of(cluster, leader)
    told = ("the disk hangs: reading a part of a snapshot", "the parts of snapshots are read from the disk again")
    assert [log.count(line) for line in told] == [1, 1]


def test_a_leader_whose_reads_hang_obeys_a_signal(tmp_path: Path) -> None:
    with hanging_transfer(tmp_path) as (cluster, leader):
        signalled = time.monotonic()
        cluster.signal(leader, signal.SIGTERM)
        assert exit_code(cluster, leader) == 0
        assert time.monotonic() - signalled < STOP_SECONDS
