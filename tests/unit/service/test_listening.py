"""No connection is lost between its acceptance and the end of the listening."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import warnings
from pathlib import Path
from typing import ClassVar

import pytest

from pidkeeper.service import listening
from pidkeeper.service.listening import MAX_HANDSHAKES, Listener, close_server
from pidkeeper.service.tls import Tls
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import CertificateAuthority
from tests.support.waiting import until


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


class Echo(asyncio.Protocol):
    """Says what it hears. `open`: those that were made and have not ended."""

    open: ClassVar[set[Echo]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        Echo.open.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        Echo.open.discard(self)


class Tlsed:
    """A listener with TLS, and the files of a client."""

    def __init__(self, directory: Path, *, plaintext: bool) -> None:
        files = CertificateAuthority(directory).issue("server")
        self.tls = Tls(files)
        self.client = self.tls.contexts.client
        self.files = files
        self.listener = Listener(Echo, context=lambda: self.tls.contexts.listener, plaintext=plaintext)

    async def start(self) -> tuple[str, int]:
        address = await self.listener.bind("127.0.0.1", 0, backlog=MAX_HANDSHAKES + 100)
        await self.listener.serve()
        return address


def copy_files(new: TlsFiles, old: TlsFiles) -> None:
    """Certificate and key in the place of others."""
    for name in ("certificate_file", "key_file"):
        Path(getattr(old, name)).write_bytes(Path(getattr(new, name)).read_bytes())


async def echoed(address: tuple[str, int], context: ssl.SSLContext | None, data: bytes = b"hello") -> bytes:
    """What comes back of some bytes."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        writer.write(data)
        try:
            return await reader.read(len(data))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def test_the_first_byte_tells_whether_tls_is_spoken(tmp_path: Path) -> None:
    both = Tlsed(tmp_path, plaintext=True)
    address = await both.start()
    assert await echoed(address, both.client) == b"hello"
    assert await echoed(address, None) == b"hello"
    # What looks like a handshake and is none.
    with contextlib.suppress(ConnectionError):
        assert await echoed(address, None, b"\x16\x03\x01\x00\x05hello") != b"\x16\x03\x01\x00\x05hello"
    await both.listener.close()
    await until(lambda: not Echo.open)


@pytest.mark.parametrize("plaintext", [False, True])
async def test_a_crowd_that_says_nothing_keeps_nobody_out(tmp_path: Path, plaintext: bool) -> None:
    tlsed = Tlsed(tmp_path, plaintext=plaintext)
    address = await tlsed.start()
    crowd = []
    for _ in range(MAX_HANDSHAKES + 50):
        one = socket.socket()
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, address)
        crowd.append(one)
    assert await echoed(address, tlsed.client) == b"hello"
    await until(lambda: tlsed.listener.failures["crowded"] >= 50)
    assert len(tlsed.listener._strangers) <= MAX_HANDSHAKES
    await tlsed.listener.close()
    for one in crowd:
        one.setblocking(True)
        one.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b"", "the listener has closed it"
        one.close()


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_that_takes_too_long_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_SECONDS", 0.2)
    tlsed = Tlsed(tmp_path, plaintext=True)
    reader, writer = await asyncio.open_connection(*await tlsed.start())
    writer.write(sent)
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    assert tlsed.listener.failures == {"timeout": 1}
    writer.close()
    await tlsed.listener.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_close_in_the_middle_of_a_handshake_leaves_no_socket_open(tmp_path: Path, turns: int) -> None:
    tlsed = Tlsed(tmp_path, plaintext=True)
    address = await tlsed.start()
    with warnings.catch_warnings(record=True) as seen, socket.create_connection(address) as client:
        warnings.simplefilter("always")
        client.sendall(b"\x16\x03\x01")
        for _ in range(turns):
            await asyncio.sleep(0)
        await tlsed.listener.close()
        for _ in range(6):
            await asyncio.sleep(0)
        gc.collect()
        assert [str(one.message) for one in seen if issubclass(one.category, ResourceWarning)] == []
        client.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert not Echo.open


async def test_the_next_handshake_is_by_new_files(tmp_path: Path) -> None:
    tlsed = Tlsed(tmp_path, plaintext=False)
    address = await tlsed.start()
    assert await echoed(address, tlsed.client) == b"hello"
    other = CertificateAuthority(tmp_path, "new CA").issue("new")
    copy_files(other, tlsed.files)
    tlsed.tls.refresh()
    with pytest.raises(ssl.SSLCertVerificationError):
        await echoed(address, tlsed.client)
    trusting = ssl.create_default_context(cafile=other.ca_file)
    assert await echoed(address, trusting) == b"hello"
    await tlsed.listener.close()
