"""The pipeline's own reading of the log, next to the product's: `controller.storage.recovery` on the same files."""

from __future__ import annotations

import io
import random
import uuid
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.errors import LogCorruption
from pidkeeper.controller.storage.recovery import Recovery, recover
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.pipeline.formats.problems import (
    BAD_CRC,
    CORRUPT,
    EMPTY,
    FOREIGN,
    MALFORMED,
    MISNAMED,
    NEWER,
    NOT_READ,
    OFFSET_MISMATCH,
    TORN,
    UNREADABLE,
    Problem,
)
from pidkeeper.pipeline.formats.write_ahead_log import (
    LogDirectory,
    LogEntry,
    LogSurvey,
    read_entries,
    record_count,
    survey_log,
)
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.log_builder import META, WAL, hard_state, new_disk, open_log, segments
from tests.support.memory_files import MemoryFiles

OWNER: Final = (META.cluster_id, META.directory_id)


def of(files: MemoryFiles, *, owner: tuple[str, uuid.UUID] | None = OWNER) -> LogDirectory:
    return LogDirectory(segments(files), lambda name: io.BytesIO(files.read_bytes(WAL / name)), owner)


def read(files: MemoryFiles, snapshots: dict[int, int] | None = None) -> tuple[LogSurvey, list[LogEntry]]:
    survey = survey_log(of(files))
    items = list(read_entries(survey, snapshots or {}))
    survey.problems += [item for item in items if isinstance(item, Problem)]
    return survey, [item for item in items if isinstance(item, LogEntry)]


def kinds(survey: LogSurvey) -> list[str]:
    return [problem.kind for problem in survey.problems]


def plain(found: list[LogEntry]) -> list[Entry]:
    return [Entry(entry.term, entry.index, entry.payload) for entry in found]


def batch(index: int, term: int = 1, records: int = 1) -> Entry:
    return Entry(term, index, encode_batch([LeaderChangeRecord(index)] * records))


def written(*steps: tuple[list[Entry], HardState | None]) -> MemoryFiles:
    files = new_disk()
    log, _ = open_log(files)
    for new, state in steps:
        log.append(new, state)
    return files.cut_power()


def many_segments(count: int = 40) -> MemoryFiles:
    return written(([], hard_state()), *(([batch(index)], None) for index in range(1, count + 1)))


def small() -> MemoryFiles:
    return written(([batch(1)], hard_state()), ([batch(2), batch(3)], None), ([batch(4)], hard_state(commit=3)))


def damaged(files: MemoryFiles, name: str, position: int, change: bytes) -> MemoryFiles:
    copy = files.copy()
    content = bytearray(copy.read_bytes(WAL / name))
    content[position : position + len(change)] = change
    copy.replace_content(WAL / name, bytes(content))
    return copy


def recovered(files: MemoryFiles) -> Recovery | LogCorruption:
    try:
        return recover(files, WAL, META)
    except LogCorruption as error:
        return error


# What counts.


def test_entries_come_with_their_places_offsets_and_commitment() -> None:
    files = written(([batch(1), batch(2, records=3)], hard_state()), ([batch(3, records=20)], hard_state(commit=2)))
    survey, found = read(files)
    assert plain(found) == [batch(1), batch(2, records=3), batch(3, records=20)]
    assert [entry.offset for entry in found] == [0, 1, 4]
    assert [entry.committed for entry in found] == [True, True, False]
    assert (survey.commit_index, survey.last_index, survey.problems) == (2, 3, [])
    content = files.read_bytes(WAL / segments(files)[0])
    for entry in found:
        assert content[entry.position + 21 :].startswith(entry.payload)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4), st.booleans()), max_size=25), st.randoms())
