"""Groups and their offsets, forgotten for clients (KIP-229, KIP-496).

What members are subscribed to the coordinator alone knows, and those who are just coming together. Rules are Kafka's
(`KafkaApis`): DELETE of the group, and for offsets READ of each topic.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.data.codes import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from pidkeeper.broker_agent.groups.calls import GroupCalls
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.coordination import Coordination
from pidkeeper.broker_agent.groups.cutting import Named, cut_named
from pidkeeper.broker_agent.groups.permitting import is_partition, no_group
from pidkeeper.broker_agent.groups.refusals import COME_AGAIN, told_code
from pidkeeper.broker_agent.groups.subscriptions import subscribed_topics
from pidkeeper.broker_agent.kafka.wire.groups.delete_groups import DeletedGroup, DeleteGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup
from pidkeeper.broker_agent.kafka.wire.groups.offset_delete import OffsetDeleteRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCode, TopicCodes
from pidkeeper.broker_agent.security.resources import GROUP_DELETE, TOPIC_READ
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import DeleteOffsetsRequest
from pidkeeper.protocol.transactions import TopicPartitions

CONSUMER: Final = "consumer"
"""The protocol type of consumers, whose subscriptions can be read."""

_NON_EMPTY: Final = ErrorCode.NON_EMPTY_GROUP.kafka_code
_SUBSCRIBED: Final = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.kafka_code
_UNKNOWN: Final = ErrorCode.GROUP_ID_NOT_FOUND.kafka_code


class GroupDeleter:
    """Forgets for clients."""

    def __init__(self, calls: GroupCalls, session: Registration, coordination: Coordination) -> None:
        self._calls = calls
        self._session = session
        self._coordination = coordination

    async def delete_groups(self, request: DeleteGroupsRequest, caller: Caller) -> list[DeletedGroup]:
        """The outcome for each group, one after the other."""
        return [DeletedGroup(one, await self._delete_group(one, caller)) for one in request.group_ids]

    async def _delete_group(self, group_id: str, caller: Caller) -> int:
        if code := no_group(group_id, GROUP_DELETE, caller):
            return code
        if caller.has_hung_up():
            return COME_AGAIN
        return (await self._coordination.delete_group(group_id)).kafka_code

    async def delete_offsets(self, request: OffsetDeleteRequest, caller: Caller) -> tuple[int, list[TopicCodes]]:
        """Why nothing is forgotten, if it is not, or the outcome for each partition."""
        group_id = request.group_id
        if code := no_group(group_id, GROUP_DELETE, caller):
            return code, []
        group = await self._coordination.describe_group(group_id)
        if group.error_code not in {NONE, _UNKNOWN}:
            return group.error_code, []
        if group.members and not _can_be_read(group):
            return _NON_EMPTY, []
        read = _read_topics(group)
        asked = [(one.topic, each) for one in request.topics for each in one.partitions]
        codes = [_own_code(topic, partition, read, caller) for topic, partition in asked]
        named = [Named(*one) for one, code in zip(asked, codes, strict=True) if code == NONE]
        for topics in cut_named(named):
            if code := await self._forget(group_id, topics):
                return code, []
        left = iter(codes)
        told = [
            TopicCodes(one.topic, [PartitionCode(each, next(left)) for each in one.partitions])
            for one in request.topics
        ]
        return NONE, told

    async def _forget(self, group_id: str, topics: list[TopicPartitions]) -> int:
        """Kafka's code for what the quorum says."""
        epoch = self._session.broker_epoch
        if epoch is None:
            return COME_AGAIN
        try:
            request = DeleteOffsetsRequest(group_id, topics, self._session.broker_id, epoch)
            await self._calls.delete_offsets(request)
        except RequestError as error:
            return told_code(error, self._session, epoch)
        return NONE


def _can_be_read(group: DescribedGroup) -> bool:
    """Whether it is known what the members are subscribed to: in the midst of a rebalance it is not."""
    return group.state == State.STABLE.value and group.protocol_type == CONSUMER


def _read_topics(group: DescribedGroup) -> Collection[str] | None:
    """The topics to which members are subscribed; None if that may be any (`ClassicGroup.isSubscribedToTopic`)."""
    found = [subscribed_topics(one.metadata) for one in group.members]
    return None if None in found else frozenset().union(*(one for one in found if one is not None))


def _own_code(topic: str, partition: int, read: Collection[str] | None, caller: Caller) -> int:
    """Why an offset is not forgotten, before the quorum is asked."""
    if not caller.may(TOPIC_READ, topic):
        return TOPIC_AUTHORIZATION_FAILED
    if not is_partition(topic, partition):
        return UNKNOWN_TOPIC_OR_PARTITION
    return _SUBSCRIBED if read is None or topic in read else NONE
