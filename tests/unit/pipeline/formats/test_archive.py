"""Which archive files count, on files that the product's archive wrote, merged and left behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES, AllocationArchive
from pidkeeper.pipeline.formats.archive import (
    MAX_FILE_BYTES,
    FileName,
    Piece,
    WholeFile,
    file_name,
    read_span,
    read_whole,
    spans,
)
from pidkeeper.pipeline.formats.problems import (
    BAD_CRC,
    EMPTY,
    FOREIGN,
    MALFORMED,
    MISNAMED,
    NEWER,
    OVERLAP,
    TORN,
    UNREADABLE,
    BadFile,
    Problem,
)
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import HEADER_BYTES, MAX_ARCHIVE_ROWS, ROW_BYTES, decode_row, encode_archive
from tests.support.memory_files import MemoryFiles

ARCHIVE = PurePath("/data/archive")
CLUSTER = "cluster-a"


def block(offset: int) -> AllocatedBlock:
    return AllocatedBlock(offset * 10, offset * 10 + 9, 7, 3, offset, 1_700_000_000_000 + offset)


def blocks(start: int, end: int) -> list[AllocatedBlock]:
    return [block(offset) for offset in range(start, end)]


def content(start: int, end: int) -> bytes:
    return encode_archive(CLUSTER, start, end, blocks(start, end))


def named(start: int, end: int) -> str:
    return FileName(start, end).name


def directory(*ranges: tuple[int, int]) -> dict[str, bytes]:
    return {named(*one): content(*one) for one in ranges}


def reading(
    span: FileName, names: Callable[[], list[str]], read: Callable[[str], bytes], cluster_id: str | None = None
) -> Iterator[Piece[WholeFile] | Problem]:
    return read_span(span, names, lambda name: read_whole(name, read(name), cluster_id))


def read(files: dict[str, bytes], span: FileName) -> tuple[list[AllocatedBlock], list[Problem]]:
    items = list(reading(span, lambda: list(files), files.__getitem__))
    found = [row for item in items if isinstance(item, Piece) for row in rows(item)]
    return found, [item for item in items if isinstance(item, Problem)]


def rows(piece: Piece[WholeFile]) -> list[AllocatedBlock]:
    data = piece.file.rows
    decoded = [decode_row(data[at : at + ROW_BYTES]) for at in range(0, len(data), ROW_BYTES)]
    return [row for row in decoded if piece.from_offset <= row.offset < piece.to_offset]


def test_a_name_says_what_a_file_covers() -> None:
    assert file_name(named(5, 12)) == FileName(5, 12)
    assert [file_name(name) for name in (named(5, 5), "5-12.arc", named(5, 12) + ".tmp", "notes")] == [None] * 4


def test_a_file_as_large_as_the_format_allows_fits_into_what_is_read() -> None:
    assert MAX_FILE_BYTES == HEADER_BYTES + ROW_BYTES * MAX_ARCHIVE_ROWS


def test_files_that_overlap_are_one_span() -> None:
    names = [named(30, 40), named(0, 10), named(10, 20), named(0, 20), named(15, 25), "notes"]
    assert spans(names) == [FileName(0, 25), FileName(30, 40)]
    assert spans([]) == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_spans_of_what_the_product_wrote_give_every_block_once(sizes: list[int], cut: int) -> None:
    """At any power cut, between a merge's new file and the removal of the old ones too."""
    files = MemoryFiles()
    files.make_directory(ARCHIVE)
    archive = AllocationArchive(files, ARCHIVE, CLUSTER)
    total = 0
    left: dict[str, bytes] = {}

    def note(kind: str, path: PurePath) -> None:
        if len(files.calls) <= cut:
            left.clear()
            left.update({name: files.read_bytes(ARCHIVE / name) for name in files.listdir(ARCHIVE)})

    files.before = note
    for size in sizes:
        archive.append(blocks(total, total + size), total, total + size)
        total += size
    now = {name: files.read_bytes(ARCHIVE / name) for name in files.listdir(ARCHIVE)}
    for state, least in ((now, total), (left, 0)):
        found = [row for span in spans(state) for row in read(state, span)[0]]
        assert found == blocks(0, len(found))
        assert len(found) >= least


def test_a_crash_within_a_merge_leaves_every_block_once() -> None:
    files = MemoryFiles()
    files.make_directory(ARCHIVE)
    archive = AllocationArchive(files, ARCHIVE, CLUSTER)
    for start in range(MAX_SMALL_FILES):
        archive.append([block(start)], start, start + 1)
    both = {name: files.read_bytes(ARCHIVE / name) for name in files.listdir(ARCHIVE)}
    archive.append([block(MAX_SMALL_FILES)], MAX_SMALL_FILES, MAX_SMALL_FILES + 1)
    both |= {name: files.read_bytes(ARCHIVE / name) for name in files.listdir(ARCHIVE)}
    assert len(both) == MAX_SMALL_FILES + 1
    (span,) = spans(both)
    assert len(list(reading(span, lambda: list(both), both.__getitem__))) == 1, "the widest file has it all"
    assert read(both, span) == (blocks(0, MAX_SMALL_FILES + 1), [])


def test_a_damaged_merged_file_is_named_and_the_files_that_it_replaced_count() -> None:
    files = directory((0, 3), (3, 5), (0, 5), (5, 8))
    files[named(0, 5)] = files[named(0, 5)][:-1] + b"?"
    found, problems = read(files, FileName(0, 8))
    assert found == blocks(0, 8)
    assert [(problem.file, problem.kind, problem.position) for problem in problems] == [(named(0, 5), BAD_CRC, 128)]


