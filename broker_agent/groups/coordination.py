"""What answers to clients take from the coordinator of classic groups."""

from __future__ import annotations

from typing import Protocol

from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode


class Coordination(Protocol):
    """Brings the members of groups together. It is asked for what rules allow.

    Where another agent coordinates the group, the outcome of everything is NOT_COORDINATOR.
    """

    async def join_group(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        """It waits for the other members."""
        ...

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """It waits for the leader."""
        ...

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode: ...
    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse: ...

    def before_commit(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        """Whether the quorum may be asked to commit offsets of a member; it judges the rest. Those of nobody (-1, ""
        and None) concern no member."""
        ...

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """The group; an unknown one is dead, with GROUP_ID_NOT_FOUND. Only of a stable one metadata and assignments are
        told."""
        ...

    def state(self, group_id: str) -> State | None:
        """Of a group that is in memory."""
        ...

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Forget a group without members."""
        ...