@settings(max_examples=60, deadline=None)
def test_replaced_entries_do_not_count_in_whatever_segment(
    appends: list[tuple[int, int, bool]], chance: random.Random
) -> None:
    """Appends that go back over the end of the log by up to 12 entries, never over the commit index."""
    files = new_disk()
    log, _ = open_log(files)
    commit, term = 0, 1
    for back, count, commits in appends:
        term += 1
        first = max(commit + 1, log.next_index - back, 1)
        new = [batch(index, term, chance.randint(1, 3)) for index in range(first, first + count)]
        commit = new[-1].index - 1 if commits else commit
        log.append(new, HardState(term=term, vote=2, commit=commit))
    survey, found = read(files)
    known = recover(files, WAL, META).log
    assert plain(found) == known.entries
    assert (survey.commit_index, survey.problems) == (known.hard_state.commit, [])
    counts = [record_count(entry.payload) or 0 for entry in found]
    assert [entry.offset for entry in found] == [sum(counts[:number]) for number in range(len(counts))]


def test_a_restart_drops_what_stands_before_it_even_if_its_segments_are_still_there() -> None:
    files = many_segments(20)
    before = {name: files.read_bytes(WAL / name) for name in segments(files)}
    log, _ = open_log(files)
    log.restart_at(SnapshotId(50, 3), hard_state(3, 50))
    log.append([batch(51, 3), batch(52, 3)], None)
    for name, content in before.items():  # as a crash leaves it that came before the old segments went
        handle = files.open(WAL / name, create=True)
        files.pwrite(handle, content, 0)
        files.close(handle)
    survey, found = read(files, {50: 700})
    assert plain(found) == recover(files, WAL, META).log.entries == [batch(51, 3), batch(52, 3)]
    assert [entry.offset for entry in found] == [700, 701]
    assert [(restart.index, restart.term) for restart in survey.restarts] == [(50, 3)]
    assert survey.problems == []


def test_the_log_of_several_segments_is_described() -> None:
    files = many_segments()
    survey, found = read(files)
    assert [segment.name for segment in survey.segments] == segments(files)
    assert len(survey.segments) > 3
    assert [entry.index for entry in found] == list(range(1, 41))
    assert survey.segments[0].first_index == 1
    for one, other in zip(survey.segments, survey.segments[1:], strict=False):
        assert one.last_index + 1 == other.first_index
        assert one.first_sequence + one.batches == other.first_sequence
    reader = recover(files, WAL, META).reader
    assert [segment.end for segment in survey.segments] == [segment.end for segment in reader.segments]


# Where the offsets start.


def compacted(keep_from: int = 30) -> MemoryFiles:
    files = many_segments()
    log, _ = open_log(files)
    log.append([], hard_state(commit=40))
    log.compact(keep_from)
    log.close()
    return files


def test_offsets_are_counted_from_the_newest_snapshot_within_the_log() -> None:
    _, found = read(compacted(), {20: 1, 35: 135, 99: 7})
    assert found[0].index > 1
    assert [entry.offset for entry in found] == [100 + entry.index - 1 for entry in found]


def test_offsets_start_right_behind_a_snapshot_at_the_start_of_the_log() -> None:
    start = read(compacted())[1][0].index
    assert [entry.offset for entry in read(compacted(), {start - 1: 500})[1]][:2] == [500, 501]


@pytest.mark.parametrize("snapshots", [{}, {3: 3}, {999: 999}])
def test_offsets_are_unknown_without_a_snapshot_within_reach(snapshots: dict[int, int]) -> None:
    survey, found = read(compacted(), snapshots)
    assert {entry.offset for entry in found} == {None}
    assert survey.problems == []


def test_a_snapshot_that_counts_other_records_is_reported() -> None:
    survey, found = read(small(), {2: 2, 3: 13})
    assert [entry.offset for entry in found] == [0, 1, 2, 13]
    (problem,) = survey.problems
    assert (problem.kind, problem.index) == (OFFSET_MISMATCH, 3)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 0),
        (b"\x90", 0),
        (encode_batch([LeaderChangeRecord(1)] * 15), 15),
        (encode_batch([LeaderChangeRecord(1)] * 16), 16),
        (encode_batch([LeaderChangeRecord(1)] * 4096), 4096),
        (b"\xdd\0\1\0\0", 65536),
        (b"\xdc\0", None),
        (b"\xc0", None),
    ],
)
def test_records_are_counted_by_the_head_of_their_array(payload: bytes, count: int | None) -> None:
    assert record_count(payload) == count


