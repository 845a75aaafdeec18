from __future__ import annotations

import pytest

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.membership import Memberships, plain_record
from pidkeeper.controller.raft.messages import ENTRY_BYTES, MAX_ENTRIES_PER_MESSAGE, Entry
from pidkeeper.protocol.records import QuorumMember, RecordError, VotersRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import NO_SNAPSHOT, entries_of


def log_with(*terms: int, snapshot: SnapshotId = NO_SNAPSHOT) -> RaftLog:
    return RaftLog(snapshot, entries_of(terms, snapshot.index + 1), Memberships(plain_record([1])))


def terms_of(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.slice(log.first_index, log.last_index)]


def violates(rule: str) -> pytest.RaisesExc[InvariantViolation]:
    return pytest.raises(InvariantViolation, match=f"^{rule}:")


def test_empty_log() -> None:
    log = log_with()
    assert (log.first_index, log.last_index, log.last_term, log.term(0), log.term(1)) == (1, 0, 0, 0, None)


def test_a_configuration_that_cannot_be_read_back_is_not_appended() -> None:
    log = log_with(1)
    with pytest.raises(RecordError):
        log.append(Entry(1, 2, encode_batch([VotersRecord((QuorumMember(1, None, "h" * 265, "", True),))])))
    assert (log.last_index, len(log.slice(1, 2)), log.memberships.newest.index) == (1, 1, 0)


def test_terms_around_a_snapshot() -> None:
    log = log_with(3, 4, snapshot=SnapshotId(10, 2))
    assert [log.term(index) for index in (9, 10, 11, 12, 13)] == [None, 2, 3, 4, None]
    assert (log.first_index, log.commit, log.applied, log.stable) == (11, 10, 10, 12)


def test_entries_below_the_snapshot_are_kept_for_slow_followers() -> None:
    log = RaftLog(SnapshotId(3, 2), entries_of([1, 1, 2, 2]), Memberships(plain_record([1])))
    assert (log.first_index, log.last_index, log.commit, log.term(0)) == (1, 4, 3, 0)


def test_a_first_entry_without_known_predecessor_marks_the_compaction_point() -> None:
    log = RaftLog(SnapshotId(7, 2), entries_of([1, 2, 2, 3], first=5), Memberships(plain_record([1])))
    assert (log.first_index, log.term(4), log.term(5), log.last_index) == (6, None, 1, 8)
    assert log.slice(6, 8) == entries_of([2, 2, 3], first=6)


@pytest.mark.parametrize("terms", [[1, 1], [1, 1, 1, 1]])
def test_entries_that_a_snapshot_replaced_are_left_out(terms: list[int]) -> None:
    log = RaftLog(SnapshotId(3, 2), entries_of(terms), Memberships(plain_record([1])))
    assert (log.first_index, log.last_index, log.last_term) == (4, 3, 2)


def test_a_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="starts at 5, but the snapshot covers only 3"):
        RaftLog(SnapshotId(3, 2), entries_of([2], first=5), Memberships(plain_record([1])))
    with pytest.raises(ValueError, match="not contiguous"):
        RaftLog(NO_SNAPSHOT, [*entries_of([2]), *entries_of([2], first=3)], Memberships(plain_record([1])))


@pytest.mark.parametrize(
    ("last", "expected"),
    [((3, 2), True), ((4, 2), True), ((2, 3), True), ((2, 2), False), ((9, 1), False)],
)
def test_is_up_to_date(last: tuple[int, int], expected: bool) -> None:
    assert log_with(1, 2, 2).is_up_to_date(*last) == expected


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [(5, 9, (5, 3)), (5, 2, (3, 2)), (5, 1, (1, 1)), (5, 0, (0, 0)), (4, 3, (4, 3)), (9, 3, (9, 0))],
)
def test_find_conflict_by_term(index: int, term: int, expected: tuple[int, int]) -> None:
    assert log_with(1, 2, 2, 3, 3).find_conflict_by_term(index, term) == expected


def test_find_conflict_stops_where_the_log_was_compacted() -> None:
    log = log_with(5, 5, snapshot=SnapshotId(10, 4))
    assert log.find_conflict_by_term(12, 3) == (9, 0)


