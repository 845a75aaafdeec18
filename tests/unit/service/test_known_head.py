"""Requests whose head is that of the one before: answered like all others, and no byte counts for another request."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator

import pytest

from pidkeeper.service import connection as module
from pidkeeper.service import connections, known_head
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.app import App
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.connections import BoundedServer
from pidkeeper.service.exchange import HttpResponse
from pidkeeper.service.known_head import MAX_HEAD_BYTES, encode_answer
from pidkeeper.service.protection import Protection
from pidkeeper.service.server import HttpServer
from pidkeeper.service.tls import Tls, client_context
from tests.support.certificates import DAY, NOW, CertificateAuthority
from tests.support.waiting import until
from tests.unit.service.conftest import Arithmetic, build
from tests.unit.service.test_server import BODY, LIVE, Connection

ANSWER = re.compile(
    rb"HTTP/1\.1 (?P<status>\d+) [^\r]*\r\n(?:[^\r]+\r\n)*?Content-Length: (?P<length>\d+)\r\n(?:[^\r]+\r\n)*?\r\n",
    re.IGNORECASE,
)


def asking(name: str, *extra: str) -> bytes:
    body = b'{"name":"' + name.encode() + b'"}'
    head = ["POST /greet HTTP/1.1", "Host: x", "Content-Type: application/json", *extra, f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def greeting(name: str) -> bytes:
    return b'{"name":"hello ' + name.encode() + b'"}'


class Line:
    """A connection to a server, byte by byte."""

    def __init__(self, connection: Connection, server: HttpServer, received: list[bytes]) -> None:
        self.reader, self.writer = connection
        self._server = server
        self._received = received

    @property
    def _bounded(self) -> BoundedServer:
        assert self._server._runner is not None
        assert isinstance(self._server._runner.server, BoundedServer)
        return self._server._runner.server

    @property
    def parsed(self) -> int:
        """Requests that aiohttp has seen."""
        return self._bounded.requests_count

    @property
    def known(self) -> int:
        """Heads that are known."""
        return len(self._bounded.known_heads)

    async def beside(self) -> Line:
        """Another line to the same server."""
        host, port = self.writer.get_extra_info("peername")
        return Line(await asyncio.open_connection(host, port), self._server, self._received)

    async def send(self, *chunks: bytes) -> None:
        """Each chunk comes for itself."""
        for chunk in chunks:
            before = len(self._received)
            self.writer.write(chunk)
            await until(lambda: len(self._received) > before)  # noqa: B023 - it is called before the next turn

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next one."""
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = ANSWER.fullmatch(head)
            assert found is not None, head
            return int(found["status"]), await self.reader.readexactly(int(found["length"]))

    async def ask(self, chunk: bytes) -> tuple[int, bytes]:
        await self.send(chunk)
        return await self.answer()


@pytest.fixture
async def server(app: App) -> AsyncIterator[HttpServer]:
    server = HttpServer(app)
    yield server
    await server.stop(1.0)


