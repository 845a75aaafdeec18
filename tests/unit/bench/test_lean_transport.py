from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bench.lean_transport import LeanTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers each request with the next of `answers`; None ends the connection, b"" says nothing."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await reader.read(4096):
            self.requests.append(head)
            answer = self.answers.pop(0)
            if answer is None:
                break
            size = 20 if answer == OK else len(answer) or 1
            for at in range(0, len(answer), size):
                writer.write(answer[at : at + size])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    one = Server()
    listener = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    yield one, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    listener.close()


async def test_requests_share_a_connection_that_nobody_uses(server: tuple[Server, str]) -> None:
    one, url = server
    one.answers = [OK, b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 3\r\n\r\nno!"]
    async with LeanTransport() as transport:
        assert await transport.exchange("POST", url, "/a", b"{}", 5.0) == (200, b"{}")
        assert await transport.exchange("GET", url, "/b", None, 5.0) == (429, b"no!")
    assert one.connections == 1
    assert one.requests[0].startswith(b"POST /a HTTP/1.1\r\n") and one.requests[0].endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize("answer", [None, OK + b"more", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_what_is_no_answer_is_told_and_its_connection_given_up(
    server: tuple[Server, str], answer: bytes | None
) -> None:
    one, url = server
    one.answers = [answer, OK]
    async with LeanTransport() as transport:
        with pytest.raises((OSError, ValueError)):
            await transport.exchange("POST", url, "/", b"{}", 5.0)
        assert await transport.exchange("POST", url, "/", b"{}", 5.0) == (200, b"{}")
    assert one.connections == 2


async def test_an_answer_that_does_not_come_in_time_is_not_waited_for(server: tuple[Server, str]) -> None:
    one, url = server
    one.answers = [b"", OK]
    async with LeanTransport() as transport:
        with pytest.raises(TimeoutError):
            await transport.exchange("POST", url, "/", b"{}", 0.05)
        assert await transport.exchange("POST", url, "/", b"{}", 5.0) == (200, b"{}")
