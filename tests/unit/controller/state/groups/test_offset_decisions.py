"""Who may commit offsets of a group, and what comes of them: Kafka's `OffsetMetadataManagerTest`, by its names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitOffsetsResponse
from pidkeeper.protocol.metadata_version import SEGMENTS
from tests.support.group_state import (
    add_group,
    committed,
    delete,
    delete_offsets,
    gather,
    keep,
    member,
    pending,
)
from tests.support.log_state import FIRST_OWN, batch, init, make, one, topic

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
