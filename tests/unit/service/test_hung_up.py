"""Whether a caller has hung up, told while what it sent before is not read: in the clear and over TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from pidkeeper.service.hung_up import has_hung_up
from pidkeeper.service.tls import Tls, client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import CertificateAuthority
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of an end that is not read yet")

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""


class Deaf(asyncio.Protocol):
    """Reads once, and no more."""

    def __init__(self) -> None:
        self.heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.transport.pause_reading()


def close(line: socket.socket) -> None:
    line.close()


def reset(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    line.close()


def connect(address: tuple[str, int], context: ssl.SSLContext | None) -> socket.socket:
    line = socket.create_connection(address, PATIENCE_SECONDS)
    return line if context is None else context.wrap_socket(line, server_hostname=address[0])


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("hang_up", [close, reset])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_end_behind_unread_bytes_is_told(
    tmp_path: Path, run: Callable[..., None], hang_up: Callable[[socket.socket], None], tls: bool
) -> None:
    files = CertificateAuthority(tmp_path).issue("agent", uris=["pidkeeper://c/broker/1"])
    served = Tls(files).contexts.listener if tls else None
    wanted: ssl.SSLContext | None = client_context(TlsFiles(ca_file=files.ca_file)) if tls else None

    async def body() -> None:
        deaf = Deaf()
        server = await asyncio.get_running_loop().create_server(lambda: deaf, "127.0.0.1", 0, ssl=served)
        line = await asyncio.to_thread(connect, server.sockets[0].getsockname(), wanted)
        line.sendall(b"first")
        await until(lambda: deaf.heard == b"first")
        assert not has_hung_up(deaf.transport)
        line.sendall(b"second")
        assert not has_hung_up(deaf.transport)
        hang_up(line)
        await until(lambda: has_hung_up(deaf.transport))
        assert not deaf.transport.is_closing(), "the event loop knows nothing of it"
        assert deaf.heard == b"first"
        deaf.transport.abort()
        server.close()

    run(body())


async def test_a_connection_that_we_end_has_nobody_who_waits() -> None:
    deaf = Deaf()
    server = await asyncio.get_running_loop().create_server(lambda: deaf, "127.0.0.1", 0)
    with await asyncio.to_thread(connect, server.sockets[0].getsockname(), None) as line:
        line.sendall(b"first")
        await until(lambda: deaf.heard == b"first")
        deaf.transport.close()
        assert has_hung_up(deaf.transport)
    server.close()


async def test_whoever_has_no_tcp_is_not_said_to_have_hung_up() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(Deaf, ours)
        assert not has_hung_up(transport)
        transport.abort()
