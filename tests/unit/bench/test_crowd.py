"""The crowd and the good clients of the benchmark, against servers that do as they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench import good_clients
from bench.crowd import crowded, target
from bench.good_clients import Ask, GoodSpec, Served


@asynccontextmanager
async def served(answer: bytes, *, closing: bool = False) -> AsyncIterator[tuple[str, int]]:
    """A server that answers each chunk with `answer`, and then closes the connection if it is `closing`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            writer.write(answer)
            if closing:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


def http_answer(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def ask(address: tuple[str, int], method: str = "POST") -> tuple[Served, list[int], list[int]]:
    spec = GoodSpec([Ask("one", *address, method, "/x", "{}")], seconds=0.2, pause=0.01)
    result = await good_clients.run(spec)
    return result.served[0], result.starts, result.ids


async def test_a_good_client_keeps_what_it_was_given() -> None:
    async with served(http_answer(json.dumps({"producer_id_start": 7}))) as address:
        got, starts, ids = await ask(address)
    assert got.answers == len(starts) > 0
    assert (set(starts), ids, got.failures) == ({7}, [], {})
    assert 0 < got.p50_ms <= got.p99_ms <= got.max_ms


async def test_a_refusal_and_a_lost_connection_are_failures() -> None:
    async with served(http_answer("{}", "503 Unavailable")) as address:
        got, *_ = await ask(address)
    assert got.answers == 0
    assert set(got.failures) == {"ValueError: 503"}
    async with served(b"", closing=True) as address:
        got, *_ = await ask(address)
    assert got.answers == 0
    assert any(reason.startswith("IncompleteReadError") for reason in got.failures)


async def test_ids_over_kafkas_wire_are_kept_too() -> None:
    answer = (22).to_bytes(4, "big") + bytes(9) + b"\x00\x00" + (41).to_bytes(8, "big") + bytes(3)
    async with served(answer) as address:
        got, starts, ids = await ask(address, method="")
    assert got.answers == len(ids) > 0
    assert (starts, set(ids)) == ([], {41})


@pytest.mark.parametrize("kind", ["http", "kafka", "peer"])
async def test_a_crowd_is_opened_whole_and_what_cannot_be_opened_is_counted(kind: str) -> None:
    def hold() -> tuple[int, int, int, int]:
        with crowded([target(f"127.0.0.1:{port}", kind, 3, 5)]) as crowd:  # type: ignore[arg-type]
            begun = crowd.begun
            ended = crowd.disperse()
        return begun.opened, begun.failed, ended.open, ended.failed

    async with served(b"") as (_, port):
        assert await asyncio.to_thread(hold) == (8, 0, 8, 0)
    assert await asyncio.to_thread(_failed, port, kind) == 2


def _failed(port: int, kind: str) -> int:
    with crowded([target(f"http://127.0.0.1:{port}", kind, 1, 1)]) as crowd:  # type: ignore[arg-type]
        return crowd.begun.failed
