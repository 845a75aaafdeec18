"""The quorum's leader as far as consumer groups go, in memory: the real state and its decisions, without consensus."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from pidkeeper.controller.node.group_views import fetch_offsets, find_group, groups_page
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitGroupResponse,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    FetchOffsetsRequest,
    FindGroupRequest,
    FindGroupResponse,
    GroupsPage,
    OffsetsPage,
)
from tests.support.log_leader import LogLeader

_Response = TypeVar("_Response")


class GroupLeader:
    """`GroupCalls`, by the state of `leader`. `calls`: what was asked, in order. `refusals`: of the next calls; None
    for an answer."""

    def __init__(self, leader: LogLeader) -> None:
        self.leader = leader
        self.calls: list[Any] = []
        self.refusals: deque[ErrorCode | None] = deque()

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse:
        return await self._answer(
            request, lambda: FindGroupResponse(find_group(self.leader.machine.groups, request.group_id))
        )

    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse:
        broker = request.broker_id, request.broker_epoch
        asked = request.group_id, request.after, request.generation, request.protocol_type, tuple(request.members)
        return await self._decide(request, requests.CommitGroup(broker, *asked), CommitGroupResponse)

    async def commit_offsets(self, attempt: Callable[[], CommitOffsetsRequest]) -> CommitOffsetsResponse:
        one = attempt()
        broker, who = (one.broker_id, one.broker_epoch), (one.generation, one.member_id, one.instance_id)
        asked = requests.CommitOffsets(broker, one.group_id, tuple(one.topics), *who, one.transaction)
        return await self._decide(one, asked, CommitOffsetsResponse)

    async def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        return await self._answer(request, lambda: fetch_offsets(self.leader.machine.groups, request))

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        asked = requests.DeleteGroup(_broker(request), request.group_id)
        return await self._decide(request, asked, DeleteGroupResponse)

    async def delete_offsets(self, request: DeleteOffsetsRequest) -> DeleteOffsetsResponse:
        asked = requests.DeleteOffsets(_broker(request), request.group_id, tuple(request.topics))
        return await self._decide(request, asked, DeleteOffsetsResponse)

    async def groups(self, after: str | None, limit: int) -> GroupsPage:
        return await self._answer((after, limit), lambda: groups_page(self.leader.machine.groups, after, limit))

    async def _decide(self, request: Any, asked: requests.Request, kind: type[_Response]) -> _Response:
        answer = await self._answer(request, lambda: self.leader.decide(asked))
        assert isinstance(answer, kind), f"{answer} where a {kind.__name__} is due"
        return answer

    async def _answer(self, request: Any, carry_out: Callable[[], _Response]) -> _Response:
        self.calls.append(request)
        await asyncio.sleep(0)
        refusal = self.refusals.popleft() if self.refusals else None
        if refusal is not None:
            raise RequestError(refusal)
        return carry_out()


def _broker(request: DeleteGroupRequest | DeleteOffsetsRequest) -> tuple[int, int]:
    """The agent that asks, which has to say so."""
    assert request.broker_id is not None and request.broker_epoch is not None, "an agent asks"
    return request.broker_id, request.broker_epoch
