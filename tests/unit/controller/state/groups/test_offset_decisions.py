"""Who may commit offsets of a group, and what comes of them: Kafka's `OffsetMetadataManagerTest`, by its names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import most_bytes, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitOffsetsResponse, DeleteOffsetsResponse
from pidkeeper.protocol.groups import MAX_COMMITTED_OFFSETS, MAX_OFFSETS_BYTES, PartitionOffset, TopicOffsets
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.protocol.transactions import TopicPartitions
from tests.support.group_state import (
    add_group,
    committed,
    delete,
    delete_offsets,
    gather,
    keep,
    member,
    offsets,
    pending,
)
from tests.support.log_state import FIRST_OWN, NOW, batch, decided, drop, end, init, make, one, topic

E = ErrorCode
TX = FIRST_OWN, 0
IN_TX = "tx", TX
KEPT = CommitOffsetsResponse([0])


@pytest.fixture
def machine() -> StateMachine:
    """Topic t has three partitions. Group g has the members a and b, which is static as s, in generation 5. The
    transaction of tx is to settle offsets of g and of h, of which nothing is known."""
    machine = make()
    batch(machine, topic("t", 3), init("tx"), gather("g", -1, 5, "a", member("b", "s")))
    batch(machine, add_group("tx", TX, "g"), add_group("tx", TX, "h"))
    return machine


# The group.

REFUSED: list[tuple[tuple[int, str, str | None], E | None, E | None]] = [
    ((5, "a", None), None, None),
    ((5, "b", "s"), None, None),
    ((5, "b", None), None, None),
    ((4, "a", None), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
    ((6, "a", None), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
    ((-1, "a", None), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
    ((5, "c", None), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    ((5, "", None), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    ((5, "a", "s"), E.FENCED_INSTANCE_ID, E.FENCED_INSTANCE_ID),
    ((4, "a", "s"), E.FENCED_INSTANCE_ID, E.FENCED_INSTANCE_ID),
    ((5, "b", "r"), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    ((-1, "", "s"), E.FENCED_INSTANCE_ID, E.FENCED_INSTANCE_ID),
    ((-1, "", None), E.UNKNOWN_MEMBER_ID, None),
]


@pytest.mark.parametrize(("who", "plain", "transactional"), REFUSED)
def test_a_group_with_members_takes_offsets_of_those(
    machine: StateMachine, who: tuple[int, str, str | None], plain: E | None, transactional: E | None
) -> None:
    """`testGenericGroupOffsetCommitWithUnknownMemberId`, `…WithIllegalGeneration`, `…WithFencedInstanceId`, and
    `testGenericGroupTransactionalOffsetCommitWithUnknownMemberId`, `…WithIllegalGenerationId`."""
    assert one(machine, keep("g", ("t", 0, 7), who=who)) == (plain or KEPT)
    assert one(machine, keep("g", ("t", 1, 8), who=who, transaction=IN_TX)) == (transactional or KEPT)
    assert committed(machine, "g") == ({} if plain else {("t", 0): 7})
    assert pending(machine, "g") == ({} if transactional else {("t", 1, FIRST_OWN): 8})


@pytest.mark.parametrize("transaction", [None, IN_TX])
def test_an_unknown_group_begins_with_its_offsets(
    machine: StateMachine, transaction: tuple[str, tuple[int, int]] | None
) -> None:
    """`testSimpleGroupOffsetCommit`, `testGenericGroupOffsetCommitWithUnknownGroupId` (ILLEGAL_GENERATION), and their
    transactional brothers."""
    refused = one(machine, keep("h", ("t", 0, 7), who=(0, "a", None), transaction=transaction))
    assert refused is E.ILLEGAL_GENERATION
    assert machine.groups.get("h") is None
    assert one(machine, keep("h", ("t", 0, 7), transaction=transaction)) == KEPT
    group = machine.groups.get("h")
    assert group is not None
    assert (group.version, group.record, group.offsets + group.pending) == (-1, None, 1)
    again = one(machine, keep("h", ("t", 0, 7), who=(0, "a", None), transaction=transaction))
    assert again is E.UNKNOWN_MEMBER_ID, "it is known now, and has no members"


def test_an_empty_group_takes_what_names_no_generation(machine: StateMachine) -> None:
    group = machine.groups.get("g")
    assert group is not None
    batch(machine, gather("g", group.version, 6))
    assert one(machine, keep("g", ("t", 0, 1))) == KEPT
    assert one(machine, keep("g", ("t", 0, 1), who=(-1, "x", "y"))) == KEPT, "as Kafka has it"
    assert one(machine, keep("g", ("t", 0, 1), who=(6, "a", None))) is E.UNKNOWN_MEMBER_ID


def test_an_operator_moves_a_group_without_members_alone(machine: StateMachine) -> None:
    assert one(machine, keep("g", ("t", 0, 1), operator=True)) is E.NON_EMPTY_GROUP
    assert one(machine, keep("h", ("t", 0, 1), operator=True)) == KEPT
    assert one(machine, keep("h", ("t", 0, 0), operator=True)) == KEPT
    assert committed(machine, "h") == {("t", 0): 0}


def test_a_brokers_epoch_and_the_version_come_first(machine: StateMachine) -> None:
    commit = keep("g", ("t", 9, 7), transaction=("nobody", (5, 0)))
    assert one(machine, replace(commit, broker=(1, 2))) is E.STALE_BROKER_EPOCH
    assert one(machine, replace(commit, broker=(9, 2))) is E.BROKER_ID_NOT_REGISTERED
    machine.metadata_version = SEGMENTS
    for request in (
        commit,
        gather("g"),
        delete("g"),
        delete_offsets("g", ("t", 0)),
        requests.ExpireOffsets("g", -1, ()),
    ):
        assert one(machine, request) is E.UNSUPPORTED_VERSION


# The transaction.


def under_way(machine: StateMachine) -> StateMachine:
    """tx holds an offset of h, beside one that is committed."""
    batch(machine, keep("h", ("t", 0, 1)), keep("h", ("t", 0, 9), ("t", 1, 8), transaction=IN_TX))
    return machine


def group_of(machine: StateMachine, group_id: str) -> Group:
    """A group that is known."""
    group = machine.groups.get(group_id)
    assert group is not None
    return group


@pytest.mark.parametrize(
    ("transaction", "group_id", "code"),
    [
        (("nobody", TX), "h", E.INVALID_PRODUCER_ID_MAPPING),
        (("tx", (FIRST_OWN + 1, 0)), "h", E.INVALID_PRODUCER_ID_MAPPING),
        (("tx", (FIRST_OWN, 1)), "h", E.PRODUCER_FENCED),
        (("tx", (-1, -1)), "h", E.INVALID_PRODUCER_ID_MAPPING),
        (("idle", (FIRST_OWN + 1, 0)), "h", E.INVALID_TXN_STATE),
        (IN_TX, "of another partition", E.INVALID_TXN_STATE),
        (("tx", (FIRST_OWN, 1)), "g", E.PRODUCER_FENCED),
    ],
)
def test_only_the_transaction_that_the_group_was_added_to_settles_its_offsets(
    machine: StateMachine, transaction: tuple[str, tuple[int, int]], group_id: str, code: E
) -> None:
    """And it is looked at before the group is: a zombie is told that it is one."""
    batch(machine, init("idle"))
    assert one(machine, keep(group_id, ("t", 0, 1), who=(9, "", None), transaction=transaction)) is code
    assert machine.groups.pending == 0


def test_a_zombie_commits_no_offsets(machine: StateMachine) -> None:
    batch(machine, init("tx"))
    assert one(machine, keep("h", ("t", 0, 1), transaction=IN_TX)) is E.PRODUCER_FENCED
    newer = "tx", (FIRST_OWN, 1)
    assert one(machine, keep("h", ("t", 0, 1), transaction=newer)) is E.INVALID_TXN_STATE
    assert one(machine, add_group(*newer, "h")).error_code == 0
    assert one(machine, keep("h", ("t", 0, 1), transaction=newer)) == KEPT


def test_a_transaction_that_is_decided_takes_none(machine: StateMachine) -> None:
    """It was so before metadata version 9."""
    known = machine.transactions.get("tx")
    assert known is not None
    machine.transactions.replay(replace(known, status=TransactionStatus.PREPARE_COMMIT), 99, 10**6)
    assert one(machine, keep("h", ("t", 0, 1), transaction=IN_TX)) is E.CONCURRENT_TRANSACTIONS


def test_offsets_are_pending_until_the_transaction_is_committed(machine: StateMachine) -> None:
    """`testReplayTransactionEndMarkerWithCommit`."""
    under_way(machine)
    assert committed(machine, "h") == {("t", 0): 1}
    assert pending(machine, "h") == {("t", 0, FIRST_OWN): 9, ("t", 1, FIRST_OWN): 8}
    group = group_of(machine, "h")
    assert [group.is_pending("t", number) for number in range(3)] == [True, True, False]
    assert (group.offsets, group.pending, group.is_pending("u", 0)) == (1, 2, False)
    batch(machine, end("tx", TX))
    assert committed(machine, "h") == {("t", 0): 9, ("t", 1): 8}
    assert (pending(machine, "h"), machine.groups.pending, machine.groups.held_by(FIRST_OWN)) == ({}, 0, 0)


def test_a_later_plain_commit_wins(machine: StateMachine) -> None:
    """`testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset`."""
    under_way(machine)
    batch(machine, keep("h", ("t", 0, 2)), end("tx", TX))
    assert committed(machine, "h") == {("t", 0): 2, ("t", 1): 8}


def test_of_two_transactions_the_later_commit_wins_whichever_ends_last(machine: StateMachine) -> None:
    other = "other", (FIRST_OWN + 1, 0)
    batch(machine, init("other"), add_group(*other, "h"))
    under_way(machine)
    batch(machine, keep("h", ("t", 0, 5), transaction=other))
    assert group_of(machine, "h").pending == 2, "partitions, not offsets"
    assert group_of(machine, "h").is_pending("t", 0)
    batch(machine, end(*other))
    assert group_of(machine, "h").is_pending("t", 0), "the other one holds it still"
    batch(machine, end("tx", TX))
    assert committed(machine, "h") == {("t", 0): 5, ("t", 1): 8}


ENDS: list[requests.Request] = [
    end("tx", TX, committed=False),
    init("tx"),
    init("tx", TX),
    requests.AbortTransaction("tx", -1, -1),
    requests.AbortTransaction("tx", *TX, timed_out=True),
]


@pytest.mark.parametrize("ending", ENDS)
def test_whatever_aborts_the_transaction_drops_what_it_held(machine: StateMachine, ending: requests.Request) -> None:
    """`testReplayTransactionEndMarkerWithCommit`, its second half."""
    under_way(machine)
    batch(machine, keep("g", ("t", 2, 7), who=(5, "a", None), transaction=IN_TX))
    batch(machine, ending)
    assert committed(machine, "h") == {("t", 0): 1}
    assert (committed(machine, "g"), pending(machine, "g"), pending(machine, "h")) == ({}, {}, {})


def test_a_group_of_pending_offsets_alone_is_gone_with_the_transaction(machine: StateMachine) -> None:
    batch(machine, keep("h", ("t", 0, 9), transaction=IN_TX))
    assert len(machine.groups) == 2
    batch(machine, end("tx", TX, committed=False))
    assert (machine.groups.get("h"), len(machine.groups)) == (None, 1)


def test_one_batch_may_commit_and_end(machine: StateMachine) -> None:
    answers = batch(
        machine,
        keep("h", ("t", 0, 9), transaction=IN_TX),
        end("tx", TX),
        keep("h", ("t", 0, 10), transaction=IN_TX),
        keep("h", ("t", 1, 3)),
        delete_offsets("h", ("t", 0), ("t", 1), ("t", 2)),
        delete("h"),
    )
    gone = DeleteOffsetsResponse(2)
    assert answers[2:] == [E.INVALID_TXN_STATE, KEPT, gone, E.GROUP_ID_NOT_FOUND]
    assert machine.groups.get("h") is None


# The partitions.


def test_each_partition_has_its_code(machine: StateMachine) -> None:
    told = (
        TopicOffsets("t", (PartitionOffset(0, 1, -1, "m" * 4096), PartitionOffset(3, 1, -1, ""))),
        TopicOffsets("u", (PartitionOffset(0, 1, -1, ""),)),
        TopicOffsets(
            "t", (PartitionOffset(1, 1, -1, "é" * 2049), PartitionOffset(2, 2**63 - 1, 2**31 - 1, "é" * 2048))
        ),
        TopicOffsets("t", ()),
    )
    answer = one(machine, replace(keep("h"), topics=told))
    assert answer == CommitOffsetsResponse([0, 3, 3, 12, 0])
    assert committed(machine, "h") == {("t", 0): 1, ("t", 2): 2**63 - 1}


def test_what_leaves_nothing_over_is_no_record(machine: StateMachine) -> None:
    draft = Draft(machine, NOW)
    nowhere = keep("h", ("t", 3, 1))
    assert decided(draft, [nowhere, replace(nowhere, topics=())]) == [
        CommitOffsetsResponse([3]),
        CommitOffsetsResponse([]),
    ]
    assert (draft.records, draft.groups.get("h")) == ([], None)
    assert must_be_confirmed(nowhere)


def test_the_last_of_two_offsets_for_one_partition_counts(machine: StateMachine) -> None:
    assert one(machine, keep("h", ("t", 0, 1), ("t", 0, 2))) == CommitOffsetsResponse([0, 0])
    assert (committed(machine, "h"), machine.groups.offsets) == ({("t", 0): 2}, 1)


def test_more_than_a_record_has_is_refused(machine: StateMachine) -> None:
    batch(machine, topic("u", MAX_COMMITTED_OFFSETS + 1))
    many = keep("h", *[("u", number, 0) for number in range(MAX_COMMITTED_OFFSETS)])
    assert one(machine, many) == CommitOffsetsResponse([0] * MAX_COMMITTED_OFFSETS)
    more = replace(many, topics=(*many.topics, *offsets([("t", 0, 0)])))
    assert one(machine, more) is E.INVALID_COMMIT_OFFSET_SIZE
    large = keep("h", *[("u", number, 0) for number in range(16)], metadata="m" * 4096)
    assert one(machine, large) is E.INVALID_COMMIT_OFFSET_SIZE
    assert most_bytes(Draft(machine, NOW), large) < MAX_OFFSETS_BYTES + 100
    assert one(machine, replace(large, topics=large.topics[:15])) == CommitOffsetsResponse([0] * 15)


# Bounds.


@pytest.mark.parametrize(("bound", "most"), [("MAX_OFFSETS", 3), ("MAX_OFFSET_BYTES", 8), ("MAX_GROUPS", 2)])
def test_at_a_bound_who_is_there_goes_on(
    machine: StateMachine, bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three offsets has a group and a topic of one letter, and two of them have metadata of one."""
    monkeypatch.setattr(limits, bound, most)
    batch(machine, keep("h", ("t", 0, 1), ("t", 1, 1), metadata="m"), keep("h", ("t", 0, 1), transaction=IN_TX))
    before = machine.image(1, 1).groups
    assert one(machine, keep("i", ("t", 0, 1))) is E.COORDINATOR_NOT_AVAILABLE
    assert machine.image(1, 1).groups == before
    for again in (keep("h", ("t", 0, 2), ("t", 1, 2), metadata="n"), keep("h", ("t", 0, 2), transaction=IN_TX)):
        assert 0 in one(machine, again).codes
    batch(machine, end("tx", TX))
    assert one(machine, keep("h", ("t", 0, 3), ("t", 1, 3), metadata="o")).codes == [0, 0], (
        "what was held is free again"
    )


