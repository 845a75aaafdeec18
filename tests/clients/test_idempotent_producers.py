"""Idempotent producers of three client libraries get producer ids from two agents, and no id twice."""

from __future__ import annotations

import asyncio

import aiohttp

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.witnesses import aiokafka_ids, confluent_ids, kafka_python_ids
from tests.support.agent_process import RunningAgent


async def claimed_over_http(http: str, count: int) -> list[int]:
    async with aiohttp.ClientSession() as session:
        ids = []
        for _ in range(count):
            async with session.post(http + "/v1/init-producer-id", json={}) as response:
                assert response.status == 200
                ids.append((await response.json())["producer_id"])
    return ids


async def test_every_library_at_every_agent_gets_ids_and_no_id_comes_twice(agents: list[RunningAgent]) -> None:
    witnesses = []
    for agent in agents:
        witnesses += [
            aiokafka_ids(agent.kafka, 100),
            asyncio.to_thread(confluent_ids, agent.kafka, 10),
            asyncio.to_thread(kafka_python_ids, agent.kafka, 20),
            claimed_over_http(agent.http, 100),
        ]
    by_witness = await asyncio.gather(*witnesses)
    assert [len(ids) for ids in by_witness] == [100, 10, 20, 100] * len(agents)
    ids = [one for some in by_witness for one in some]
    assert len(set(ids)) == len(ids), "a producer id was handed out twice"
    assert min(ids) >= 0


async def test_new_producers_get_ids_while_the_leader_is_killed(cluster: LocalCluster) -> None:
    kafka = [agent.kafka for agent in cluster.layout.agents]
    before = await asyncio.gather(*(aiokafka_ids(address, 20) for address in kafka))
    leader = await asyncio.to_thread(cluster.leader)
    asking = asyncio.gather(
        *(aiokafka_ids(address, 60) for address in kafka),
        *(asyncio.to_thread(confluent_ids, address, 5) for address in kafka),
    )
    await asyncio.to_thread(cluster.kill, leader)
    during = await asking
    ids = [one for some in (*before, *during) for one in some]
    assert len(set(ids)) == len(ids) == 2 * (20 + 60 + 5)
