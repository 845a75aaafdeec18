"""From a call of a Kafka client about consumer groups to the frame that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.committing import OffsetCommitter
from pidkeeper.broker_agent.groups.coordination import Coordination
from pidkeeper.broker_agent.groups.counters import CommitCounters
from pidkeeper.broker_agent.groups.deleting import GroupDeleter
from pidkeeper.broker_agent.groups.describing import GroupDescriber
from pidkeeper.broker_agent.groups.fetching import OffsetFetcher
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.groups.permitting import no_group, no_member
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, Ask, GroupCall
from pidkeeper.broker_agent.kafka.wire.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    sync_group,
    txn_offset_commit,
)
from pidkeeper.broker_agent.security.resources import GROUP_READ
from pidkeeper.service.kafka.wire.headers import frame_response
from pidkeeper.service.kafka.wire.versions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)


class GroupAnswers:
    """Answers for clients. Offsets, and what there is of groups, come from the quorum by `calls`; what concerns members
    from `coordination`. Members take READ of their group (KIP-11)."""

    def __init__(
        self,
        calls: GroupCalls,
        session: Registration,
        directory: Directory,
        coordination: Coordination,
        late_requests: LateRequests,
    ) -> None:
        self._coordination = coordination
        self._committer = OffsetCommitter(calls, session, coordination, late_requests)
        self._fetcher = OffsetFetcher(calls, session)
        self._deleter = GroupDeleter(calls, session, coordination)
        self._describer = GroupDescriber(calls, session, directory, coordination)
        self._bodies: Final[Mapping[int, Callable[[GroupCall], Awaitable[bytes]]]] = {
            OFFSET_COMMIT: self._offset_commit,
            OFFSET_FETCH: self._offset_fetch,
            JOIN_GROUP: self._join,
            HEARTBEAT: self._heartbeat,
            LEAVE_GROUP: self._leave,
            SYNC_GROUP: self._sync,
            DESCRIBE_GROUPS: self._describe,
            LIST_GROUPS: self._list,
            TXN_OFFSET_COMMIT: self._txn_offset_commit,
            DELETE_GROUPS: self._delete,
            OFFSET_DELETE: self._offset_delete,
        }

    @property
    def commits(self) -> CommitCounters:
        """Of offsets, by clients."""
        return self._committer.counters

    async def answer(self, call: GroupCall) -> bytes:
        """The whole response frame, length field included."""
        header = call.header
        return frame_response(header, WITH_DATA.served[header.api_key], await self._bodies[header.api_key](call))

    async def _offset_commit(self, call: GroupCall) -> bytes:
        outcomes = await self._committer.commit(call.request, call.caller)
        return offset_commit.offset_commit_response(call.header.api_version, outcomes)

    async def _txn_offset_commit(self, call: GroupCall) -> bytes:
        version = call.header.api_version
        outcomes = await self._committer.commit_in_transaction(call.request, version, call.caller)
        return txn_offset_commit.txn_offset_commit_response(version, outcomes)

    async def _offset_fetch(self, call: GroupCall) -> bytes:
        return await self._fetcher.fetch(call.request, call.header.api_version, call.caller)

    async def _offset_delete(self, call: GroupCall) -> bytes:
        code, outcomes = await self._deleter.delete_offsets(call.request, call.caller)
        return offset_delete.offset_delete_response(call.header.api_version, outcomes, code)

    async def _delete(self, call: GroupCall) -> bytes:
        outcomes = await self._deleter.delete_groups(call.request, call.caller)
        return delete_groups.delete_groups_response(call.header.api_version, outcomes)

    async def _list(self, call: GroupCall) -> bytes:
        code, groups = await self._describer.list_groups(call.request, call.caller)
        return list_groups.list_groups_response(call.header.api_version, groups, code)

    async def _describe(self, call: GroupCall) -> bytes:
        version = call.header.api_version
        groups = await self._describer.describe_groups(call.request, version, call.caller)
        return describe_groups.describe_groups_response(version, groups)

    async def _join(self, call: GroupCall) -> bytes:
        request: join_group.JoinGroupRequest = call.request
        if code := _refused(call, request.member_id, request.instance_id):
            response = join_group.JoinGroupResponse(request.member_id, code)
        else:
            # Kafka writes an address as Java does.
            client = Client(call.header.client_id or "", f"/{call.caller.host}")
            response = await self._coordination.join_group(request, client)
        return join_group.join_group_response(call.header.api_version, response)

    async def _sync(self, call: GroupCall) -> bytes:
        request: sync_group.SyncGroupRequest = call.request
        if code := _refused(call, request.member_id, request.instance_id):
            response = sync_group.SyncGroupResponse(code)
        else:
            response = await self._coordination.sync_group(request)
        return sync_group.sync_group_response(call.header.api_version, response)

    async def _heartbeat(self, call: GroupCall) -> bytes:
        request: heartbeat.HeartbeatRequest = call.request
        code = _refused(call, request.member_id, request.instance_id)
        code = code or (await self._coordination.heartbeat(request)).kafka_code
        return heartbeat.heartbeat_response(call.header.api_version, code)

    async def _leave(self, call: GroupCall) -> bytes:
        if code := no_group(call.request.group_id, GROUP_READ, call.caller, empty=False):
            response = leave_group.LeaveGroupResponse(code)
        else:
            response = await self._coordination.leave_group(call.request)
        return leave_group.leave_group_response(call.header.api_version, response)


def _refused(call: GroupCall, member_id: str, instance_id: str | None) -> int:
    """Why a member's call is not put to the coordinator, if it is not."""
    code = no_group(call.request.group_id, GROUP_READ, call.caller, empty=False)
    return code or no_member(member_id, instance_id)


def asking_groups(groups: GroupAnswers, others: Ask) -> Ask:
    """Calls about groups are answered by `groups`, and all others by `others`."""

    async def ask(call: Any) -> bytes:
        return await (groups.answer(call) if isinstance(call, GroupCall) else others(call))

    return ask
