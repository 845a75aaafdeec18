"""Partitions that join a transaction with the batch that is written there, and groups with offsets (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.commit_decisions import MAX_COMMIT_BYTES
from pidkeeper.controller.state.decide import most_bytes
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitOffsetsResponse, OffsetsTransaction
from pidkeeper.protocol.groups import OFFSETS_TOPIC, PartitionOffset, TopicOffsets, offsets_partition
from pidkeeper.protocol.log_messages import JoiningBatch, OfferedBatch
from pidkeeper.protocol.logs import MAX_OBJECT_BATCHES
from pidkeeper.protocol.transactions import TransactionRecord
from tests.support.log_state import (
    EPOCHS,
    FIRST_OWN,
    NOW,
    batch,
    commit,
    data,
    end,
    init,
    join,
    make,
    one,
    outcomes,
    topic,
)

TX = (FIRST_OWN, 0)
NEXT = (FIRST_OWN, 1)


@pytest.fixture
def machine() -> StateMachine:
    """Topic `t` has the logs 0 to 2. TX has a transactional id, and no transaction."""
    machine = make()
    batch(machine, topic("t", 3), init("tx"))
    return machine


def written(log: int, producer: tuple[int, int], sequence: int) -> OfferedBatch:
    return data(log, producer, sequence, transactional=True)


def transaction(machine: StateMachine) -> TransactionRecord:
    record = machine.transactions.get("tx")
    assert record is not None
    return record


def joined(machine: StateMachine) -> list[tuple[str, int]]:
    return list(transaction(machine).each_partition())


def ended(producer: tuple[int, int], *, committed: bool = True) -> requests.EndTxn:
    return replace(end("tx", producer, committed=committed), new_epoch=True)


def offsets(producer: tuple[int, int], **changes: Any) -> requests.CommitOffsets:
    settled_by = OffsetsTransaction("tx", *producer, joining=True)
    topics = (TopicOffsets("t", (PartitionOffset(0, 5, -1, ""),)),)
    return replace(requests.CommitOffsets((1, EPOCHS[1]), "g", topics, -1, "", None, settled_by), **changes)


def test_the_first_batch_begins_the_transaction_and_each_partition_joins_once(machine: StateMachine) -> None:
    first = machine.next_offset
    request = commit(1, written(0, TX, 0), written(2, TX, 0), written(0, TX, 1), joining="tx")
    assert outcomes(machine, request) == [0, 0, 1]
    assert machine.next_offset == first + 3, "two that join, and the object"
    assert joined(machine) == [("t", 0), ("t", 2)]
    assert outcomes(machine, commit(2, written(2, TX, 1), joining="tx")) == [1]
    assert machine.next_offset == first + 4
    assert machine.logs.open == 2


def test_a_commit_that_is_asked_for_again_joins_nothing_again(machine: StateMachine) -> None:
    request = commit(1, written(0, TX, 0), joining="tx")
    one(machine, request)
    one(machine, ended(TX))
    first = machine.next_offset
    assert outcomes(machine, request) == [0]
    assert machine.next_offset == first
    assert joined(machine) == []


@pytest.mark.parametrize("committed", [True, False])
def test_what_comes_behind_the_end_of_its_transaction_begins_none(machine: StateMachine, committed: bool) -> None:
    one(machine, commit(1, written(0, TX, 0), joining="tx"))
    one(machine, ended(TX, committed=committed))
    before = transaction(machine)
    assert outcomes(machine, commit(2, written(0, TX, 1), written(1, TX, 0), joining="tx")) == [-47, -47]
    assert transaction(machine) is before
    assert outcomes(machine, commit(3, written(0, NEXT, 1), joining="tx")) == [-45], "each begins at 0"
    assert transaction(machine) is before, "what is refused does not join"
    assert outcomes(machine, commit(4, written(0, NEXT, 0), joining="tx")) == [2]
    assert joined(machine) == [("t", 0)]


def test_a_batch_whose_predecessors_never_came_begins_none(machine: StateMachine) -> None:
    before = transaction(machine)
    assert outcomes(machine, commit(1, written(0, TX, 1), written(1, TX, 5), joining="tx")) == [-45, -45]
    assert transaction(machine) is before
    assert outcomes(machine, commit(2, written(0, TX, 0), written(0, TX, 1), joining="tx")) == [0, 1]


def test_nobody_begins_a_transaction_of_somebody_else(machine: StateMachine) -> None:
    one(machine, init("other"))
    assert outcomes(machine, commit(1, written(0, TX, 0), joining="other")) == [-49]
    assert joined(machine) == []


def test_without_leave_a_partition_has_to_join_before(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, written(0, TX, 0))) == [-48]
    batch(machine, join("tx", TX, "t", 0))
    assert outcomes(machine, commit(2, written(0, TX, 0), written(1, TX, 0))) == [0, -48]


def test_a_transaction_may_have_too_many_partitions(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.controller.state.transitions.MAX_TRANSACTION_BYTES", 15)
    assert outcomes(machine, commit(1, written(0, TX, 0), written(1, TX, 0), joining="tx")) == [0, -48]


def test_what_no_agent_asks_is_refused_and_changes_nothing(machine: StateMachine) -> None:
    request = commit(1, written(0, TX, 0), data(1))
    for index in (1, 2):
        refused = replace(request, joining=(JoiningBatch(index, "tx"),))
        assert one(machine, refused) is ErrorCode.INVALID_REQUEST
    large = commit(1, *(written(0, TX, at) for at in range(MAX_OBJECT_BATCHES)), joining="")
    large = replace(large, joining=(JoiningBatch(0, "tx"),))
    assert most_bytes(Draft(machine, NOW), large) == MAX_COMMIT_BYTES
    assert one(machine, large) is ErrorCode.INVALID_REQUEST
    assert joined(machine) == []


def test_a_group_joins_with_its_offsets(machine: StateMachine) -> None:
    first = machine.next_offset
    assert batch(machine, offsets(TX), offsets(TX)) == [CommitOffsetsResponse([0])] * 2
    assert machine.next_offset == first + 3
    assert joined(machine) == [(OFFSETS_TOPIC, offsets_partition("g"))]
    assert machine.groups.pending == 1
    one(machine, ended(TX))
    assert one(machine, offsets(TX)) is ErrorCode.PRODUCER_FENCED
    group = machine.groups.get("g")
    assert group is not None and group.committed("t", 0) is not None and machine.groups.pending == 0


def test_offsets_that_are_refused_begin_no_transaction(machine: StateMachine) -> None:
    assert one(machine, offsets(TX, generation=3)) is ErrorCode.ILLEGAL_GENERATION
    unknown = (TopicOffsets("gone", (PartitionOffset(0, 5, -1, ""),)),)
    assert one(machine, offsets(TX, topics=unknown)) == CommitOffsetsResponse([3])
    assert joined(machine) == []
