"""An agent's calls about consumer groups: at the controllers' real interface, over HTTP and by Kafka's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import MAX_GROUP_CALLS, ControllerClient
from pidkeeper.broker_agent.controllers.kafka_transport import KafkaTransport
from pidkeeper.broker_agent.controllers.transport import Transport
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.controller.state.requests import CommitOffsets, CreateTopic
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitOffsetsRequest,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    FetchedOffset,
    FetchOffsetsRequest,
    FindGroupRequest,
)
from pidkeeper.protocol.groups import MAX_COMMITTED_OFFSETS, GroupMember, PartitionOffset, TopicOffsets
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.service.server import HttpServer
from tests.support.memory_member import MemoryMember
from tests.support.waiting import until
from tests.unit.controller.kafka.conftest import Serve

BROKER = 5, 1
GROUP = "g & h/%é"
MEMBERS = [GroupMember("m", "i", "client", "host")]
OFFSETS = [TopicOffsets("t", (PartitionOffset(1, 5, 2, "meta"), PartitionOffset(9, 5, -1, "")))]


class Asked(NamedTuple):
    """A member, and the calls of an agent that asks it."""

    member: MemoryMember
    calls: GroupCalls


@pytest.fixture(params=["http", "kafka"])
async def asked(serve: Serve, request: pytest.FixtureRequest) -> AsyncIterator[Asked]:
    served = await serve()
    member = served.member
    member.epochs = {5: 1}
    member.decide_on_logs(CreateTopic(uuid.UUID(int=9), "t", 2000, -1, -1, None, False))
    async with contextlib.AsyncExitStack() as stack:
        transport: Transport
        if request.param == "kafka":
            url, transport = f"kafka://{served.address}", await stack.enter_async_context(KafkaTransport())
        else:
            server = HttpServer(served.app)
            host, port = await server.start("127.0.0.1", 0)
            stack.push_async_callback(server.stop, 1.0)
            url, transport = f"http://{host}:{port}", await stack.enter_async_context(AiohttpTransport())
        yield Asked(member, ControllerClient((url,), transport, random.Random(1)))


def commit(*offsets: TopicOffsets, group: str = GROUP) -> CommitOffsetsRequest:
    return CommitOffsetsRequest(*BROKER, group, list(offsets))


async def test_a_group_and_its_offsets_come_and_go(asked: Asked) -> None:
    _, calls = asked
    assert (await calls.find_group(FindGroupRequest(GROUP))).group is None
    wanted = CommitGroupRequest(*BROKER, GROUP, -1, 0, "consumer", MEMBERS)
    joined = await calls.commit_group(wanted)
    assert joined.taken
    assert (await calls.find_group(FindGroupRequest(GROUP))).group == joined.group
    assert (await calls.groups(None, 10)).groups == [joined.group]
    assert (await calls.groups(GROUP, 10)).groups == []
    member = CommitOffsetsRequest(*BROKER, GROUP, OFFSETS, 0, "m", "i")
    assert (await calls.commit_offsets(lambda: member)).codes == [0, 0]
    page = await calls.fetch_offsets(FetchOffsetsRequest(GROUP, [TopicPartitions("t", (0, 1))], require_stable=True))
    assert [one.offset for one in page.offsets] == [-1, 5]
    assert page.offsets[0] == FetchedOffset("t", 0, -1, -1, "")
    gone = DeleteOffsetsRequest(GROUP, [TopicPartitions("t", (1, 0))], *BROKER)
    assert await calls.delete_offsets(gone) == DeleteOffsetsResponse(1)
    doomed = DeleteGroupRequest(GROUP, *BROKER)
    with pytest.raises(RequestError) as refused:
        await calls.delete_group(doomed)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert joined.group is not None
    left = CommitGroupRequest(*BROKER, GROUP, joined.group.version, 1, "consumer", [])
    assert (await calls.commit_group(left)).taken
    assert await calls.delete_group(doomed) == DeleteGroupResponse(GROUP)
    assert (await calls.groups(None, 10)).groups == []


async def test_as_many_offsets_as_a_request_has_go_through_both_transports(asked: Asked) -> None:
    longest = 2**63 - 1
    rows = TopicOffsets("t", tuple(PartitionOffset(number, longest, -1, "") for number in range(MAX_COMMITTED_OFFSETS)))
    assert not any((await asked.calls.commit_offsets(lambda: commit(rows))).codes)
    page = await asked.calls.fetch_offsets(FetchOffsetsRequest(GROUP))
    assert [one.offset for one in page.offsets] == [longest] * 1000
    page = await asked.calls.fetch_offsets(FetchOffsetsRequest(GROUP, after=page.next_after))
    assert [one.partition for one in page.offsets] == list(range(1000, MAX_COMMITTED_OFFSETS))


async def test_what_is_too_large_is_said_to_be(asked: Asked) -> None:
    rows = [TopicOffsets("t", tuple(PartitionOffset(number, 1, -1, "x" * 4096) for number in range(16)))]
    with pytest.raises(RequestError) as refused:
        await asked.calls.commit_offsets(lambda: commit(*rows))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert asked.member.submitted == []


async def test_a_commit_that_has_become_old_is_not_sent_again(asked: Asked) -> None:
    """The caller has committed anew, by way of another agent maybe."""
    attempts: list[int] = []

    def attempt() -> CommitOffsetsRequest:
        if attempts:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "its caller has gone")
        attempts.append(1)
        return commit(*OFFSETS)

    asked.member.leader_id = None
    with pytest.raises(RequestError) as refused:
        await asked.calls.commit_offsets(attempt)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not any(isinstance(one, CommitOffsets) for one in asked.member.submitted)


async def test_a_bound_of_the_quorum_is_told_at_once(asked: Asked) -> None:
    asked.member.fault = RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")
    with pytest.raises(RequestError) as refused:
        async with asyncio.timeout(1):
            await asked.calls.commit_offsets(lambda: commit(*OFFSETS))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_calls_about_groups_have_a_number_of_their_own(asked: Asked) -> None:
    member, calls = asked
    member.hold = True
    waiting = [asyncio.create_task(calls.find_group(FindGroupRequest(GROUP))) for _ in range(MAX_GROUP_CALLS)]
    await until(lambda: len(member.held) == MAX_GROUP_CALLS)
    with pytest.raises(RequestError) as refused:
        await calls.groups(None, 1)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for answer in member.held:
        answer.set_result(None)
    await asyncio.gather(*waiting)
    assert (await calls.groups(None, 1)).groups == []
