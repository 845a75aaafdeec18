from __future__ import annotations

import pytest

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from pidkeeper.snapshots.snapshot_id import SnapshotId


def replicating(match: int = 5, max_messages: int = 3, max_bytes: int = 100) -> Progress:
    progress = Progress(match + 1, 0, max_messages, max_bytes)
    progress.match = match
    progress.become_replicate()
    return progress


def test_probe_sends_one_message_at_a_time() -> None:
    progress = Progress(7, 0, 3, 100)
    assert (progress.state, progress.next, progress.paused) == (PROBE, 7, False)
    progress.probe_sent = True
    assert progress.paused


def test_an_acknowledged_probe_starts_replication() -> None:
    progress = Progress(7, 0, 3, 100)
    progress.probe_sent = True
    assert progress.acknowledge(6)
    assert (progress.state, progress.match, progress.next, progress.paused) == (REPLICATE, 6, 7, False)


def test_old_and_repeated_acknowledgements_change_nothing() -> None:
    progress = replicating(5)
    progress.sent(6, 10)
    assert not progress.acknowledge(5)
    assert not progress.acknowledge(3)
    assert (progress.match, progress.next, progress.inflight) == (5, 7, 1)


def test_an_old_acknowledgement_does_not_end_a_probe() -> None:
    progress = replicating(5)
    progress.become_probe()
    assert not progress.acknowledge(4)
    assert progress.state.value == "probe"
    assert progress.acknowledge(5)
    assert progress.state.value == "replicate"


def test_window_in_messages() -> None:
    progress = replicating(5)
    for index in (6, 7, 8):
        assert not progress.paused
        progress.sent(index, 1)
    assert progress.paused
    progress.acknowledge(7)
    assert (progress.inflight, progress.paused, progress.next) == (1, False, 9)


def test_window_in_bytes() -> None:
    progress = replicating(5, max_messages=10)
    paused = []
    for step in (lambda: progress.sent(6, 60), lambda: progress.sent(7, 60), lambda: progress.acknowledge(6)):
        step()
        paused.append(progress.paused)
    assert paused == [False, True, False]
    progress.sent(8, 40)
    assert progress.paused


def test_a_full_window_makes_room_for_one() -> None:
    progress = replicating(5, max_messages=2)
    progress.sent(6, 1)
    progress.sent(7, 1)
    progress.free_first()
    assert (progress.paused, progress.inflight) == (False, 1)


def test_stale_rejections_are_ignored() -> None:
    progress = replicating(5)
    progress.sent(9, 1)
    assert not progress.reject(5, 3)
    assert (progress.state.value, progress.inflight) == ("replicate", 1)
    progress.become_probe()
    assert not progress.reject(4, 2)
    assert progress.next == 6


def test_rejection_in_replicate_probes_from_match() -> None:
    progress = replicating(5)
    progress.sent(9, 1)
    assert progress.reject(9, 7)
    assert (progress.state, progress.next, progress.inflight) == (PROBE, 6, 0)


@pytest.mark.parametrize(("hint", "next_index"), [(4, 5), (9, 9), (20, 9), (0, 3), (1, 3)])
def test_rejected_probe_moves_to_the_hint(hint: int, next_index: int) -> None:
    progress = Progress(10, 0, 3, 100)
    progress.match = 2
    progress.probe_sent = True
    assert progress.reject(9, hint)
    assert (progress.next, progress.probe_sent) == (next_index, False)


def test_snapshot_pauses_and_ignores_rejections() -> None:
    progress = replicating(5)
    progress.become_snapshot(SnapshotId(20, 2), 7)
    assert (progress.state, progress.paused, progress.snapshot) == (SNAPSHOT, True, SnapshotId(20, 2))
    assert (progress.offset, progress.asked, progress.moved) == (0, 7, 7)
    assert not progress.reject(5, 0)
    assert progress.acknowledge(20)
    assert progress.state is SNAPSHOT
    progress.become_probe()
    assert (progress.next, progress.snapshot, progress.paused) == (21, None, False)


def test_forget_match() -> None:
    progress = replicating(5)
    progress.counted = 5
    progress.forget_match(9)
    assert (progress.match, progress.counted, progress.next, progress.state) == (0, 5, 9, PROBE)


def test_match_is_below_next() -> None:
    progress = replicating(5)
    progress.next = 5
    with pytest.raises(InvariantViolation, match=r"^R8:"):
        progress.check()


def test_nothing_is_known_at_first() -> None:
    progress = Progress(7, 4, 3, 100)
    assert (progress.match, progress.counted, progress.next, progress.heard, progress.inflight) == (0, 0, 7, 4, 0)
    assert (progress.recovery, progress.barrier) == (0, 0)
    assert (progress.snapshot, progress.offset, progress.asked, progress.moved) == (None, 0, 0, 0)


@pytest.mark.parametrize(("asked", "next_index"), [(0, 1), (1, 1), (2, 2)])
def test_a_forgotten_match_is_probed_from_the_first_entry_on(asked: int, next_index: int) -> None:
    progress = replicating(match=9)
    progress.forget_match(asked)
    assert (progress.match, progress.next, progress.state) == (0, next_index, PROBE)


def test_replication_starts_behind_the_match() -> None:
    progress = Progress(9, 0, 3, 100)
    progress.match = 3
    progress.become_replicate()
    assert progress.next == 4


def test_a_transfer_starts_at_the_first_byte() -> None:
    progress = replicating()
    progress.become_snapshot(SnapshotId(3, 1), now=7)
    progress.offset = 100
    progress.become_snapshot(SnapshotId(4, 1), now=8)
    assert (progress.snapshot, progress.offset, progress.asked, progress.moved) == (SnapshotId(4, 1), 0, 8, 8)


def test_a_full_window_of_bytes_makes_room_for_one() -> None:
    progress = replicating(max_messages=10, max_bytes=100)
    progress.sent(6, 60)
    progress.sent(7, 50)
    assert progress.paused
    progress.free_first()
    assert (progress.paused, progress.inflight) == (False, 1)


def test_a_probe_that_starts_over_may_be_sent() -> None:
    progress = Progress(7, 0, 3, 100)
    progress.probe_sent = True
    progress.become_probe()
    assert not progress.paused


def test_replication_starts_with_an_empty_window() -> None:
    progress = replicating(max_messages=10, max_bytes=100)
    progress.sent(6, 100)
    assert (progress.paused, progress.inflight) == (True, 1)
    progress.become_probe()
    progress.become_replicate()
    assert (progress.paused, progress.inflight) == (False, 0)
    progress.sent(6, 99)
    assert (progress.paused, progress.inflight) == (False, 1)
    progress.sent(7, 1)
    assert (progress.paused, progress.inflight) == (True, 2)
