"""The whole process: start, stop, and the ways in which it refuses to start."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct

import aiohttp
import pytest

from pidkeeper.broker_agent.server import run_agent
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.process import Ending, ServiceError
from tests.support.agent_process import agent_process
from tests.support.http_calls import address_of
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until
from tests.support.whole_agent import controller_client, make_agent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_graceful_stop_unregisters_and_ends_with_0(number: signal.Signals) -> None:
    async with StubQuorum(1) as quorum, agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
        await agent.ready()
        assert list(quorum.epochs) == [3]
        agent.process.send_signal(number)
        assert await agent.wait() == 0
        assert quorum.epochs == {}
        assert "unregistered broker 3" in agent.log[-2]
        assert "INFO pidkeeper.broker_agent.server stopped" in agent.log[-1]


async def test_it_serves_unready_and_stops_with_0_while_no_controller_is_there() -> None:
    async with agent_process(broker_id=3, controllers="http://127.0.0.1:1") as agent:
        http = (await agent.logged(r"HTTP on (\S+)( |$)"))[1]
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
    errors = [line for line in agent.log if "CRITICAL" in line]
    assert len(errors) == 1
    assert f"{setting}: cannot listen on {address}: " in errors[0]
    assert "Traceback" not in "\n".join(agent.log)


@pytest.mark.parametrize(
    ("code", "ends_with"),
    [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 4), (ErrorCode.DUPLICATE_BROKER_REGISTRATION, 1)],
)
async def test_a_fatal_refusal_ends_the_agent_and_says_why(code: ErrorCode, ends_with: int) -> None:
    async with StubQuorum(1) as quorum:
        quorum.refusals.append(RequestError(code, "no such agent"))
        async with agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
            assert await agent.wait() == ends_with
    assert f"CRITICAL pidkeeper.broker_agent.server {code.name}: no such agent broker=3" in agent.log[-1]


async def test_what_the_agent_raises_ends_the_service() -> None:
    async with StubQuorum(1) as quorum, controller_client(quorum.urls) as client:
        quorum.refusals.append(RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such agent"))
        agent = make_agent(client)
        ending = Ending()

        async def run() -> None:
            async with run_agent(agent, ending):
                fault = await asyncio.wait_for(ending.ended, 10)
                assert fault is not None
                raise fault

        with pytest.raises(ServiceError, match="no such agent"):
            await run()


def init(correlation_id: int, transactional_id: bytes | None) -> bytes:
    name = b"\x00" if transactional_id is None else bytes([len(transactional_id) + 1]) + transactional_id
    body = (
        struct.pack(">hhih", 22, 4, correlation_id, -1) + b"\x00" + name + struct.pack(">iqh", 60_000, -1, -1) + b"\x00"
    )
    return struct.pack(">i", len(body)) + body


async def test_transactions_are_served_and_nothing_overtakes_them() -> None:
    """In the process itself, with the event loop that it runs on."""
    async with StubQuorum(1) as quorum, agent_process(broker_id=3, controllers=quorum.urls[0]) as agent:
        addresses = await agent.ready()
        assert quorum.kafka == {3: addresses.kafka}
        quorum.members[0].answers_after = 0.05
        host, port = address_of(addresses.kafka)
        (reader, writer), (_, hangs_up) = [await asyncio.open_connection(host, port) for _ in range(2)]
        hangs_up.write(init(1, b"t"))
        await until(lambda: len(quorum.transactional) == 1)
        hangs_up.transport.abort()
        names = [None, None, b"t", None, b"u", b"t", None]
        writer.write(b"".join(init(number, name) for number, name in enumerate(names)))
        async with asyncio.timeout(10):
            answers = [struct.unpack(">4xi5xhqhx", await reader.readexactly(26)) for _ in names]
        assert [(number, code) for number, code, _, _ in answers] == [(number, 0) for number in range(len(names))]
        ids = [(pid, epoch) for _, _, pid, epoch in answers]
        assert ids[5] == (ids[2][0], ids[2][1] + 1) == (ids[2][0], 2), "the one that hung up was served, too"
        assert len({pid for pid, _ in ids}) == 6
        writer.close()
        assert await agent.stop() == 0
        assert not [line for line in agent.log if "CRITICAL" in line or "ERROR" in line or "WARNING" in line]


async def test_bad_settings_end_with_2_before_anything_starts() -> None:
    async with agent_process(broker_id=3, controllers="http://127.0.0.1:1", max_bursts=3) as agent:
        assert await agent.wait() == 2
    (line,) = agent.log
    assert "there is no key 'max_bursts'" in line
