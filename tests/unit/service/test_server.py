"""The server below the routes: how many connections it holds, upkeep, TLS, and clients that hang up."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from pidkeeper.service.app import App
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.server import HttpServer
from pidkeeper.service.tls import TlsFiles, client_context, server_context
from tests.support.certificates import CertificateAuthority
from tests.support.served_app import served
from tests.support.waiting import until
from tests.unit.service.conftest import Arithmetic

LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_connection_above_the_limit_is_closed_unread_and_counted(app: App) -> None:
    server = HttpServer(app, max_connections=2)
    host, port = await server.start("127.0.0.1", 0)
    open_ones = [await asyncio.open_connection(host, port) for _ in range(2)]
    await until(lambda: app.counters.connections == 2)
    reader, writer = await asyncio.open_connection(host, port)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    assert (app.counters.connections_refused, app.counters.connections) == (1, 2)
    samples = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    assert "pidkeeper_http_connections_refused_total 1.0\n" in samples
    assert "pidkeeper_http_connections 2.0\n" in samples
    for reader, writer in open_ones:
        writer.write(LIVE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    open_ones.pop()[1].close()
    await until(lambda: app.counters.connections == 1)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(LIVE)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    for each in (writer, open_ones[0][1]):
        each.close()
    await server.stop(1.0)
    await until(lambda: app.counters.connections == 0)


async def test_upkeep_runs_while_it_is_served(app: App, arithmetic: Arithmetic) -> None:
    async with served(app):
        await until(lambda: arithmetic.upkeep >= 2)
    done = arithmetic.upkeep
    await asyncio.sleep(0.15)
    assert arithmetic.upkeep == done


async def test_a_caller_that_hangs_up_in_its_body_is_no_fault(app: App) -> None:
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))
    server = HttpServer(app)
    _, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    writer.write(b"POST /greet HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await until(lambda: app.counters.connections == 1)
    await asyncio.sleep(0)
    writer.transport.abort()
    await until(lambda: app.counters.connections == 0)
    await server.stop(1.0)
    assert faults == []


async def test_a_client_that_waits_with_its_body_is_told_to_go_on(app: App) -> None:
    server = HttpServer(app)
    reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    head = "POST /greet HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nExpect: {}\r\n\r\n"
    writer.write(head.format("100-continue").encode())
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"name":"x"}')
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await reader.readexactly(18) == b'{"name":"hello x"}'
        writer.write(head.format("coffee").encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 417 ")
    writer.close()
    await server.stop(1.0)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


async def ask(address: tuple[str, int], files: TlsFiles) -> int:
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{address[1]}/livez"
        async with session.get(url, ssl=client_context(files)) as answer:
            return answer.status


async def test_a_client_that_trusts_the_ca_is_served_over_tls(app: App, authority: CertificateAuthority) -> None:
    own = authority.issue("server")
    files = TlsFiles(certificate_file=own.certificate_file, key_file=own.key_file)
    server = HttpServer(app, tls=server_context(files))
    address = await server.start("127.0.0.1", 0)
    assert await ask(address, TlsFiles(ca_file=authority.path)) == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await ask(address, TlsFiles())
    await server.stop(1.0)


async def test_with_a_ca_clients_must_show_a_certificate_of_it(
    app: App, authority: CertificateAuthority, tmp_path: Path
) -> None:
    server = HttpServer(app, tls=server_context(authority.issue("server")))
    address = await server.start("127.0.0.1", 0)
    assert await ask(address, authority.issue("agent-7")) == 200
    stranger = CertificateAuthority(tmp_path, "other CA").issue("stranger")
    for certificate, key in ((None, None), (stranger.certificate_file, stranger.key_file)):
        files = TlsFiles(certificate_file=certificate, key_file=key, ca_file=authority.path)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask(address, files)
    await server.stop(1.0)