@pytest.fixture
async def line(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    """A line to the server, which has answered a request."""
    received: list[bytes] = []
    original = module.Connection.data_received

    def data_received(self: module.Connection, data: bytes) -> None:
        received.append(data)
        original(self, data)

    monkeypatch.setattr(module.Connection, "data_received", data_received)
    line = Line(await asyncio.open_connection(*await server.start("127.0.0.1", 0)), server, received)
    assert await line.ask(asking("first")) == (200, greeting("first"))
    yield line
    line.writer.close()


async def test_a_known_head_is_parsed_once(line: Line) -> None:
    for name in ("again", "third", "tenth"):
        assert await line.ask(asking(name)) == (200, greeting(name))
    assert line.parsed == 1
    assert await line.ask(asking("longer")) == (200, greeting("longer"))
    assert line.parsed == 2, "the head says another length"
    for name in ("second", "fifth", "eighth"):
        assert await line.ask(asking(name)) == (200, greeting(name))
    assert line.parsed == 2


async def test_heads_are_forgotten(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many, and from time to time."""
    monkeypatch.setattr(known_head, "MAX_HEADS", 2)
    for request, parsed in [("first", 1), ("1", 2), ("first", 2), ("12", 3), ("12", 3), ("first", 4)]:
        assert await line.ask(asking(request)) == (200, greeting(request))
        assert line.parsed == parsed
    monkeypatch.setattr(connections, "HEADS_SECONDS", 0.0)
    await until(lambda: line.known == 0)
    assert await line.ask(asking("first")) == (200, greeting("first"))
    assert line.parsed == 5


async def test_connections_share_the_heads(line: Line, app: App) -> None:
    other = await line.beside()
    await until(lambda: app.counters.connections == 2)
    assert await other.ask(asking("again")) == (200, greeting("again"))
    assert line.parsed == 1
    other.writer.close()


async def test_the_answer_has_the_fields_that_the_first_one_had(line: Line) -> None:
    heads = []
    for _ in range(2):
        await line.send(asking("fields"))
        heads.append(sorted((await line.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")))
        await line.reader.readexactly(len(greeting("fields")))
    assert line.parsed == 2
    parsed, known = [[field for field in head if not field.startswith(b"Date: ")] for head in heads]
    assert known == parsed
    assert [len(head) for head in heads] == [len(parsed) + 1] * 2


async def test_a_refusal_is_the_same_too(line: Line) -> None:
    wrong = asking("first").replace(b"name", b"nome")
    status, refusal = await line.ask(wrong)
    assert status == 400
    assert b"nome" in refusal
    assert line.parsed == 1
    assert await line.ask(asking("again")) == (200, greeting("again"))


async def test_a_request_in_pieces_or_behind_another_is_left_to_the_parser(line: Line) -> None:
    whole = asking("again")
    await line.send(whole[:30], whole[30:])
    assert await line.answer() == (200, greeting("again"))
    await line.send(whole + asking("third"))
    assert [await line.answer(), await line.answer()] == [(200, greeting("again")), (200, greeting("third"))]
    assert line.parsed == 4


async def test_a_known_request_within_the_head_of_another_is_no_request(line: Line, arithmetic: Arithmetic) -> None:
    """Behind a half head, what looks like a request is a part of that head."""
    await line.send(b"GET /livez HTTP/1.1\r\nX-Rest: ", asking("again"))
    assert await line.reader.readuntil(b"\n") == b"HTTP/1.1 200 OK\r\n"
    await line.reader.readuntil(b"ok\n")
    assert len(arithmetic.callers) == 1, "nobody has asked for a second greeting"


async def test_a_known_request_behind_a_begun_head_in_one_chunk_is_no_request(
    line: Line, arithmetic: Arithmetic
) -> None:
    chunk = asking("third") + b"GET /livez HTTP/1.1\r\nX-Rest: "
    await line.send(chunk)
    assert await line.answer() == (200, greeting("third"))
    await line.send(chunk, asking("again"))
    await line.reader.readuntil(b"ok\n")
    await line.reader.readuntil(b"ok\n")
    assert len(arithmetic.callers) == 2


async def test_a_piece_of_a_head_is_not_known(line: Line, arithmetic: Arithmetic) -> None:
    whole = asking("other name")
    await line.send(whole[:30], whole[30:])
    assert await line.answer() == (200, greeting("other name"))
    await line.send(whole[30:])
    assert (await line.reader.readline()).split()[1] == b"400", "that is no request"
    assert len(arithmetic.callers) == 2


async def test_a_known_request_within_a_body_is_no_request(line: Line, arithmetic: Arithmetic) -> None:
    inner = asking("again")
    head = asking("x").removesuffix(b'{"name":"x"}').replace(b"Content-Length: 12", b"Content-Length: %d" % len(inner))
    await line.send(head, inner)
    assert (await line.answer())[0] == 400, "that is no greeting"
    assert len(arithmetic.callers) == 1


@pytest.mark.parametrize(
    "extra", ["Connection: close", "Transfer-Encoding: chunked", "Expect: 100-continue", f"X: {'x' * MAX_HEAD_BYTES}"]
)
async def test_heads_that_say_more_are_parsed_each_time(app: App, extra: str) -> None:
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    request = asking("x", extra)
    if "chunked" in extra:
        request = request.replace(b"Content-Length: 12\r\n", b"").removesuffix(BODY) + chunked
    server = HttpServer(app)
    address = await server.start("127.0.0.1", 0)
    writers = []
    for _ in range(2):
        line = Line(await asyncio.open_connection(*address), server, [])
        writers.append(line.writer)
        for _ in range(1 if "close" in extra else 2):
            line.writer.write(request)
            if "Expect" in extra:
                assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert await line.answer() == (200, greeting("x"))
    assert line.parsed == (2 if "close" in extra else 4)
    for writer in writers:
        writer.close()
    await server.stop(1.0)


async def test_what_comes_before_the_answer_waits_for_it(line: Line, arithmetic: Arithmetic) -> None:
    arithmetic.may.clear()
    await line.send(asking("again"))
    await until(lambda: len(arithmetic.callers) == 2)
    line.writer.write(asking("third") + LIVE)
    line.writer.write(asking("tenth") * 500)
    await asyncio.sleep(0)
    assert len(arithmetic.callers) == 2
    arithmetic.may.set()
    assert [await line.answer() for _ in range(3)] == [
        (200, greeting("again")),
        (200, greeting("third")),
        (200, b"ok\n"),
    ]
    assert [await line.answer() for _ in range(500)] == [(200, greeting("tenth"))] * 500


async def test_a_stop_lets_a_known_request_finish(line: Line, server: HttpServer, arithmetic: Arithmetic) -> None:
    arithmetic.may.clear()
    await line.send(asking("again"))
    await until(lambda: len(arithmetic.callers) == 2)
    stop = asyncio.create_task(server.stop(5.0))
    await until(lambda: server._listener is None)
    arithmetic.may.set()
    head = await line.reader.readuntil(b"\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert await line.reader.read() == greeting("again"), "and then the connection ends"
    await stop


async def test_a_stop_does_not_wait_for_ever(line: Line, server: HttpServer, arithmetic: Arithmetic) -> None:
    arithmetic.may.clear()
    await line.send(asking("again"))
    await until(lambda: len(arithmetic.callers) == 2)
    async with asyncio.timeout(5):
        await server.stop(0.05)
        assert await line.reader.read() == b""
    assert asyncio.all_tasks() == {asyncio.current_task()}, "what was asked is given up"


async def test_a_caller_that_is_gone_gets_no_answer(
    line: Line, app: App, arithmetic: Arithmetic, caplog: pytest.LogCaptureFixture
) -> None:
    arithmetic.may.clear()
    await line.send(asking("again"))
    await until(lambda: len(arithmetic.callers) == 2)
    line.writer.transport.abort()
    await until(lambda: app.counters.connections == 0)
    arithmetic.may.set()
    await asyncio.sleep(0)
    assert caplog.records == []


async def test_a_known_request_keeps_its_connection(app: App, arithmetic: Arithmetic) -> None:
    """While it is under way, others give way."""
    server = HttpServer(app, max_connections=1)
    address = await server.start("127.0.0.1", 0)
    busy = Line(await asyncio.open_connection(*address), server, [])
    for _ in range(2):
        arithmetic.may.clear()
        busy.writer.write(asking("first"))
        callers = len(arithmetic.callers)
        await until(lambda: len(arithmetic.callers) > callers)  # noqa: B023 - it is called before the next turn
        _, other = await asyncio.open_connection(*address)
        await until(lambda: app.counters.connections_refused > 0)
        arithmetic.may.set()
        assert await busy.answer() == (200, greeting("first"))
        other.close()
        app.counters.connections_refused = 0
    assert busy.parsed == 1
    busy.writer.close()
    await server.stop(1.0)


async def test_an_idle_connection_is_closed_and_one_with_a_known_request_is_not(
    app: App, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidkeeper.service.server.KEEPALIVE_SECONDS", 0.4)
    server = HttpServer(app)
    line = Line(await asyncio.open_connection(*await server.start("127.0.0.1", 0)), server, [])
    line.writer.write(asking("first"))
    assert await line.answer() == (200, greeting("first"))
    for _ in range(2):
        arithmetic.may.clear()
        line.writer.write(asking("again"))
        await asyncio.sleep(0.5)  # longer than it may be idle
        arithmetic.may.set()
        assert await line.answer() == (200, greeting("again"))
    for _ in range(2):
        await asyncio.sleep(0.25)  # shorter
        line.writer.write(asking("again"))
        assert await line.answer() == (200, greeting("again"))
    assert line.parsed == 1
    async with asyncio.timeout(5):
        assert await line.reader.read() == b""
    line.writer.close()
    await server.stop(1.0)


async def test_a_caller_that_reads_no_answer_is_asked_for_no_more(
    line: Line, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[module.Connection] = []
    original = module.Connection.pause_writing

    def pause_writing(self: module.Connection) -> None:
        paused.append(self)
        original(self)

    monkeypatch.setattr(module.Connection, "pause_writing", pause_writing)
    long = "x" * 6000
    for _ in range(5000):
        await line.send(asking(long))
        if paused:
            break
    answered = len(arithmetic.callers)
    await line.send(*[asking(long)] * 10)
    assert len(arithmetic.callers) <= answered + 1
    for _ in range(answered - 1 + 10):
        assert await line.answer() == (200, greeting(long))


async def test_a_known_request_is_answered_after_its_certificate_has_ended(
    app: App, arithmetic: Arithmetic, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.02)
    now = [time.time()]
    protection = Protection("required", Tls(authority.issue("server")), "cluster-a", wall_clock=lambda: now[0])
    server = HttpServer(app, protection=protection)
    host, port = await server.start("127.0.0.1", 0)
    certified = client_context(authority.issue("seven", uris=["pidkeeper://cluster-a/operator/seven"]))
    connection = await asyncio.open_connection(host, port, ssl=certified, server_hostname="localhost")
    line = Line(connection, server, [])
    line.writer.write(asking("first"))
    assert await line.answer() == (200, greeting("first"))
    arithmetic.may.clear()
    line.writer.write(asking("again"))
    await until(lambda: len(arithmetic.callers) == 2)
    now[0] = (NOW + 2 * DAY).timestamp()
    _, other = await asyncio.open_connection(host, port, ssl=certified, server_hostname="localhost")
    await until(lambda: app.counters.connections_cut["expired"] == 1)  # the idle one: all were looked at
    arithmetic.may.set()
    assert await line.answer() == (200, greeting("again"))
    assert await line.reader.read() == b""
    assert app.counters.connections_cut["expired"] == 2
    other.close()
    line.writer.close()
    await server.stop(1.0)


async def test_whether_a_caller_may_ask_is_looked_at_each_time(
    arithmetic: Arithmetic, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = {b"secret-1": Principal("seven", frozenset({Access.BROKER}))}
    app = build(arithmetic, Authenticator(listed=tokens.get), greet=Access.BROKER)
    server = HttpServer(app)
    line = Line(await asyncio.open_connection(*await server.start("127.0.0.1", 0)), server, [])
    statuses = []
    for _ in range(4):
        line.writer.write(asking("x", "Authorization: Bearer secret-1"))
        statuses.append((await line.answer())[0])
        if len(statuses) == 2:
            tokens.clear()
    assert statuses == [200, 200, 401, 401]
    assert line.parsed == 1
    assert arithmetic.callers == ["seven", "seven"]
    assert app.counters.requests_denied[401] == 2
    assert "POST '/greet' is refused" in caplog.text
    line.writer.close()
    await server.stop(1.0)


@pytest.mark.parametrize("seed", range(25))
async def test_any_requests_in_any_chunks_are_answered_in_order(line: Line, seed: int) -> None:
    rng = random.Random(seed)
    names = ["first", "again", "x", "longer name"]
    asked: list[tuple[bytes, tuple[int, bytes]]] = []
    for _ in range(40):
        name = rng.choice(names[: rng.choice((1, 2, 4))])
        asked.append(rng.choice([(asking(name), (200, greeting(name)))] * 4 + [(LIVE, (200, b"ok\n"))]))
    answers = asyncio.create_task(_answers(line, len(asked)))
    for chunk in _chunks(rng, [request for request, _ in asked]):
        await line.send(chunk)
    assert await answers == [answer for _, answer in asked]
    assert 1 < line.parsed <= 41


async def _answers(line: Line, count: int) -> list[tuple[int, bytes]]:
    return [await line.answer() for _ in range(count)]


def _chunks(rng: random.Random, requests: list[bytes]) -> list[bytes]:
    """Most requests whole, some cut, some joined."""
    chunks, rest = [], b""
    for request in requests:
        rest += request
        if rng.random() < 0.2:
            end = rng.randrange(1, len(rest))
            chunks.append(rest[:end])
            rest = rest[end:]
        if rng.random() < 0.7:
            chunks.append(rest)
            rest = b""
    return [chunk for chunk in [*chunks, rest] if chunk]


def test_no_line_break_gets_into_a_head() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_answer(HttpResponse(200, {"X": "a\r\nSet-Cookie: b"}, b""), close=False)
