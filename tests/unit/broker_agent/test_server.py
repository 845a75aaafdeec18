"""The whole process: start, stop, and the ways in which it refuses to start."""

from __future__ import annotations

import asyncio
import signal
import socket

import aiohttp
import pytest

from protocol.errors import ErrorCode, RequestError
from tests.support.agent_process import agent_process
from tests.support.stub_controller import StubQuorum

SECONDS = 15.0


async def until_ready(http: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS):
        while True:
            async with session.get(http + "/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_graceful_stop_unregisters_and_ends_with_0(number: signal.Signals) -> None:
    async with StubQuorum(1) as quorum, agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
        await until_ready((await agent.addresses()).http)
        assert list(quorum.epochs) == [3]
        agent.process.send_signal(number)
        assert await agent.wait() == 0
        assert quorum.epochs == {}
        assert "unregistered broker 3" in agent.log[-1]


async def test_it_serves_unready_and_stops_with_0_while_no_controller_is_there() -> None:
    async with agent_process(broker_id=3, controllers="http://127.0.0.1:1") as agent:
        http = (await agent.logged(r"HTTP on (\S+)$"))[1]
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"http://{http}/livez")).status == 200
            assert (await session.get(f"http://{http}/readyz")).status == 503
        assert await agent.stop() == 0


@pytest.mark.parametrize("setting", ["http_listen", "kafka_listen"])
async def test_an_address_in_use_is_one_clear_line_and_exit_code_1(setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with agent_process(broker_id=3, controllers="http://127.0.0.1:1", **{setting: address}) as agent:
            assert await agent.wait() == 1
    errors = [line for line in agent.log if "ERROR" in line]
    assert len(errors) == 1
    assert f"{setting}: cannot listen on {address}: " in errors[0]
    assert "Traceback" not in "\n".join(agent.log)


async def test_a_fatal_refusal_ends_with_1_and_says_why() -> None:
    async with StubQuorum(1) as quorum:
        quorum.refusals.append(RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such agent"))
        async with agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
            assert await agent.wait() == 1
    assert agent.log[-1].endswith("CLUSTER_AUTHORIZATION_FAILED: no such agent")


async def test_bad_settings_end_with_2_before_anything_starts() -> None:
    async with agent_process(broker_id=3, controllers="http://127.0.0.1:1", max_bursts=3) as agent:
        assert await agent.wait() == 2
    (line,) = agent.log
    assert "unknown setting max_bursts" in line
