"""The price of durability under load, and that what is scraped can be read."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import metrics, register
from tests.support.http_calls import call

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
