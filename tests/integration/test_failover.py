"""Leaders die, hang and are told to stop while a checking client allocates: nothing twice, nothing lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.support.checking_client import CheckingClient
from tests.support.cluster import (
    allocate,
    bring_back,
    exit_code,
    followers,
    labelled,
    log_of,
    metrics,
    new_leader,
    pause,
    quorum,
    register,
    resume,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("failover")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


def test_the_leader_is_killed_twice_under_load(cluster: LocalCluster) -> None:
    with CheckingClient(cluster) as client:
        client.more()
        for _ in range(2):
            victim = cluster.leader()
            cluster.kill(victim)
            client.more()
            assert cluster.leader().id != victim.id
            bring_back(cluster)
            client.more()
    client.check()
    assert client.unknown > 0, "the kills disturbed no request: nothing was tried"


def test_a_paused_leader_steps_down_and_hands_out_nothing(cluster: LocalCluster) -> None:
    old = cluster.leader()
    epoch = register(old, 77, "paused-leader").json()["broker_epoch"]
    before = allocate(old, 77, epoch).json()
    term = quorum(old)["term"]
    pause(cluster, old)
    try:
        new = new_leader(cluster, old)
        between = allocate(new, 77, epoch).json()
    finally:
        resume(cluster, old)
    # It wakes up in the belief that it leads; whatever it says now, it must not be a block of its old term.
    late = allocate(old, 77, epoch)
    wait_until(lambda: quorum(old)["role"] != "leader" or quorum(old)["term"] > term, "the old leader to step down")
    assert late.status in {421, 504}, late
    assert late.json()["retryable"]
    after = allocate(cluster.leader(), 77, epoch).json()
    starts = [answer["producer_id_start"] for answer in (before, between, after)]
    assert starts == sorted(set(starts)), f"not rising: {starts}"


def elected(member: Controller) -> dict[tuple[str, ...], float]:
    """How often the member began an election, by cause and outcome."""
    found = labelled(member, "pidkeeper_raft_elections_total")
    return {why: count for why, count in found.items() if count}


def lost(member: Controller) -> dict[tuple[str, ...], float]:
    """How often the member lost its leader, by cause."""
    found = labelled(member, "pidkeeper_raft_leader_losses_total")
    return {why: count for why, count in found.items() if count}


def unheard(member: Controller) -> float:
    """How often its leader fell silent: it noticed by itself, or another member did before it."""
    return sum(lost(member).get((cause,), 0) for cause in ("silent", "superseded"))


def test_an_election_is_counted_with_its_cause_and_its_outcome(cluster: LocalCluster) -> None:
    victim = cluster.leader()
    won, losses = ({one.id: look(one) for one in followers(cluster, victim)} for look in (elected, lost))
    cluster.kill(victim)
    new = new_leader(cluster, victim)
    why = ("leader_disconnected", "won")
    assert elected(new).get(why, 0) == won[new.id].get(why, 0) + 1
    assert lost(new).get(("disconnected",), 0) == losses[new.id].get(("disconnected",), 0) + 1
    assert metrics(new)["pidkeeper_raft_election_duration_seconds_count"] == sum(
        count for (_, outcome), count in elected(new).items() if outcome == "won"
    )
    lines = log_of(cluster, new).splitlines()
    assert any(f"member {victim.id} leads no more" in line and "why=disconnected" in line for line in lines)
    voters = ",".join(sorted(str(one.id) for one in followers(cluster, victim)))
    assert any("why=leader_disconnected" in line and line.endswith(f"votes={voters}") for line in lines)


def test_a_leader_that_hangs_and_one_that_hands_over_are_told_apart(cluster: LocalCluster) -> None:
    old = cluster.leader()
    before = {one.id: unheard(one) for one in followers(cluster, old)}
    pause(cluster, old)
    try:
        new = new_leader(cluster, old)
        assert unheard(new) > before[new.id]
    finally:
        resume(cluster, old)
    wait_until(lambda: quorum(old)["leader_id"] == new.id, "the old leader to follow the new one")
    assert {("no_quorum",), ("higher_term",)} & lost(old).keys()
    transfers = lost(new).get(("transfer",), 0)
    assert call(new.http, "POST", "/v1/quorum/transfer", {"target": old.id}).status == 200
    wait_until(lambda: quorum(old)["role"] == "leader", "the transfer")
    wait_until(lambda: quorum(new)["leader_id"] == old.id, "the former leader to follow")
    assert lost(new).get(("transfer",), 0) == transfers + 1
    assert elected(old)["transfer", "won"] >= 1


def test_a_block_that_a_deposed_leader_decided_is_never_acknowledged(healthy: LocalCluster) -> None:
    old = healthy.leader()
    epoch = register(old, 78, "deposed-leader").json()["broker_epoch"]
    end, next_id = quorum(old)["log_end_index"], quorum(old)["next_producer_id"]
    with ThreadPoolExecutor(max_workers=1) as pool:
        # Without followers the leader can decide and write a block, but not commit it, until it notices.
        healthy.kill(*followers(healthy, old))
        undecided = pool.submit(allocate, old, 78, epoch)
        wait_until(lambda: quorum(old)["log_end_index"] > end, "the block to be in the old leader's log")
        pause(healthy, old)
        try:
            assert not undecided.done(), f"answered before it could be committed: {undecided.result()}"
            healthy.start()
            new = new_leader(healthy, old)
            granted = allocate(new, 78, epoch).json()
        finally:
            resume(healthy, old)
        answer = undecided.result()
    assert granted["producer_id_start"] == next_id, "the block in doubt is free, as far as the others know"
    assert (answer.status, answer.json()["code"]) == (421, "NOT_CONTROLLER")
    wait_until(lambda: quorum(old)["next_producer_id"] == next_id + 1000, "the old leader to hold what the others do")


def test_a_leader_is_paused_under_load(cluster: LocalCluster) -> None:
    with CheckingClient(cluster) as client:
        client.more()
        old = cluster.leader()
        pause(cluster, old)
        try:
            new_leader(cluster, old)
            client.more()
        finally:
            resume(cluster, old)
        client.more()
    client.check()


def test_a_leader_told_to_stop_hands_over_and_exits_0(cluster: LocalCluster) -> None:
    with CheckingClient(cluster) as client:
        client.more()
        old = cluster.leader()
        cluster.signal(old, signal.SIGTERM)
        assert exit_code(cluster, old) == 0, cluster.log_end(old)
        client.more()
        assert cluster.leader().id != old.id
    bring_back(cluster)
    client.check()


def test_all_members_are_killed_at_once_three_times(cluster: LocalCluster) -> None:
    with CheckingClient(cluster) as client:
        for _ in range(3):
            client.more()
            cluster.kill(*cluster.layout.controllers)
            handed_out = client.highest()
            bring_back(cluster)
            client.more()
            assert quorum(cluster.leader())["next_producer_id"] > handed_out
    client.check()
    for controller in cluster.layout.controllers:
        assert metrics(controller)["pidkeeper_raft_recovering"] == 0, "a kill alone loses nothing"
