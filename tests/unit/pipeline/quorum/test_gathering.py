"""How the log is cut into shards, and what of an earlier audit is not judged again."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pidkeeper.pipeline.audit import AuditOptions, look, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.archive import FileName
from pidkeeper.pipeline.ledger import Commit, Ledger
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import gathering
from pidkeeper.pipeline.quorum.gathering import END, next_bounds, shard_bounds
from pidkeeper.snapshots.archive_format import HEADER_BYTES, ROW_BYTES
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles

ROWS: Final = 100
"""Of a shard, in these tests."""
MOST_TIMES: Final = 6
"""How often a row is judged on average, by whatever steps a history grows: 5.0 was the most in 3,000 of them."""
SMALL_OFFSETS: Final = st.integers(0, 3000)
ANY_OFFSET: Final = st.one_of(SMALL_OFFSETS, st.integers(0, END - 1))


def bytes_of(rows: int) -> int:
    return HEADER_BYTES + rows * ROW_BYTES


@st.composite
def files(draw: st.DrawFn, offsets: st.SearchStrategy[int] = ANY_OFFSET) -> tuple[FileName, int]:
    """What a file covers, and its size: rows for its offsets at most, or a size that is none."""
    start, end = sorted(draw(st.lists(offsets, min_size=2, max_size=2, unique=True)))
    rows = draw(st.integers(0, min(end - start, 2000)))
    return FileName(start, end), draw(st.sampled_from((bytes_of(rows), bytes_of(rows), 0, 7)))


@settings(max_examples=300, deadline=None)
@given(st.lists(files(), max_size=12), ANY_OFFSET)
def test_bounds_ascend_from_the_start_to_the_end(found: list[tuple[FileName, int]], start: int) -> None:
    bounds = shard_bounds(found, start, ROWS)
    assert (bounds[0], bounds[-1]) == (start, END)
    assert all(one < other for one, other in pairwise(bounds))
    assert all(bound <= max(file.to_offset for file, _ in found) for bound in bounds[1:-1])


@settings(max_examples=300, deadline=None)
@example([(FileName(0, END - 1), bytes_of(5))], 0)
@example([(FileName(0, END - 1), bytes_of(2000)), (FileName(0, 10), bytes_of(10))], 0)
@example([(FileName(0, 13), bytes_of(13)), (FileName(0, 513), bytes_of(2)), (FileName(0, 7 << 56), bytes_of(0))], 0)
@given(st.lists(files(), max_size=12), ANY_OFFSET)
def test_there_are_no_more_shards_than_rows_need_whatever_offsets_files_claim(
    found: list[tuple[FileName, int]], start: int
) -> None:
    rows = sum(max(0, size - HEADER_BYTES) // ROW_BYTES for _, size in found)
    # A cut where a row is due to be leaves a little room at either side.
    assert len(shard_bounds(found, start, ROWS)) - 1 <= 1 + 2 * rows // ROWS


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 7),
    st.integers(1, 500),
)
def test_even_files_give_even_shards(lengths: list[int], members: int, each: int, rows: int) -> None:
    """Files side by side, of all members alike, with a block at one offset of `each`."""
    found, at = [], 0
    for length in lengths:
        file = FileName(at, at + length * each)
        found += [(file, bytes_of(length))] * members
        at = file.to_offset
    bounds = shard_bounds(found, 0, rows)
    density = members / each
    # The rows of all members at one offset are in one shard, also where these are more than a shard is to have.
    full = [(end - start) * density for start, end in pairwise(bounds[:-1])]
    assert all(rows - 2 * density <= count <= max(rows, density) + 1 for count in full), (full, bounds)
    assert (at - bounds[-2]) * density <= max(rows, density) + 1


def test_more_rows_at_some_offsets_make_shorter_shards_there() -> None:
    found = [(FileName(0, 1000), bytes_of(1000)), (FileName(400, 600), bytes_of(200))]
    assert shard_bounds(found, 0, 200) == [0, 200, 400, 500, 600, 800, END]
    assert shard_bounds(found, 500, 200) == [500, 600, 800, END]


def test_many_files_of_one_offset_are_cut_too() -> None:
    """Each is less than a shard's, and where one ends the shard may be full to the row."""
    found = [(FileName(at, at + 1), bytes_of(1)) for at in range(10)] * 3
    assert shard_bounds(found, 0, 6) == [0, 2, 4, 6, 8, END]
    assert shard_bounds(found, 0, 7) == [0, 2, 4, 6, 8, END]
    assert shard_bounds(found, 0, 1) == [*range(10), END]


