from __future__ import annotations

import errno
import random
from pathlib import Path, PurePath

import google_crc32c
import msgspec
import pytest

from pidkeeper.controller.storage import archive as archive_module
from pidkeeper.controller.storage.archive import MAX_SMALL_FILES, AllocationArchive
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import (
    HEADER_BYTES,
    ROW_BYTES,
    ArchiveError,
    decode_archive,
    encode_header,
    split_archive,
)
from tests.support.memory_files import Keep, MemoryFiles, PowerCut, fail_at, fail_on

ARCHIVE = PurePath("/data/archive")


def blocks(first_offset: int, count: int) -> list[AllocatedBlock]:
    """The blocks that the records at these offsets allocate: 10 IDs each, with a gap of 5 after each."""
    return [
        AllocatedBlock(offset * 15, offset * 15 + 9, offset % 3, offset, offset, offset * 1000)
        for offset in range(first_offset, first_offset + count)
    ]


def new_disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(ARCHIVE)
    return files


def opened(files: MemoryFiles) -> AllocationArchive:
    return AllocationArchive(files, ARCHIVE, "cluster-a")


def _keep_some(seed: int) -> Keep:
    chance = random.Random(seed)
    return lambda kind, path: chance.random() < 0.5


def _append_one_by_one(archive: AllocationArchive, count: int) -> None:
    for start in range(count):
        archive.append(blocks(start, 1), start, start + 1)


def arc_files(files: MemoryFiles) -> list[str]:
    return files.listdir(ARCHIVE)


def test_empty_archive() -> None:
    archive = opened(new_disk())
    assert (archive.covered_to, archive.complete_from) == (0, None)
    assert archive.find(0) is None
    assert archive.blocks(-1, 10) == list(archive) == []


