"""What the calls about consumer groups do."""

from __future__ import annotations

from typing import Any

from pidkeeper.controller.api.admission import Admission, broker_of, check_epoch
from pidkeeper.controller.api.models import GroupOffsetsQuery, GroupQuery, GroupsQuery
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
    GroupDescription,
    GroupsPage,
    OffsetsPage,
    ResetOffsetsRequest,
)
from pidkeeper.protocol.groups import NO_GENERATION
from pidkeeper.service.call import Call


class GroupOperations:
    """One method for each call; see `Operations`."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._member = gate.member

    async def find(self, call: Call[None, None, FindGroupRequest]) -> FindGroupResponse:
        """A group, as sure as no other leader knows more."""
        await self._gate.confirm()
        return FindGroupResponse(self._member.group(call.body.group_id))

    async def commit(self, call: Call[None, None, CommitGroupRequest]) -> CommitGroupResponse:
        """A group has these members from now on."""
        body = call.body
        request = requests.CommitGroup(
            (body.broker_id, body.broker_epoch),
            body.group_id,
            body.after,
            body.generation,
            body.protocol_type,
            tuple(body.members),
        )
        response: CommitGroupResponse = await self._submit(call, request)
        return response

    async def commit_offsets(self, call: Call[None, None, CommitOffsetsRequest]) -> CommitOffsetsResponse:
        """Offsets of a group, of its own or within a transaction."""
        body = call.body
        request = requests.CommitOffsets(
            (body.broker_id, body.broker_epoch),
            body.group_id,
            tuple(body.topics),
            body.generation,
            body.member_id,
            body.instance_id,
            body.transaction,
        )
        response: CommitOffsetsResponse = await self._submit(call, request)
        return response

    async def fetch_offsets(self, call: Call[None, None, FetchOffsetsRequest]) -> OffsetsPage:
        """One page of a group's offsets, as sure as no other leader knows more."""
        await self._gate.confirm()
        return self._member.fetch_offsets(call.body)

    async def delete(self, call: Call[None, None, DeleteGroupRequest]) -> DeleteGroupResponse:
        """Forget a group for a client of a broker."""
        request = requests.DeleteGroup(broker_of(call.principal, call.body), call.body.group_id)
        response: DeleteGroupResponse = await self._submit(call, request)
        return response

    async def delete_offsets(self, call: Call[None, None, DeleteOffsetsRequest]) -> DeleteOffsetsResponse:
        """Forget offsets of a group for a client of a broker."""
        broker = broker_of(call.principal, call.body)
        request = requests.DeleteOffsets(broker, call.body.group_id, tuple(call.body.topics))
        response: DeleteOffsetsResponse = await self._submit(call, request)
        return response

    async def groups(self, call: Call[None, GroupsQuery, None]) -> GroupsPage:
        """One page of the groups."""
        self._gate.check_leader()
        return self._member.groups(call.query.after, call.query.limit)

    async def describe(self, call: Call[None, GroupQuery, None]) -> GroupDescription:
        """One group."""
        self._gate.check_leader()
        return self._known(call.query.group)

    async def offsets(self, call: Call[None, GroupOffsetsQuery, None]) -> OffsetsPage:
        """One page of a group's offsets, those that transactions hold included."""
        self._gate.check_leader()
        query = call.query
        self._known(query.group)
        after = None if query.after_topic is None else (query.after_topic, query.after_partition)
        return self._member.group_offsets(query.group, after, query.limit)

    async def remove(self, call: Call[None, GroupQuery, None]) -> DeleteGroupResponse:
        """Forget a group for an operator."""
        response: DeleteGroupResponse = await self._gate.submit_order(requests.DeleteGroup(None, call.query.group))
        return response

    async def reset(self, call: Call[None, None, ResetOffsetsRequest]) -> CommitOffsetsResponse:
        """Have a group without members go on elsewhere."""
        topics = tuple(call.body.topics)
        request = requests.CommitOffsets(None, call.body.group_id, topics, NO_GENERATION, "", None, None)
        response: CommitOffsetsResponse = await self._gate.submit_order(request)
        return response

    async def forget_offsets(self, call: Call[None, None, DeleteOffsetsRequest]) -> DeleteOffsetsResponse:
        """Forget offsets of a group for an operator."""
        request = requests.DeleteOffsets(None, call.body.group_id, tuple(call.body.topics))
        response: DeleteOffsetsResponse = await self._gate.submit_order(request)
        return response

    async def _submit(self, call: Call[Any, Any, Any], request: requests.GroupRequest) -> Any:
        """What the broker of the call asks. It takes a token of the commits of objects, which are as dear."""
        check_epoch(call.body.broker_epoch)
        return await self._gate.submit_for(call.body.broker_id, call, self._gate.commits, request)

    def _known(self, group_id: str) -> GroupDescription:
        found = self._member.group(group_id)
        if found is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return found
