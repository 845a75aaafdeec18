"""A storm of objects, of groups and of allocations: none waits for another one (the shares of an entry)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.controller.node.decider import MAX_GROUP_BYTES, MAX_WAITING_COMMITS, MAX_WAITING_GROUPS, Decider
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES
from pidkeeper.controller.state.decide import most_bytes
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import (
    AllocateProducerIds,
    CommitGroup,
    CommitObject,
    CommitOffsets,
    DeleteOffsets,
    Request,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.group_messages import CommitGroupResponse, CommitOffsetsResponse
from pidkeeper.protocol.groups import (
    MAX_COMMITTED_OFFSETS,
    GroupMember,
    GroupRecord,
    OffsetsRecord,
    PartitionOffset,
    TopicOffsets,
)
from pidkeeper.protocol.log_messages import CommitObjectResponse, OfferedBatch
from pidkeeper.protocol.logs import MAX_OBJECT_BATCHES, BrokerStoreRecord, ObjectId, ObjectRecord, TopicRecord
from pidkeeper.protocol.messages import AllocateProducerIdsResponse
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    VotersRecord,
    decode_batch,
)
from pidkeeper.protocol.transactions import TopicPartitions

FOUNDING, STORE = uuid.UUID(int=1), uuid.UUID(int=2)
BROKERS = 12


class Given:
    """An answer that is kept."""

    def __init__(self) -> None:
        self.value: Any = None

    def done(self) -> bool:
        return self.value is not None

    def set_result(self, result: Any, /) -> None:
        self.value = result

    def set_exception(self, exception: RequestError, /) -> None:
        self.value = exception


class Log:
    """The log of a leader whose entries are all applied once the test says so."""

    node_id = 1

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.applied = 0

    @property
    def last_index(self) -> int:
        return len(self.entries)

    def propose(self, data: bytes) -> tuple[int, int]:
        assert len(data) <= MAX_ENTRY_BYTES, f"an entry of {len(data)} bytes"
        self.entries.append(data)
        return 1, len(self.entries)

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        raise AssertionError(f"nobody changes the members to {record}")


@pytest.fixture
def decider() -> Decider:
    machine = StateMachine("c", 10)
    machine.replay(
        [
            FeatureLevelRecord(LATEST),
            FoundingRecord(FOUNDING, 10, bridge=False, timestamp_ms=0),
            *(RegisterBrokerRecord(number, 2 + number, "a") for number in range(BROKERS)),
            *(BrokerStoreRecord(number, 2 + number, STORE) for number in range(BROKERS)),
            TopicRecord(uuid.UUID(int=3), "t", 1, 0, -1, -1, 0),
        ]
    )
    return Decider(
        machine, Proposals(Log()), wall_clock=lambda: 1.0, prepared=lambda request: request, checked=lambda _: None
    )


def full_commit(broker_id: int) -> CommitObject:
    """As many batches as an object may have, with all of their numbers as large as they get."""
    size = 16_000
    batches = tuple(
        OfferedBatch(0, 2**20, number * size, size, -1, -1, -1, 2**63 - 1, transactional=False)
        for number in range(MAX_OBJECT_BATCHES)
    )
    return CommitObject(ObjectId(broker_id, 2 + broker_id, 2**62), FOUNDING, MAX_OBJECT_BATCHES * size, batches)


def ask(decider: Decider, *asked: Request) -> list[Given]:
    answers = []
    for request in asked:
        answers.append(Given())
        decider.add(request, answers[-1])
    return answers


def decided(decider: Decider) -> list[Any]:
    """The records of the next entry, which is applied then."""
    log: Any = decider._proposals._log
    decider.decide()
    records = decode_batch(log.entries[-1])
    log.applied += 1
    decider._machine.replay(records)
    (proposal,) = decider._proposals._pending
    decider._proposals._pending.clear()
    proposal.pending = False
    for answer, outcome in proposal.outcomes:
        answer.set_result(outcome)
    return records


def test_an_allocation_joins_the_entry_that_a_storm_of_commits_makes(decider: Decider) -> None:
    commits = ask(decider, *(full_commit(number) for number in range(BROKERS)))
    (block,) = ask(decider, AllocateProducerIds(0, 2))
    records = decided(decider)
    assert isinstance(block.value, AllocateProducerIdsResponse)
    assert [type(record) for record in records] == [AllocateProducerIdsRecord, ObjectRecord]
    assert [type(one.value) for one in commits if one.done()] == [CommitObjectResponse]
    for _ in range(BROKERS - 1):
        decided(decider)
    assert all(isinstance(one.value, CommitObjectResponse) and one.value.outcomes[0] >= 0 for one in commits)


def test_a_commit_joins_the_entry_that_a_storm_of_allocations_makes(decider: Decider) -> None:
    blocks = ask(decider, *[AllocateProducerIds(0, 2)] * 8192)
    (commit,) = ask(decider, full_commit(0))
    records = decided(decider)
    assert isinstance(commit.value, CommitObjectResponse)
    assert isinstance(records[-1], ObjectRecord)
    assert 3000 < len(records) == 1 + sum(one.done() for one in blocks)


def test_commits_that_wait_are_bounded_and_take_no_allocations_place(decider: Decider) -> None:
    ask(decider, *[full_commit(0)] * MAX_WAITING_COMMITS)
    with pytest.raises(RequestError) as refusal:
        ask(decider, full_commit(0))
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    (block,) = ask(decider, AllocateProducerIds(0, 2))
    assert decider.waiting() == MAX_WAITING_COMMITS + 1
    decider.fail(RequestError(ErrorCode.NOT_CONTROLLER))
    assert (decider.waiting(), block.value.code) == (0, ErrorCode.NOT_CONTROLLER)


def one_offset(number: int, metadata: str = "") -> CommitOffsets:
    """As most consumers commit."""
    told = TopicOffsets("t", (PartitionOffset(0, 2**63 - 1, 2**31 - 1, metadata),))
    return CommitOffsets((0, 2), f"group-{number}", (told,), -1, "", None, None)


def large_group(group_id: str) -> CommitGroup:
    """As many members as fit, with the longest texts around them."""
    members = tuple(GroupMember(f"{number:0235}", None, "", "", 2**31 - 1) for number in range(256))
    return CommitGroup((0, 2), group_id, -1, 2**31 - 1, "\U0001f600" * 64, members)


def test_a_storm_of_groups_holds_up_no_allocation_and_no_object(decider: Decider) -> None:
    groups = ask(decider, *(one_offset(number) for number in range(3000)))
    objects = ask(decider, *(full_commit(number) for number in range(2)))
    blocks = ask(decider, *[AllocateProducerIds(0, 2)] * 50)
    records = decided(decider)
    assert all(isinstance(block.value, AllocateProducerIdsResponse) for block in blocks)
    assert isinstance(objects[0].value, CommitObjectResponse)
    kinds = [type(record) for record in records]
    assert kinds[:51] == [AllocateProducerIdsRecord] * 50 + [ObjectRecord]
    assert set(kinds[51:]) == {OffsetsRecord}
    assert len(kinds) - 51 == sum(one.done() for one in groups) > 500
    while not groups[-1].done():
        decided(decider)
    assert all(one.value == CommitOffsetsResponse([0]) for one in groups)


def test_a_group_joins_the_entry_that_storms_of_allocations_and_objects_make(decider: Decider) -> None:
    blocks = ask(decider, *[AllocateProducerIds(0, 2)] * 8192)
    ask(decider, *(full_commit(number) for number in range(BROKERS)))
    group, offset = ask(decider, large_group("\U0001f600" * 249), one_offset(1))
    records = decided(decider)
    assert isinstance(group.value, CommitGroupResponse)
    assert group.value.taken
    assert [type(record) for record in records[-2:]] == [ObjectRecord, GroupRecord]
    assert 2000 < len(records) == 2 + sum(one.done() for one in blocks)
    decided(decider)
    assert offset.value == CommitOffsetsResponse([0])


def test_no_request_about_groups_is_larger_than_their_share(decider: Decider) -> None:
    """It would wait for ever, and all others behind it; also where it is going to be refused."""
    name = "\U0001f600" * 249
    told = TopicOffsets(name, tuple(PartitionOffset(number, 2**63 - 1, 0, "m" * 4096) for number in range(1024)))
    asked: list[Request] = [
        large_group(name),
        CommitOffsets((0, 2), name, (told,) * MAX_COMMITTED_OFFSETS, -1, "", None, None),
        DeleteOffsets(None, name, (TopicPartitions(name, (1,)),) * MAX_COMMITTED_OFFSETS),
    ]
    draft = Draft(decider._machine, 0)
    assert all(60_000 < most_bytes(draft, request) <= MAX_GROUP_BYTES for request in asked)


def test_requests_about_groups_that_wait_are_bounded(decider: Decider) -> None:
    ask(decider, *[one_offset(0)] * MAX_WAITING_GROUPS)
    with pytest.raises(RequestError) as refusal:
        ask(decider, large_group("g"))
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    ask(decider, full_commit(0), AllocateProducerIds(0, 2))
    assert decider.waiting() == MAX_WAITING_GROUPS + 2
    decider.fail(RequestError(ErrorCode.NOT_CONTROLLER))
    assert decider.waiting() == 0