def test_files_of_which_neither_holds_the_other_are_named_and_no_block_comes_twice() -> None:
    found, problems = read(directory((0, 6), (4, 9)), FileName(0, 9))
    assert found == blocks(0, 9)
    assert [(problem.file, problem.kind) for problem in problems] == [(named(4, 9), OVERLAP)]


@pytest.mark.parametrize("span", [FileName(2, 7), FileName(4, 5), FileName(0, 9)])
def test_a_span_that_cuts_files_gives_its_own_rows_alone(span: FileName) -> None:
    assert read(directory((0, 4), (4, 9), (0, 9)), span) == (blocks(*span), [])
    assert read(directory((0, 4), (4, 9)), span) == (blocks(*span), [])


class Merging:
    """A directory that goes to its next state after a number of reads; `turns` says after which."""

    def __init__(self, states: list[dict[str, bytes]], turns: tuple[int, ...]) -> None:
        self._states = states
        self._turns = turns
        self._reads = 0

    def files(self) -> dict[str, bytes]:
        return self._states[sum(self._reads > turn for turn in self._turns)]

    def read(self, name: str) -> bytes:
        self._reads += 1
        if name not in self.files():
            raise FileNotFoundError(name)
        return self.files()[name]


@pytest.mark.parametrize("turns", list(itertools.combinations_with_replacement(range(4), 2)))
def test_files_that_are_merged_away_while_a_span_is_read_are_found_where_they_went(turns: tuple[int, ...]) -> None:
    states = [directory((0, 3), (3, 5), (5, 6)), directory((0, 5), (5, 6)), directory((0, 6))]
    merging = Merging(states, turns)
    items = list(reading(FileName(0, 6), lambda: list(merging.files()), merging.read))
    assert [row for item in items if isinstance(item, Piece) for row in rows(item)] == blocks(0, 6)
    assert not any(isinstance(item, Problem) for item in items)


def test_a_file_that_is_never_there_ends_the_attempts() -> None:
    def gone(name: str) -> bytes:
        raise FileNotFoundError(name)

    (problem,) = list(reading(FileName(0, 4), lambda: [named(0, 4)], gone))
    assert isinstance(problem, Problem)
    assert (problem.kind, problem.file) == (UNREADABLE, named(0, 4))


def test_a_file_that_is_removed_and_merged_nowhere_is_named() -> None:
    states = [directory((0, 3), (3, 5), (5, 8)), directory((0, 3), (5, 8))]
    removing = Merging(states, (0,))
    items = list(reading(FileName(0, 8), lambda: list(removing.files()), removing.read))
    assert [row.offset for item in items if isinstance(item, Piece) for row in rows(item)] == [0, 1, 2, 5, 6, 7]
    (problem,) = (item for item in items if isinstance(item, Problem))
    assert (problem.kind, problem.file) == (UNREADABLE, named(3, 5))


def test_another_clusters_file_is_told_and_hides_no_other() -> None:
    files = directory((0, 3))
    files[named(0, 6)] = encode_archive("cluster-b", 0, 6, blocks(0, 6))
    items = list(reading(FileName(0, 6), lambda: list(files), files.__getitem__, CLUSTER))
    assert [row for item in items if isinstance(item, Piece) for row in rows(item)] == blocks(0, 3)
    assert [(item.file, item.kind) for item in items if isinstance(item, Problem)] == [(named(0, 6), FOREIGN)]


def test_a_file_that_may_not_be_read_is_named() -> None:
    def refused(name: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    (problem,) = list(reading(FileName(0, 4), lambda: [named(0, 4)], refused))
    assert isinstance(problem, Problem)
    assert problem.kind == UNREADABLE


@pytest.mark.parametrize(
    ("data", "kind", "position"),
    [
        (b"", EMPTY, 0),
        (b"PK\3\4" + bytes(300), FOREIGN, 0),
        (content(0, 3)[:100], TORN, 100),
        (content(0, 3)[:200], TORN, 200),
        (content(0, 3) + b"\0", MALFORMED, 272),
        (content(0, 3)[:-1] + b"\1", BAD_CRC, 128),
        (content(0, 3)[:80] + b"\1" + content(0, 3)[81:], BAD_CRC, 0),
        (content(0, 4), MISNAMED, 76),
    ],
)
def test_every_fault_of_a_file_has_a_name_and_a_place(data: bytes, kind: str, position: int) -> None:
    with pytest.raises(BadFile) as caught:
        read_whole(named(0, 3), data)
    problem = caught.value.problem
    assert (problem.file, problem.kind, problem.position) == (named(0, 3), kind, position)


def test_a_newer_version_is_told_from_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.snapshots.archive_format.FIRST_VERSION", 3)
    newer = content(0, 3)
    monkeypatch.undo()
    with pytest.raises(BadFile) as caught:
        read_whole(named(0, 3), newer)
    assert (caught.value.problem.kind, caught.value.problem.position) == (NEWER, 8)


def test_no_changed_byte_of_a_file_gives_a_row() -> None:
    good = content(0, 3)
    for at in range(len(good)):
        for bit in (1, 16, 128):
            changed = good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :]
            found, problems = read({named(0, 3): changed}, FileName(0, 3))
            assert (found, len(problems)) == ([], 1), at
