"""Real client libraries as outside witnesses. The fixture `agents` is all that ties them to a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from tests.support.agent_process import AgentProcess, RunningAgent, agent_process
from tests.support.stub_controller import StubQuorum

ADDRESSES = "PIDKEEPER_TEST_AGENTS"
"""Names agents that run already, as `kafka=http` pairs with commas between; without it two are started here."""


@pytest.fixture
async def agents() -> AsyncIterator[list[RunningAgent]]:
    if ADDRESSES in os.environ:
        pairs = (pair.split("=", 1) for pair in os.environ[ADDRESSES].split(","))
        yield [RunningAgent(kafka, http) for kafka, http in pairs]
        return
    async with contextlib.AsyncExitStack() as stack:
        quorum = await stack.enter_async_context(StubQuorum(3))
        controllers = ",".join(quorum.urls)
        running: list[AgentProcess] = [
            await stack.enter_async_context(agent_process(broker_id=number, controllers=controllers))
            for number in (1, 2)
        ]
        yield [await agent.ready() for agent in running]
