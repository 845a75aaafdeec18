"""Snapshots, byte by byte. The docstrings name the tests of Kafka whose rule a test holds."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.producer_state import (
    AppendOrigin,
    Duplicate,
    ProducerSnapshotError,
    ProducerStateManager,
    RefusalCode,
)
from pidkeeper.broker_agent.producer_state import snapshot as snapshot_module
from pidkeeper.broker_agent.producer_state.batches import MAX_SEQUENCE, NO_SEQUENCE
from pidkeeper.broker_agent.producer_state.snapshot import max_snapshot_bytes
from tests.unit.broker_agent.test_producer_state import append, data, end, entry, marker, refusal

PARTITION = "orders-0"
HEADER = struct.Struct(">8sHHIIq")
ENTRY_AT = HEADER.size + len(PARTITION)


def new_state(partition: str = PARTITION, max_producers: int = 10) -> ProducerStateManager:
    return ProducerStateManager(partition, expiration_ms=60_000, max_producers=max_producers)


def reloaded(state: ProducerStateManager, now_ms: int = 1000) -> ProducerStateManager:
    again = new_state()
    assert again.truncate_and_reload(0, state.end_offset, [state.snapshot()], now_ms).rejected == ()
    return again


def sealed(content: bytes) -> bytes:
    return content + struct.pack(">I", google_crc32c.value(content))


def full_state() -> ProducerStateManager:
    """Every field in use: batches, one that wraps, an open and two completed transactions, a coordinator's batch."""
    state = new_state()
    append(state, data(MAX_SEQUENCE - 1, 0, records=3, pid=1, epoch=2, timestamp=-1))
    append(state, data(1, 3, pid=1, epoch=2))
    append(state, data(0, 4, pid=11, transactional=True))
    append(state, data(0, 5, pid=12, transactional=True))
    append(state, data(NO_SEQUENCE, 6, pid=13, transactional=True), origin=AppendOrigin.COORDINATOR)
    end(state, marker(7, pid=11, epoch=3, coordinator=13))
    end(state, marker(8, pid=12))
    return state


FULL = full_state().snapshot()


def test_a_snapshot_gives_back_all_that_it_kept() -> None:
    """ProducerStateManagerTest.testReadWriteSnapshot."""
    state, again = full_state(), new_state()
    again.restore(FULL, 1000)
    assert list(again) == list(state)
    assert (again.end_offset, again.first_undecided_offset, again.first_unstable_offset) == (9, 6, 4)
    assert again.snapshot() == FULL
    again.update_high_watermark(9)
    assert again.first_unstable_offset == 6


def test_the_bytes_are_those_of_the_format() -> None:
    """ProducerStateManagerTest.testTakeSnapshot."""
    state = new_state()
    append(state, data(7, 0, records=3, pid=258, epoch=2, timestamp=5))
    append(state, data(10, 3, pid=258, epoch=2, timestamp=6, transactional=True))
    expected = HEADER.pack(b"PIDPSTAT", 1, 8, 1, 0, 4) + b"orders-0" + struct.pack(">qhiqqB", 258, 2, -1, 6, 3, 2)
    expected += struct.pack(">iiqqiiqq", 7, 9, 2, 5, 10, 10, 3, 6)
    assert state.snapshot() == sealed(expected)


def test_the_snapshot_of_nothing_restores_nothing() -> None:
    """ProducerStateManagerTest.testFetchSnapshotEmptySnapShot: there is no snapshot, or none of any producer."""
    state = new_state()
    assert state.truncate_and_reload(0, 1, [], 1000).replay_from == 0
    again = new_state()
    again.restore(state.snapshot(), 1000)
    assert (len(again), again.end_offset) == (0, 0)


def test_the_same_state_has_the_same_bytes() -> None:
    """ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged: the log that writes it decides by the end offset."""
    state = full_state()
    assert (state.snapshot(), state.end_offset) == (FULL, 9)
    assert state.snapshot() == FULL


def test_the_newest_snapshot_at_hand_is_used() -> None:
    """ProducerStateManagerTest.testReloadSnapshots."""
    state, kept = new_state(), []
    for sequence in range(1, 5):
        append(state, data(sequence, sequence))
        kept.append(state.snapshot())
    assert state.truncate_and_reload(3, 4, [kept[2], kept[1]], 1000).replay_from == 4
    state.truncate_fully_and_start_at(0)
    assert state.truncate_and_reload(0, 5, [kept[1]], 1000).replay_from == 3
    assert entry(state).last_sequence == 2


