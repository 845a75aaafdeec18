"""OffsetCommit and TxnOffsetCommit, by the words of Kafka's `KafkaApis` and of what clients do with each code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.groups.committing import OffsetCommitter
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCommit, TopicCodes, TopicCommits
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitOffsetsRequest, OffsetsTransaction
from pidkeeper.protocol.groups import MAX_COMMITTED_OFFSETS, PartitionOffset, TopicOffsets
from tests.support.group_calls import MemoryCalls, Registered, ToldCoordination, punctual


class Rig:
    """A committer over calls that are answered in memory."""

    def __init__(self, late_requests: LateRequests | None = None) -> None:
        self.calls, self.session, self.coordination = MemoryCalls(), Registered(), ToldCoordination()
        self.committer = OffsetCommitter(self.calls, self.session, self.coordination, late_requests or punctual())

    async def commit(self, topics: list[TopicCommits], caller: Caller = ANYBODY, **fields: Any) -> list[list[int]]:
        request = OffsetCommitRequest("g", -1, "", None, topics)
        return codes(await self.committer.commit(msgspec.structs.replace(request, **fields), caller), topics)

    async def commit_in_transaction(
        self, topics: list[TopicCommits], version: int = 3, caller: Caller = ANYBODY, **fields: Any
    ) -> list[list[int]]:
        request = TxnOffsetCommitRequest("x", "g", 9, 1, -1, "", None, topics)
        asked = msgspec.structs.replace(request, **fields)
        return codes(await self.committer.commit_in_transaction(asked, version, caller), topics)


def codes(outcomes: list[TopicCodes], topics: list[TopicCommits]) -> list[list[int]]:
    """The codes, of an answer that names what was asked."""
    assert [one.topic for one in outcomes] == [one.topic for one in topics]
    for outcome, topic in zip(outcomes, topics, strict=True):
        assert [one.partition for one in outcome.partitions] == [one.partition for one in topic.partitions]
    return [[one.error_code for one in outcome.partitions] for outcome in outcomes]


def of(topic: str, *partitions: int, offset: int = 5) -> TopicCommits:
    return TopicCommits(topic, [PartitionCommit(number, offset, 2, "m") for number in partitions])


async def test_offsets_are_committed_as_they_were_told() -> None:
    rig = Rig()
    topics = [
        TopicCommits("t", [PartitionCommit(0, 5, -7, None), PartitionCommit(1, 6, 3, "m")]),
        TopicCommits("u", []),
        TopicCommits("t", [PartitionCommit(2, 0, -1, "")]),
    ]
    assert await rig.commit(topics, generation=3, member_id="me", instance_id="i") == [[0, 0], [], [0]]
    offsets = PartitionOffset(0, 5, -1, ""), PartitionOffset(1, 6, 3, "m"), PartitionOffset(2, 0, -1, "")
    assert rig.calls.requests == [CommitOffsetsRequest(7, 70, "g", [TopicOffsets("t", offsets)], 3, "me", "i")]
    assert rig.coordination.asked == [("g", "me", 3, "i")]


async def test_each_partition_has_its_own_outcome() -> None:
    rig = Rig()
    rig.calls.codes = {("t", 1): 3, ("u", 0): 12}
    topics = [
        TopicCommits("t", [PartitionCommit(0, 5, -1, ""), PartitionCommit(1, 5, -1, "")]),
        TopicCommits("", [PartitionCommit(0, 5, -1, "")]),
        TopicCommits(
            "u", [PartitionCommit(0, 5, -1, ""), PartitionCommit(-1, 5, -1, ""), PartitionCommit(2, 5, -1, "")]
        ),
        TopicCommits("v", [PartitionCommit(10_000, 5, -1, ""), PartitionCommit(0, -1, -1, "")]),
        TopicCommits("w", [PartitionCommit(0, 1, -1, "é" * 2048), PartitionCommit(1, 1, -1, "é" * 2048 + "e")]),
        TopicCommits("secret", [PartitionCommit(0, 1, -1, "")]),
    ]
    caller = Caller(may=lambda operation, name: operation != "topic-read" or name != "secret")
    assert await rig.commit(topics, caller) == [[0, 3], [3], [12, 3, 0], [3, 42], [0, 12], [29]]
    (request,) = rig.calls.requests
    assert [(one.topic, [each.partition for each in one.partitions]) for one in request.topics] == [
        ("t", [0, 1]), ("u", [0, 2]), ("w", [0])
    ]  # fmt: skip


async def test_where_nothing_is_left_nobody_is_asked() -> None:
    rig = Rig()
    assert await rig.commit([]) == []
    assert await rig.commit([TopicCommits("t", []), of("t", -1)]) == [[], [3]]
    assert rig.calls.requests == []


async def test_a_long_commit_is_cut_and_the_parts_behind_a_refused_one_are_not_asked_for() -> None:
    rig = Rig()
    count = 3 * MAX_COMMITTED_OFFSETS
    topics = [of("t", *range(count))]
    assert await rig.commit(topics) == [[0] * count]
    assert [sum(len(one.partitions) for one in request.topics) for request in rig.calls.requests] == [1024] * 3
    assert [one.partition for request in rig.calls.requests for one in request.topics[0].partitions] == [*range(count)]
    del rig.calls.requests[:]
    rig.calls.refusals = [None, ErrorCode.ILLEGAL_GENERATION]
    assert await rig.commit(topics) == [[0] * 1024 + [22] * 2048]
    assert len(rig.calls.requests) == 2


async def test_the_coordinator_may_refuse_a_members_commit() -> None:
    """As Kafka does in the midst of a rebalance: REBALANCE_IN_PROGRESS."""
    rig = Rig()
    rig.coordination.code = ErrorCode.REBALANCE_IN_PROGRESS
    assert await rig.commit([of("t", 0, 1), of("u", 0)], generation=3, member_id="me") == [[27, 27], [27]]
    assert rig.calls.requests == []
    assert await rig.commit([of("t", 0)]) == [[0]], "whoever is no member does not concern it"
    assert await rig.commit_in_transaction([of("t", 0)], generation=3, member_id="me") == [[0]], "nor a transaction"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": "g" * 250}, 24),
        ({"member_id": "m" * 250}, 25),
        ({"instance_id": ""}, 25),
        ({"instance_id": "i" * 250}, 25),
    ],
)
async def test_ids_that_nobody_can_have(fields: dict[str, Any], code: int) -> None:
    rig = Rig()
    assert await rig.commit([of("t", 0)], **fields) == [[code]]
    assert await rig.commit_in_transaction([of("t", 0)], **fields) == [[code]]
    assert rig.calls.requests == []


async def test_the_empty_group_has_offsets_but_no_transactions() -> None:
    rig = Rig()
    assert await rig.commit([of("t", 0)], group_id="") == [[0]]
    assert await rig.commit_in_transaction([of("t", 0)], group_id="") == [[24]]


TROUBLES = [
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.INVALID_REQUEST,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.name)
async def test_what_may_pass_has_clients_come_again(trouble: ErrorCode) -> None:
    rig = Rig()
    rig.calls.refusals = [trouble] * 4
    assert await rig.commit([of("t", 0)]) == [[14]]
    assert await rig.commit_in_transaction([of("t", 0)], 3) == [[14]]
    assert await rig.commit_in_transaction([of("t", 0)], 2) == [[14]]
    assert await rig.commit_in_transaction([of("t", 0)], 1) == [[15]], "older clients fall over the other code"
    assert rig.session.doubted == []


async def test_what_is_wrong_with_the_request_is_told() -> None:
    told = {
        ErrorCode.ILLEGAL_GENERATION: 22,
        ErrorCode.UNKNOWN_MEMBER_ID: 25,
        ErrorCode.FENCED_INSTANCE_ID: 82,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: 49,
        ErrorCode.PRODUCER_FENCED: 47,
        ErrorCode.INVALID_TXN_STATE: 48,
        ErrorCode.CONCURRENT_TRANSACTIONS: 51,
        ErrorCode.UNSUPPORTED_VERSION: 35,
    }
    rig = Rig()
    for error, code in told.items():
        for version in (0, 3):
            rig.calls.refusals = [error]
            assert await rig.commit_in_transaction([of("t", 0)], version) == [[code]]


async def test_who_has_no_transaction_is_told_to_abort_it_once_clients_know_the_word() -> None:
    rig = Rig()
    for version, code in ((3, 48), (4, 120), (5, 120)):
        rig.calls.refusals = [ErrorCode.INVALID_TXN_STATE]
        assert await rig.commit_in_transaction([of("t", 0)], version) == [[code]]


async def test_a_stale_registration_is_doubted_and_without_one_nobody_is_asked() -> None:
    rig = Rig()
    rig.calls.refusals = [ErrorCode.STALE_BROKER_EPOCH]
    assert await rig.commit([of("t", 0)]) == [[14]]
    assert rig.session.doubted == [70]
    rig.session.broker_epoch = None
    assert await rig.commit([of("t", 0)]) == [[14]]
    assert len(rig.calls.requests) == 1


async def test_a_request_that_may_be_late_is_not_passed_on() -> None:
    """A client that got no answer commits anew elsewhere; its old offsets must not take the place of the new ones."""
    rig = Rig()
    assert await rig.commit([of("t", 0)], Caller(has_hung_up=lambda: True)) == [[14]]
    now = 0.0
    late = LateRequests(lambda: now)
    late.beat()
    rig = Rig(late)
    assert await rig.commit([of("t", 0)]) == [[0]]
    now = 5.0
    assert await rig.commit([of("t", 1)]) == [[14]]
    assert len(rig.calls.requests) == 1


async def test_a_transaction_is_named_with_the_member_that_read() -> None:
    rig = Rig()
    assert await rig.commit_in_transaction([of("t", 0)], generation=4, member_id="me", instance_id="i") == [[0]]
    (request,) = rig.calls.requests
    assert request.transaction == OffsetsTransaction("x", 9, 1)
    assert (request.generation, request.member_id, request.instance_id) == (4, "me", "i")


@pytest.mark.parametrize(
    "fields", [{"transactional_id": ""}, {"transactional_id": "x" * 250}, {"producer_id": -1}, {"producer_epoch": -1}]
)
async def test_a_pair_that_nobody_has(fields: dict[str, Any]) -> None:
    rig = Rig()
    assert await rig.commit_in_transaction([of("t", 0)], **fields) == [[49]]
    assert rig.calls.requests == []


async def test_rules() -> None:
    """READ of the group and of the topic, and for a transaction its id."""
    asked: list[tuple[str, str]] = []

    def may(operation: str, name: str) -> bool:
        asked.append((operation, name))
        return name != "g"

    rig = Rig()
    assert await rig.commit([of("t", 0), of("u", 1)], Caller(may=may)) == [[30], [30]]
    assert await rig.commit_in_transaction([of("t", 0)], caller=Caller(may=may)) == [[30]]
    assert asked == [("group-read", "g")] * 2
    denied = Caller(lambda name: name != "x")
    assert await rig.commit_in_transaction([of("t", 0)], caller=denied) == [[53]]
    assert rig.calls.requests == []
