"""The whole process: start, stop, and the ways in which it refuses to start."""

from __future__ import annotations

import asyncio
import signal
import socket

import aiohttp
import pytest

from broker_agent.agent import Agent
from broker_agent.controller_client import ControllerClient
from broker_agent.prefetch import PrefetchSettings
from broker_agent.server import _on_unhandled, _run_until
from protocol.errors import ErrorCode, RequestError
from protocol.settings import HostPort
from tests.support.agent_process import agent_process
from tests.support.stub_controller import StubQuorum


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_graceful_stop_unregisters_and_ends_with_0(number: signal.Signals) -> None:
    async with StubQuorum(1) as quorum, agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
        await agent.ready()
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


async def test_a_broken_invariant_ends_the_process_and_another_fault_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with ControllerClient(("http://127.0.0.1:1",)) as client:
        agent = Agent(3, client, PrefetchSettings(), kafka=HostPort("127.0.0.1", 1), heartbeat_seconds=1.0)
        running = asyncio.create_task(_run_until(asyncio.Event(), broken, agent))
        _on_unhandled(broken, {"message": "a handler failed", "exception": ValueError("no invariant")})
        assert not broken.done()
        _on_unhandled(broken, {"message": "a handler failed", "exception": AssertionError("A1: 5 does not rise")})
        with pytest.raises(AssertionError, match="A1: 5"):
            await asyncio.wait_for(running, 10)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["a handler failed"] * 2


async def test_bad_settings_end_with_2_before_anything_starts() -> None:
    async with agent_process(broker_id=3, controllers="http://127.0.0.1:1", max_bursts=3) as agent:
        assert await agent.wait() == 2
    (line,) = agent.log
    assert "there is no key 'max_bursts'" in line