def test_maybe_append_keeps_what_agrees() -> None:
    log = log_with(1, 1, 2)
    assert log.maybe_append(0, 0, entries_of([1, 1])) == 2
    assert terms_of(log) == [1, 1, 2]
    assert (log.stable, log.submitted) == (3, 3)


def test_maybe_append_replaces_a_conflict() -> None:
    log = log_with(1, 1, 2)
    assert log.maybe_append(1, 1, entries_of([3, 3], first=2)) == 3
    assert terms_of(log) == [1, 3, 3]
    assert (log.stable, log.submitted) == (1, 1)
    assert [entry.index for entry in log.begin_write()] == [2, 3]


def test_maybe_append_refuses_an_unknown_predecessor() -> None:
    log = log_with(1)
    assert log.maybe_append(1, 2, []) is None
    assert log.maybe_append(2, 1, []) is None


def test_maybe_append_never_touches_committed_entries() -> None:
    log = log_with(1, 1)
    log.commit_to(2)
    with violates("R3"):
        log.maybe_append(0, 0, entries_of([1, 2]))
    assert terms_of(log) == [1, 1]


def test_entries_with_wrong_indexes_are_refused() -> None:
    with violates("R4"):
        log_with(1).maybe_append(1, 1, entries_of([1], first=3))


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        ("R4", [Entry(2, 2, b""), Entry(2, 9, b""), Entry(2, 4, b"")]),
        ("R4", [Entry(2, 2, b""), Entry(2, 1, b""), Entry(2, 4, b"")]),
        ("R1", [Entry(1, 2, b"")]),
        ("R1", [Entry(3, 2, b""), Entry(2, 3, b"")]),
    ],
)
def test_entries_with_a_gap_or_a_falling_term_change_nothing(rule: str, entries: list[Entry]) -> None:
    log = log_with(2)
    with violates(rule):
        log.maybe_append(1, 2, entries)
    assert (terms_of(log), log.last_index) == ([2], 1)


def test_commit_cannot_pass_the_end_nor_fall() -> None:
    log = log_with(1, 1)
    log.commit_to(2)
    log.commit_to(1)
    assert log.commit == 2
    with violates("R4"):
        log.commit_to(3)


def test_leader_appends_only_the_next_index() -> None:
    with violates("R6"):
        log_with(1).append(Entry(1, 1, b""))


def test_applied_stays_in_what_was_delivered() -> None:
    log = log_with(1, 1, 1)
    log.commit_to(2)
    with violates("R5"):
        log.applied_to(1)
    assert [entry.index for entry in log.deliver()] == [1, 2]
    log.applied_to(2)
    log.applied_to(2)
    with violates("R5"):
        log.applied_to(1)
    with violates("R5"):
        log.applied_to(3)


def test_deliver_waits_for_durability() -> None:
    log = log_with()
    log.maybe_append(0, 0, entries_of([1, 1]))
    log.commit_to(2)
    assert log.deliver() == []
    log.begin_write()
    assert log.deliver() == []
    log.write_done()
    assert [entry.index for entry in log.deliver()] == [1, 2]
    assert log.deliver() == []


def test_deliver_comes_in_bounded_portions() -> None:
    log = log_with(*[1] * (MAX_ENTRIES_PER_MESSAGE + 1))
    log.commit_to(log.last_index)
    assert [len(log.deliver()), len(log.deliver()), len(log.deliver())] == [MAX_ENTRIES_PER_MESSAGE, 1, 0]


def test_page_is_bounded_by_bytes_and_count() -> None:
    log = RaftLog(NO_SNAPSHOT, [Entry(1, index, b"x" * 10) for index in range(1, 2000)], Memberships(plain_record([1])))
    assert [len(log.page(1, limit)) for limit in (1, 10, 19, 20, 35)] == [1, 1, 1, 2, 3]
    assert len(log.page(1, 10**9)) == MAX_ENTRIES_PER_MESSAGE
    assert [entry.index for entry in log.page(1998, 10**9)] == [1998, 1999]
    assert [entry.index for entry in log.page(1998, 19)] == [1998]
    assert log.page(2000, 1) == []


def test_writes_in_flight_become_stable_in_order() -> None:
    log = log_with()
    log.maybe_append(0, 0, entries_of([1]))
    log.begin_write()
    log.maybe_append(1, 1, entries_of([1], first=2))
    assert [entry.index for entry in log.begin_write()] == [2]
    log.write_done()
    assert log.stable == 1
    log.write_done()
    assert log.stable == 2


