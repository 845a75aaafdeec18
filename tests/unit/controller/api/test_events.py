"""`GET /v1/events` of a member: who may listen, what is told, and that nobody is watched while nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from pidkeeper.protocol.events import AllocationsEvent, BrokerEvent, LeaderEvent, MemberEvent
from pidkeeper.protocol.messages import AllocatedBlock
from tests.support.memory_member import MemoryMember
from tests.support.waiting import until
from tests.unit.controller.api.conftest import Api, Serve

BLOCK = AllocatedBlock(first=0, last=999, broker_id=7, broker_epoch=3, offset=5, timestamp_ms=9)


@asynccontextmanager
async def listening(api: Api) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection(*api.address)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: here\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    yield reader
    writer.close()
    await writer.wait_closed()


async def test_events_are_told_by_their_names(api: Api, member: MemoryMember) -> None:
    async with listening(api) as reader, asyncio.timeout(10):
        member.events = [
            LeaderEvent(2, 4, "silent", 1),
            BrokerEvent(7, "fenced", 2),
            MemberEvent(3, "unreachable", 3),
            AllocationsEvent([BLOCK], 2),
        ]
        told = await reader.readuntil(b'"left_out":2}\n\n')
    events = [
        part.split(b"\n") for part in told[told.index(b"event: ") :].split(b"\n\n") if part.startswith(b"event: ")
    ]
    names = [event[0].removeprefix(b"event: ").decode() for event in events]
    values = [msgspec.json.decode(event[1].removeprefix(b"data: ")) for event in events]
    assert names == ["leader", "broker", "member", "allocations"]
    assert values[0] == {"leader_id": 2, "term": 4, "cause": "silent", "timestamp_ms": 1}
    assert values[1] == {"broker_id": 7, "change": "fenced", "timestamp_ms": 2}
    assert values[2] == {"id": 3, "state": "unreachable", "timestamp_ms": 3}
    assert values[3] == {"blocks": [msgspec.to_builtins(BLOCK)], "left_out": 2}


async def test_the_member_is_watched_while_somebody_listens(api: Api, member: MemoryMember) -> None:
    seen = [member.watched]
    async with listening(api):
        seen.append(member.watched)
    assert seen == [False, True]
    await until(lambda: not member.watched)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_nobody_listens_without_a_name_where_everybody_needs_one(serve: Serve, method: str) -> None:
    api = await serve(token="secret")
    assert (await api.call(method, "/v1/events")).status == 401
    named = {"Authorization": "Bearer secret"}
    head = await api.call("HEAD", "/v1/events", headers=named)
    assert (head.status, head.content_type, head.body) == (200, "text/event-stream", b"")
