"""Where requests of an agent go: the address that a member has now."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import pytest

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport

NAME: Final = "controller-1.test"
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"


class Pods:
    """Two addresses of one name, one after the other, with a server at each. `now`: the one that the name has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = "127.0.0.1"
        self.port = 0
        self._known = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    async def serve(self, address: str) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER + address[-1:].encode())
            writer.close()

        server = await asyncio.start_server(answer, address, self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _look_up(self, host: str, *arguments: Any, **keywords: Any) -> Any:
        return self._known(self.now if host == NAME else host, *arguments, **keywords)


async def test_a_member_with_another_address_is_reached_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = Pods(monkeypatch)
    async with AiohttpTransport() as transport:
        for address in ("127.0.0.1", "127.0.0.2"):
            server = await pods.serve(address)
            pods.now = address
            async with server:
                url = f"http://{NAME}:{pods.port}"
                assert await transport.exchange("GET", url, "/", None, 5.0) == (200, address[-1:].encode())
