"""A host that vanished without a word: the kernel has to be told how long to believe in it."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import cast

import pytest

from pidkeeper.controller.transport.connections import SILENT_SECONDS, notice_silence


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
async def test_a_silent_host_is_given_up_in_both_directions() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, accepted: asyncio.StreamWriter) -> None:
        await reader.read()
        accepted.close()
        await accepted.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    connection = writer.get_extra_info("socket")
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "Linux tries for minutes"

    notice_silence(cast("asyncio.Transport", writer.transport))

    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_SECONDS * 1000
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, interval, count = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert idle + interval * count <= SILENT_SECONDS
    writer.close()
    await writer.wait_closed()
    await ended.wait()
    server.close()
    await server.wait_closed()
