"""The price of durability under load, and that what is scraped can be read."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.cli.local_cluster import LocalCluster, Member
from tests.support.cluster import (
    allocate,
    bring_back,
    followers,
    labelled,
    metrics,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call
from tests.support.metrics_page import differences, exposed, listed

CALLERS = 64
CALLS_EACH = 60
MAX_SYNCS_PER_ALLOCATION = 0.15
"""Sixty-four callers fill a batch; one sync each would be 1.0, and a batch of 64 is 0.016."""


async def test_one_sync_serves_many_allocations(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    epoch = register(leader, 70, "metrics").json()["broker_epoch"]
    before = metrics(leader)
    starts: list[int] = []

    async def caller(session: aiohttp.ClientSession) -> None:
        for _ in range(CALLS_EACH):
            body = {"broker_id": 70, "broker_epoch": epoch}
            async with session.post(f"{leader.http}/v1/producer-ids/allocate", json=body) as answer:
                assert answer.status == 200, await answer.text()
                starts.append((await answer.json())["producer_id_start"])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(caller(session) for _ in range(CALLERS)))
    after = metrics(leader)
    assert len(set(starts)) == CALLERS * CALLS_EACH
    syncs = after["pidkeeper_raft_fsyncs_total"] - before["pidkeeper_raft_fsyncs_total"]
    batches = after["pidkeeper_raft_batches_total"] - before["pidkeeper_raft_batches_total"]
    assert 0 < syncs / len(starts) <= MAX_SYNCS_PER_ALLOCATION
    assert syncs >= 1
    assert batches <= len(starts)
    answered = after["pidkeeper_allocation_duration_seconds_count"]
    assert answered - before["pidkeeper_allocation_duration_seconds_count"] == len(starts)
    assert after["pidkeeper_ids_next_id"] - before["pidkeeper_ids_next_id"] == 1000 * len(starts)


@pytest.mark.parametrize("kind", ["controller", "agent"])
def test_every_sample_has_a_help_text_and_a_prefix(healthy: LocalCluster, kind: str) -> None:
    member = healthy.layout.agents[0] if kind == "agent" else healthy.leader()
    answer = call(member.http, "GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert len(families) >= 15
    for family in families:
        assert family.documentation, f"{family.name} says nothing of itself"
        assert family.name.startswith(("pidkeeper_", "process_", "python_")), family.name
    names = [family.name for family in families]
    assert len(names) == len(set(names))


def families(member: Member) -> list[Metric]:
    return list(text_string_to_metric_families(call(member.http, "GET", "/metrics").body.decode()))


def test_the_page_of_metrics_says_what_controllers_and_agents_expose(healthy: LocalCluster) -> None:
    leader, agent = healthy.leader(), healthy.layout.agents[0]
    epoch = register(leader, 71, "page").json()["broker_epoch"]
    assert allocate(leader, 71, epoch).status == 200
    wait_until(lambda: len(labelled(leader, "pidkeeper_raft_peer_rtt_seconds_count")) == 2, "acknowledgements of both")
    every, follower = listed("Controllers and agents"), families(followers(healthy, leader)[0])
    of_leaders = listed("The leader")
    page = every | listed("Controllers") | listed("Kafka's protocol at controllers") | of_leaders
    assert differences(page, exposed([*follower, *families(leader)])) == []
    assert exposed(families(leader)).keys() - exposed(follower).keys() == of_leaders.keys()
    assert differences(every | listed("Agents"), exposed(families(agent))) == []


def test_sizes_and_times_of_files_are_those_on_disk(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    samples = metrics(leader)
    assert samples["pidkeeper_raft_log_bytes"] >= 1024 * 1024
    assert samples["pidkeeper_disk_free_bytes"] > 0
    assert samples["pidkeeper_raft_fsync_duration_seconds_count"] > 0
    assert samples["pidkeeper_archive_gap"] == 0
    assert (samples["pidkeeper_snapshot_bytes"], "pidkeeper_snapshot_timestamp_seconds" in samples) == (0, False)


def test_an_agent_says_when_it_last_got_a_block(healthy: LocalCluster) -> None:
    got = metrics(healthy.layout.agents[0])["pidkeeper_agent_last_success_timestamp_seconds"]
    assert time.time() - 3600 < got <= time.time() + 1


def test_a_member_whose_history_begins_late_shows_a_gap(tmp_path: Path) -> None:
    options = {"snapshot_entries": 20}
    with running_cluster(tmp_path, controller_options=options) as cluster:
        leader = cluster.leader()
        late = followers(cluster, leader)[0]
        epoch = register(leader, 1, "gap").json()["broker_epoch"]
        cluster.kill(late)
        for _ in range(80):
            assert allocate(leader, 1, epoch).status == 200
        wait_until(lambda: metrics(leader)["pidkeeper_archive_end_id"] > 40_000, "the archive of the leader")
        taken = metrics(leader)
        assert (taken["pidkeeper_archive_gap"], taken["pidkeeper_raft_snapshots_taken_total"] >= 2) == (0, True)
        bring_back(cluster)
        (late,) = [controller for controller in cluster.layout.controllers if controller.id == late.id]
        wait_until(lambda: metrics(late)["pidkeeper_raft_snapshots_installed_total"] == 1, "a snapshot of the leader")
        wait_until(lambda: metrics(late)["pidkeeper_snapshot_bytes"], "the size of it")
        shown = metrics(late)
        assert shown["pidkeeper_archive_gap"] == 1
        assert time.time() - 3600 < shown["pidkeeper_snapshot_timestamp_seconds"] <= time.time() + 1
