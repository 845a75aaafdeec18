from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry, HardState
from pidkeeper.controller.storage.errors import LogFailed, LogFull
from pidkeeper.controller.storage.recovery import NO_SNAPSHOT, RecoveredLog
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.log_builder import META, WAL, entries, hard_state, new_disk, open_log, segments
from tests.support.memory_files import MemoryFiles, fail_on


def test_fresh_log_is_empty_and_recovering() -> None:
    files = new_disk()
    _, recovered = open_log(files)
    assert recovered == RecoveredLog(HardState(recovering=True), NO_SNAPSHOT, [], None, False)
    _, again = open_log(files.cut_power())
    assert again == recovered


@pytest.mark.parametrize("clean", [True, False])
def test_reopened_log_has_what_was_appended(clean: bool) -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 3), hard_state())
    log.append(entries(4, 4), None)
    log.append([], hard_state(commit=4))
    if clean:
        log.close()
    log, recovered = open_log(files.cut_power())
    assert recovered == RecoveredLog(hard_state(commit=4), NO_SNAPSHOT, entries(1, 4), None, clean)
    assert log.next_index == 5


def test_log_on_a_real_disk(tmp_path: Path) -> None:
    files = OsFiles()
    for first in (1, 11, 21):
        log, recovered = WriteAheadLog.open(files, tmp_path, META, segment_bytes=1024)
        assert recovered.entries == entries(1, first - 1)
        log.append([], hard_state())
        log.prepare_next()
        for entry in entries(first, first + 9):
            log.append([entry], None)
        log.close()
    assert not [name for name in files.listdir(tmp_path) if not name.endswith((".wal", ".tmp"))]


def test_one_append_is_one_write_and_one_sync() -> None:
    files = new_disk()
    log, _ = open_log(files)
    before, fdatasyncs, written = len(files.calls), log.fdatasyncs, log.bytes_written
    log.append(entries(1, 3), hard_state())
    assert [kind for kind, _ in files.calls[before:]] == ["pwrite", "fdatasync"]
    assert (log.fdatasyncs - fdatasyncs, log.appends) == (1, 1)
    assert log.bytes_written > written
    log.append([], None)
    assert log.appends == 1


def test_segments_follow_each_other_when_full() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    for entry in entries(1, 60):
        log.append([entry], None)
    assert log.segment_count == len(segments(files)) > 3
    _, recovered = open_log(files.cut_power())
    assert recovered.entries == entries(1, 60)


def test_batch_larger_than_a_segment_gets_a_larger_one() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.prepare_next()
    log.append(entries(1, 2, size=5000), hard_state())
    log.append(entries(3, 3), None)
    assert open_log(files.cut_power())[1].entries == entries(1, 2, size=5000) + entries(3, 3)


def test_prepared_segment_saves_the_append_from_waiting() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    log.prepare_next()
    log.prepare_next()
    before = len(files.calls)
    log.append(entries(1, 20), None)
    log.append(entries(21, 40), None)
    assert [kind for kind, _ in files.calls[before:]].count("preallocate") == 2
    log.prepare_next()
    before = len(files.calls)
    for entry in entries(41, 46):
        log.append([entry], None)
    assert "preallocate" not in [kind for kind, _ in files.calls[before:]]


def test_lower_index_replaces_everything_from_there_on() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 30), hard_state(commit=5))
    log.append(entries(6, 8, term=2), hard_state(term=2, commit=5))
    _, recovered = open_log(files.cut_power())
    assert recovered.entries == entries(1, 5) + entries(6, 8, term=2)


def test_replaced_entries_may_start_below_the_oldest_segment() -> None:
    starts = set()
    for first in range(10, 31):
        files = new_disk()
        log, _ = open_log(files)
        log.append([], hard_state())
        for entry in entries(1, 40):
            log.append([entry], None)
        log.append(entries(first, 41, term=2), hard_state(term=2, commit=first - 1))
        log.compact(30)
        oldest = int(segments(files)[0].removesuffix(".wal").split("-")[1])
        starts.add(first - oldest)
        _, recovered = open_log(files.cut_power())
        assert oldest <= 30
        assert recovered.entries == entries(oldest, first - 1) + entries(first, 41, term=2)
    assert {-1, 0, 1} <= starts


def test_no_segment_outgrows_what_was_preallocated() -> None:
    for size in range(110):
        files = new_disk()
        log, _ = open_log(files)
        log.append([], hard_state())
        for entry in entries(1, 25, size=size):
            log.append([entry], None)
        assert {files.size(WAL / name) for name in segments(files)} == {1024}


