"""Groups, listed and described to clients (KIP-518).

An agent lists the groups that it coordinates: whoever wants all asks every agent. Rules are Kafka's (`KafkaApis`):
DESCRIBE of the group; one that may not be described is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.coordination import Coordination
from pidkeeper.broker_agent.groups.permitting import no_group
from pidkeeper.broker_agent.groups.refusals import COME_AGAIN, told_code
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup, DescribeGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.list_groups import ListedGroup, ListGroupsRequest
from pidkeeper.broker_agent.security.resources import GROUP_DESCRIBE
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import GroupDescription

LISTED_AT_ONCE: Final = 250
"""Groups on a page that an agent asks for: where 256 agents live, the most known, drawing their coordinators takes
60 ms."""

MAX_DESCRIBED_BYTES: Final = 8 * 1024 * 1024
"""Of members' metadata and assignments in one answer, but for those of the group that passes it. The groups behind that
get COORDINATOR_LOAD_IN_PROGRESS, on which an admin client asks for these again."""

CLASSIC: Final = "classic"
"""The type of every group here (KIP-848)."""

TELLS_UNKNOWN: Final = 6
"""The first version of DescribeGroups in which an unknown group is an error (KIP-1043)."""

_UNKNOWN: Final = ErrorCode.GROUP_ID_NOT_FOUND.kafka_code
_MEMBER_BYTES: Final = 1024
"""At most, of a member in an answer without its metadata and assignment."""


class GroupDescriber:
    """Lists and describes groups for clients."""

    def __init__(
        self, calls: GroupCalls, session: Registration, directory: Directory, coordination: Coordination
    ) -> None:
        self._calls = calls
        self._session = session
        self._directory = directory
        self._coordination = coordination

    async def list_groups(self, request: ListGroupsRequest, caller: Caller) -> tuple[int, Sequence[ListedGroup]]:
        """The groups of this agent, or why they cannot be told. States and types are told apart without regard to
        case, as in Kafka."""
        states, types = ({text.lower() for text in texts} for texts in (request.states, request.types))
        if types and CLASSIC not in types:
            return 0, ()
        listed: list[ListedGroup] = []
        after: str | None = None
        try:
            while True:
                page = await self._calls.groups(after, LISTED_AT_ONCE)
                listed += [self._listed(one) for one in page.groups if self._is_told(one, caller)]
                after = page.next_after
                if after is None or caller.has_hung_up():
                    break
        except RequestError as error:
            return told_code(error, self._session, None), ()
        return 0, [one for one in listed if not states or one.state.lower() in states]

    def _is_told(self, group: GroupDescription, caller: Caller) -> bool:
        """Whether it is of this agent, and may be described."""
        own = self._directory.group_coordinator(group.group_id).id == self._session.broker_id
        return own and caller.may(GROUP_DESCRIBE, group.group_id)

    def _listed(self, group: GroupDescription) -> ListedGroup:
        # Members that have not come to their coordinator yet are about to be told to join again.
        state = self._coordination.state(group.group_id)
        state = state or (State.PREPARING_REBALANCE if group.members else State.EMPTY)
        return ListedGroup(group.group_id, group.protocol_type, state.value, CLASSIC)

    async def describe_groups(
        self, request: DescribeGroupsRequest, version: int, caller: Caller
    ) -> list[DescribedGroup]:
        """The outcome for each group."""
        told: list[DescribedGroup] = []
        left = MAX_DESCRIBED_BYTES
        for group_id in request.group_ids:
            if left <= 0 or caller.has_hung_up():
                told.append(DescribedGroup(group_id, COME_AGAIN))
                continue
            group = await self._described(group_id, version, caller)
            left -= sum(_MEMBER_BYTES + len(one.metadata) + len(one.assignment) for one in group.members)
            told.append(group)
        return told

    async def _described(self, group_id: str, version: int, caller: Caller) -> DescribedGroup:
        if code := no_group(group_id, GROUP_DESCRIBE, caller):
            return DescribedGroup(group_id, code)
        group = await self._coordination.describe_group(group_id)
        told = group.error_code != _UNKNOWN or version >= TELLS_UNKNOWN
        return group if told else DescribedGroup(group_id, state=State.DEAD.value)
