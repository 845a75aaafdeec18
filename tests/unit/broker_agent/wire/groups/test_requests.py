"""Requests about consumer groups made by two other codecs are read by ours, in every version."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.groups.delete_groups import DeleteGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribeGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinProtocol
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeavingMember
from pidkeeper.broker_agent.kafka.wire.groups.list_groups import ListGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_delete import OffsetDeleteRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import GroupOffsets, OffsetFetchRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCommit, TopicCommits, TopicPartitions
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import MemberAssignment, SyncGroupRequest
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.data_codecs import APIS, read, versions_of
from tests.support.plain_messages import CLIENT_ID, CORRELATION_ID, Plain, requests

T = TypeVar("T")

names = st.text(st.characters(codec="utf-8"), max_size=20)
nullable_names = st.none() | names
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)
some_bytes = st.binary(max_size=30)

some_examples = settings(max_examples=12)
"""For each of several versions: enough for every field and length to differ."""


def few(element: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(element, max_size=3)


commits = few(st.builds(TopicCommits, names, few(st.builds(PartitionCommit, int32s, int64s, int32s, nullable_names))))
partitions = few(st.builds(TopicPartitions, names, few(int32s)))
members = st.tuples(names, int32s, names, nullable_names)


def check(api: str, version: int, message: Plain, expected: Any) -> None:
    for frame in requests(api, version, message):
        header, request = read(frame)
        assert (header.api_key, header.api_version, header.client_id) == (APIS[api], version, CLIENT_ID)
        assert header.correlation_id == CORRELATION_ID
        assert request == expected


def plain_commits(topics: list[TopicCommits]) -> list[Plain]:
    return [
        {
            "name": one.topic,
            "partitions": [
                {
                    "partition_index": each.partition,
                    "committed_offset": each.offset,
                    "committed_leader_epoch": each.leader_epoch,
                    "committed_metadata": each.metadata,
                }
                for each in one.partitions
            ],
        }
        for one in topics
    ]


def without_epochs(topics: list[TopicCommits]) -> list[TopicCommits]:
    return [
        TopicCommits(
            one.topic, [PartitionCommit(each.partition, each.offset, -1, each.metadata) for each in one.partitions]
        )
        for one in topics
    ]


def plain_partitions(topics: list[TopicPartitions] | None) -> list[Plain] | None:
    return None if topics is None else [{"name": one.topic, "partition_indexes": one.partitions} for one in topics]


@pytest.mark.parametrize("version", versions_of("offset_commit"))
@some_examples
@given(members, commits)
def test_offset_commit(version: int, member: tuple[str, int, str, str | None], topics: list[TopicCommits]) -> None:
    group_id, generation, member_id, instance_id = member
    message = {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "retention_time_ms": -1,
        "topics": plain_commits(topics),
    }
    told = topics if version >= 6 else without_epochs(topics)
    instance_id = instance_id if version >= 7 else None
    check("offset_commit", version, message, OffsetCommitRequest(group_id, generation, member_id, instance_id, told))


@pytest.mark.parametrize("version", versions_of("txn_offset_commit"))
@some_examples
@given(names, members, int64s, int16s, commits)
def test_txn_offset_commit(
    version: int,
    transactional_id: str,
    member: tuple[str, int, str, str | None],
    producer_id: int,
    producer_epoch: int,
    topics: list[TopicCommits],
) -> None:
    message = {
        "transactional_id": transactional_id,
        "group_id": member[0],
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "generation_id": member[1],
        "member_id": member[2],
        "group_instance_id": member[3],
        "topics": plain_commits(topics),
    }
    told = topics if version >= 2 else without_epochs(topics)
    whose = member[1:] if version >= 3 else (-1, "", None)
    producer = (transactional_id, member[0], producer_id, producer_epoch)
    expected = TxnOffsetCommitRequest(*producer, *whose, told, version >= 5)
    check("txn_offset_commit", version, message, expected)


groups = few(st.builds(GroupOffsets, names, st.none() | partitions, nullable_names, int32s))


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
@some_examples
@given(groups, st.builds(GroupOffsets, names, st.none() | partitions), st.booleans())
def test_offset_fetch(version: int, batch: list[GroupOffsets], one: GroupOffsets, require_stable: bool) -> None:
    if version == 1 and one.topics is None:
        one = GroupOffsets(one.group_id, [])
    message = {
        "group_id": one.group_id,
        "topics": plain_partitions(one.topics),
        "groups": [
            {
                "group_id": each.group_id,
                "member_id": each.member_id,
                "member_epoch": each.member_epoch,
                "topics": plain_partitions(each.topics),
            }
            for each in batch
        ],
        "require_stable": require_stable,
    }
    if version == 8:
        batch = [GroupOffsets(each.group_id, each.topics) for each in batch]
    expected = OffsetFetchRequest(batch if version >= 8 else [one], require_stable and version >= 7)
    check("offset_fetch", version, message, expected)


@some_examples
@given(names, partitions)
def test_offset_delete(group_id: str, topics: list[TopicPartitions]) -> None:
    plain = [
        {"name": one.topic, "partitions": [{"partition_index": each} for each in one.partitions]} for one in topics
    ]
    expected = OffsetDeleteRequest(group_id, topics)
    check("offset_delete", 0, {"group_id": group_id, "topics": plain}, expected)


protocols = few(st.builds(JoinProtocol, names, some_bytes))


@pytest.mark.parametrize("version", versions_of("join_group"))
@some_examples
@given(members, st.tuples(timeouts, timeouts), names, protocols, nullable_names)
def test_join_group(
    version: int,
    member: tuple[str, int, str, str | None],
    times: tuple[int, int],
    protocol_type: str,
    known: list[JoinProtocol],
    reason: str | None,
) -> None:
    group_id, _, member_id, instance_id = member
    message = {
        "group_id": group_id,
        "session_timeout_ms": times[0],
        "rebalance_timeout_ms": times[1],
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": protocol_type,
        "protocols": [{"name": one.name, "metadata": one.metadata} for one in known],
        "reason": reason,
    }
    expected = JoinGroupRequest(
        group_id,
        times[0],
        times[1] if version >= 1 else times[0],
        member_id,
        instance_id if version >= 5 else None,
        protocol_type,
        known,
        reason if version >= 8 else None,
        takes_member_id=version >= 4,
        skips_assignment=version >= 9,
    )
    check("join_group", version, message, expected)


assignments = few(st.builds(MemberAssignment, names, some_bytes))


@pytest.mark.parametrize("version", versions_of("sync_group"))
@some_examples
@given(members, nullable_names, nullable_names, assignments)
def test_sync_group(
    version: int,
    member: tuple[str, int, str, str | None],
    protocol_type: str | None,
    protocol_name: str | None,
    given_out: list[MemberAssignment],
) -> None:
    message = {
        **plain_member(member),
        "protocol_type": protocol_type,
        "protocol_name": protocol_name,
        "assignments": [{"member_id": one.member_id, "assignment": one.assignment} for one in given_out],
    }
    tells = version >= 5
    told = (protocol_type, protocol_name) if tells else (None, None)
    expected = SyncGroupRequest(*of_version(member, version), *told, given_out, tells_protocol=tells)
    check("sync_group", version, message, expected)


def plain_member(member: tuple[str, int, str, str | None]) -> Plain:
    return dict(zip(("group_id", "generation_id", "member_id", "group_instance_id"), member, strict=True))


def of_version(member: tuple[str, int, str, str | None], version: int) -> tuple[str, int, str, str | None]:
    return member if version >= 3 else (*member[:3], None)


@pytest.mark.parametrize("version", versions_of("heartbeat"))
@some_examples
@given(members)
def test_heartbeat(version: int, member: tuple[str, int, str, str | None]) -> None:
    check("heartbeat", version, plain_member(member), HeartbeatRequest(*of_version(member, version)))


leaving = few(st.builds(LeavingMember, names, nullable_names, nullable_names))


@pytest.mark.parametrize("version", versions_of("leave_group"))
@some_examples
@given(names, names, leaving)
def test_leave_group(version: int, group_id: str, member_id: str, batch: list[LeavingMember]) -> None:
    message = {
        "group_id": group_id,
        "member_id": member_id,
        "members": [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "reason": one.reason} for one in batch
        ],
    }
    if version < 3:
        batch = [LeavingMember(member_id)]
    elif version < 5:
        batch = [LeavingMember(one.member_id, one.instance_id) for one in batch]
    check("leave_group", version, message, LeaveGroupRequest(group_id, batch))


@pytest.mark.parametrize("version", versions_of("list_groups"))
@some_examples
@given(few(names), few(names))
def test_list_groups(version: int, states: list[str], types: list[str]) -> None:
    message = {"states_filter": states, "types_filter": types}
    expected = ListGroupsRequest(states if version >= 4 else [], types if version >= 5 else [])
    check("list_groups", version, message, expected)


@pytest.mark.parametrize("version", versions_of("describe_groups"))
@some_examples
@given(few(names), st.booleans())
def test_describe_groups(version: int, group_ids: list[str], operations: bool) -> None:
    message = {"groups": group_ids, "include_authorized_operations": operations}
    expected = DescribeGroupsRequest(group_ids, operations and version >= 3)
    check("describe_groups", version, message, expected)


@pytest.mark.parametrize("version", versions_of("delete_groups"))
@some_examples
@given(few(names))
def test_delete_groups(version: int, group_ids: list[str]) -> None:
    check("delete_groups", version, {"groups_names": group_ids}, DeleteGroupsRequest(group_ids))