def test_after_an_entry_that_is_no_batch_offsets_are_unknown_up_to_the_next_snapshot() -> None:
    files = written(([batch(1), Entry(1, 2, b"\xc0"), batch(3), batch(4)], hard_state(commit=3)))
    assert [entry.offset for entry in read(files, {3: 9})[1]] == [0, 1, None, 9]


# Damage.


def judged_alike(files: MemoryFiles, reference: list[Entry]) -> str:
    """Read damaged files both ways; what was found, `whole` if nothing."""
    survey, found = read(files)
    entries, known = plain(found), recovered(files)
    assert all(entry in reference for entry in entries), "an invented entry"
    if isinstance(known, LogCorruption):
        assert survey.problems, f"not reported: {known}"
        assert TORN not in kinds(survey)
        return "corrupt"
    assert entries == known.log.entries
    assert survey.commit_index == known.log.hard_state.commit
    if known.log.truncated is None:
        assert survey.problems == []
        return "whole"
    (problem,) = survey.problems
    truncated = known.log.truncated
    assert (problem.kind, problem.file, problem.position) == (TORN, truncated.segment, truncated.offset)
    return "torn"


def test_any_changed_byte_is_judged_as_the_product_judges_it() -> None:
    files = small()
    (name,) = segments(files)
    reference = read(files)[1]
    verdicts = {
        judged_alike(damaged(files, name, at, bytes([byte ^ bit])), plain(reference))
        for at, byte in enumerate(files.read_bytes(WAL / name))
        for bit in (1, 128)
    }
    assert verdicts == {"corrupt", "torn"}


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_run_of_bytes_anywhere_in_many_segments_is_judged_alike(data: st.DataObject) -> None:
    files = many_segments(25)
    name = data.draw(st.sampled_from(segments(files)))
    content = files.read_bytes(WAL / name)
    at = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.binary(min_size=1, max_size=40))[: len(content) - at]
    judged_alike(damaged(files, name, at, change), plain(read(files)[1]))


def test_every_cut_of_the_file_is_judged_alike() -> None:
    files = small()
    (name,) = segments(files)
    content = files.read_bytes(WAL / name)
    for cut in range(len(content)):
        shorter = files.copy()
        shorter.replace_content(WAL / name, content[:cut])
        assert judged_alike(shorter, plain(read(files)[1])) in {"corrupt", "torn"}, cut
        zeroed = files.copy()
        zeroed.replace_content(WAL / name, content[:cut].ljust(len(content), b"\0"))
        judged_alike(zeroed, plain(read(files)[1]))


def test_a_batch_head_that_stands_behind_unreadable_bytes_proves_that_they_were_whole() -> None:
    files = small()
    (name,) = segments(files)
    second = files.read_bytes(WAL / name).index(b"PIDBATCH", 136 + 8)
    survey, found = read(damaged(files, name, second, b"?"))
    assert (kinds(survey), [entry.index for entry in found]) == ([CORRUPT], [])
    assert (survey.problems[0].file, survey.problems[0].position) == (name, second)


