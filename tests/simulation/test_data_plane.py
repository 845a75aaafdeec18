"""The parts of the simulated data plane: the store's faults, the model of the logs, and what the monitor notices."""

from __future__ import annotations

import contextlib
import uuid

import msgspec
import pytest
from msgspec.structs import replace

from pidkeeper.broker_agent.data.store.port import StoreUnavailableError
from pidkeeper.protocol.groups import OFFSETS_TOPIC, OffsetsRecord, PartitionOffset, TopicOffsets, offsets_partition
from pidkeeper.protocol.logs import BatchCoordinates, ObjectId, ObjectRecord, TopicRecord
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import AddPartitionsRecord, TopicPartitions, TransactionRecord
from tests.simulation.data_plane import draw
from tests.simulation.log_invariants import LogMonitor
from tests.simulation.log_model import LogEnds, LogModel
from tests.simulation.loop import SimLoop, enter
from tests.simulation.object_store import SimStore, StoreFaults, StorePort
from tests.simulation.sent_batches import Batches
from tests.simulation.transaction_model import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING
from tests.simulation.world import MILLISECOND, SECOND, Violation, World

NO_FAULTS = StoreFaults(delay=MILLISECOND, slow=0.0, failing=0.0, lost=0.0, late=0.0, pauses=0)
TOPIC = TopicRecord(uuid.UUID(int=1), "t", 2, 0, -1, -1, 0)
LOG = 1


def model_of(status: int = ONGOING) -> LogModel:
    """Log 1 and a transaction of producer 7, epoch 1, in it."""
    model = LogModel()
    model.others([TOPIC, transaction(status)])
    return model


def transaction(status: int, epoch: int = 1) -> TransactionRecord:
    joined = (TopicPartitions("t", (LOG,)),) if status == ONGOING else ()
    return TransactionRecord("x", 7, epoch, -1, -1, 1000, status, 0, joined)


def append(model: LogModel, offset: int, epoch: int = 1, *, producer_id: int = 7, transactional: bool = True) -> None:
    batch = BatchCoordinates(LOG, offset, 2, 0, 9, producer_id, epoch, 0, 0, transactional)
    model.append(ObjectRecord(ObjectId(0, 1, 1), 9, (offset,), (batch,), 0), batch, b"%d" % offset)


@pytest.mark.parametrize("status", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_end_of_a_transaction_marks_its_batches(status: int) -> None:
    model = model_of()
    append(model, 0)
    append(model, 2, -1, producer_id=-1, transactional=False)
    append(model, 4)
    assert model.ends()[LOG] == LogEnds(6, 0)
    model.others([transaction(status)])
    assert model.ends()[LOG] == LogEnds(7, 7)
    shown = [row.offset for row in model.logs[LOG].visible(0, 7, committed=True)]
    assert shown == ([0, 2, 4] if status == COMPLETE_COMMIT else [2])


@pytest.mark.parametrize(
    ("status", "offset", "epoch", "rule"),
    [
        (ONGOING, 1, 1, "offsets"),
        (ONGOING, 0, 0, "zombie-behind-the-fence"),
        (EMPTY, 0, 1, "outside-its-transaction"),
    ],
)
def test_a_batch_that_must_not_join_is_noticed(status: int, offset: int, epoch: int, rule: str) -> None:
    with pytest.raises(Violation) as violation:
        append(model_of(status), offset, epoch)
    assert violation.value.rule == rule


def offsets(epoch: int) -> OffsetsRecord:
    topics = (TopicOffsets("t", (PartitionOffset(0, 5, -1, ""),)),)
    return OffsetsRecord("g", 7, epoch, topics, 0)


def test_what_joins_with_an_epoch_of_before_is_noticed() -> None:
    place = (TopicPartitions(OFFSETS_TOPIC, (offsets_partition("g"),)),)
    late = AddPartitionsRecord("x", 7, 0, place, 0)
    broken: list[tuple[list[Record], str]] = [
        ([late], "zombie-behind-the-fence"),
        ([replace(late, producer_epoch=1), offsets(0)], "zombie-behind-the-fence"),
        ([offsets(1)], "outside-its-transaction"),
    ]
    for records, rule in broken:
        with pytest.raises(Violation) as violation:
            model_of().others(records)
        assert violation.value.rule == rule
    model_of().others([replace(late, producer_epoch=1), offsets(1)])


class Asked:
    """A put and what came of it."""

    def __init__(self, faults: StoreFaults) -> None:
        self.world = World(1)
        self.store = SimStore(self.world, faults)
        self.loop = SimLoop(self.world)
        self.outcome: object = None
        self.loop.create_task(self._put())

    async def _put(self) -> None:
        try:
            await StorePort(self.store, self.loop).put("a", [b"x"])
        except StoreUnavailableError as error:
            self.outcome = error
        else:
            self.outcome = "stored"

    def run(self, until: int) -> None:
        try:
            self.world.run(until)
        finally:
            enter(None)

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.close()


@pytest.mark.parametrize(
    ("fault", "kind", "heard", "stored"),
    [
        ("", "", "stored", b"x"),
        ("failing", "store_failed", None, None),
        ("lost", "store_answer_lost", None, b"x"),
        ("late", "store_late", None, b"x"),
    ],
)
def test_what_is_heard_of_a_call_does_not_tell_what_it_did(
    fault: str, kind: str, heard: str | None, stored: bytes | None
) -> None:
    faults = msgspec.structs.replace(NO_FAULTS, **{fault: 1.0}) if fault else NO_FAULTS
    with contextlib.closing(Asked(faults)) as asked:
        asked.run(10 * MILLISECOND)
        assert (asked.outcome == heard) if heard else isinstance(asked.outcome, StoreUnavailableError)
        asked.run(20 * SECOND)
    assert asked.store.content("a") == stored
    assert {one for one, _ in asked.world.faults} == ({kind} if kind else set())


def test_a_put_outlives_its_agent() -> None:
    asked = Asked(NO_FAULTS)
    asked.run(0)
    asked.loop.close()
    asked.run(SECOND)
    assert (asked.outcome, asked.store.content("a")) == (None, b"x")
    assert {one for one, _ in asked.world.faults} == {"put_outlives_its_agent"}


def test_an_acknowledgement_of_what_is_not_there_is_noticed() -> None:
    batches = Batches()
    monitor = LogMonitor(SimStore(World(1), NO_FAULTS), batches)
    sent = batches.make("p", "t", LOG, 1)
    batches.encode(sent, (1, 0, 0))
    monitor.model.others([TOPIC])
    with pytest.raises(Violation, match="acknowledged-uncommitted"):
        monitor.acknowledged(sent, 0, 0)


def test_a_tenth_of_the_seeds_has_data_and_half_of_these_have_transactions() -> None:
    loads = [draw(World(seed).stream("data-load")) for seed in range(1, 1001)]
    present = [load for load in loads if load.partitions]
    assert 80 <= len(present) <= 160
    assert 2 * sum(load.transactional > 0 for load in present) >= len(present)
