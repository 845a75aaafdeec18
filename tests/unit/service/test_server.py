"""The server below the routes: how many connections it holds, upkeep, TLS, and clients that hang up."""

from __future__ import annotations

import asyncio
import re
import resource
import ssl
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from yarl import URL

from pidkeeper.protocol.messages import Problem
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.app import App
from pidkeeper.service.connections import fitting_connections
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.protection import Level, Protection
from pidkeeper.service.server import HttpServer
from pidkeeper.service.tls import Tls, client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import DAY, NOW, CertificateAuthority
from tests.support.served_app import served
from tests.support.waiting import until
from tests.unit.service.conftest import Arithmetic

LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


UPLOADING = (
    b"POST /greet HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 12\r\n"
    b"Expect: 100-continue\r\n\r\n"
)
"""A request whose body does not arrive. The server says when it waits for it."""

BODY = b'{"name":"x"}'
ASKING = UPLOADING.replace(b"Expect: 100-continue\r\n", b"") + BODY

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ended(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(5):
            return await connection[0].read() == b""
    except ConnectionResetError:
        return True


async def answers(connection: Connection) -> bool:
    connection[1].write(LIVE)
    async with asyncio.timeout(5):
        return (await connection[0].readline()).startswith(b"HTTP/1.1 200 ")


async def test_above_the_limit_the_connection_that_was_idle_for_longest_gives_way(app: App) -> None:
    server = HttpServer(app, max_connections=2)
    address = await server.start("127.0.0.1", 0)
    used, unused = [await asyncio.open_connection(*address) for _ in range(2)]
    await until(lambda: app.counters.connections == 2)
    assert await answers(used)
    new = await asyncio.open_connection(*address)
    assert await ended(unused), "it came later, but the other one has asked since"
    assert await answers(new)
    await until(lambda: app.counters.connections == 2)
    assert (app.counters.connections_evicted, app.counters.connections_refused) == (1, 0)
    samples = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    assert "pidkeeper_http_connections_evicted_total 1.0\n" in samples
    assert "pidkeeper_http_connections 2.0\n" in samples
    for each in (used, unused, new):
        each[1].close()
    await server.stop(1.0)
    await until(lambda: app.counters.connections == 0)


async def test_callers_that_never_finish_asking_keep_nobody_out(app: App) -> None:
    server = HttpServer(app, max_connections=2)
    address = await server.start("127.0.0.1", 0)
    slow = [await asyncio.open_connection(*address) for _ in range(6)]
    for each in slow:
        each[1].write(LIVE[:-2])
    probe = await asyncio.open_connection(*address)
    assert await answers(probe)
    for each in (*slow, probe):
        each[1].close()
    await server.stop(1.0)


async def test_where_all_are_busy_a_new_connection_is_closed_unread_and_counted(
    app: App, arithmetic: Arithmetic
) -> None:
    arithmetic.may.clear()
    server = HttpServer(app, max_connections=2)
    address = await server.start("127.0.0.1", 0)
    busy = [await asyncio.open_connection(*address) for _ in range(2)]
    for each in busy:
        each[1].write(ASKING)
    await until(lambda: len(arithmetic.callers) == 2)
    new = await asyncio.open_connection(*address)
    assert await ended(new)
    assert app.counters.connections_refused == 1
    samples = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    assert "pidkeeper_http_connections_refused_total 1.0\n" in samples
    arithmetic.may.set()
    for each in busy:
        assert (await each[0].readline()).startswith(b"HTTP/1.1 200 ")
    for each in (*busy, new):
        each[1].close()
    await server.stop(1.0)


async def test_bodies_that_do_not_arrive_keep_nobody_out(app: App) -> None:
    server = HttpServer(app, max_connections=2)
    address = await server.start("127.0.0.1", 0)
    slow = []
    for _ in range(6):
        slow.append(await asyncio.open_connection(*address))
        slow[-1][1].write(UPLOADING)
        assert (await slow[-1][0].readline()).startswith(b"HTTP/1.1 100 ")
    probe = await asyncio.open_connection(*address)
    assert await answers(probe)
    for each in (*slow, probe):
        each[1].close()
    await server.stop(1.0)


@pytest.mark.parametrize(
    ("soft", "fitting"),
    [
        (20_000, [4000, 8000]),
        (12_256, [4000, 8000]),
        (1_024, [256, 512]),
        (100, [8, 16]),
        (resource.RLIM_INFINITY, None),
    ],
)
def test_connections_fit_below_the_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, fitting: list[int] | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert fitting_connections(4000, 8000, reserved=256) == (fitting or [4000, 8000])


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez?after=" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
        b"GET /livez HTTP/9\r\nHost: x\r\n\r\n",
        b"no request at all\r\n\r\n",
    ],
)
async def test_a_head_that_cannot_be_read_gets_a_problem_document_and_the_end(app: App, head: bytes) -> None:
    server = HttpServer(app)
    reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    writer.write(head)
    async with asyncio.timeout(5):
        answer = await reader.read()
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"content-type: application/problem+json" in top.lower()
    problem = msgspec.json.decode(body, type=Problem)
    assert (problem.status, problem.code) == (400, "INVALID_REQUEST")
    assert 0 < len(problem.detail) < 500
    writer.close()
    await server.stop(1.0)