def test_an_open_transaction_is_restored_and_so_are_all_batches() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction; Kafka restores the last batch only."""
    state = new_state()
    for sequence in range(7):
        append(state, data(sequence, sequence, transactional=True))
    again = reloaded(state)
    assert [batch.first_sequence for batch in entry(again).batches] == [2, 3, 4, 5, 6]
    assert (entry(again).txn_first_offset, again.first_unstable_offset) == (0, 0)
    assert again.check(data(2, 7, transactional=True)) == Duplicate(2, 2, 1000)
    append(again, data(7, 7, transactional=True))


def test_a_finished_transaction_is_not_open_again() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction."""
    state = new_state()
    append(state, data(0, 0, transactional=True))
    append(state, data(1, 1, transactional=True))
    end(state, marker(2, committed=False))
    again = reloaded(state)
    assert (entry(again).txn_first_offset, entry(again).last_sequence) == (None, 1)
    assert again.first_undecided_offset is None


def test_an_empty_transaction_is_not_open_again() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction."""
    state = new_state()
    end(state, marker(0, committed=False, timestamp=1234))
    again = reloaded(state)
    assert (entry(again).txn_first_offset, entry(again).last_timestamp) == (None, 1234)


def test_expired_producers_are_not_loaded() -> None:
    """ProducerStateManagerTest.testRemoveExpiredPidsOnReload."""
    state = new_state()
    append(state, data(0, 0, timestamp=0))
    append(state, data(1, 1, timestamp=1))
    again = reloaded(state, 60_001)
    append(again, data(2, 2, timestamp=70_001))
    assert (len(again), entry(again).batches[0].first_sequence, again.end_offset) == (1, 2, 3)


def test_producers_that_have_not_expired_are_loaded() -> None:
    """ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers."""
    state = new_state()
    append(state, data(0, 0, pid=1, timestamp=0))
    append(state, data(0, 1, pid=2, timestamp=1))
    append(state, data(0, 2, pid=3, timestamp=0, transactional=True))
    assert [known.producer_id for known in reloaded(state, 59_999)] == [1, 2, 3]
    assert [known.producer_id for known in reloaded(state, 60_000)] == [2, 3]


def test_the_oldest_open_transaction_is_the_oldest_after_a_restart() -> None:
    state = new_state()
    append(state, data(0, 0, pid=1, transactional=True))
    append(state, data(0, 1, pid=2, transactional=True))
    append(state, data(1, 2, pid=1, transactional=True))
    assert [known.producer_id for known in state] == [2, 1]
    again = reloaded(state)
    assert (again.first_undecided_offset, again.first_unstable_offset) == (0, 0)


def test_an_older_coordinator_is_fenced_after_a_restart() -> None:
    """ProducerStateManagerTest.testCoordinatorFencedAfterReload."""
    state = new_state()
    append(state, data(0, 99, transactional=True))
    end(state, marker(100, coordinator=1))
    again = reloaded(state)
    code = refusal(again, marker(101, coordinator=0), origin=AppendOrigin.COORDINATOR)
    assert code is RefusalCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(lambda data: b"", "0 bytes are none", id="testLoadFromEmptySnapshotFile"),
        pytest.param(lambda data: data[: len(data) // 2], "checksum", id="testLoadFromTruncatedSnapshotFile"),
        pytest.param(
            lambda data: data[: len(data) // 2] + bytes(37) + data[len(data) // 2 + 37 :],
            "checksum",
            id="testLoadFromCorruptSnapshotFile",
        ),
    ],
)
def test_an_older_snapshot_is_used_instead_of_a_bad_one(bad: object, message: str) -> None:
    """ProducerStateManagerTest.testLoadFrom{Empty,Truncated,Corrupt}SnapshotFile and testLoadFromCorruptSnapshot."""
    state = new_state()
    append(state, data(0, 0))
    older = state.snapshot()
    append(state, data(1, 1))
    assert callable(bad)
    again = new_state()
    result = again.truncate_and_reload(0, 20, [bad(state.snapshot()), older], 1000)
    assert (result.replay_from, len(result.rejected)) == (1, 1)
    assert message in result.rejected[0]
    assert entry(again).batches[-1].last_offset == 0


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(FULL) - 1), st.integers(1, 255))
def test_one_changed_byte_is_refused_and_changes_nothing(position: int, flip: int) -> None:
    bad = bytearray(FULL)
    bad[position] ^= flip
    state = full_state()
    with pytest.raises(ProducerSnapshotError, match="producer snapshot of orders-0: "):
        state.restore(bytes(bad), 1000)
    assert state.snapshot() == FULL


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", FULL[: HEADER.size], FULL[:ENTRY_AT], FULL[:-4]]))
def test_foreign_bytes_are_refused_even_with_a_good_checksum(tail: bytes, head: bytes) -> None:
    state = new_state()
    if head == FULL[:-4] and not tail:
        tail = b"\0"
    for bad in (head + tail, sealed(head + tail)):
        with pytest.raises(ProducerSnapshotError):
            state.restore(bad, 1000)
    assert (len(state), state.end_offset) == (0, 0)


def test_every_shorter_piece_is_refused() -> None:
    state = new_state()
    for size in range(len(FULL)):
        for bad in (FULL[:size], sealed(FULL[:size])):
            if bad == FULL:
                continue
            with pytest.raises(ProducerSnapshotError):
                state.restore(bad, 1000)


def header(**changes: object) -> bytes:
    fields = {"magic": b"PIDPSTAT", "version": 1, "name": 8, "producers": 0, "transactions": 0, "end": 9} | changes
    return HEADER.pack(*fields.values())


def one_entry(*batches: tuple[int, int, int, int], count: int | None = None, **changes: int) -> bytes:
    fields = {"pid": 1, "epoch": 0, "coordinator": -1, "timestamp": 0, "first": -1} | changes
    found = len(batches) if count is None else count
    return struct.pack(">qhiqqB", *fields.values(), found) + b"".join(struct.pack(">iiqq", *b) for b in batches)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(magic=b"PIDSNAP1") + b"orders-0", "does not start with b'PIDPSTAT' but with b'PIDSNAP1'"),
        (header(version=2) + b"orders-0", "unknown version 2: this build reads version 1"),
        (header() + b"orders-1", "it is of the partition b'orders-1'"),
        (header(producers=11) + b"orders-0", "11 producers and 0 transactions are above the limits of 10 and 10000"),
        (header(transactions=10_001) + b"orders-0", "0 producers and 10001 transactions"),
        (header(end=-1) + b"orders-0", "end offset must lie in 0"),
        (header(producers=1) + b"orders-0", "unpack_from requires"),
        (header(transactions=1) + b"orders-0", "with 1 transactions to come"),
        (header() + b"orders-0x", "entries end at byte 36 of 37"),
        (header(producers=1) + b"orders-0" + one_entry(pid=-1), "producer id"),
        (header(producers=1) + b"orders-0" + one_entry(epoch=-1), "producer epoch"),
        (header(producers=1) + b"orders-0" + one_entry(coordinator=-2), "coordinator epoch"),
        (header(producers=1) + b"orders-0" + one_entry(timestamp=-2), "last timestamp"),
        (header(producers=1) + b"orders-0" + one_entry(first=9), "first offset of a transaction must lie in -1 to 8"),
        (header(producers=1) + b"orders-0" + one_entry(count=6), "number of batches must lie in 0 to 5, not 6"),
        (header(producers=1) + b"orders-0" + one_entry((-2, 0, 0, 0)), "first sequence"),
        (header(producers=1) + b"orders-0" + one_entry((-1, 0, 0, 0)), "last sequence must lie in -1 to -1"),
        (header(producers=1) + b"orders-0" + one_entry((0, -1, 0, 0)), "last sequence must lie in 0 to"),
        (header(producers=1) + b"orders-0" + one_entry((0, 0, 9, 0)), "last offset must lie in 0 to 8, not 9"),
        (header(producers=1) + b"orders-0" + one_entry((0, 0, 3, 0), (1, 1, 3, 0)), "last offset must lie in 4 to 8"),
        (header(producers=1) + b"orders-0" + one_entry((0, 0, 0, -2)), "the timestamp must lie"),
        (header(producers=2) + b"orders-0" + one_entry() * 2, "names a producer twice"),
        (header(producers=2) + b"orders-0" + one_entry(first=3) + one_entry(pid=2, first=3), "at the same offset"),
        (header(transactions=1) + b"orders-0" + struct.pack(">qq", 3, 2), "3 to 2 is out of order"),
        (header(transactions=1) + b"orders-0" + struct.pack(">qq", 3, 9), "behind the end"),
        (header(transactions=2) + b"orders-0" + struct.pack(">qqqq", 3, 5, 3, 6), "3 to 6 is out of order"),
        (header(transactions=2) + b"orders-0" + struct.pack(">qqqq", 3, 5, 4, 5), "4 to 5 is out of order"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(content: bytes, message: str) -> None:
    state = new_state()
    with pytest.raises(ProducerSnapshotError, match=f"producer snapshot of orders-0: .*{message}"):
        state.restore(sealed(content), 1000)


def test_a_snapshot_above_the_limit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "google_crc32c", None)
    with pytest.raises(ProducerSnapshotError, match=r"bytes are none: .* the limit of 10 producers"):
        new_state().restore(bytes(max_snapshot_bytes(10) + 1), 1000)


def test_the_largest_state_fits_in_the_limit_of_its_snapshot() -> None:
    name = "é" * 130
    state = new_state(name, max_producers=2)
    for pid in (1, 2):
        for sequence in range(6):
            append(state, data(sequence, 10 * pid + sequence, pid=pid))
    assert len(state.snapshot()) == max_snapshot_bytes(2) - 16 * 10_000
    new_state(name, max_producers=2).restore(state.snapshot(), 1000)
    with pytest.raises(ProducerSnapshotError, match="2 producers and 0 transactions are above the limits of 1"):
        new_state(name, max_producers=1).restore(state.snapshot(), 1000)