def test_without_files_there_is_one_shard() -> None:
    assert shard_bounds([], 0, ROWS) == [0, END]
    assert shard_bounds([], 7, ROWS) == [7, END]
    assert shard_bounds([(FileName(0, 10), bytes_of(10))], 0, ROWS) == [0, END]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 4))
def test_small_shards_are_cut_again_when_half_as_much_has_come(steps: list[int], members: int) -> None:
    """Archives that grow, audited after each step."""
    files: list[tuple[FileName, int]] = []
    bounds: list[int] = []
    end, judged = 0, 0
    for step in steps:
        files.append((FileName(end, end + step), bytes_of(step)))
        end += step
        known, bounds = bounds, next_bounds(bounds[:-1], [files] * members, ROWS)
        judged += end - max((one for one, other in zip(known[:-1], bounds, strict=False) if one == other), default=0)
        assert (bounds[0], bounds[-1]) == (0, END)
        assert all(one < other for one, other in pairwise(bounds))
        assert (end - bounds[-2]) * members <= ROWS / gathering.LEAST_SHARE
        shards = [(other - one) * members for one, other in pairwise(bounds[:-1])]
        assert all(shard <= ROWS for shard in shards)
        small = [shard for shard in shards if shard <= ROWS / gathering.SMALL_SHARE]
        # Each of them is more than twice as large as the one behind it, unless that is large.
        assert len(small) <= (math.log2(ROWS) + 1) * (1 + len(shards) - len(small))
    assert judged <= MOST_TIMES * end


@pytest.mark.parametrize(
    ("ends", "start"), [((45,), 45), ((45, 58), 45), ((45, 50, 58), 50), ((10, 50, 58), 50), ((45, 55, END - 1), 55)]
)
def test_the_last_shard_begins_where_most_archives_end(ends: tuple[int, ...], start: int) -> None:
    archives = [[(FileName(0, 9), bytes_of(9)), (FileName(9, end), bytes_of(min(end, 58) - 9))] for end in ends]
    assert next_bounds([], archives, 400) == [0, start, END]
    assert next_bounds([], archives, 10_000) == [0, END]


def test_a_name_that_claims_offsets_of_a_time_to_come_makes_no_shard_for_all_of_them() -> None:
    liar = (FileName(5, END - 1), bytes_of(10))
    bounds: list[int] = []
    for end in range(30, 400, 30):
        bounds = next_bounds(bounds[:-1], [[(FileName(0, end), bytes_of(end)), liar]], 20)
        assert max(min(other, end) - min(one, end) for one, other in pairwise(bounds)) <= 40


# An audit and the next one.


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SHARD_ROWS", 20)


def options(tmp_path: Path, *, anew: bool = False) -> AuditOptions:
    return AuditOptions(AuditPaths([str(tmp_path / "data")]), locate(tmp_path / "out"), anew=anew)


def audit(tmp_path: Path, *, anew: bool = False) -> Commit:
    run_audit(LocalEngine(), options(tmp_path, anew=anew))
    commit = Ledger(locate(tmp_path / "out")).newest()
    assert commit is not None
    return commit


def judged_now(commit: Commit) -> list[int]:
    return [shard.number for shard in commit.shards if shard.run == commit.run]


def starts(commit: Commit) -> list[int]:
    return [shard.from_offset for shard in commit.shards]


