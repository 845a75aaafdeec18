"""Which transactions hold back whoever reads committed records, and for how long they have."""

from __future__ import annotations

import pytest

from pidkeeper.controller.node.stable_offsets import StableOffsets, holder, stable_offsets
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.requests import CommitObject
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from tests.support.log_leader import FOUNDING, NOW, LogLeader


class Quorum:
    """Logs of two partitions, and transactions in them."""

    def __init__(self) -> None:
        self.leader = LogLeader()
        self.epoch = self.leader.register()
        self.leader.add_topic("t", 2)
        self.objects = 0

    def write(self, partition: int, producer: tuple[int, int] = (-1, -1)) -> None:
        """Ten records."""
        idempotent = producer[0] >= 0
        log = self.leader.topic("t").first_log + partition
        batch = OfferedBatch(log, 10, 0, 100, *producer, 0 if idempotent else -1, 0, transactional=idempotent)
        self.leader.decide(CommitObject(ObjectId(7, self.epoch, self.objects), FOUNDING, 100, (batch,)))
        self.objects += 1

    def log(self, partition: int) -> PartitionLog:
        found = self.leader.machine.logs.log(self.leader.topic("t").first_log + partition)
        assert found is not None
        return found

    def held_by(self, partition: int) -> str | None:
        """The transactional id that holds the last stable offset."""
        held = holder(self.log(partition), self.leader.machine.transactions)
        return None if held is None or held.transaction is None else held.transaction.transactional_id

    def stable(self) -> StableOffsets:
        return stable_offsets(self.leader.machine.logs, self.leader.machine.transactions)


@pytest.fixture
def quorum() -> Quorum:
    return Quorum()


def test_without_an_open_transaction_nothing_is_held(quorum: Quorum) -> None:
    quorum.write(0)
    quorum.leader.begin("joined and wrote nothing", "t", 0)
    assert quorum.stable() == StableOffsets(0, None)
    assert quorum.held_by(0) is None


def test_the_transaction_that_was_first_holds_a_log_until_it_ends(quorum: Quorum) -> None:
    first, second = (quorum.leader.begin(name, "t", 0, 1) for name in ("first", "second"))
    quorum.write(0, first)
    quorum.write(0, second)
    quorum.write(1, second)
    assert (quorum.held_by(0), quorum.held_by(1)) == ("first", "second")
    assert quorum.stable() == StableOffsets(20, NOW)
    quorum.leader.end("first", committed=False)
    assert (quorum.held_by(0), quorum.stable()) == ("second", StableOffsets(11, NOW))
    quorum.leader.end("second", committed=True)
    assert (quorum.held_by(0), quorum.stable()) == (None, StableOffsets(0, None))
