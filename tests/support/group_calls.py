"""The controllers' calls about groups, answered in memory, and what else answers to clients are made from."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeftMember
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupRequest, SyncGroupResponse
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
    FetchedOffset,
    FetchOffsetsRequest,
    FindGroupRequest,
    FindGroupResponse,
    GroupDescription,
    GroupsPage,
    OffsetsPage,
)
from pidkeeper.protocol.metadata_version import LATEST


class Registered:
    """A session under an epoch; `doubted`: those that were called stale."""

    def __init__(self) -> None:
        self.broker_id = 7
        self.broker_epoch: int | None = 70
        self.metadata_version = LATEST
        self.founding_id: uuid.UUID | None = None
        self.store_epoch: int | None = 70
        self.doubted: list[int] = []

    def doubt_epoch(self, epoch: int) -> None:
        self.doubted.append(epoch)


class MemoryCalls:
    """Keeps what is committed, of whoever commits, and tells it in pages of `page` offsets.

    `requests`: all that came. `refusals`: what is raised in place of the next answers; None for an answer. `codes`: of
    partitions that are not kept. `unstable`: those that a transaction holds. `listed`: the groups, in order.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refusals: list[ErrorCode | None] = []
        self.codes: dict[tuple[str, int], int] = {}
        self.kept: dict[str, dict[tuple[str, int], FetchedOffset]] = {}
        self.unstable: set[tuple[str, int]] = set()
        self.listed: list[GroupDescription] = []
        self.page = 1000

    def _came(self, request: Any) -> None:
        self.requests.append(request)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise RequestError(refusal)

    async def commit_offsets(self, attempt: Callable[[], CommitOffsetsRequest]) -> CommitOffsetsResponse:
        request = attempt()
        self._came(request)
        kept = self.kept.setdefault(request.group_id, {})
        codes = []
        for topic in request.topics:
            for one in topic.partitions:
                place = topic.topic, one.partition
                codes.append(self.codes.get(place, 0))
                if not codes[-1]:
                    kept[place] = FetchedOffset(*place, one.offset, one.leader_epoch, one.metadata)
        return CommitOffsetsResponse(codes)

    async def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        self._came(request)
        kept = self.kept.get(request.group_id, {})
        if request.topics is None:
            wanted = sorted(kept)
        else:
            wanted = sorted((one.topic, number) for one in request.topics for number in one.partitions)
        left = [place for place in wanted if request.after is None or place > request.after]
        told = [
            FetchedOffset(*place, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code)
            if place in self.unstable and request.require_stable
            else kept.get(place, FetchedOffset(*place, -1, -1, ""))
            for place in left[: self.page]
        ]
        return OffsetsPage(told, left[self.page - 1] if len(left) > self.page else None)

    async def delete_offsets(self, request: DeleteOffsetsRequest) -> DeleteOffsetsResponse:
        self._came(request)
        kept = self.kept.get(request.group_id, {})
        gone = [(one.topic, number) for one in request.topics for number in one.partitions]
        return DeleteOffsetsResponse(sum(kept.pop(place, None) is not None for place in gone))

    async def groups(self, after: str | None, limit: int) -> GroupsPage:
        self._came((after, limit))
        left = [one for one in self.listed if after is None or one.group_id > after]
        return GroupsPage(left[:limit], left[limit - 1].group_id if len(left) > limit else None)

    async def find_group(self, request: FindGroupRequest) -> FindGroupResponse:
        raise NotImplementedError

    async def commit_group(self, request: CommitGroupRequest) -> CommitGroupResponse:
        raise NotImplementedError

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupResponse:
        raise NotImplementedError


class ToldCoordination:
    """A coordinator that says what a test wants. `asked`: what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.code = ErrorCode.NONE
        self.described: dict[str, DescribedGroup] = {}
        self.states: dict[str, State] = {}

    async def join_group(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        self.asked.append((request, client))
        return JoinGroupResponse("m", self.code.kafka_code, 3, "consumer", "range", "m")

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        self.asked.append(request)
        return SyncGroupResponse(self.code.kafka_code, "consumer", "range", b"assigned")

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        self.asked.append(request)
        return self.code

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        self.asked.append(request)
        members = [LeftMember(one.member_id, one.instance_id, self.code.kafka_code) for one in request.members]
        return LeaveGroupResponse(0, members)

    def before_commit(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        if (generation, member_id, instance_id) == (-1, "", None):
            return ErrorCode.NONE
        self.asked.append((group_id, member_id, generation, instance_id))
        return self.code

    async def describe_group(self, group_id: str) -> DescribedGroup:
        self.asked.append(group_id)
        return self.described.get(group_id) or DescribedGroup(group_id, 69, "Dead", error_message="unknown")

    def state(self, group_id: str) -> State | None:
        return self.states.get(group_id)

    async def delete_group(self, group_id: str) -> ErrorCode:
        self.asked.append(group_id)
        return self.code


def punctual() -> LateRequests:
    """That of an agent which never stands still."""
    return LateRequests(lambda: 0.0)
