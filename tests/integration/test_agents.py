"""Agents and controllers together: elections under load, stale registrations, one id twice, any order of starts."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pidkeeper.cli.kafka_load import ClaimConnection, ClaimTally, connect
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from tests.support.cluster import (
    bring_back,
    config_of,
    exit_code,
    ledger,
    log_of,
    metrics,
    new_leader,
    pidkeeper,
    register,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import call

CLAIMS_A_SECOND = 5000
CONNECTIONS = 4
DEFAULT_LIMITS: dict[str, Any] = {"limits": {}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("agents")
    with running_cluster(directory, agents=2, controller_options=DEFAULT_LIMITS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


def status(agent: Agent) -> dict[str, Any]:
    """The agent's account of itself."""
    answer: dict[str, Any] = call(agent.http, "GET", "/v1/status").json()
    return answer


@contextlib.asynccontextmanager
async def claiming(agent: Agent) -> AsyncIterator[ClaimTally]:
    """Claim IDs at CLAIMS_A_SECOND, over pipelined connections; at the end every request has its answer."""
    tally = ClaimTally()
    connections = [await connect(agent.kafka, tally) for _ in range(CONNECTIONS)]
    pacing = asyncio.create_task(_pace(connections))
    try:
        yield tally
    finally:
        pacing.cancel()
        await asyncio.wait([pacing])
        await asyncio.to_thread(wait_until, lambda: _drained(connections), "an answer to every request")
        for connection in connections:
            connection.close()
            assert connection.failure is None, connection.failure


def _drained(connections: list[ClaimConnection]) -> bool:
    return not any(connection.outstanding for connection in connections)


async def _pace(connections: list[ClaimConnection]) -> None:
    loop = asyncio.get_running_loop()
    begun, sent = loop.time(), 0
    while True:
        due = int((loop.time() - begun) * CLAIMS_A_SECOND) - sent
        for connection in connections:
            sent += connection.send(due // len(connections) + 1)
        await asyncio.sleep(0.01)


def assert_lawful(cluster: LocalCluster, claimed: dict[int, array[int]]) -> None:
    """No ID twice, and each within a block that the ledger gives to the broker (the key) whose agent handed it out."""
    everything = sorted(producer_id for ids in claimed.values() for producer_id in ids)
    assert len(everything) == len(set(everything)), "handed out twice"
    blocks = ledger(cluster)
    starts = [block["first"] for block in blocks]
    for broker, ids in claimed.items():
        for producer_id in ids:
            block = blocks[bisect_right(starts, producer_id) - 1]
            assert block["first"] <= producer_id <= block["last"], f"{producer_id} is in no block: {block}"
            assert block["broker_id"] == broker, f"agent {broker} handed out {producer_id} of {block}"


async def test_no_claim_fails_while_the_leader_is_killed(cluster: LocalCluster) -> None:
    one, two = cluster.layout.agents
    async with claiming(one) as first, claiming(two) as second:
        for _ in range(2):
            old = cluster.leader()
            before = {agent.id: status(agent)["blocks_received"] for agent in (one, two)}
            await asyncio.to_thread(cluster.kill, old)
            await asyncio.to_thread(new_leader, cluster, old)
            await asyncio.to_thread(
                wait_until,
                lambda before=before: all(
                    status(agent)["blocks_received"] > before[agent.id] + 2 for agent in (one, two)
                ),
                "blocks from the new leader",
            )
            await asyncio.to_thread(bring_back, cluster)
    for tally in (first, second):
        assert tally.claims > 1000
        assert (dict(tally.errors), tally.lost_connections) == ({}, 0)
    assert_lawful(cluster, {one.id: first.ids, two.id: second.ids})
    for agent in (one, two):
        assert metrics(agent)["pidkeeper_agent_claim_errors_total"] == 0
        assert metrics(agent)["pidkeeper_agent_blocks_rejected_total"] == 0


def test_an_agent_whose_epoch_is_stale_registers_anew(cluster: LocalCluster) -> None:
    agent = cluster.layout.agents[0]
    epoch = status(agent)["broker_epoch"]
    leader = cluster.leader()
    ended = call(leader.http, "POST", f"/v1/brokers/{agent.id}/unregister", {"broker_epoch": epoch})
    assert ended.status == 200, ended
    interloper = register(leader, agent.id, str(uuid.uuid4())).json()["broker_epoch"]
    wait_until(lambda: status(agent)["broker_epoch"] > interloper, "the agent to register anew")
    assert cluster.ready(agent)
    assert "registering anew" in log_of(cluster, agent)
    assert metrics(agent)["pidkeeper_agent_registrations_total"] == 2


def test_of_two_agents_with_one_id_the_older_exits(cluster: LocalCluster, tmp_path: Path) -> None:
    older = cluster.layout.agents[1]
    settings = msgspec.toml.decode(config_of(cluster, older).read_bytes())
    with running_cluster(tmp_path, controllers=1, agents=1) as spare:
        # The spare's agent is configured to be a second process of the same broker.
        (newer,) = spare.layout.agents
        spare.kill(newer)
        newer.id = older.id
        spare.agent_options = {"controllers": settings["controllers"]}
        spare.start(newer)
        assert exit_code(cluster, older) == 1
        last_line = log_of(cluster, older).splitlines()[-1]
        assert "DUPLICATE_BROKER_REGISTRATION" in last_line
        assert "stop one of the two processes or give it another broker id" in last_line
        spare.wait_ready(newer, seconds=60)
        assert spare.running(newer)


def test_an_agent_may_start_before_the_controllers(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, agents=1, controller_options=DEFAULT_LIMITS)
    (agent,) = cluster.layout.agents
    try:
        cluster.start(agent)
        wait_until(lambda: cluster.get(agent, "/livez")[0] == 200, "the agent to live")
        assert call(agent.http, "GET", "/readyz").status == 503
        early = call(agent.http, "POST", "/v1/init-producer-id", {})
        assert (early.status, early.json()["code"]) == (503, "COORDINATOR_LOAD_IN_PROGRESS")
        bring_back(cluster)
        claimed = call(agent.http, "POST", "/v1/init-producer-id", {}).json()["producer_id"]
        assert_lawful(cluster, {agent.id: array("q", [claimed])})
        owner = pidkeeper("ids", "owner", str(claimed), "--cluster", tmp_path)
        assert owner.returncode == 0
        assert cluster.stop() == {"agent-1": 0, "controller-1": 0, "controller-2": 0, "controller-3": 0}
    finally:
        cluster.kill(*(member for member in cluster.members() if cluster.running(member)))