@pytest.mark.parametrize("reopen", [False, True])
def test_compaction_keeps_what_it_was_told_to(reopen: bool) -> None:
    for keep_from in range(1, 32):
        files = new_disk()
        log, _ = open_log(files)
        log.append([], hard_state())
        for entry in entries(1, 30):
            log.append([entry], None)
            if entry.index % 3 == 0:
                log.append([], hard_state())
        if reopen:
            log, _ = open_log(files)
        log.compact(keep_from)
        _, recovered = open_log(files.cut_power())
        kept = recovered.entries[0].index if recovered.entries else 31
        assert max(1, keep_from - 8) <= kept <= keep_from
        assert recovered.entries == entries(kept, 30)


def test_compaction_removes_whole_segments_from_the_front() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    for entry in entries(1, 60):
        log.append([entry], None)
    before = len(segments(files))
    log.compact(31)
    assert 1 < len(segments(files)) < before
    _, recovered = open_log(files.cut_power())
    first = recovered.entries[0].index
    assert 1 < first <= 31
    assert recovered.entries == entries(first, 60)
    assert recovered.hard_state == hard_state()
    log.compact(61)
    assert len(segments(files)) == log.segment_count == 1


def test_hard_state_survives_the_segment_that_it_was_written_to() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], HardState(term=7, vote=3, recovering=False))
    for entry in entries(1, 60, term=7):
        log.append([entry], None)
    log.compact(61)
    _, recovered = open_log(files.cut_power())
    assert recovered.hard_state == HardState(term=7, vote=3)


def test_restart_drops_the_log_before_it() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 10), hard_state())
    state = HardState(term=4, vote=None, commit=100)
    log.restart_at(SnapshotId(100, 4), state)
    assert log.next_index == 101
    assert len(segments(files)) == 1
    _, recovered = open_log(files.cut_power())
    assert recovered == RecoveredLog(state, SnapshotId(100, 4), [], None, False)
    log.append(entries(101, 150, term=4), None)
    log.append(entries(151, 160, term=4), None)
    log.compact(161)
    _, recovered = open_log(files.cut_power())
    assert recovered.snapshot == SnapshotId(100, 4)
    assert recovered.entries[-1].index == 160


def test_restart_may_lie_below_the_end_of_the_log() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 10), hard_state())
    log.restart_at(SnapshotId(6, 2), HardState(term=2, commit=6))
    _, recovered = open_log(files.cut_power())
    assert (recovered.entries, recovered.snapshot) == ([], SnapshotId(6, 2))
    log.append(entries(7, 7, term=2), None)


def test_full_disk_is_reported_before_anything_is_written() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    files.before = fail_on("preallocate", OSError(errno.ENOSPC, "No space left on device"))
    last = 6
    log.append(entries(1, last), None)
    with pytest.raises(LogFull, match="free some space"):
        log.append(entries(last + 1, last + 20), None)
    with pytest.raises(LogFull):
        log.append(entries(last + 1, last + 1, size=500), None)
    with pytest.raises(LogFull):
        log.prepare_next()
    assert not [name for name in files.listdir(WAL) if name.endswith(".tmp")]
    assert open_log(files.cut_power())[1].entries == entries(1, last)
    files.before = lambda kind, path: None
    log.append(entries(last + 1, 60), None)
    assert open_log(files.cut_power())[1].entries == entries(1, 60)


def test_closing_on_a_full_disk_leaves_the_marker_out() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 1, size=620), hard_state())
    files.before = fail_on("preallocate", OSError(errno.ENOSPC, "No space left on device"))
    log.close()
    _, recovered = open_log(files.cut_power())
    assert (recovered.entries, recovered.clean) == (entries(1, 1, size=620), False)


def test_a_sync_that_failed_once_is_not_tried_again() -> None:
    """The second one may return success with the data gone."""
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    syncs: list[str] = []

    def fail_once(kind: str, path: PurePath) -> None:
        if kind == "fdatasync":
            syncs.append(kind)
            if len(syncs) == 1:
                raise OSError(errno.EIO, "Input/output error")

    files.before = fail_once
    with pytest.raises(LogFailed, match="has to exit"):
        log.append(entries(1, 1), None)
    assert len(syncs) == 1


