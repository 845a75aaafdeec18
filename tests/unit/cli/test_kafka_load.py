from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.cli.kafka_load import MAX_IN_FLIGHT, ClaimConnection, ClaimTally, connect
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.service.access import Access
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.tls import client_context, server_context
from pidkeeper.service.tls_files import TlsFiles


@asynccontextmanager
async def listening(responder: KafkaResponder) -> AsyncIterator[str]:
    listener = KafkaListener(Access.PRODUCER)
    port = await listener.bind("127.0.0.1", 0)
    await listener.serve(AgentApplication(responder, no_transactions))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.stop()


async def no_transactions(call: TransactionalCall) -> bytes:
    raise AssertionError(f"asked for {call}")


def responder_with(ids: int) -> KafkaResponder:
    reserve = BlockReserve()
    if ids:
        reserve.offer(ProducerIdBlock(1000, ids))
    return KafkaResponder(reserve, Directory(Node(1, "127.0.0.1", 1)), lambda: "cluster")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a test may poll
            await asyncio.sleep(0.001)


async def test_a_closed_loop_claims_distinct_ids_until_told_to_stop() -> None:
    tally = ClaimTally()
    async with listening(responder_with(1_000_000)) as address:
        connections = [await connect(address, tally, repeat=True) for _ in range(3)]
        for connection in connections:
            assert connection.send(16) == 16
        await until(lambda: tally.claims > 1000)
        for connection in connections:
            connection.repeat = False
        await until(lambda: all(connection.outstanding == 0 for connection in connections))
        for connection in connections:
            connection.close()
            await connection.closed
    assert sorted(tally.ids) == list(range(1000, 1000 + tally.claims))
    assert not tally.errors
    assert tally.lost_connections == 0


async def test_paced_sending_gets_one_answer_each() -> None:
    tally = ClaimTally()
    async with listening(responder_with(100)) as address:
        connection = await connect(address, tally)
        for count in (1, 5, 10):
            connection.send(count)
        await until(lambda: connection.outstanding == 0)
        assert tally.ids.tolist() == list(range(1000, 1016))


async def test_refusals_are_counted_by_code_and_give_no_id() -> None:
    tally = ClaimTally()
    async with listening(responder_with(10)) as address:
        connection = await connect(address, tally)
        connection.send(12)
        await until(lambda: connection.outstanding == 0)
        connection.send(2)
        await until(lambda: connection.outstanding == 0)
    assert tally.ids.tolist() == list(range(1000, 1010))
    assert tally.errors == {14: 4}


async def test_what_is_unanswered_is_bounded() -> None:
    tally = ClaimTally()
    async with listening(responder_with(2000)) as address:
        connection = await connect(address, tally)
        assert connection.send(MAX_IN_FLIGHT + 100) == MAX_IN_FLIGHT
        assert connection.send(1) == 0
        await until(lambda: tally.claims == MAX_IN_FLIGHT)
        assert connection.send(1) == 1


async def test_a_connection_over_tls_ends_at_once_though_the_other_side_stands_still(tmp_path: Path) -> None:
    DevAuthority(tmp_path).issue("server", [], ["127.0.0.1"], 1)
    own = TlsFiles(certificate_file=str(tmp_path / "server.pem"), key_file=str(tmp_path / "server.key"))
    trusting = client_context(TlsFiles(ca_file=str(tmp_path / "ca.pem")))

    def shake_hands(listening: socket.socket) -> ssl.SSLSocket:
        return server_context(own).wrap_socket(listening.accept()[0], server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = asyncio.create_task(asyncio.to_thread(shake_hands, listening))
        connection = await connect(f"127.0.0.1:{listening.getsockname()[1]}", ClaimTally(), context=trusting)
        with await accepting:
            assert connection.send(1) == 1
            connection.close()
            await asyncio.wait_for(connection.closed, 10)


async def answering(data: bytes, step: int, count: int) -> tuple[ClaimConnection, ClaimTally]:
    """A connection with `count` requests sent, to a server that answers with `data` in pieces of `step`, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for at in range(0, len(data), step):
            writer.write(data[at : at + step])
            await writer.drain()
            await asyncio.sleep(0.002)
        writer.close()
        await writer.wait_closed()
        ended.set()

    tally, ended = ClaimTally(), asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", tally)
        connection.send(count)
        await asyncio.wait_for(connection.closed, 10)
        await asyncio.wait_for(ended.wait(), 10)
    return connection, tally


def answers(count: int) -> bytes:
    head = bytes.fromhex("00000016 70696421 00 00000000 0000")
    return b"".join(head + number.to_bytes(8, "big") + bytes(3) for number in range(count))


@pytest.mark.parametrize("step", [1, 7, 26, 30])
async def test_answers_in_pieces_are_put_together(step: int) -> None:
    connection, tally = await answering(answers(4), step, 5)
    assert tally.ids.tolist() == [0, 1, 2, 3]
    assert connection.outstanding == 1
    assert tally.lost_connections == 1, "one request was never answered"


@pytest.mark.parametrize(
    "data",
    [
        answers(1).replace(b"pid!", b"pid?"),
        answers(2)[:26] + b"\0\0\0\x17" + answers(2)[30:],
        answers(1)[:8] + b"\1" + answers(1)[9:],
        answers(6),
    ],
    ids=["correlation id", "length of a later frame", "tagged field", "more answers than requests"],
)
async def test_a_strange_answer_ends_the_connection_and_counts_nothing(data: bytes) -> None:
    connection, tally = await answering(data, len(data), 5)
    assert connection.failure is not None
    assert tally.claims == 0


def test_the_longest_gap_is_between_answers_with_ids() -> None:
    times = iter([10.0, 10.5, 13.0, 13.1])
    tally = ClaimTally(clock=lambda: next(times))
    tally.take((0, 1))
    tally.take((0, 2, 14, -1))
    tally.take((14, -1, 14, -1))
    tally.take((0, 3))
    tally.take((0, 4))
    assert tally.longest_gap == 2.5
    assert tally.ids.tolist() == [1, 2, 3, 4]
    assert tally.errors == {14: 3}
