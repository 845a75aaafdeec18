"""Any interleaving of producers against a slow model that works everything out from the whole history each time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pidkeeper.broker_agent.producer_state import (
    AppendOrigin,
    Batch,
    ControlBatch,
    DataBatch,
    Duplicate,
    EndTxnMarker,
    New,
    ProducerStateManager,
    Refused,
)
from pidkeeper.broker_agent.producer_state.batches import MAX_SEQUENCE

EXPIRATION_MS = 20
PIDS = st.integers(1, 3)


@dataclass
class Known:
    """One producer, as a walk through the history finds it: `batches` are all of its epoch."""

    epoch: int
    coordinator: int = -1
    timestamp: int = 0
    opened: int | None = None
    batches: list[DataBatch] = field(default_factory=list)


class Model:
    """The log itself: batches, and the moments at which a producer was forgotten."""

    def __init__(self) -> None:
        self.history: list[DataBatch | ControlBatch | int] = []
        self.ended: list[tuple[int, int]] = []

    def known(self, pid: int) -> Known | None:
        found: Known | None = None
        for item in self.history:
            if item == pid:
                found = None
            if isinstance(item, int) or item.producer_id != pid:
                continue
            if found is None:
                found = Known(item.producer_epoch)
            if found.epoch != item.producer_epoch:
                found.epoch, found.batches = item.producer_epoch, []
            found.timestamp = item.timestamp
            if isinstance(item, DataBatch):
                found.batches.append(item)
                if item.transactional and found.opened is None:
                    found.opened = item.first_offset
            elif item.marker is not None:
                found.coordinator, found.opened = item.marker.coordinator_epoch, None
        return found

    def data(self, batch: DataBatch, version: int) -> int | Duplicate:
        """0, Kafka's error code, or what it is a duplicate of."""
        known = self.known(batch.producer_id)
        if known is None:
            return 45 if version == 2 and batch.transactional and batch.first_sequence > 0 else 0
        for old in known.batches[-5:]:
            if (old.producer_epoch, old.first_sequence, old.last_sequence) == (
                batch.producer_epoch,
                batch.first_sequence,
                batch.last_sequence,
            ):
                return Duplicate(old.first_offset, old.last_offset, old.timestamp)
        if batch.producer_epoch < known.epoch:
            return 47
        expected = 0
        if batch.producer_epoch == known.epoch and known.batches:
            last = known.batches[-1].last_sequence
            expected = last + 1 if last < MAX_SEQUENCE else 0
        if batch.first_sequence != expected:
            return 45
        return 48 if known.opened is not None and not batch.transactional else 0

    def end(self, batch: ControlBatch, marker: EndTxnMarker) -> int:
        known = self.known(batch.producer_id)
        if known is None:
            return 0
        if batch.producer_epoch < known.epoch:
            return 47
        return 52 if marker.coordinator_epoch < known.coordinator else 0