def test_longer_metadata_may_be_too_much(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OFFSET_BYTES", 10)
    assert one(machine, keep("h", ("t", 0, 1), metadata="12345678")) == KEPT
    assert one(machine, keep("h", ("t", 0, 1), metadata="123456789")) is E.COORDINATOR_NOT_AVAILABLE
    assert one(machine, keep("h", ("t", 0, 1), metadata="üü")) == KEPT, "8 bytes, by four for each"
    assert one(machine, keep("h", ("t", 0, 1), metadata="üüü")) is E.COORDINATOR_NOT_AVAILABLE


def test_a_transaction_holds_so_many_offsets_and_no_more(
    machine: StateMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PENDING", 2)
    held = keep("h", ("t", 0, 1), ("t", 1, 1), transaction=IN_TX)
    assert one(machine, held).codes == [0, 0]
    assert one(machine, keep("h", ("t", 2, 1), transaction=IN_TX)) is E.INVALID_COMMIT_OFFSET_SIZE
    assert one(machine, held).codes == [0, 0]
    assert one(machine, keep("h", ("t", 0, 1), ("t", 1, 1), ("t", 2, 1))).codes == [0, 0, 0]


# Topics.


def test_a_deleted_topic_takes_its_offsets_along(machine: StateMachine) -> None:
    """`testOnPartitionsDeleted`; and what a transaction holds of it."""
    under_way(machine)
    batch(machine, topic("u"), keep("h", ("u", 0, 4)), keep("h", ("u", 0, 5), transaction=IN_TX))
    answers = batch(machine, drop("t"), keep("h", ("t", 0, 1)), topic("t", 1, 77), delete_offsets("h", ("t", 0)))
    assert (answers[1], answers[3]) == (CommitOffsetsResponse([3]), DeleteOffsetsResponse(0))
    assert (committed(machine, "h"), pending(machine, "h")) == ({("u", 0): 4}, {("u", 0, FIRST_OWN): 5})
    assert machine.groups.held_by(FIRST_OWN) == 1
    batch(machine, end("tx", TX), drop("u"))
    assert machine.groups.get("h") is None
    assert (machine.groups.offsets, machine.groups.pending, machine.groups.offset_bytes) == (0, 0, 0)


def test_one_batch_may_begin_with_groups_and_delete_their_topic() -> None:
    machine = make()
    batch(machine, topic("t"))
    answers = batch(machine, keep("h", ("t", 0, 1)), drop("t"), delete("h"))
    assert (answers[0], answers[2]) == (KEPT, E.GROUP_ID_NOT_FOUND)


# What is forgotten.


def test_offsets_are_deleted_where_they_are_committed(machine: StateMachine) -> None:
    """`testGenericGroupOffsetDelete`; but what a transaction holds stays, where Kafka drops it too."""
    under_way(machine)
    assert one(machine, delete_offsets("nobody", ("t", 0))) is E.GROUP_ID_NOT_FOUND
    assert one(machine, delete_offsets("h", ("t", 0), ("t", 0), ("t", 1), ("u", 0))) == DeleteOffsetsResponse(1)
    assert one(machine, delete_offsets("h", ("t", 0))) == DeleteOffsetsResponse(0)
    assert (committed(machine, "h"), len(pending(machine, "h"))) == ({}, 2)
    stale = replace(delete_offsets("h", ("t", 0)), broker=(1, 2))
    assert one(machine, stale) is E.STALE_BROKER_EPOCH


def test_of_a_group_with_members_its_coordinator_alone_deletes_offsets(machine: StateMachine) -> None:
    batch(machine, keep("g", ("t", 0, 1), who=(5, "a", None)))
    assert one(machine, delete_offsets("g", ("t", 0), operator=True)) is E.NON_EMPTY_GROUP
    assert one(machine, delete_offsets("g", ("t", 0))) == DeleteOffsetsResponse(1)
    assert group_of(machine, "g").version >= 0


def test_more_deletions_than_a_record_has_are_refused(machine: StateMachine) -> None:
    names = [f"{number:03}{'n' * 246}" for number in range(260)]
    batch(machine, *[topic(name) for name in names])
    for first in range(0, 260, 130):
        answer = one(machine, keep("h", *[(name, 0, 1) for name in names[first : first + 130]]))
        assert answer == CommitOffsetsResponse([0] * 130)
    assert one(machine, delete_offsets("h", *[(name, 0) for name in names])) is E.MESSAGE_TOO_LARGE
    old = requests.ExpireOffsets("h", -1, tuple((name, 0, at) for name, at in seen(machine, "h", names)))
    kept = tuple(place for place in old.offsets if place[0] != names[0])
    assert one(machine, replace(old, offsets=kept)) is None
    assert 1 < group_of(machine, "h").offsets < 20, "as many as a record has"
    assert one(machine, old) is None
    assert machine.groups.get("h") is None, "all that was left"
    many = [TopicPartitions(name, (number,)) for number, name in enumerate(names)]
    assert most_bytes(Draft(machine, NOW), requests.DeleteOffsets(None, "h", tuple(many))) < MAX_OFFSETS_BYTES + 100


def seen(machine: StateMachine, group_id: str, names: list[str]) -> list[tuple[str, int]]:
    """Of each topic the record that committed its first partition."""
    found = [(name, group_of(machine, group_id).committed(name, 0)) for name in names]
    return [(name, kept.record_offset) for name, kept in found if kept is not None]


def test_old_offsets_are_forgotten_and_with_the_last_of_them_the_group(machine: StateMachine) -> None:
    """KIP-211, with a group that has no coordinator."""
    batch(machine, keep("h", ("t", 0, 1)))
    batch(machine, keep("h", ("t", 1, 1)))
    ((_, at),) = seen(machine, "h", ["t"])
    assert one(machine, requests.ExpireOffsets("h", -1, (("t", 0, at), ("t", 0, at), ("t", 2, at)))) is None
    assert committed(machine, "h") == {("t", 1): 1}
    assert one(machine, requests.ExpireOffsets("h", -1, (("t", 1, at + 1),))) is None
    assert machine.groups.get("h") is None
    assert one(machine, requests.ExpireOffsets("h", -1, ())) is None


@pytest.mark.parametrize("change", ["recommitted", "joined", "another version", "pending"])
def test_what_changed_since_it_was_seen_to_be_old_is_kept(machine: StateMachine, change: str) -> None:
    """`testCleanupExpiredOffsetsWithPendingTransactionalOffsets`, and what else may come between look and decision."""
    batch(machine, gather("i", -1, 0))
    batch(machine, keep("i", ("t", 0, 1)), add_group("tx", TX, "i"))
    ((_, at),) = seen(machine, "i", ["t"])
    version = group_of(machine, "i").version
    changes: dict[str, requests.Request] = {
        "recommitted": keep("i", ("t", 0, 1)),
        "joined": gather("i", version, 1, "a"),
        "another version": gather("i", version, 1),
        "pending": keep("i", ("t", 0, 2), transaction=IN_TX),
    }
    draft = Draft(machine, NOW)
    expiry = requests.ExpireOffsets("i", version, (("t", 0, at),))
    assert decided(draft, [changes[change], expiry])[1] is None
    assert len(draft.records) == 1
    if change == "joined":
        batch(machine, changes[change])
        joined = group_of(machine, "i").version
        assert batch(machine, requests.ExpireOffsets("i", joined, (("t", 0, at),))) == [None]
        assert committed(machine, "i") == {("t", 0): 1}, "it has members"


def test_a_pending_offset_keeps_its_group(machine: StateMachine) -> None:
    under_way(machine)
    ((_, at),) = seen(machine, "h", ["t"])
    batch(machine, keep("h", ("t", 2, 1)))
    kept = group_of(machine, "h").committed("t", 2)
    assert kept is not None
    expiry = requests.ExpireOffsets("h", -1, (("t", 0, at), ("t", 2, kept.record_offset)))
    assert one(machine, expiry) is None
    assert committed(machine, "h") == {("t", 0): 1}, "what is held is not old"
    batch(machine, end("tx", TX, committed=False))
    assert one(machine, expiry) is None
    assert machine.groups.get("h") is None


def test_an_empty_group_without_offsets_is_forgotten(machine: StateMachine) -> None:
    batch(machine, gather("i", -1, 3))
    version = group_of(machine, "i").version
    assert one(machine, requests.ExpireOffsets("i", version + 1, ())) is None
    assert machine.groups.get("i") is not None
    assert one(machine, requests.ExpireOffsets("i", version, ())) is None
    assert machine.groups.get("i") is None
