from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.cli.kafka_load import ANSWER_BYTES, request_frame
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.service.access import Access
from pidkeeper.service.kafka import listener as listener_module
from pidkeeper.service.kafka.connection import Connection
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.protection import Protection
from pidkeeper.service.tls import Tls, client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import DAY, NOW, CertificateAuthority
from tests.support.waiting import until

SECONDS = 10.0
RESPONSE_BYTES = 26


def init(correlation_id: int) -> bytes:
    body = (
        struct.pack(">hhih", 22, 4, correlation_id, 1) + b"c\x00" + b"\x00" + struct.pack(">iqh", -1, -1, -1) + b"\x00"
    )
    return struct.pack(">i", len(body)) + body


def init_transaction(correlation_id: int, transactional_id: bytes = b"t") -> bytes:
    body = struct.pack(">hhih", 22, 4, correlation_id, 1) + b"c\x00" + bytes([len(transactional_id) + 1])
    body += transactional_id + struct.pack(">iqh", 60_000, -1, -1) + b"\x00"
    return struct.pack(">i", len(body)) + body


def parse(response: bytes) -> tuple[int, int, int]:
    """Correlation id, error code, producer id."""
    correlation_id, error, producer_id = struct.unpack_from(">4xi5xhq", response)
    return correlation_id, error, producer_id


