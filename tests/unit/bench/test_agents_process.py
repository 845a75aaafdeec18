from __future__ import annotations

import time

from bench.agents_process import AgentsSpec, SimulatedAgent, SimulatedAgents
from pidkeeper.protocol.ids import ProducerIdBlock

SPEC = AgentsSpec(["http://127.0.0.1:1"], "http", 100, 3, 500.0, 2.0)


def ready_agent() -> SimulatedAgent:
    agent = SimulatedAgent(SPEC, 100, [])
    agent.supply.session.broker_epoch = 1
    for first in (0, 1000):
        agent.supply.reserve.offer(ProducerIdBlock(first, 1000))
    agent.claim_what_is_due(10.0)
    assert agent.ready and agent.supply.reserve.claimed == 0, "its clients begin when it is ready"
    return agent


def test_claims_keep_to_their_rate_whenever_they_are_looked_after() -> None:
    agent = ready_agent()
    for now in (10.05, 10.0513, 10.09, 11.0):
        agent.claim_what_is_due(now)
        assert abs(agent.supply.reserve.claimed - (now - 10.0) * 500) <= 1


async def test_claims_that_find_no_id_count_as_failed() -> None:
    agent = ready_agent()
    agent.claim_what_is_due(16.0)
    reserve = agent.supply.reserve
    assert (reserve.claimed, reserve.failed_claims, reserve.remaining) == (2000, 1000, 0)


def test_an_agent_that_is_not_registered_serves_nobody() -> None:
    agent = SimulatedAgent(SPEC, 100, [])
    agent.claim_what_is_due(10.0)
    assert not agent.ready and agent.supply.reserve.failed_claims == 0


async def test_a_status_has_all_agents() -> None:
    agents = SimulatedAgents(SPEC)
    status = agents.status(last=True)
    assert status.claimed == status.failed == status.remaining == [0, 0, 0]
    assert status.wanted == [100_000] * 3
    assert (status.ready, status.ready_seconds, status.rounds["ok"], status.starts) == (0, None, 0, [])
    assert status.cpu_seconds <= time.process_time() + 1