def test_behind_a_corrupt_segment_nothing_is_read_and_that_is_said() -> None:
    files = many_segments()
    names = segments(files)
    survey, found = read(damaged(files, names[2], 200, b"\xff\xff\xff\xff"))
    assert kinds(survey) == [CORRUPT] + [NOT_READ] * (len(names) - 3)
    assert [problem.file for problem in survey.problems] == names[2:]
    assert survey.problems[0].index == found[-1].index + 1
    assert found[-1].index >= survey.segments[1].last_index


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_segment_is_noticed_unless_the_log_may_start_behind_it(lost: int) -> None:
    files = many_segments()
    names = segments(files)
    files.unlink(WAL / names[lost])
    survey, found = read(files)
    if lost == 0:
        assert (survey.problems, found[-1].index) == ([], 40)
    else:
        assert kinds(survey) == [CORRUPT] + [NOT_READ] * (len(names) - lost - 1)
        assert "batches are missing" in survey.problems[0].detail


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", EMPTY),
        (b"PIDWAL01", CORRUPT),
        (b"\x7fELF" + bytes(200), FOREIGN),
        (b"PIDWAL01" + bytes(200), BAD_CRC),
    ],
)
def test_a_header_that_is_none_is_named_and_what_stands_before_it_is_read(content: bytes, kind: str) -> None:
    files = many_segments()
    names = segments(files)
    files.replace_content(WAL / names[-1], content)
    survey, found = read(files)
    assert [(problem.file, problem.kind) for problem in survey.problems] == [(names[-1], kind)]
    assert found[-1].index == survey.segments[-1].last_index
    assert len(survey.segments) == len(names) - 1


def test_a_segment_under_another_ones_name_is_told() -> None:
    files = many_segments()
    names = segments(files)
    files.replace_content(WAL / names[1], files.read_bytes(WAL / names[2]))
    assert kinds(read(files)[0])[0] == MISNAMED


def test_files_of_other_names_are_left_out_and_named() -> None:
    files = small()
    log = of(files)
    survey = survey_log(log._replace(names=[*log.names, "notes.wal"]))
    assert [(problem.file, problem.kind) for problem in survey.problems] == [("notes.wal", FOREIGN)]
    assert survey.last_index == 4


def test_another_directorys_log_is_told() -> None:
    files = small()
    survey = survey_log(of(files, owner=("cluster-b", META.directory_id)))
    assert (kinds(survey), survey.frames) == ([FOREIGN], 0)
    assert "cluster-b" in survey.problems[0].detail
    assert survey_log(of(files, owner=None)).problems == []


def test_a_segment_that_cannot_be_opened_is_named() -> None:
    files = many_segments()
    names = segments(files)

    def opened(name: str) -> io.BytesIO:
        if name == names[1]:
            raise PermissionError(13, "Permission denied", name)
        return io.BytesIO(files.read_bytes(WAL / name))

    survey = survey_log(LogDirectory(names, opened))
    assert kinds(survey)[0] == UNREADABLE
    assert survey.last_index == survey.segments[0].last_index


def append_frames(files: MemoryFiles, *new: frames.Frame) -> MemoryFiles:
    log, _ = WriteAheadLog.open(files, WAL, META, segment_bytes=4096)
    log._write(list(new))
    log.close()
    return files


@pytest.mark.parametrize(
    ("frame", "kind", "said"),
    [
        (frames.Frame(frames.ENTRY, 1, 9, b""), MALFORMED, "entry 9 follows entry 4"),
        (frames.Frame(77, 1, 5, b""), NEWER, "unknown frame type 77"),
        (frames.Frame(frames.HARD_STATE, 2, 3, b"?"), MALFORMED, "a hard state of 1 bytes"),
    ],
)
def test_whole_frames_that_no_log_holds_end_the_reading(frame: frames.Frame, kind: str, said: str) -> None:
    survey, found = read(append_frames(small(), frame))
    assert (kinds(survey), [entry.index for entry in found]) == ([kind], [1, 2, 3, 4])
    assert said in survey.problems[0].detail


def test_a_log_that_ends_below_its_commit_index_is_corrupt() -> None:
    files = append_frames(small(), frames.hard_state_frame(HardState(2, 2, 7, False)))
    survey, found = read(files)
    assert (kinds(survey), len(found)) == ([CORRUPT], 4)
    assert "below the recorded commit index 7" in survey.problems[0].detail


def test_an_empty_directory_is_an_empty_log() -> None:
    survey = survey_log(LogDirectory([], lambda name: io.BytesIO()))
    assert (survey.segments, survey.problems) == ([], [])
