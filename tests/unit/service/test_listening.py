"""No connection is lost between its acceptance and the end of the listening."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings

import pytest

from pidkeeper.service.listening import close_server


class Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_is_served_or_never_accepted(turns: int) -> None:
    server = await asyncio.get_running_loop().create_server(Refusing, "127.0.0.1", 0)
    with (
        warnings.catch_warnings(record=True) as seen,
        socket.create_connection(server.sockets[0].getsockname()) as client,
    ):
        warnings.simplefilter("always")
        for _ in range(turns):
            await asyncio.sleep(0)
        await close_server(server)
        for _ in range(6):  # the protocol is told, and hangs up
            await asyncio.sleep(0)
        gc.collect()
        assert [str(one.message) for one in seen if issubclass(one.category, ResourceWarning)] == []
        client.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