class Calls:
    """Calls to the controllers that wait until they are answered by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[TransactionalCall, asyncio.Future[bytes]]] = []

    async def ask(self, call: TransactionalCall) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append((call, answer))
        return await answer

    def answer(self, place: int = 0) -> None:
        """Answer call number `place` with its own correlation id and the producer id 10**6 plus that."""
        call, answer = self.waiting[place]
        number = call.header.correlation_id
        answer.set_result(struct.pack(">iiBihqhB", 22, number, 0, 0, 0, 10**6 + number, 0, 0))


Start = Callable[..., "asyncio.Future[tuple[KafkaListener, int, BlockReserve]]"]


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
async def start(calls: Calls) -> AsyncIterator[Start]:
    listeners: list[KafkaListener] = []

    async def begin(**options: Any) -> tuple[KafkaListener, int, BlockReserve]:
        listener = KafkaListener(Access.PRODUCER, **options)
        reserve = BlockReserve()
        reserve.offer(ProducerIdBlock(0, 1_000_000))
        port = await listener.bind("127.0.0.1", 0)
        responder = KafkaResponder(reserve, Directory(Node(1, "127.0.0.1", port)), lambda: None)
        await listener.serve(AgentApplication(responder, calls.ask))
        listeners.append(listener)
        return listener, port, reserve

    yield begin  # type: ignore[misc]
    for listener in listeners:
        await listener.stop()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def at_end(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SECONDS):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("required", [False, True])
async def test_nobody_is_let_in_unnamed_where_names_are_required(start: Start, tmp_path: Path, required: bool) -> None:
    """Even by a context that would."""
    files = CertificateAuthority(tmp_path).issue("agent", uris=["pidkeeper://c/broker/1"])
    tls = Tls(files)
    tls.contexts.members.verify_mode = ssl.CERT_OPTIONAL
    protection = Protection("required" if required else "optional", tls, "c")
    listener, port, _ = await start(protection=protection)
    unnamed = client_context(TlsFiles(ca_file=files.ca_file))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unnamed)
    if required:
        assert await at_end(reader)
        assert listener.handshakes_failed == {"no producer": 1}
    else:
        writer.write(request_frame())
        async with asyncio.timeout(SECONDS):
            assert len(await reader.readexactly(ANSWER_BYTES)) == ANSWER_BYTES
    await close(writer)


async def test_a_connection_ends_with_its_certificate_once_its_call_is_answered(
    start: Start, calls: Calls, tmp_path: Path
) -> None:
    authority, now = CertificateAuthority(tmp_path), [time.time()]
    files = authority.issue("agent", uris=["pidkeeper://c/broker/1"])
    protection = Protection("optional", Tls(files), "c", wall_clock=lambda: now[0])
    listener, port, _ = await start(protection=protection, idle_timeout=0.4)
    certified = client_context(authority.issue("app", uris=["pidkeeper://c/producer/app"]))

    async def asking(context: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(init_transaction(7))
        return reader, writer

    opened = [await asking(context) for context in (certified, certified, None)]
    await until(lambda: len(calls.waiting) == 3)
    calls.answer(0)
    await opened[0][0].readexactly(RESPONSE_BYTES)
    now[0] = (NOW + 2 * DAY).timestamp()
    async with asyncio.timeout(SECONDS):
        assert await opened[0][0].read() == b""
    swept = listener.sweeps
    await until(lambda: listener.sweeps > swept + 1)
    assert len(listener.connections) == 2, "whoever waits for an answer gets it"
    for place in (1, 2):
        calls.answer(place)
        await opened[place][0].readexactly(RESPONSE_BYTES)
    assert await at_end(opened[1][0])
    assert listener.cut["expired"] == 2
    for _, writer in opened:
        await close(writer)


async def test_pipelined_requests_are_answered_in_order(start: Start) -> None:
    _, port, _ = await start()
    reader, writer = await connect(port)
    writer.write(b"".join(init(number) for number in range(200)))
    async with asyncio.timeout(SECONDS):
        answers = [parse(await reader.readexactly(RESPONSE_BYTES)) for _ in range(200)]
    assert answers == [(number, 0, number) for number in range(200)]
    await close(writer)


async def test_a_frame_that_trickles_in_is_answered_once_whole(start: Start) -> None:
    _, port, reserve = await start()
    reader, writer = await connect(port)
    stream = init(1) + init(2)
    for position in range(len(stream)):
        writer.write(stream[position : position + 1])
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS):
        answers = [parse(await reader.readexactly(RESPONSE_BYTES)) for _ in range(2)]
    assert (answers, reserve.claimed) == ([(1, 0, 0), (2, 0, 1)], 2)
    await close(writer)


@pytest.mark.parametrize("chunks", [1, 5])
async def test_a_malformed_frame_closes_the_connection_and_claims_nothing(start: Start, chunks: int) -> None:
    listener, port, reserve = await start()
    reader, writer = await connect(port)
    bad = struct.pack(">ihhi", 8, 99, 0, 1)
    step = -(-len(bad) // chunks)
    for position in range(0, len(bad), step):
        writer.write(bad[position : position + step])
        await writer.drain()
        await asyncio.sleep(0.01)
    assert await at_end(reader)
    assert (listener.malformed, reserve.claimed) == (1, 0)
    await close(writer)


@pytest.mark.parametrize("split", [0, 2])
async def test_a_giant_frame_closes_the_connection_at_its_length(start: Start, split: int) -> None:
    listener, port, _ = await start()
    reader, writer = await connect(port)
    length = struct.pack(">i", 2**31 - 1)
    writer.write(length[:split])
    await asyncio.sleep(0.01)
    writer.write(length[split:])
    assert await at_end(reader)
    assert listener.malformed == 1
    await close(writer)


async def test_connections_beyond_the_cap_are_closed_and_a_freed_place_is_given_again(start: Start) -> None:
    listener, port, _ = await start(max_connections=2)
    first, second = await connect(port), await connect(port)
    for reader, writer in (first, second):
        writer.write(init(1))
        await reader.readexactly(RESPONSE_BYTES)
    third = await connect(port)
    assert await at_end(third[0])
    assert (listener.refused, len(listener.connections)) == (1, 2)
    await close(first[1])
    await until(lambda: len(listener.connections) < 2)
    reader, writer = await connect(port)
    writer.write(init(1))
    await reader.readexactly(RESPONSE_BYTES)
    for one in (second[1], third[1], writer):
        await close(one)


@pytest.mark.parametrize("sent", [b"", init(1)[:-1]], ids=["silent", "never finished"])
async def test_who_asks_for_nothing_gives_way_to_whoever_comes(start: Start, sent: bytes) -> None:
    listener, port, _ = await start(max_connections=3)
    good = await connect(port)
    good[1].write(init(1))
    await good[0].readexactly(RESPONSE_BYTES)
    others = []
    for number in range(1, 6):
        reader, writer = await connect(port)
        writer.write(sent)
        await writer.drain()
        others.append((reader, writer))
        await until(lambda: listener.accepted == number + 1)  # noqa: B023
    assert [await at_end(reader) for reader, _ in others[:3]] == [True] * 3
    assert (listener.evicted, listener.refused, len(listener.connections)) == (3, 0, 3)
    newest = await connect(port)
    for reader, writer in (newest, good):
        writer.write(init(2))
        await reader.readexactly(RESPONSE_BYTES)
    assert listener.evicted == 4
    for _, writer in (newest, good, *others):
        await close(writer)


async def test_among_those_that_have_asked_the_one_that_did_so_longest_ago_gives_way(start: Start) -> None:
    listener, port, _ = await start(max_connections=2, idle_timeout=1e6)
    first, second = await connect(port), await connect(port)
    for reader, writer in (first, second):
        writer.write(init(1))
        await reader.readexactly(RESPONSE_BYTES)
    listener._sweep()
    first[1].write(init(2))
    await first[0].readexactly(RESPONSE_BYTES)
    third = await connect(port)
    third[1].write(init(3))
    await third[0].readexactly(RESPONSE_BYTES)
    assert await at_end(second[0])
    assert (listener.evicted, listener.refused, len(listener.connections)) == (1, 0, 2)
    for _, writer in (first, second, third):
        await close(writer)


async def test_who_waits_for_an_answer_of_the_controllers_gives_way_to_nobody(start: Start, calls: Calls) -> None:
    listener, port, _ = await start(max_connections=1, idle_timeout=1e6)
    reader, writer = await connect(port)
    writer.write(init_transaction(7))
    await until(lambda: bool(calls.waiting))
    listener._sweep()
    listener._sweep()
    other = await connect(port)
    assert await at_end(other[0])
    assert (listener.evicted, listener.refused) == (0, 1)
    calls.answer()
    assert parse(await reader.readexactly(RESPONSE_BYTES)) == (7, 0, 10**6 + 7)
    for one in (writer, other[1]):
        await close(one)


async def test_an_idle_connection_is_closed_and_trickled_bytes_are_no_life(start: Start) -> None:
    listener, port, _ = await start(idle_timeout=0.2)
    reader, writer = await connect(port)
    writer.write(struct.pack(">i", 60_000))
    async with asyncio.timeout(SECONDS):
        while not listener.idle_closed:
            assert not listener.malformed
            writer.write(b"\x00")
            await asyncio.sleep(0.05)
    assert await at_end(reader)
    await close(writer)


async def test_a_request_that_does_not_come_is_cut_and_a_slow_one_is_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "REQUEST_SECONDS", 1.5)
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.02)
    listener, port, _ = await start()
    idle, slow = await connect(port), await connect(port)
    for reader, writer in (idle, slow):
        writer.write(init(1))
        await reader.readexactly(RESPONSE_BYTES)
    silent, half = await connect(port), await connect(port)
    half[1].write(init(1)[:-1])
    assert [await at_end(reader) for reader, _ in (silent, half)] == [True, True]
    slow[1].write(init(2)[:-1])
    swept = listener.sweeps
    await until(lambda: listener.sweeps > swept + 3)
    slow[1].write(init(2)[-1:])
    idle[1].write(init(2))
    for reader, _ in (slow, idle):
        assert parse(await reader.readexactly(RESPONSE_BYTES))[:2] == (2, 0)
    assert (listener.cut, listener.idle_closed) == (
        {"head": 2, "answer": 0, "memory": 0, "expired": 0, "revoked": 0},
        0,
    )
    for _, writer in (idle, slow, silent, half):
        await close(writer)


async def test_a_client_that_never_reads_is_cut(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "ANSWER_SECONDS", 0.2)
    listener, port, _ = await start(idle_timeout=0.4)
    good = await connect(port)
    _, writer = await connect(port)
    writer.write(b"".join(init(number) for number in range(400_000)))
    async with asyncio.timeout(SECONDS):
        while not listener.cut["answer"]:
            good[1].write(init(1))
            await good[0].readexactly(RESPONSE_BYTES)
    await until(lambda: len(listener.connections) == 1)
    for one in (writer, good[1]):
        await close(one)


async def test_what_all_hold_is_bounded_and_who_holds_little_is_not_cut(
    start: Start, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "SHARED_BYTES", 100_000)
    listener, port, _ = await start()
    small, *large = [await connect(port) for _ in range(4)]
    small[1].write(init_transaction(1) + init(2))
    await until(lambda: len(calls.waiting) == 1)
    for _, writer in large:
        writer.write(struct.pack(">i", 60_000) + bytes(59_999))
    await until(lambda: sum(listener.cut.values()) == 2)
    assert listener.cut["memory"] == 2
    calls.answer()
    assert await read(small[0], 2) == [(1, 0, 10**6 + 1), (2, 0, 0)]
    for _, writer in (small, *large):
        await close(writer)


async def test_a_busy_connection_outlives_the_idle_timeout(start: Start) -> None:
    listener, port, _ = await start(idle_timeout=0.4)
    reader, writer = await connect(port)
    sweeps_wanted = 12
    async with asyncio.timeout(SECONDS):
        while listener.sweeps < sweeps_wanted:
            writer.write(init(1))
            await reader.readexactly(RESPONSE_BYTES)
            await asyncio.sleep(0.02)
    assert listener.idle_closed == 0
    await close(writer)


async def test_a_client_that_does_not_read_is_not_read_from(start: Start) -> None:
    """Without back-pressure the listener would claim an ID for every request of a client that never takes one."""
    _, port, reserve = await start()
    reader, writer = await connect(port)
    requests = 400_000
    writer.write(b"".join(init(number) for number in range(requests)))
    claimed = -1
    async with asyncio.timeout(SECONDS):
        while claimed != reserve.claimed or claimed == 0:
            claimed = reserve.claimed
            await asyncio.sleep(0.2)
    assert claimed < requests, "everything was answered into memory"
    async with asyncio.timeout(30):
        last = (await reader.readexactly(RESPONSE_BYTES * requests))[-RESPONSE_BYTES:]
    assert parse(last) == (requests - 1, 0, requests - 1)
    await close(writer)


async def test_amplifying_requests_of_a_client_that_does_not_read_wait_unanswered(start: Start) -> None:
    listener, port, _ = await start()
    reader, writer = await connect(port)
    body = struct.pack(">hhih", 10, 4, 1, -1) + b"\x00" + b"\x01" + b"\x81\x20" + b"\x02k" * 4096 + b"\x00"
    request = struct.pack(">i", len(body)) + body
    requests = 600
    writer.write(request * requests)
    written = -1

    def unsent() -> int:
        return sum(connection.transport.get_write_buffer_size() for connection in listener.connections)

    async with asyncio.timeout(SECONDS):
        while written != unsent() or not written:
            written = unsent()
            await asyncio.sleep(0.1)
    assert written < 64 * 1024 + 64 * 1024 + 120 * 1024
    async with asyncio.timeout(30):
        for _ in range(requests):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
    await close(writer)


async def test_stop_sends_what_was_answered_and_refuses_newcomers(start: Start) -> None:
    listener, port, _ = await start()
    reader, writer = await connect(port)
    writer.write(init(5))
    assert parse(await reader.readexactly(RESPONSE_BYTES)) == (5, 0, 0)
    await listener.stop()
    assert await at_end(reader)
    with pytest.raises(ConnectionError):
        await connect(port)
    await close(writer)


async def read(reader: asyncio.StreamReader, count: int = 1) -> list[tuple[int, int, int]]:
    async with asyncio.timeout(SECONDS):
        return [parse(await reader.readexactly(RESPONSE_BYTES)) for _ in range(count)]


async def test_nothing_overtakes_an_answer_that_takes_the_controllers(start: Start, calls: Calls) -> None:
    _, port, reserve = await start()
    reader, writer = await connect(port)
    writer.write(init(1) + init_transaction(2) + init(3) + init(4))
    assert await read(reader) == [(1, 0, 0)]
    await until(lambda: len(calls.waiting) == 1)
    writer.write(init(5)[:9])
    await asyncio.sleep(0.05)
    writer.write(init(5)[9:] + init_transaction(6) + init(7))
    await asyncio.sleep(0.05)
    assert reserve.claimed == 1, "a request behind the one that waits was answered"
    calls.answer()
    assert await read(reader, 4) == [(2, 0, 10**6 + 2), (3, 0, 1), (4, 0, 2), (5, 0, 3)]
    await until(lambda: len(calls.waiting) == 2)
    assert reserve.claimed == 4
    calls.answer(1)
    assert await read(reader, 2) == [(6, 0, 10**6 + 6), (7, 0, 4)]
    await close(writer)


async def test_every_connection_gets_its_own_answers_whatever_the_order_they_come_in(
    start: Start, calls: Calls
) -> None:
    _, port, _ = await start()
    clients = [await connect(port) for _ in range(5)]
    for number, (_, writer) in enumerate(clients):
        writer.write(b"".join(init_transaction(10 * number + at) for at in range(3)))
    for turn in range(3):
        await until(lambda turn=turn: len(calls.waiting) == 5 * (turn + 1))  # type: ignore[misc]
        for place in reversed(range(5 * turn, 5 * turn + 5)):
            calls.answer(place)
    for number, (reader, writer) in enumerate(clients):
        expected = [10 * number + at for at in range(3)]
        assert await read(reader, 3) == [(one, 0, 10**6 + one) for one in expected]
        await close(writer)


async def test_others_are_answered_while_one_waits(start: Start, calls: Calls) -> None:
    _, port, _ = await start()
    (_, waits), (reader, other) = await connect(port), await connect(port)
    waits.write(init_transaction(1))
    await until(lambda: len(calls.waiting) == 1)
    other.write(init(5))
    assert await read(reader) == [(5, 0, 0)]
    for one in (waits, other):
        await close(one)


async def test_a_client_that_hangs_up_stops_nothing_and_is_answered_nothing(start: Start, calls: Calls) -> None:
    listener, port, _ = await start()
    _, writer = await connect(port)
    writer.write(init_transaction(1) + init(2))
    await until(lambda: len(calls.waiting) == 1)
    writer.transport.abort()
    await asyncio.sleep(0.05)
    _, answer = calls.waiting[0]
    assert not answer.cancelled()
    calls.answer()
    await until(lambda: not listener.connections)
    await until(lambda: not listener._calls)


async def test_a_waiting_connection_is_not_idle(start: Start, calls: Calls) -> None:
    listener, port, _ = await start(idle_timeout=0.1)
    reader, writer = await connect(port)
    writer.write(init_transaction(1))
    await until(lambda: len(calls.waiting) == 1)
    sweeps = listener.sweeps
    await until(lambda: listener.sweeps > sweeps + 10)
    calls.answer()
    assert await read(reader) == [(1, 0, 10**6 + 1)]
    await until(lambda: listener.idle_closed == 1)
    await close(writer)


async def test_a_call_that_breaks_closes_its_connection_and_is_reported(start: Start, calls: Calls) -> None:
    _, port, _ = await start()
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    reader, writer = await connect(port)
    writer.write(init_transaction(1) + init(2))
    await until(lambda: len(calls.waiting) == 1)
    calls.waiting[0][1].set_exception(AssertionError("A4: broken"))
    assert await at_end(reader)
    assert [str(error) for error in reported] == ["A4: broken"]
    await close(writer)


async def test_stop_ends_a_waiting_connection_without_an_answer(start: Start, calls: Calls) -> None:
    listener, port, _ = await start()
    reader, writer = await connect(port)
    writer.write(init_transaction(1))
    await until(lambda: len(calls.waiting) == 1)
    await listener.stop()
    assert await at_end(reader)
    assert calls.waiting[0][1].cancelled()
    await close(writer)


async def test_a_malformed_frame_behind_a_waiting_one_is_refused_after_the_answer(start: Start, calls: Calls) -> None:
    listener, port, _ = await start()
    reader, writer = await connect(port)
    writer.write(init_transaction(1) + struct.pack(">ihhi", 8, 99, 0, 1))
    await until(lambda: len(calls.waiting) == 1)
    assert listener.malformed == 0
    calls.answer()
    assert await read(reader) == [(1, 0, 10**6 + 1)]
    assert await at_end(reader)
    assert listener.malformed == 1
    await close(writer)


async def test_a_client_that_neither_reads_nor_stops_asking_waits_for_its_own_reading(
    start: Start, calls: Calls
) -> None:
    """Back-pressure holds across a call: what it kept waiting is not answered into memory."""
    listener, port, reserve = await start()
    reader, writer = await connect(port)
    requests = 200_000
    writer.write(b"".join(init(number) for number in range(requests)) + init_transaction(requests) + init(requests + 1))
    async with asyncio.timeout(30):
        received = await reader.readexactly(RESPONSE_BYTES * requests)
        assert parse(received[-RESPONSE_BYTES:]) == (requests - 1, 0, requests - 1)
    await until(lambda: len(calls.waiting) == 1)
    calls.answer()
    assert await read(reader, 2) == [(requests, 0, 10**6 + requests), (requests + 1, 0, requests)]
    assert reserve.claimed == requests + 1
    assert not any(connection.muted for connection in listener.connections)
    await close(writer)


class Transport:
    """A transport that delivers whatever it is told to, as one may that had read on before it was paused."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        """Nothing is known of the other side."""


@pytest.mark.parametrize("behind", [b"", init(2)[:10]])
async def test_bytes_that_still_come_in_and_room_to_write_change_nothing_for_a_muted_connection(
    start: Start, calls: Calls, behind: bytes
) -> None:
    listener, _, reserve = await start()
    connection, transport = Connection(listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(init_transaction(1) + behind)
    assert (connection.muted, transport.reading) == (True, not behind)
    connection.data_received(init(2)[len(behind) :])
    connection.pause_writing()
    connection.resume_writing()
    assert (transport.written, transport.reading, reserve.claimed) == (b"", False, 0)
    await until(lambda: len(calls.waiting) == 1)
    calls.answer()
    await until(lambda: not connection.muted)
    assert [parse(transport.written[at : at + 26]) for at in (0, 26)] == [(1, 0, 10**6 + 1), (2, 0, 0)]
    assert transport.reading
    connection.connection_lost(None)


async def test_an_answer_that_fills_the_buffer_leaves_what_is_behind_it_for_later(start: Start, calls: Calls) -> None:
    listener, _, reserve = await start()
    connection, transport = Connection(listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(init_transaction(1) + init(2))
    await until(lambda: len(calls.waiting) == 1)
    connection.pause_writing()
    calls.answer()
    await until(lambda: not connection.muted)
    assert (len(transport.written), transport.reading, reserve.claimed) == (26, False, 0)
    connection.resume_writing()
    assert parse(transport.written[26:]) == (2, 0, 0)
    assert transport.reading
    connection.connection_lost(None)