def test_a_late_write_does_not_cover_what_was_overwritten_and_restored() -> None:
    """The ABA race of asynchronous storage: an equal entry came back, but the disk may hold the one in between."""
    log = log_with(1)
    log.maybe_append(1, 1, entries_of([2], first=2))
    log.begin_write()
    log.maybe_append(1, 1, entries_of([3], first=2))
    log.begin_write()
    log.maybe_append(1, 1, entries_of([2], first=2))
    log.write_done()
    assert log.stable == 1
    log.write_done()
    assert log.stable == 1
    assert [entry.term for entry in log.begin_write()] == [2]
    log.write_done()
    assert log.stable == 2


def test_compact() -> None:
    log = log_with(1, 1, 2, 2)
    log.compact(3)
    assert (log.first_index, log.term(1), log.term(2), terms_of(log)) == (3, None, 1, [2, 2])
    log.compact(2)
    assert log.first_index == 3
    log.compact(5)
    assert (log.first_index, log.last_index, log.last_term) == (5, 4, 2)


def test_compact_keeps_what_is_not_durable() -> None:
    log = log_with(1)
    log.maybe_append(1, 1, entries_of([1, 1], first=2))
    log.compact(4)
    assert log.first_index == 2
    assert [entry.index for entry in log.begin_write()] == [2, 3]


def test_restore_replaces_a_log_that_does_not_reach_the_snapshot() -> None:
    log = log_with(1, 1)
    log.maybe_append(2, 1, entries_of([1], first=3))
    log.begin_write()
    log.restore(SnapshotId(8, 3), None)
    log.write_done()
    assert (log.first_index, log.last_index, log.commit, log.applied, log.stable) == (9, 8, 8, 8, 8)
    log.maybe_append(8, 3, entries_of([3], first=9))
    assert [entry.index for entry in log.begin_write()] == [9]


def test_restore_refuses_to_drop_entries_that_agree_with_the_snapshot() -> None:
    log = log_with(1, 1, 2, 2)
    with pytest.raises(InvariantViolation, match="R3"):
        log.restore(SnapshotId(3, 2), None)


def test_restore_drops_a_suffix_that_does_not_match() -> None:
    log = log_with(1, 1, 1, 1)
    log.restore(SnapshotId(3, 2), None)
    assert (log.first_index, log.last_index, log.last_term) == (4, 3, 2)


def test_a_write_under_way_covers_nothing_behind_a_restored_snapshot() -> None:
    log = log_with(1, 1, 1)
    log.maybe_append(3, 1, entries_of([1, 1], first=4))
    log.begin_write()
    log.restore(SnapshotId(3, 2), None)
    log.maybe_append(3, 2, entries_of([2, 2], first=4))
    log.write_done()
    assert log.stable == 3


def test_entries_up_to_the_snapshot_are_kept_too() -> None:
    log = RaftLog(SnapshotId(3, 2), entries_of([1, 1, 2]), Memberships(plain_record([1])))
    assert (log.first_index, log.last_index, log.stable) == (1, 3, 3)


def test_a_single_entry_in_the_snapshots_place_is_left_out_if_it_differs() -> None:
    log = RaftLog(SnapshotId(3, 2), entries_of([1, 1], first=3), Memberships(plain_record([1])))
    assert (log.first_index, log.last_index, log.last_term) == (4, 3, 2)


@pytest.mark.parametrize(
    ("max_entries", "max_bytes", "low"),
    [
        (0, 1000, 8),
        (3, 1000, 5),
        (1000, 1000, 3),
        (1000, 3 * ENTRY_BYTES + 30, 5),
        (1000, 3 * ENTRY_BYTES + 29, 6),
        (1000, ENTRY_BYTES + 9, 8),
        (2, 3 * ENTRY_BYTES + 30, 6),
    ],
)
def test_a_tail_is_bounded_by_entries_and_by_bytes(max_entries: int, max_bytes: int, low: int) -> None:
    entries = [Entry(1, index, b"x" * 10) for index in range(1, 9)]
    log = RaftLog(NO_SNAPSHOT, entries, Memberships(plain_record([1])))
    log.compact(3)
    assert log.tail(7, max_entries, max_bytes) == low
