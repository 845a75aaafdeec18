"""What a client may ask about a group at all, decided before anybody is asked. Pure. Codes are Kafka's; 0 is none."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import MAX_GROUP_ID_LENGTH, MAX_INSTANCE_ID_LENGTH, MAX_MEMBER_ID_LENGTH
from pidkeeper.protocol.logs import MAX_PARTITIONS
from pidkeeper.protocol.transactions import MAX_TOPIC_LENGTH

NOT_ALLOWED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED.kafka_code


def no_group(group_id: str, operation: str, caller: Caller, *, empty: bool = True) -> int:
    """Why the caller may not do that to the group. `empty`: whether a group may have the empty id, as those that are
    named for their offsets alone."""
    if not caller.may(operation, group_id):
        return NOT_ALLOWED
    if len(group_id) > MAX_GROUP_ID_LENGTH or not (empty or group_id):
        return ErrorCode.INVALID_GROUP_ID.kafka_code
    return 0


def no_member(member_id: str, instance_id: str | None) -> int:
    """Why nobody can be that member."""
    longest = len(member_id) <= MAX_MEMBER_ID_LENGTH
    if longest and (instance_id is None or 1 <= len(instance_id) <= MAX_INSTANCE_ID_LENGTH):
        return 0
    return ErrorCode.UNKNOWN_MEMBER_ID.kafka_code


def is_partition(topic: str, partition: int) -> bool:
    """Whether there can be such a partition."""
    return 1 <= len(topic) <= MAX_TOPIC_LENGTH and 0 <= partition < MAX_PARTITIONS
