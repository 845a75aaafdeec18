from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from bench.closed_loop import LoadResult
from bench.http_load import LoadSpec, content_length, run

Answer = Callable[[int], list[bytes]]


def answer(status: str, body: bytes, field: str = "Content-Length") -> bytes:
    return f"HTTP/1.1 {status}\r\n{field}: {len(body)}\r\nServer: x\r\n\r\n".encode() + body


def block(number: int) -> bytes:
    return answer("200 OK", b'{"error_code":0,"producer_id_start":%d,"producer_id_len":1000}' % (number * 1000))


@asynccontextmanager
async def scripted(answers: Answer) -> AsyncIterator[int]:
    """A server that answers request number n with the chunks of `answers(n)`, each sent on its own."""
    count = 0
    serving: set[asyncio.Task[None]] = set()
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                requests.append(head + await reader.readexactly(content_length(head)))
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

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.wait(serving, timeout=10)
    assert set(requests) == {
        b"POST /p HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        % server_port(requests)
    }


def server_port(requests: list[bytes]) -> int:
    return int(requests[0].split(b"Host: 127.0.0.1:")[1].split(b"\r\n")[0])


async def load(answers: Answer, connections: int = 3) -> LoadResult:
    async with scripted(answers) as port:
        return await asyncio.wait_for(run(LoadSpec("127.0.0.1", port, "/p", "{}", connections, 0.1, 0.0)), 20)


async def test_every_block_is_kept_and_the_rate_counted() -> None:
    result = await load(lambda number: [block(number)])
    assert sorted(result.starts) == [number * 1000 for number in range(1, len(result.starts) + 1)]
    assert result.statuses == {"200": len(result.starts)}
    assert result.failures == []
    assert result.rate > 0
    assert 0 < result.p50_ms <= result.p99_ms


async def test_answers_in_pieces_are_put_together() -> None:
    def pieces(number: int) -> list[bytes]:
        whole = block(number)
        return [whole[:5], whole[5:40], whole[40:-7], whole[-7:]]

    result = await load(pieces)
    assert result.failures == []
    assert sorted(result.starts) == [number * 1000 for number in range(1, len(result.starts) + 1)]


async def test_refusals_are_counted_apart() -> None:
    refusal = answer("429 Too Many Requests", b'{"code":"THROTTLING_QUOTA_EXCEEDED"}', "content-length")
    result = await load(lambda number: [refusal if number % 2 else block(number)])
    assert result.statuses["200"] == len(result.starts)
    assert result.statuses["429"] > 0
    assert result.failures == []
    assert all(start % 2000 == 0 for start in result.starts)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "without Content-Length"),
        (block(1) * 2, "more than one answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5000, "more than one answer"),
    ],
)
async def test_a_strange_answer_ends_the_connection_with_a_reason(bad: bytes, reason: str) -> None:
    result = await load(lambda number: [bad if number == 5 else block(number)])
    assert len(result.failures) == 1
    assert reason in result.failures[0]


async def test_nothing_but_refusals_is_an_error() -> None:
    with pytest.raises(ValueError, match="429"):
        await load(lambda number: [answer("429 Too Many Requests", b"{}")])


def test_results_pass_through_json() -> None:
    result = LoadResult(1.0, 2.0, 3.0, [2.0, 3.0], {"200": 1}, [0], [], 0.5)
    assert msgspec.json.decode(msgspec.json.encode(result), type=LoadResult) == result