@pytest.mark.parametrize("kind", ["pwrite", "fdatasync", "rename", "fsync_directory", "preallocate"])
def test_any_failure_poisons_the_log(kind: str) -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    files.before = fail_on(kind, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LogFailed, match="has to exit"):
        log.append(entries(1, 1, size=5000), None)
    files.before = lambda called, path: None
    calls: list[Callable[[], None]] = [
        lambda: log.append(entries(1, 1), None),
        lambda: log.append([], None),
        lambda: log.compact(1),
        lambda: log.restart_at(SnapshotId(9, 1), hard_state(commit=9)),
    ]
    changes = len(files.calls)
    for call in calls:
        with pytest.raises(LogFailed, match="takes no more calls"):
            call()
    log.close()
    log.close()
    assert len(files.calls) == changes


@pytest.mark.parametrize("kind", ["unlink", "fsync_directory"])
def test_failed_removal_poisons_the_log(kind: str) -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 1, size=5000), hard_state())
    files.before = fail_on(kind, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LogFailed):
        log.compact(2)
    with pytest.raises(LogFailed, match="takes no more calls"):
        log.append([], None)


def test_closed_log_takes_no_calls() -> None:
    log, _ = open_log(new_disk())
    log.close()
    with pytest.raises(LogFailed, match="closed"):
        log.append(entries(1, 1), hard_state())


@pytest.mark.parametrize(
    ("new_entries", "new_state", "message"),
    [
        (entries(7, 7), None, "gap"),
        (entries(2, 2), None, "commit"),
        ([*entries(6, 6), *entries(8, 8)], None, "was due"),
        (entries(6, 6, term=2), None, "before term"),
        (entries(6, 6, term=0), None, "has term"),
        (entries(6, 6, size=MAX_ENTRY_BYTES + 1), None, "bytes"),
        ([], hard_state(term=0), "term falls"),
        ([], hard_state(commit=2), "commit index falls"),
        ([], hard_state(commit=6), "beyond the last index"),
        ([], HardState(term=1, vote=3, commit=3), "vote"),
        ([], HardState(term=1, vote=None, commit=3), "vote"),
    ],
)
def test_broken_invariant_stops_before_anything_is_written(
    new_entries: list[Entry], new_state: HardState | None, message: str
) -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 5), hard_state(commit=3))
    calls = len(files.calls)
    with pytest.raises(AssertionError, match=message):
        log.append(new_entries, new_state)
    assert len(files.calls) == calls


def test_new_term_frees_the_vote() -> None:
    log, _ = open_log(new_disk())
    log.append([], hard_state())
    log.append([], HardState(term=2, vote=None))
    log.append([], HardState(term=2, vote=3))


def test_open_never_writes_behind_bytes_that_it_only_read() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 2), hard_state())
    files.before = fail_on("fdatasync", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LogFailed):
        log.append(entries(3, 3), None)
    # The failed batch is in memory only, as after a failed fsync on Linux; a new process reads it all the same.
    files.before = lambda kind, path: None
    log, recovered = open_log(files)
    assert recovered.entries == entries(1, 3)
    log.append(entries(4, 4), None)
    assert open_log(files.cut_power())[1].entries == entries(1, 4)


def test_missing_directory_sync_loses_a_segment() -> None:
    class NoDirectorySync(MemoryFiles):
        def fsync_directory(self, path: PurePath) -> None:
            self.calls.append(("fsync_directory", path))

    files = NoDirectorySync()
    files.make_directory(WAL)
    log, _ = open_log(files)
    log.append(entries(1, 5), hard_state())
    assert open_log(files.cut_power())[1].entries == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 300), st.booleans()), min_size=1, max_size=25
    )
)
def test_any_history_of_appends_reads_back(history: list[tuple[int, int, int, bool]]) -> None:
    files = new_disk()
    log, _ = open_log(files)
    expected: list[Entry] = []
    for term, (back, count, size, reopen) in enumerate(history, 1):
        first = max(1, log.next_index - back)
        new = entries(first, first + count - 1, term=term, size=size)
        log.append(new, HardState(term=term, vote=1))
        expected = expected[: first - 1] + new if new else expected
        if reopen:
            files = files.cut_power()
            log, recovered = open_log(files)
            assert recovered.entries == expected
    assert open_log(files.cut_power())[1].entries == expected


def test_a_segment_that_is_prepared_during_a_change_of_segments_does_not_take_its_place() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.prepare_next()
    preparing = threading.Thread(target=log.prepare_next)

    def before(kind: str, path: PurePath) -> None:
        if kind == "rename" and preparing.ident is None:
            preparing.start()
            preparing.join(0.2)  # as far as it comes by itself

    files.before = before
    for index in range(1, 31):
        log.append(entries(index, index), hard_state() if index == 1 else None)
    preparing.join()
    assert log.segment_count > 1
    assert open_log(files.cut_power())[1].entries == entries(1, 30)
