"""When a member's disk counts as stalled, and for how long as slow."""

from __future__ import annotations

from pidkeeper.controller.raft.disk_pace import CALM_TIMEOUTS, DiskPace

LIMIT = 10


def after(ticks: int, *, write: int = 1, pace: DiskPace | None = None) -> DiskPace:
    """The oldest write is `write` at `ticks` ticks in a row."""
    pace = DiskPace(LIMIT) if pace is None else pace
    for _ in range(ticks):
        pace.tick(write)
    return pace


def test_a_disk_is_sound_at_first() -> None:
    pace = DiskPace(LIMIT)
    assert (pace.age, pace.stalled, pace.slow) == (0, False, False)


def test_a_write_that_outlasts_an_election_timeout_stalls() -> None:
    pace = after(LIMIT + 1)
    assert (pace.age, pace.stalled, pace.slow) == (LIMIT, False, False)
    after(1, pace=pace)
    assert (pace.age, pace.stalled, pace.slow) == (LIMIT + 1, True, True)


def test_no_write_under_way_never_stalls() -> None:
    pace = after(5 * LIMIT, write=0)
    assert (pace.age, pace.stalled, pace.slow) == (0, False, False)


def test_one_short_write_after_the_other_is_no_stall() -> None:
    pace = DiskPace(LIMIT)
    for write in range(1, 6):
        after(LIMIT + 1, write=write, pace=pace)
        assert not pace.slow


def test_a_stall_is_remembered_for_some_election_timeouts() -> None:
    pace = after(LIMIT + 2)
    after(CALM_TIMEOUTS * LIMIT - 1, write=0, pace=pace)
    assert (pace.age, pace.stalled, pace.slow) == (0, False, True)
    after(1, write=0, pace=pace)
    assert not pace.slow


def test_another_stall_is_remembered_anew() -> None:
    pace = after(LIMIT + 2)
    after(CALM_TIMEOUTS * LIMIT - 1, write=0, pace=pace)
    after(LIMIT + 2, write=2, pace=pace)
    after(CALM_TIMEOUTS * LIMIT - 1, write=0, pace=pace)
    assert pace.slow
