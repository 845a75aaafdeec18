"""Messages of aiokafka, whose schemas were not generated from Kafka's, in the versions that it has."""

from __future__ import annotations

from typing import Any

import aiokafka.protocol.admin as aio_admin
import aiokafka.protocol.commit as aio_commit
import aiokafka.protocol.group as aio_group
import aiokafka.protocol.transaction as aio_transaction
import pytest

from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    describe_groups_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest, heartbeat_response
from pidkeeper.broker_agent.kafka.wire.groups.join_group import (
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    join_group_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    leave_group_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.list_groups import ListedGroup, list_groups_response
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest, offset_commit_response
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopicOffsets,
    GroupOffsets,
    OffsetFetchRequest,
    offset_fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.partitions import (
    PartitionCode,
    PartitionCommit,
    TopicCodes,
    TopicCommits,
    TopicPartitions,
)
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import (
    MemberAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
    sync_group_response,
)
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    txn_offset_commit_response,
)
from tests.support.data_codecs import read

CODES = [TopicCodes("t", [PartitionCode(3, 22)])]
COMMITS = [TopicCommits("t", [PartitionCommit(3, 7, -1, "m")])]


def read_theirs(request: Any) -> Any:
    header = request.build_request_header(5, "aio")
    found, body = read(header.encode() + request.encode())
    assert (found.correlation_id, found.client_id) == (5, "aio")
    return body


def decode(module: Any, name: str, version: int, body: bytes) -> Any:
    """Their response; encoded again it must be the same."""
    found = getattr(module, f"{name}_v{version}").decode(body)
    assert found.encode() == body
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_offset_commit(version: int) -> None:
    kind = getattr(aio_commit, f"OffsetCommitRequest_v{version}")
    request = kind(
        consumer_group="g",
        consumer_group_generation_id=4,
        consumer_id="me",
        retention_time=-1,
        topics=[("t", [(3, 7, "m")])],
    )
    assert read_theirs(request) == OffsetCommitRequest("g", 4, "me", None, COMMITS)
    body = offset_commit_response(version, CODES)
    assert decode(aio_commit, "OffsetCommitResponse", version, body).topics == [("t", [(3, 22)])]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_offset_fetch(version: int) -> None:
    kind = getattr(aio_commit, f"OffsetFetchRequest_v{version}")
    request = kind(consumer_group="g", topics=[("t", [3, 4])])
    assert read_theirs(request) == OffsetFetchRequest([GroupOffsets("g", [TopicPartitions("t", [3, 4])])])
    topics = [FetchedTopicOffsets("t", [FetchedOffset(3, 7, 2, "m"), FetchedOffset(4)])]
    body = offset_fetch_response(version, [FetchedGroup("g", topics, 0)])
    found = decode(aio_commit, "OffsetFetchResponse", version, body)
    assert found.topics == [("t", [(3, 7, "m", 0), (4, -1, "", 0)])]


def test_txn_offset_commit() -> None:
    kind = aio_transaction.TxnOffsetCommitRequest_v0
    request = kind("x", "g", 9, 1, [("t", [(3, 7, "m")])])
    assert read_theirs(request) == TxnOffsetCommitRequest("x", "g", 9, 1, -1, "", None, COMMITS)
    body = txn_offset_commit_response(0, CODES)
    assert decode(aio_transaction, "TxnOffsetCommitResponse", 0, body).errors == [("t", [(3, 22)])]


@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_join_group(version: int) -> None:
    kind = getattr(aio_group, f"JoinGroupRequest_v{version}")
    rebalance = (70,) if version >= 1 else ()
    instance = ("i",) if version >= 5 else ()
    request = kind("g", 60, *rebalance, "me", *instance, "consumer", [("range", b"ab")])
    expected = JoinGroupRequest(
        *("g", 60, 70 if rebalance else 60, "me", "i" if instance else None, "consumer"),
        [JoinProtocol("range", b"ab")],
        takes_member_id=version >= 4,
    )
    assert read_theirs(request) == expected
    joined = JoinGroupResponse("me", 0, 4, "consumer", "range", "you", [JoinedMember("me", "i", b"ab")])
    found = decode(aio_group, "JoinGroupResponse", version, join_group_response(version, joined))
    assert (found.error_code, found.generation_id, found.group_protocol) == (0, 4, "range")
    assert (found.leader_id, found.member_id, found.members) == ("you", "me", [("me", *instance, b"ab")])


@pytest.mark.parametrize("version", [0, 1, 3])
def test_sync_group(version: int) -> None:
    kind = getattr(aio_group, f"SyncGroupRequest_v{version}")
    instance = ("i",) if version >= 3 else ()
    instance_id = "i" if instance else None
    expected = SyncGroupRequest("g", 4, "me", instance_id, None, None, [MemberAssignment("you", b"ab")])
    assert read_theirs(kind("g", 4, "me", *instance, [("you", b"ab")])) == expected
    body = sync_group_response(version, SyncGroupResponse(0, "consumer", "range", b"abc"))
    found = decode(aio_group, "SyncGroupResponse", version, body)
    assert (found.error_code, found.member_assignment) == (0, b"abc")


@pytest.mark.parametrize("version", range(2))
def test_heartbeat_and_leave_group(version: int) -> None:
    beat = getattr(aio_group, f"HeartbeatRequest_v{version}")("g", 4, "me")
    assert read_theirs(beat) == HeartbeatRequest("g", 4, "me", None)
    found = decode(aio_group, "HeartbeatResponse", version, heartbeat_response(version, 27))
    assert found.error_code == 27
    leave = getattr(aio_group, f"LeaveGroupRequest_v{version}")("g", "me")
    assert read_theirs(leave) == LeaveGroupRequest("g", [LeavingMember("me")])
    body = leave_group_response(version, LeaveGroupResponse(25))
    assert decode(aio_group, "LeaveGroupResponse", version, body).error_code == 25


@pytest.mark.parametrize("version", range(4))
def test_describe_groups(version: int) -> None:
    operations = (False,) if version >= 3 else ()
    request = getattr(aio_admin, f"DescribeGroupsRequest_v{version}")(["g"], *operations)
    assert read_theirs(request) == DescribeGroupsRequest(["g"])
    member = DescribedMember("me", "i", "c", "/h", b"ab", b"cd")
    body = describe_groups_response(version, [DescribedGroup("g", 0, "Stable", "consumer", "range", [member])])
    (found,) = decode(aio_admin, "DescribeGroupsResponse", version, body).groups
    assert found[:6] == (0, "g", "Stable", "consumer", "range", [("me", "c", "/h", b"ab", b"cd")])


@pytest.mark.parametrize("version", range(3))
def test_list_groups(version: int) -> None:
    body = list_groups_response(version, [ListedGroup("g", "consumer", "Stable", "classic")])
    assert decode(aio_admin, "ListGroupsResponse", version, body).groups == [("g", "consumer")]
