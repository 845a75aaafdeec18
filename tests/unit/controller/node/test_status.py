"""What health tells of the replicated state before a bound of it is reached."""

from __future__ import annotations

import pytest

from pidkeeper.controller.node import status
from pidkeeper.controller.node.status import shortages
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.records import FeatureLevelRecord, ProducerIdFloorRecord
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(TRANSACTIONS), ProducerIdFloorRecord(1000, 0)])
    return machine


def test_a_state_with_room_is_told_nothing_of(machine: StateMachine) -> None:
    assert shortages(machine) == []


@pytest.mark.parametrize("left", [MAX_PRODUCER_ID // 10 - 2, 0])
def test_the_approach_of_the_end_of_the_ids_is_told(machine: StateMachine, left: int) -> None:
    machine.replay([ProducerIdFloorRecord(MAX_PRODUCER_ID - left, 0)])
    (told,) = shortages(machine)
    assert f"{MAX_PRODUCER_ID - left} of {MAX_PRODUCER_ID} producer IDs are used" in told


def test_transactional_ids_near_their_bound_are_told_of(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_TRANSACTIONAL_IDS", 10)
    for number in range(8):
        machine.replay([_record(number)])
    assert shortages(machine) == []
    machine.replay([_record(8)])
    (told,) = shortages(machine)
    assert told.startswith("9 of 10 transactional ids are kept")
    assert "transactional_id_expiration_ms" in told


def test_partitions_near_their_bound_are_told_of(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.replay([_record(1)])
    machine.replay([_record(1, partitions=(TopicPartitions("t", tuple(range(100))),))])
    used = machine.transactions.partition_bytes
    monkeypatch.setattr(status, "MAX_PARTITION_BYTES", used)
    (told,) = shortages(machine)
    assert told.startswith(f"{used} of {used} bytes are kept for the partitions of transactions")


def _record(number: int, partitions: tuple[TopicPartitions, ...] = ()) -> TransactionRecord:
    """Of a new id; with `partitions`, of an id in its first transaction."""
    status = TransactionStatus.ONGOING if partitions else TransactionStatus.EMPTY
    return TransactionRecord(f"tx-{number}", number, 0, -1, -1, 60_000, status, 1, partitions)
