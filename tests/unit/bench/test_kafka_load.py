from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.closed_loop import LoadResult
from bench.floor import HOST, Floor
from bench.kafka_load import CORRELATION_ID, KafkaLoadSpec, answer_frame, request_frame, run
from pidkeeper.service.kafka.wire.allocate_producer_ids import AllocateRequest, read_request
from pidkeeper.service.kafka.wire.headers import read_request_header
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import ALLOCATE_PRODUCER_IDS, Versions

Answer = Callable[[int], list[bytes]]


@asynccontextmanager
async def scripted(answers: Answer) -> AsyncIterator[int]:
    """A server that answers request number n with the chunks of `answers(n)`, each sent on its own."""
    count = 0
    length = len(request_frame(7, 8))
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while await reader.readexactly(length) == request_frame(7, 8):
                count += 1
                for chunk in answers(count):
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])

    async with await asyncio.start_server(serve, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.wait(serving, timeout=10)


async def load(answers: Answer) -> LoadResult:
    async with scripted(answers) as port:
        return await asyncio.wait_for(run(KafkaLoadSpec(HOST, port, 7, 8, 3, 0.1, 0.0)), 20)


def block(number: int) -> bytes:
    return answer_frame(CORRELATION_ID, number * 1000, 1000)


def test_it_asks_as_a_broker_does() -> None:
    reader = Reader(request_frame(7, 2**40)[4:])
    header = read_request_header(reader, {ALLOCATE_PRODUCER_IDS: Versions(0, 0, first_flexible=0)})
    assert (header.api_key, header.correlation_id) == (ALLOCATE_PRODUCER_IDS, CORRELATION_ID)
    assert read_request(reader, 0) == AllocateRequest(7, 2**40)


async def test_every_block_is_kept_also_in_pieces() -> None:
    result = await load(lambda number: [block(number)[:3], block(number)[3:20], block(number)[20:]])
    assert result.failures == []
    assert sorted(result.starts) == [number * 1000 for number in range(1, len(result.starts) + 1)]
    assert result.statuses == {"200": len(result.starts)}


async def test_refusals_are_counted_apart() -> None:
    refusal = block(0)[:13] + (89).to_bytes(2, "big") + block(0)[15:]
    result = await load(lambda number: [refusal if number % 2 else block(number)])
    assert result.statuses["89"] > 0
    assert result.statuses["200"] == len(result.starts)
    assert all(start % 2000 == 0 for start in result.starts)


@pytest.mark.parametrize("bad", [block(1) * 2, answer_frame(5, 0, 1000), b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_strange_answer_ends_the_connection_with_a_reason(bad: bytes) -> None:
    result = await load(lambda number: [bad if number == 5 else block(number)])
    assert len(result.failures) == 1
    assert "not one answer" in result.failures[0]


async def test_the_bare_floor_gives_each_block_once(tmp_path: Path) -> None:
    with Floor(tmp_path) as floor:
        result = await run(KafkaLoadSpec(HOST, floor.kafka_port, 7, 8, 8, 0.3, 0.0))
    assert result.failures == []
    assert sorted(result.starts) == [number * 1000 for number in range(len(result.starts))]