def test_every_id_finds_its_block_and_every_gap_none(tmp_path: Path) -> None:
    files = OsFiles()
    archive = AllocationArchive(files, tmp_path, "cluster-a")
    for start in (0, 5, 6, 20):
        end = {0: 5, 5: 6, 6: 20, 20: 33}[start]
        archive.append(blocks(start, end - start), start, end)
    for reopened in (archive, AllocationArchive(files, tmp_path, "cluster-a")):
        assert (reopened.covered_to, reopened.complete_from) == (33, 0)
        for producer_id in range(33 * 15 + 20):
            found = reopened.find(producer_id)
            inside = producer_id % 15 < 10 and producer_id < 33 * 15
            assert found == (blocks(producer_id // 15, 1)[0] if inside else None)
        assert reopened.find(-1) is None
        assert list(reopened) == blocks(0, 33)


def test_pages_join_to_the_whole() -> None:
    archive = opened(new_disk())
    for start in range(0, 30, 3):
        archive.append(blocks(start, 3) if start != 9 else [], start, start + 3)
    expected = [block for block in blocks(0, 30) if not 9 <= block.offset < 12]
    for limit in (1, 2, 3, 4, 7, 100):
        found: list[AllocatedBlock] = []
        after = -1
        while page := archive.blocks(after, limit):
            assert len(page) <= limit
            found += page
            after = page[-1].first
        assert found == expected
    assert archive.blocks(0, 2) == expected[1:3]
    assert archive.blocks(14, 1) == [expected[1]]


def test_covered_range_is_left_out() -> None:
    files = new_disk()
    archive = opened(files)
    archive.append(blocks(0, 10), 0, 10)
    names = arc_files(files)
    archive.append(blocks(0, 10), 0, 10)
    archive.append(blocks(3, 4), 3, 7)
    assert arc_files(files) == names
    archive.append(blocks(5, 10), 5, 15)
    assert list(archive) == blocks(0, 15)
    assert archive.covered_to == 15


def test_hole_moves_complete_from() -> None:
    archive = opened(new_disk())
    steps: list[tuple[int, int, bool, int | None]] = [
        (0, 3, False, 0),
        (50, 60, False, None),
        (60, 65, True, 900),
        (65, 70, True, 900),
        (90, 91, True, 1350),
    ]
    for start, end, filled, complete_from in steps:
        archive.append(blocks(start, end - start) if filled else [], start, end)
        assert (archive.complete_from, archive.covered_to) == (complete_from, end)


def test_contradicting_blocks_change_nothing() -> None:
    files = new_disk()
    archive = opened(files)
    archive.append(blocks(0, 10), 0, 10)
    calls = len(files.calls)
    again = AllocatedBlock(140, 149, 1, 1, 10, 0)
    for bad in ([again], [blocks(11, 1)[0], blocks(10, 1)[0]], blocks(20, 1), blocks(9, 2)):
        with pytest.raises(ArchiveError):
            archive.append(bad, 10, 20)
    assert len(files.calls) == calls
    assert archive.covered_to == 10
    archive.append(blocks(10, 1), 10, 20)


def test_many_files_are_merged() -> None:
    files = new_disk()
    archive = opened(files)
    for start in range(100):
        archive.append(blocks(start, 1), start, start + 1)
        assert len(arc_files(files)) <= MAX_SMALL_FILES + 1
    assert list(archive) == list(opened(files.cut_power())) == blocks(0, 100)
    assert opened(files.cut_power()).complete_from == 0


def test_files_of_both_versions_are_merged_into_one_of_the_newer() -> None:
    """The quorum's own blocks have no broker, which the first version of the format does not know."""
    files = new_disk()
    archive = opened(files)
    expected = blocks(0, MAX_SMALL_FILES + 1)
    expected[3] = msgspec.structs.replace(expected[3], broker_id=-1, broker_epoch=-1)
    for start, block in enumerate(expected):
        archive.append([block], start, start + 1)
    (merged,) = arc_files(files)
    header, found = decode_archive(files.read_bytes(ARCHIVE / merged))
    assert (header.version, found) == (2, expected)
    assert list(opened(files.cut_power())) == expected


def test_merging_stops_at_holes_and_at_the_row_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "MAX_ARCHIVE_ROWS", 8)
    files = new_disk()
    archive = opened(files)
    expected: list[AllocatedBlock] = []
    for start in range(0, 300, 3):
        hole = 1 if start % 30 == 0 else 0
        expected += blocks(start + hole, 3 - hole)
        archive.append(blocks(start + hole, 3 - hole), start + hole, start + 3)
    reopened = opened(files.cut_power())
    assert list(reopened) == expected
    assert len(arc_files(files)) < 70
    assert reopened.complete_from == 271 * 15


def test_power_cut_during_append_and_merge_loses_nothing() -> None:
    whole = new_disk()
    archive = opened(whole)
    _append_one_by_one(archive, MAX_SMALL_FILES)
    before = len(whole.calls)
    archive.append(blocks(MAX_SMALL_FILES, 1), MAX_SMALL_FILES, MAX_SMALL_FILES + 1)
    assert len(arc_files(whole)) == len(arc_files(whole.cut_power())) == 1
    cuts = 0
    for call in range(before, len(whole.calls)):
        for keep in range(16):
            files = new_disk()
            files.before = fail_at(call, PowerCut())
            crashing = opened(files)
            with pytest.raises(PowerCut):
                _append_one_by_one(crashing, MAX_SMALL_FILES + 1)
            after = files.cut_power(_keep_some(keep))
            reopened = opened(after)
            covered = reopened.covered_to
            assert covered in (MAX_SMALL_FILES, MAX_SMALL_FILES + 1)
            assert list(reopened) == blocks(0, covered)
            reopened.append(blocks(0, 40), 0, 40)
            assert list(opened(after.cut_power())) == blocks(0, 40)
            cuts += 1
    assert cuts > 300


def test_damaged_or_foreign_file_is_refused_by_name() -> None:
    files = new_disk()
    opened(files).append(blocks(0, 10), 0, 10)
    (name,) = arc_files(files)
    content = files.read_bytes(ARCHIVE / name)
    for position in (0, 20, 127, 128, 300, len(content) - 1):
        damaged = bytearray(content)
        damaged[position] ^= 1
        files.replace_content(ARCHIVE / name, bytes(damaged))
        with pytest.raises(ArchiveError, match=name):
            opened(files)
    files.replace_content(ARCHIVE / name, content)
    with pytest.raises(ArchiveError, match="cluster cluster-a, not of other"):
        AllocationArchive(files, ARCHIVE, "other")
    files.rename(ARCHIVE / name, ARCHIVE / "x.arc")
    with pytest.raises(ArchiveError, match="by its header this is"):
        opened(files)


def test_rows_out_of_order_under_good_checksums_are_refused_when_read() -> None:
    files = new_disk()
    opened(files).append(blocks(0, 3), 0, 10)
    (name,) = arc_files(files)
    header, rows = split_archive(files.read_bytes(ARCHIVE / name))
    swapped = rows[:ROW_BYTES] + rows[2 * ROW_BYTES :] + rows[ROW_BYTES : 2 * ROW_BYTES]
    header = msgspec.structs.replace(header, rows_checksum=google_crc32c.value(swapped))
    files.replace_content(ARCHIVE / name, encode_header(header) + swapped)
    with pytest.raises(ArchiveError, match="the block of ID 15 does not start above ID 39"):
        list(opened(files))


def test_oversized_file_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_disk()
    opened(files).append(blocks(0, 10), 0, 10)
    monkeypatch.setattr(archive_module, "_MAX_FILE_BYTES", 200)
    with pytest.raises(ArchiveError, match="above the limit"):
        opened(files)


def test_overlap_that_no_merge_leaves_is_refused() -> None:
    files, other = new_disk(), new_disk()
    opened(files).append(blocks(0, 10), 0, 10)
    opened(other).append(blocks(5, 10), 5, 15)
    (name,) = arc_files(other)
    files.close(files.open(ARCHIVE / name, create=True))
    files.replace_content(ARCHIVE / name, other.read_bytes(ARCHIVE / name))
    with pytest.raises(ArchiveError, match="cover the same offsets"):
        opened(files)


def test_file_damaged_since_open_is_not_merged() -> None:
    files = new_disk()
    archive = opened(files)
    _append_one_by_one(archive, MAX_SMALL_FILES)
    victim = arc_files(files)[3]
    content = bytearray(files.read_bytes(ARCHIVE / victim))
    content[140] ^= 1
    files.replace_content(ARCHIVE / victim, bytes(content))
    with pytest.raises(ArchiveError, match=victim):
        archive.append([], MAX_SMALL_FILES, MAX_SMALL_FILES + 1)
    assert victim in arc_files(files)


def test_a_row_that_changed_under_a_running_member_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of every row. What lies in other pages is still answered, and correctly."""
    monkeypatch.setattr(archive_module, "_PAGE_ROWS", 4)
    files = new_disk()
    archive = opened(files)
    archive.append(blocks(0, 10), 0, 10)
    (name,) = arc_files(files)
    content = files.read_bytes(ARCHIVE / name)
    for position in range(HEADER_BYTES, len(content)):
        files.replace_content(
            ARCHIVE / name,
            content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :],
        )
        page = (position - HEADER_BYTES) // ROW_BYTES // 4
        for number in range(10):
            if number // 4 != page:
                assert archive.find(number * 15) == blocks(number, 1)[0]
                continue
            with pytest.raises(ArchiveError, match=f"{name} changed since it was opened, in rows {page * 4} to "):
                archive.find(number * 15)
        with pytest.raises(ArchiveError, match=name):
            archive.blocks(-1, 100)
    files.replace_content(ARCHIVE / name, content[:-1])
    with pytest.raises(ArchiveError, match="in rows 8 to 9"):
        archive.find(9 * 15)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_answers_at_the_borders_of_pages(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_PAGE_ROWS", 4)
    files = new_disk()
    archive = opened(files)
    archive.append(blocks(0, count), 0, count)
    archive.append(blocks(count, 2), count, count + 2)
    every = blocks(0, count + 2)
    for known in (archive, opened(files)):
        assert list(known) == every
        for number, block in enumerate(every):
            assert known.find(block.last) == block
            assert known.find(block.last + 1) is None
            for limit in (1, 2, 4, 5, 20):
                assert known.blocks(block.first - 1, limit) == every[number : number + limit]


def test_full_disk_changes_nothing() -> None:
    files = new_disk()
    archive = opened(files)
    archive.append(blocks(0, 5), 0, 5)
    files.before = fail_on("pwrite", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        archive.append(blocks(5, 5), 5, 10)
    files.before = lambda kind, path: None
    assert archive.covered_to == 5
    archive.append(blocks(5, 5), 5, 10)
    assert list(opened(files.cut_power())) == blocks(0, 10)
