"""Our answers about consumer groups are read by two other codecs, in every version."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.groups.delete_groups import DeletedGroup, delete_groups_response
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import (
    DescribedGroup,
    DescribedMember,
    describe_groups_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import heartbeat_response
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinedMember, JoinGroupResponse, join_group_response
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupResponse, LeftMember, leave_group_response
from pidkeeper.broker_agent.kafka.wire.groups.list_groups import ListedGroup, list_groups_response
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import offset_commit_response
from pidkeeper.broker_agent.kafka.wire.groups.offset_delete import offset_delete_response
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopicOffsets,
    offset_fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCode, TopicCodes
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupResponse, sync_group_response
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import txn_offset_commit_response
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from tests.support.data_codecs import APIS, VERSIONS, versions_of
from tests.support.plain_messages import CORRELATION_ID, Plain, of_version, response

T = TypeVar("T")

some_examples = settings(max_examples=12)
names = st.text(st.characters(codec="utf-8"), max_size=20)
nullable_names = st.none() | names
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
some_bytes = st.binary(max_size=30)
codes = st.sampled_from([-1, 0, 3, 12, 14, 15, 16, 22, 23, 25, 26, 27, 29, 30, 47, 68, 69, 79, 81, 82, 86, 88, 90])


def few(element: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(element, max_size=3)


def check(api: str, version: int, body: bytes, expected: Plain) -> None:
    header = RequestHeader(APIS[api], version, CORRELATION_ID, None)
    frame = frame_response(header, VERSIONS[APIS[api]], body)
    assert response(api, version, frame[4:]) == of_version(api, version, {"throttle_time_ms": 0} | expected)


topic_codes = few(st.builds(TopicCodes, names, few(st.builds(PartitionCode, int32s, codes))))


def plain_codes(topics: list[TopicCodes]) -> list[Plain]:
    return [
        {
            "name": one.topic,
            "partitions": [
                {"partition_index": each.partition, "error_code": each.error_code} for each in one.partitions
            ],
        }
        for one in topics
    ]


@pytest.mark.parametrize("version", versions_of("offset_commit"))
@some_examples
@given(topic_codes)
def test_offset_commit(version: int, topics: list[TopicCodes]) -> None:
    check("offset_commit", version, offset_commit_response(version, topics), {"topics": plain_codes(topics)})


@pytest.mark.parametrize("version", versions_of("txn_offset_commit"))
@some_examples
@given(topic_codes)
def test_txn_offset_commit(version: int, topics: list[TopicCodes]) -> None:
    check("txn_offset_commit", version, txn_offset_commit_response(version, topics), {"topics": plain_codes(topics)})


@some_examples
@given(topic_codes, codes)
def test_offset_delete(topics: list[TopicCodes], code: int) -> None:
    expected = {"error_code": code, "topics": plain_codes(topics)}
    check("offset_delete", 0, offset_delete_response(0, topics, code), expected)


offsets = few(st.builds(FetchedOffset, int32s, int64s, int32s, nullable_names, codes))
fetched = few(st.builds(FetchedTopicOffsets, names, offsets))


def plain_topics(group: FetchedGroup) -> list[Plain]:
    return [
        {
            "name": one.topic,
            "partitions": [
                {
                    "partition_index": each.partition,
                    "committed_offset": each.offset,
                    "committed_leader_epoch": each.leader_epoch,
                    "metadata": each.metadata,
                    "error_code": each.error_code,
                }
                for each in one.partitions
            ],
        }
        for one in group.topics
    ]


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
@some_examples
@given(few(st.builds(FetchedGroup, names, fetched, codes)), st.builds(FetchedGroup, names, fetched, codes))
def test_offset_fetch(version: int, batch: list[FetchedGroup], one: FetchedGroup) -> None:
    expected = {
        "topics": plain_topics(one),
        "error_code": one.error_code,
        "groups": [
            {"group_id": each.group_id, "topics": plain_topics(each), "error_code": each.error_code} for each in batch
        ],
    }
    check("offset_fetch", version, offset_fetch_response(version, batch if version >= 8 else [one]), expected)


joined = few(st.builds(JoinedMember, names, nullable_names, some_bytes))
joins = st.builds(JoinGroupResponse, names, codes, int32s, nullable_names, nullable_names, names, joined, st.booleans())


@pytest.mark.parametrize("version", versions_of("join_group"))
@some_examples
@given(joins)
def test_join_group(version: int, one: JoinGroupResponse) -> None:
    expected = {
        "error_code": one.error_code,
        "generation_id": one.generation,
        "protocol_type": one.protocol_type,
        "protocol_name": one.protocol_name if version >= 7 else one.protocol_name or "",
        "leader": one.leader,
        "skip_assignment": one.skip_assignment,
        "member_id": one.member_id,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in one.members
        ],
    }
    check("join_group", version, join_group_response(version, one), expected)


@pytest.mark.parametrize("version", versions_of("sync_group"))
@some_examples
@given(st.builds(SyncGroupResponse, codes, nullable_names, nullable_names, some_bytes))
def test_sync_group(version: int, one: SyncGroupResponse) -> None:
    expected = {name: getattr(one, name) for name in ("error_code", "protocol_type", "protocol_name", "assignment")}
    check("sync_group", version, sync_group_response(version, one), expected)


@pytest.mark.parametrize("version", versions_of("heartbeat"))
@some_examples
@given(codes)
def test_heartbeat(version: int, code: int) -> None:
    check("heartbeat", version, heartbeat_response(version, code), {"error_code": code})


@pytest.mark.parametrize("version", versions_of("leave_group"))
@some_examples
@given(codes, few(st.builds(LeftMember, names, nullable_names, codes)))
def test_leave_group(version: int, code: int, members: list[LeftMember]) -> None:
    of_members = [one.error_code for one in members]
    expected = {
        "error_code": code if version >= 3 or code or not members else of_members[0],
        "members": [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": one.error_code}
            for one in members
        ],
    }
    check("leave_group", version, leave_group_response(version, LeaveGroupResponse(code, members)), expected)


@pytest.mark.parametrize("version", versions_of("list_groups"))
@some_examples
@given(few(st.builds(ListedGroup, names, names, names, names)), codes)
def test_list_groups(version: int, groups: list[ListedGroup], code: int) -> None:
    expected = {
        "error_code": code,
        "groups": [
            {
                "group_id": one.group_id,
                "protocol_type": one.protocol_type,
                "group_state": one.state,
                "group_type": one.group_type,
            }
            for one in groups
        ],
    }
    check("list_groups", version, list_groups_response(version, groups, code), expected)


described_members = few(st.builds(DescribedMember, names, nullable_names, names, names, some_bytes, some_bytes))
described = st.builds(DescribedGroup, names, codes, names, names, names, described_members, nullable_names)


@pytest.mark.parametrize("version", versions_of("describe_groups"))
@some_examples
@given(few(described))
def test_describe_groups(version: int, groups: list[DescribedGroup]) -> None:
    def plain(one: DescribedMember) -> Plain:
        return {
            "member_id": one.member_id,
            "group_instance_id": one.instance_id,
            "client_id": one.client_id,
            "client_host": one.client_host,
            "member_metadata": one.metadata,
            "member_assignment": one.assignment,
        }

    expected = {
        "groups": [
            {
                "error_code": one.error_code,
                "error_message": one.error_message,
                "group_id": one.group_id,
                "group_state": one.state,
                "protocol_type": one.protocol_type,
                "protocol_data": one.protocol_data,
                "members": list(map(plain, one.members)),
                "authorized_operations": -(2**31),
            }
            for one in groups
        ]
    }
    check("describe_groups", version, describe_groups_response(version, groups), expected)


@pytest.mark.parametrize("version", versions_of("delete_groups"))
@some_examples
@given(few(st.builds(DeletedGroup, names, codes)))
def test_delete_groups(version: int, groups: list[DeletedGroup]) -> None:
    expected = {"results": [{"group_id": one.group_id, "error_code": one.error_code} for one in groups]}
    check("delete_groups", version, delete_groups_response(version, groups), expected)