async def test_upkeep_runs_while_it_is_served(app: App, arithmetic: Arithmetic) -> None:
    async with served(app):
        await until(lambda: arithmetic.upkeep >= 2)
    done = arithmetic.upkeep
    await asyncio.sleep(0.15)
    assert arithmetic.upkeep == done


async def test_a_caller_that_hangs_up_in_its_body_is_no_fault(app: App, caplog: pytest.LogCaptureFixture) -> None:
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))
    server = HttpServer(app)
    reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    writer.write(UPLOADING)
    assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
    writer.write(BODY[:1])
    await until(lambda: app.counters.connections == 1)
    await asyncio.sleep(0)
    writer.transport.abort()
    await until(lambda: app.counters.connections == 0)
    await server.stop(1.0)
    assert await outcomes_of_greetings(app) == {"INVALID_REQUEST": 1.0}
    assert (faults, caplog.text) == ([], "")


async def outcomes_of_greetings(app: App) -> dict[str, float]:
    """How many of them were counted, by outcome; those that have happened."""
    samples = (await app.dispatch(HttpRequest("GET", URL("/metrics"), {}))).body.decode()
    found = re.findall(r'^pidkeeper_api_requests_total{outcome="(\w+)",route="greet"} (\S+)$', samples, re.MULTILINE)
    return {outcome: float(count) for outcome, count in found if float(count)}


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


async def ask(address: tuple[str, int], files: TlsFiles) -> int:
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{address[1]}/livez"
        async with session.get(url, ssl=client_context(files)) as answer:
            return answer.status


def protected(files: TlsFiles, level: Level) -> Protection:
    return Protection(level, Tls(files), "cluster-a")


async def test_a_caller_over_tls_is_whom_its_certificate_names(app: App, authority: CertificateAuthority) -> None:
    asked: list[Principal | None] = []

    inner = app.dispatch

    async def dispatch(request: HttpRequest) -> HttpResponse:
        asked.append(request.certified)
        return await inner(request)

    app.dispatch = dispatch  # type: ignore[misc]
    server = HttpServer(app, protection=protected(authority.issue("server"), "required"))
    address = await server.start("127.0.0.1", 0)
    assert await ask(address, TlsFiles(ca_file=authority.path)) == 200
    assert await ask(address, authority.issue("seven", uris=["pidkeeper://cluster-a/broker/7"])) == 200
    assert asked == [None, Principal("broker 7", frozenset({Access.BROKER, Access.VIEWER}), frozenset({7}))]
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await ask(address, TlsFiles())
    await server.stop(1.0)


async def test_a_connection_ends_with_its_certificate_once_its_request_is_answered(
    app: App, authority: CertificateAuthority
) -> None:
    now = [time.time()]
    protection = Protection("required", Tls(authority.issue("server")), "cluster-a", wall_clock=lambda: now[0])
    server = HttpServer(app, protection=protection)
    address = await server.start("127.0.0.1", 0)
    certified = client_context(authority.issue("seven", uris=["pidkeeper://cluster-a/operator/seven"]))
    unnamed = client_context(TlsFiles(ca_file=authority.path))
    idle, busy, other = [
        await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        for context in (certified, certified, unnamed)
    ]
    for connection in (idle, other):
        assert await answers(connection)
    busy[1].write(UPLOADING)
    await busy[0].readuntil(b"\r\n\r\n")
    now[0] = (NOW + 2 * DAY).timestamp()
    await idle[0].readuntil(b"ok\n")
    assert await ended(idle)
    await until(lambda: app.counters.connections == 2)
    busy[1].write(BODY + LIVE)
    async with asyncio.timeout(5):
        answered = await busy[0].read()
    assert answered.count(b"HTTP/1.1 200 ") == 1, "what was asked before is answered, and nothing else"
    other[1].write(LIVE)
    await other[0].readuntil(b" 200 ")
    assert app.counters.connections_cut["expired"] == 2
    for _, writer in (idle, busy, other):
        writer.close()
    await server.stop(1.0)


async def test_a_certificate_of_another_ca_is_refused(
    app: App, authority: CertificateAuthority, tmp_path: Path
) -> None:
    server = HttpServer(app, protection=protected(authority.issue("server"), "required"))
    address = await server.start("127.0.0.1", 0)
    stranger = CertificateAuthority(tmp_path, "other CA").issue("stranger")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await ask(address, msgspec.structs.replace(stranger, ca_file=authority.path))
    await until(lambda: app.counters.handshake_failures["certificate"] >= 1)
    await server.stop(1.0)


@pytest.mark.parametrize("level", ["optional", "required"])
async def test_without_tls_a_caller_is_served_where_it_is_optional(
    app: App, authority: CertificateAuthority, level: Level
) -> None:
    server = HttpServer(app, protection=protected(authority.issue("server"), level))
    address = await server.start("127.0.0.1", 0)
    plain = await asyncio.open_connection(*address)
    if level == "optional":
        assert await answers(plain)
        assert await ask(address, TlsFiles(ca_file=authority.path)) == 200
    else:
        plain[1].write(LIVE)
        assert await ended(plain)
        await until(lambda: app.counters.handshake_failures["plaintext"] == 1)
    plain[1].close()
    await server.stop(1.0)
