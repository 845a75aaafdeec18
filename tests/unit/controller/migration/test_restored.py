"""A quorum that takes IDs from ZooKeeper, lost with all of its disks and restored from a copy."""

from __future__ import annotations

import uuid

import pytest

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import encode_batch
from tests.support.memory_leader import MemoryLeader, MemoryQuorum, granted, stands, start_of

LOST, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
FLOOR = 1_000
"""Above all that was handed out, as the operator makes sure."""


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> MemoryQuorum:
    # The log says it here.
    monkeypatch.setattr(MemoryLeader, "found", lambda _: None)
    quorum = MemoryQuorum()
    quorum.log.append(encode_batch([FoundingRecord(LOST, quorum.size, False, 0)]))
    quorum.leader = MemoryLeader(quorum)
    return quorum


def put_in_place(quorum: MemoryQuorum, copy: list[bytes]) -> None:
    """All disks are lost, and a copy of one directory is put in their place as it is."""
    quorum.log = copy
    quorum.leader.depose()
    quorum.leader = MemoryLeader(quorum)


def restore(quorum: MemoryQuorum, copy: list[bytes]) -> None:
    """As `pidkeeper storage recover` has it done."""
    put_in_place(quorum, copy)
    recorded = quorum.leader.ask(requests.RecordFounding(NEW, quorum.size, False, Succession(LOST, FLOOR)))
    quorum.settle()
    assert recorded.result() == NEW


def test_nothing_that_the_lost_quorum_claimed_is_handed_out_again(quorum: MemoryQuorum) -> None:
    """Its claims are in the znode under the name that the copy has, too."""
    quorum.enter(MigrationPhase.DUAL_WRITE)
    granted(quorum, 2)
    copy = list(quorum.log)
    lost = granted(quorum, 3)
    restore(quorum, copy)
    assert min(granted(quorum, 3)) >= FLOOR > max(lost)
    assert quorum.leader.machine.foundings.succession == Succession(LOST, FLOOR)


def test_nor_do_brokers_of_zookeeper_get_it_after_a_rollback(quorum: MemoryQuorum) -> None:
    quorum.enter(MigrationPhase.DUAL_WRITE)
    granted(quorum, 2)
    copy = list(quorum.log)
    granted(quorum, 3)
    restore(quorum, copy)
    quorum.order(MigrationPhase.ROLLING_BACK)
    quorum.run(ticks=3)
    block = stands(quorum)
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    assert block is not None
    assert block.last + 1 >= FLOOR


def test_nor_what_was_handed_out_behind_the_seal(quorum: MemoryQuorum) -> None:
    """The copy is of the moment before."""
    quorum.enter(MigrationPhase.DUAL_WRITE)
    granted(quorum, 2)
    quorum.leader.migration.orders.order(MigrationPhase.FINALIZING, forced=True)
    while quorum.leader.phase() is not MigrationPhase.FINALIZING:
        quorum.leader.settle()
        if quorum.leader.phase() is not MigrationPhase.FINALIZING:
            quorum.znode.answer()
    copy = list(quorum.log)
    quorum.settle()
    quorum.run(ticks=5)
    assert quorum.leader.phase() is MigrationPhase.FINALIZED
    lost = granted(quorum, 5)
    restore(quorum, copy)
    quorum.run(ticks=5)
    assert min(granted(quorum, 5)) >= FLOOR > max(lost)


@pytest.mark.parametrize("order", [MigrationPhase.ROLLING_BACK, MigrationPhase.FINALIZING])
def test_nobody_hands_out_in_its_place_while_a_broker_holds_what_is_not_known(
    quorum: MemoryQuorum, order: MigrationPhase
) -> None:
    quorum.enter(MigrationPhase.DUAL_WRITE)
    registered = quorum.leader.ask(requests.RegisterBroker(7, "seven"))
    quorum.settle()
    epoch = registered.result().broker_epoch
    copy = list(quorum.log)
    given = quorum.leader.ask(requests.AllocateProducerIds(7, epoch))
    quorum.settle()
    highest = start_of(given) + quorum.size - 1
    put_in_place(quorum, copy)
    quorum.leader.ask(requests.BrokerHeartbeat(7, epoch, HeldIds(LOST, highest)))
    quorum.settle()
    with pytest.raises(RequestError) as caught:
        quorum.order(order)
    assert caught.value.code is ErrorCode.EVIDENCE_OPEN
    assert quorum.leader.phase() is MigrationPhase.DUAL_WRITE
    raised = quorum.leader.floor(highest + 1)
    quorum.settle()
    assert raised.result().raised
    assert quorum.order(order) is order