@pytest.mark.usefixtures("small_shards")
def test_what_was_judged_is_not_judged_again_until_it_changes(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "data" / "1")
    member.archive((0, 30), (30, 70))
    first = audit(tmp_path)
    assert (starts(first), judged_now(first)) == ([0, 20, 40, 60, 70], [0, 1, 2, 3, 4])
    again = audit(tmp_path)
    assert (judged_now(again), again.verdict.files_read_anew) == ([], 0)
    member.archive((70, 100))
    more = audit(tmp_path)
    assert starts(more) == [0, 20, 40, 60, 70, 90, 100]
    assert (judged_now(more), more.verdict.files_read_anew) == ([4, 5, 6], 1)
    edit_archive(member.found("archive")[0], lambda rows: rows.pop(0))
    changed = audit(tmp_path)
    assert judged_now(changed) == [0, 1], "the file has offsets of two shards"
    assert judged_now(audit(tmp_path, anew=True)) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("small_shards")
def test_of_a_little_more_nothing_but_that_is_read(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "data" / "1")
    member.archive((0, 70))
    assert starts(audit(tmp_path)) == [0, 20, 40, 60, 70]
    member.archive((70, 74))
    more = audit(tmp_path)
    assert starts(more) == [0, 20, 40, 60, 70, 74]
    assert (judged_now(more), more.verdict.files_read_anew) == ([4, 5], 1)


@pytest.mark.usefixtures("small_shards")
def test_what_is_known_of_small_shards_counts_once_when_they_are_cut_again(tmp_path: Path) -> None:
    """There are fewer shards then, and the last one had blocks too, which a log tells of."""
    members = [MemberFiles(tmp_path / "data" / str(node), node) for node in (1, 2)]
    members[1].log(81, 81)
    for span in ((0, 70), (70, 75), (75, 77)):
        members[0].archive(span)
        before = audit(tmp_path)
    assert starts(before) == [0, 20, 40, 60, 70, 75, 77]
    edit_archive(members[0].found("archive")[-1], lambda rows: rows.pop())
    damaged = audit(tmp_path)
    members[0].archive((77, 81))
    after = audit(tmp_path)
    assert starts(after) == [0, 20, 40, 60, 70, 81]
    for name in ("blocks", "ids", "highest_id"):
        assert getattr(after.verdict, name) == getattr(before.verdict, name)
    assert after.verdict.violations == damaged.verdict.violations > 0


@pytest.mark.usefixtures("small_shards")
def test_all_that_was_judged_before_counts_as_if_it_were_judged_now(tmp_path: Path) -> None:
    for node in (1, 2, 3):
        member = MemberFiles(tmp_path / "data" / str(node), node)
        member.archive((0, 30), (30, 70))
        member.log(90, 85)
        member.snapshot(60, 60)
    edit_archive(member.found("archive")[0], lambda rows: rows.pop(4))
    member.found("archive")[1].write_bytes(b"PIDARCH1")
    first = look(LocalEngine(), options(tmp_path))
    run = audit(tmp_path).run
    again = look(LocalEngine(), options(tmp_path))
    assert len(again.shards) > 3
    assert {shard.run for shard in again.shards} == {run}
    assert again.verdict.files_read_anew < first.verdict.files_read_anew
    for name in ("findings", "files"):
        one, other = (sorted(map(repr, found.tables[name].to_pylist())) for found in (first, again))
        assert one == other
    assert first.tables["findings"].num_rows > 2
    assert (first.verdict.checks, first.verdict.ids) == (again.verdict.checks, again.verdict.ids)


def test_the_findings_are_the_same_however_many_rows_a_shard_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in (1, 2):
        member = MemberFiles(tmp_path / "data" / str(node), node)
        member.archive((0, 30), (30, 70))
        member.log(90, 85)
    edit_archive(member.found("archive")[0], lambda rows: rows.pop(4))
    found = []
    for rows in (7, 33, 10_000):
        monkeypatch.setattr(gathering, "SHARD_ROWS", rows)
        outcome = look(LocalEngine(), options(tmp_path))
        told = sorted(map(repr, outcome.tables["findings"].to_pylist()))
        found.append((told, outcome.verdict.blocks, outcome.verdict.ids, outcome.verdict.highest_id))
    assert found[0] == found[1] == found[2]
    assert found[0][0] and found[0][1] == 85
