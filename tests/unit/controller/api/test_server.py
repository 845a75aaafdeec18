"""Start and graceful stop."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.protocol.messages import AllocateProducerIdsResponse
from pidkeeper.service.server import HttpServer, ListenError
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Api

ALLOCATE = b'{"broker_id":1,"broker_epoch":1}'
REQUEST = (
    b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(ALLOCATE), ALLOCATE)
)


def new_server(member: MemoryMember) -> HttpServer:
    return HttpServer(build_app(member, limits=ApiLimits()))


async def in_progress(member: MemoryMember) -> None:
    for _ in range(2000):
        if member.held:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the request never reached the member")


async def test_a_port_in_use_is_a_clear_error(api: Api, member: MemoryMember) -> None:
    host, port = api.address
    server = new_server(member)
    with pytest.raises(ListenError, match=f"{host}:{port}: the port is in use"):
        await server.start(host, port)
    await server.stop(drain_seconds=0.1)


@pytest.mark.parametrize("port", [-1, 65_536])
async def test_a_port_out_of_range_is_a_clear_error(member: MemoryMember, port: int) -> None:
    with pytest.raises(ListenError, match="from 0 to 65535"):
        await new_server(member).start("127.0.0.1", port)


async def test_an_address_of_another_machine_is_a_clear_error(member: MemoryMember) -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1:0"):
        await new_server(member).start("192.0.2.1", 0)


async def test_a_stop_lets_the_request_in_progress_finish(
    member: MemoryMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidkeeper.service.server.CLEANUP_SECONDS", 0.01)
    member.hold = True
    server = new_server(member)
    host, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    idle_reader, idle_writer = await asyncio.open_connection(host, port)
    writer.write(REQUEST)
    await in_progress(member)
    stopping = asyncio.create_task(server.stop(drain_seconds=30.0))
    async with asyncio.timeout(5):
        assert await idle_reader.read() == b"", "an idle connection is closed at once"
    finished, _ = await asyncio.wait({stopping}, timeout=0.1)
    assert not finished, "the request in progress has 30 s"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
    member.held[0].set_result(AllocateProducerIdsResponse(0, 7000, 1000))
    async with asyncio.timeout(5):
        answer = await reader.read()
        await stopping
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"producer_id_start":7000' in answer
    for each in (writer, idle_writer):
        each.close()
        await each.wait_closed()


async def test_a_stop_does_not_wait_longer_than_told(member: MemoryMember) -> None:
    member.hold = True
    server = new_server(member)
    host, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(REQUEST)
    await in_progress(member)
    async with asyncio.timeout(5):
        await server.stop(drain_seconds=0.05)
        assert await reader.read() == b"", "the outcome is unknown, so there is no answer"
    assert member.held[0].cancelled()
    writer.close()
    await writer.wait_closed()


async def test_the_address_is_free_after_a_stop(member: MemoryMember) -> None:
    server = new_server(member)
    host, port = await server.start("127.0.0.1", 0)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/livez", headers={"Connection": "close"}) as response,
    ):
        assert response.status == 200
    await server.stop(drain_seconds=1.0)
    await server.stop(drain_seconds=1.0)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
