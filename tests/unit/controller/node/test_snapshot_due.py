"""A snapshot is due by entries, bytes or blocks, whichever comes first; after one that failed, ten times sooner."""

from __future__ import annotations

import pytest

from pidkeeper.controller.node.snapshot_due import SnapshotDue, SnapshotEvery
from pidkeeper.controller.raft.messages import ENTRY_BYTES, MAX_ENTRY_BYTES, Entry

EVERY = SnapshotEvery(entries=100, log_bytes=1_000_000, allocations=50)


def applied(due: SnapshotDue, entries: int, payload: int = 0) -> SnapshotDue:
    for index in range(entries):
        due.applied(Entry(1, index + 1, b"x" * payload))
    return due


@pytest.mark.parametrize(
    ("entries", "payload", "allocations"),
    [(100, 0, 0), (1, 1_000_000 - ENTRY_BYTES, 0), (4, MAX_ENTRY_BYTES, 0), (0, 0, 50)],
)
def test_each_of_the_three_is_enough(entries: int, payload: int, allocations: int) -> None:
    assert applied(SnapshotDue(EVERY), entries, payload).now(allocations)
    assert not applied(SnapshotDue(EVERY), max(entries - 1, 0), payload).now(max(allocations - 1, 0))


def test_a_byte_less_is_not_enough_and_a_tenth_to_the_byte_is_not_either() -> None:
    assert not applied(SnapshotDue(EVERY), 1, 1_000_000 - ENTRY_BYTES - 1).now(0)
    due = SnapshotDue(EVERY)
    due.failed()
    assert not applied(due, 1, 100_000 - ENTRY_BYTES).now(0)


def test_a_quarter_stays_in_the_log() -> None:
    assert (EVERY.kept_entries, EVERY.kept_bytes) == (25, 250_000)


def test_begun_counts_anew() -> None:
    due = applied(SnapshotDue(EVERY), 100, 10_000)
    due.begun()
    assert not applied(due, 99).now(0)
    assert applied(due, 1).now(0)


@pytest.mark.parametrize(("entries", "payload"), [(11, 0), (2, 60_000)])
def test_after_one_that_failed_a_tenth_is_enough(entries: int, payload: int) -> None:
    due = SnapshotDue(EVERY)
    due.begun()
    due.failed()
    assert not applied(due, entries - 1, payload).now(50)
    assert applied(due, 1, payload).now(0)
    due.begun()
    assert not applied(due, entries, payload).now(0)
