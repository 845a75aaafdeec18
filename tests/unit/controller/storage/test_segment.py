from __future__ import annotations

import errno
import uuid
from pathlib import Path, PurePath

import msgspec
import pytest

from pidkeeper.controller.storage.errors import LogFull
from pidkeeper.controller.storage.segment import (
    HEADER_BYTES,
    SegmentHeader,
    allocate,
    decode_segment_header,
    segment_names,
)
from pidkeeper.disk.files import OsFiles
from tests.support.memory_files import MemoryFiles, fail_on

GOLDEN = Path(__file__).parents[3] / "golden"
HEADER = SegmentHeader("cluster-a", uuid.UUID(int=0xA11CE), 3, 41, 17, 0xDEADBEEF, 16 << 20)


def test_header_round_trip_and_name() -> None:
    assert decode_segment_header(HEADER.encode()) == HEADER
    assert len(HEADER.encode()) == HEADER_BYTES
    assert HEADER.name == "0000000000000003-00000000000000000041.wal"


def test_seed_differs_by_segment_but_not_by_size() -> None:
    assert msgspec.structs.replace(HEADER, size=1 << 20).seed == HEADER.seed
    for other in ({"number": 4}, {"first_index": 42}, {"first_sequence": 18}, {"chain": 1}, {"cluster_id": "b"}):
        assert msgspec.structs.replace(HEADER, **other).seed != HEADER.seed


def test_every_flipped_bit_of_a_header_is_refused() -> None:
    data = HEADER.encode()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"magic|start with|checksum"):
            decode_segment_header(bytes(damaged))
    with pytest.raises(ValueError, match="ends after 135"):
        decode_segment_header(data[:-1])


def test_format_is_pinned() -> None:
    golden = (GOLDEN / "wal-segment-header.bin").read_bytes()
    assert HEADER.encode() == golden
    assert decode_segment_header(golden) == HEADER


def test_allocated_file_is_all_zeroes(tmp_path: Path) -> None:
    files = OsFiles()
    size = (2 << 20) + 100
    files.close(allocate(files, tmp_path / "x", size))
    files.close(allocate(files, tmp_path / "x", size))
    assert (tmp_path / "x").read_bytes() == bytes(size)
    assert (tmp_path / "x").stat().st_blocks * 512 >= size


@pytest.mark.parametrize("kind", ["create", "preallocate", "fdatasync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_leaves_nothing_behind(kind: str, number: int) -> None:
    files = MemoryFiles()
    files.make_directory(PurePath("/d"))
    files.before = fail_on(kind, OSError(number, "full"))
    with pytest.raises(LogFull, match="no room for a log segment of 4096 bytes in /d"):
        allocate(files, PurePath("/d/x"), 4096)
    assert segment_names(files, PurePath("/d")) == []
    assert not files.exists(PurePath("/d/x"))


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    files = MemoryFiles()
    files.make_directory(PurePath("/d"))
    files.before = fail_on("preallocate", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        allocate(files, PurePath("/d/x"), 4096)