class ProducerStateMachine(RuleBasedStateMachine):
    """A leader, a follower that is given what the leader took, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.leader = self.manager()
        self.follower = self.manager()
        self.now = 0
        self.watermark = 0

    def manager(self) -> ProducerStateManager:
        return ProducerStateManager("orders-0", expiration_ms=EXPIRATION_MS)

    @initialize(starts=st.lists(st.sampled_from([0, 5, MAX_SEQUENCE - 6, MAX_SEQUENCE]), min_size=3, max_size=3))
    def first_batches(self, starts: list[int]) -> None:
        for pid, start in enumerate(starts, 1):
            self.send(pid, 0, start, 2, transactional=False, version=0)

    def send(self, pid: int, epoch: int, first: int, records: int, *, transactional: bool, version: int) -> None:
        offset = self.leader.end_offset
        last = (first + records - 1) % 2**31
        batch = DataBatch(pid, epoch, first, last, offset, offset + records - 1, self.now, transactional)
        self.settle(batch, self.model.data(batch, version), AppendOrigin.CLIENT, version)

    def settle(self, batch: Batch, expected: int | Duplicate, origin: AppendOrigin, version: int) -> None:
        before = self.leader.snapshot()
        answer = self.leader.check(batch, origin=origin, transaction_version=version)
        assert self.leader.snapshot() == before
        if isinstance(answer, New):
            assert expected == 0
            self.leader.append(answer)
            copy = self.follower.check(batch, origin=AppendOrigin.REPLICATION)
            assert isinstance(copy, New)
            self.follower.append(copy)
            self.model.history.append(batch)
        elif isinstance(answer, Refused):
            assert expected == answer.code
        else:
            assert expected == answer

    @rule(
        pid=PIDS,
        bump=st.sampled_from([0, 0, 0, 0, 1, -1]),
        mode=st.sampled_from(["next", "next", "next", "again", "again", "gap", "overlap", "zero"]),
        back=st.integers(1, 7),
        records=st.integers(1, 8),
        transactional=st.booleans(),
        version=st.sampled_from([0, 2]),
    )
    def data(self, pid: int, bump: int, mode: str, back: int, records: int, transactional: bool, version: int) -> None:
        known = self.model.known(pid)
        batches = known.batches if known is not None else []
        epoch = max(0, (known.epoch if known is not None else 0) + bump)
        transactional = transactional or (known is not None and known.opened is not None and back > 1)
        after = (batches[-1].last_sequence + 1) % 2**31 if batches else 0
        if bump == 1 or (mode in {"again", "overlap"} and len(batches) < back) or mode == "zero":
            self.send(pid, epoch, 0, records, transactional=transactional, version=version)
        elif mode == "next":
            self.send(pid, epoch, after, records, transactional=transactional, version=version)
        elif mode == "gap":
            self.send(pid, epoch, (after + back) % 2**31, records, transactional=transactional, version=version)
        else:
            old = batches[-back]
            same = (old.last_sequence - old.first_sequence) % 2**31 + 1
            longer = 0 if mode == "again" else 1
            self.send(pid, epoch, old.first_sequence, same + longer, transactional=transactional, version=version)

    @rule(
        pid=PIDS, bump=st.sampled_from([0, 0, 0, 1, -1]), step=st.sampled_from([0, 0, 1, -1]), committed=st.booleans()
    )
    def end(self, pid: int, bump: int, step: int, committed: bool) -> None:
        known = self.model.known(pid) or Known(0)
        marker = EndTxnMarker(committed, max(0, known.coordinator + step))
        batch = ControlBatch(pid, max(0, known.epoch + bump), self.leader.end_offset, self.now, marker)
        expected = self.model.end(batch, marker)
        self.settle(batch, expected, AppendOrigin.COORDINATOR, 0)
        if expected == 0 and known.opened is not None:
            self.model.ended.append((known.opened, batch.offset))

    @rule(step=st.integers(0, 30))
    def expire(self, step: int) -> None:
        self.now += step
        forgotten = 0
        for pid in range(1, 4):
            known = self.model.known(pid)
            if known is not None and known.opened is None and self.now - known.timestamp >= EXPIRATION_MS:
                self.model.history.append(pid)
                forgotten += 1
        assert self.leader.remove_expired(self.now) == forgotten
        assert self.follower.remove_expired(self.now) == forgotten

    @rule(part=st.floats(0, 1))
    def replicate(self, part: float) -> None:
        self.watermark += int((self.leader.end_offset - self.watermark) * part)
        self.leader.update_high_watermark(self.watermark)
        self.follower.update_high_watermark(self.watermark)

    @rule()
    def restart(self) -> None:
        again = self.manager()
        # Nothing has expired at the time 0.
        again.restore(self.leader.snapshot(), 0)
        self.leader = again

    @invariant()
    def the_leader_knows_what_the_history_says(self) -> None:
        for pid in range(1, 4):
            known, entry = self.model.known(pid), self.leader.entry(pid)
            assert (known is None) == (entry is None)
            if known is None or entry is None:
                continue
            assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp, entry.txn_first_offset) == (
                known.epoch,
                known.coordinator,
                known.timestamp,
                known.opened,
            )
            assert [(b.first_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in entry.batches] == [
                (b.first_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in known.batches[-5:]
            ]

    @invariant()
    def readers_stop_at_the_first_transaction_that_is_not_settled(self) -> None:
        known = [self.model.known(pid) for pid in range(1, 4)]
        opened = [one.opened for one in known if one is not None and one.opened is not None]
        unsettled = opened + [first for first, last in self.model.ended if last >= self.watermark]
        assert self.leader.first_undecided_offset == min(opened, default=None)
        assert self.leader.first_unstable_offset == min(unsettled, default=None)
        assert self.leader.last_stable_offset(self.watermark) == min([*unsettled, self.watermark])

    @invariant()
    def the_follower_holds_the_same_bytes(self) -> None:
        assert self.follower.snapshot() == self.leader.snapshot()


TestProducerState = ProducerStateMachine.TestCase
TestProducerState.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
