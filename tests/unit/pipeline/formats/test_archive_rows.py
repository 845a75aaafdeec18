"""Rows as arrays, next to `snapshots.archive_format`'s own decoding of them."""

from __future__ import annotations

import google_crc32c
import msgspec
import pytest

np = pytest.importorskip("numpy", reason="the rows are read with numpy, which is not installed")

from pidkeeper.pipeline.formats.archive import FileName, WholeFile, read_whole  # noqa: E402
from pidkeeper.pipeline.formats.archive_rows import ROW_TYPE, FileRows  # noqa: E402
from pidkeeper.pipeline.formats.problems import MALFORMED  # noqa: E402
from pidkeeper.protocol.messages import AllocatedBlock  # noqa: E402
from pidkeeper.snapshots.archive_format import (  # noqa: E402
    HEADER_BYTES,
    ROW_BYTES,
    decode_header,
    encode_archive,
    encode_header,
)

BLOCKS = [
    AllocatedBlock(0, 999, 1, 2, 4, 5),
    AllocatedBlock(1000, 1999, 2**31 - 1, 2**62, 7, -1),
    AllocatedBlock(2**62, 2**63 - 2, 0, 0, 8, 2**62),
]


def whole() -> WholeFile:
    return read_whole(FileName(3, 9).name, encode_archive("c", 3, 9, BLOCKS))


def changed(row: int, at: int, data: bytes) -> WholeFile:
    """With other bytes in a row and a checksum that is right for them."""
    rows = bytearray(whole().rows)
    rows[row * ROW_BYTES + at : row * ROW_BYTES + at + len(data)] = data
    header = msgspec.structs.replace(whole().header, rows_checksum=google_crc32c.value(bytes(rows)))
    return WholeFile(whole().name, decode_header(encode_header(header)), bytes(rows))


def test_the_rows_are_the_blocks_and_their_places() -> None:
    assert ROW_TYPE.itemsize == ROW_BYTES
    rows, positions = FileRows(whole()).piece(3, 9)
    names = [field.name for field in msgspec.structs.fields(AllocatedBlock)]
    columns = {"first": "first_id", "last": "last_id"}
    values = zip(*(rows[columns.get(name, name)].tolist() for name in names), strict=True)
    assert [AllocatedBlock(*row) for row in values] == BLOCKS
    assert positions.tolist() == [HEADER_BYTES, HEADER_BYTES + ROW_BYTES, HEADER_BYTES + 2 * ROW_BYTES]
    assert FileRows(whole()).problems == []


def test_a_piece_gives_the_rows_of_its_offsets() -> None:
    rows, positions = FileRows(whole()).piece(5, 8)
    assert (rows["offset"].tolist(), positions.tolist()) == ([7], [HEADER_BYTES + ROW_BYTES])


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\xff"),
        (8, bytes(8)),
        (16, b"\xff"),
        (24, b"\x80"),
        (40, b"\x80"),
        (44, b"\1"),
    ],
)
def test_a_row_that_can_be_no_block_is_left_out_and_named(at: int, data: bytes) -> None:
    file = changed(1, at, data)
    [problem] = FileRows(file).problems
    assert (problem.kind, problem.position) == (MALFORMED, HEADER_BYTES + ROW_BYTES)
    assert "left out" in problem.detail
    assert FileRows(file).piece(3, 9)[0]["offset"].tolist() == [4, 8]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(16, b"\0\0\0\0\0\0\0\4", id="the offset of the row before"),
        pytest.param(16, b"\0\0\0\0\0\0\0\2", id="an offset before the file"),
        pytest.param(16, b"\0\0\0\0\0\0\0\x09", id="an offset behind the file"),
        pytest.param(0, b"\0\0\0\0\0\0\3\xe7", id="an ID of the row before"),
        pytest.param(0, bytes(8), id="IDs of the row before"),
    ],
)
def test_a_row_out_of_order_is_named_and_kept_for_the_checks(at: int, data: bytes) -> None:
    file = changed(1, at, data)
    [problem] = FileRows(file).problems
    assert (problem.kind, problem.position) == (MALFORMED, HEADER_BYTES + ROW_BYTES)
    rows, positions = FileRows(file).piece(3, 9)
    assert len(rows["offset"]) == len(BLOCKS)
    assert positions.tolist() == [HEADER_BYTES + place * ROW_BYTES for place in range(len(BLOCKS))]


def test_a_piece_of_rows_out_of_order_has_all_of_its_offsets() -> None:
    rows = FileRows(changed(2, 16, (5).to_bytes(8)))
    assert [rows.piece(*span)[0]["offset"].tolist() for span in ((3, 6), (6, 9))] == [[4, 5], [7]]


@pytest.mark.parametrize(
    ("row", "offset", "pieces"),
    [
        (1, 9, [[4], [9, 8]]),
        (0, 2, [[], [2, 7, 8]]),
        (2, 9, [[4], [7, 9]]),
    ],
    ids=["out of order", "the first", "the last"],
)
def test_a_row_of_no_offset_of_its_file_is_in_one_piece_alone(row: int, offset: int, pieces: list[list[int]]) -> None:
    rows = FileRows(changed(row, 16, offset.to_bytes(8)))
    assert [rows.piece(*span)[0]["offset"].tolist() for span in ((3, 5), (5, 9))] == pieces


def test_a_file_without_rows_is_nothing_bad() -> None:
    file = read_whole(FileName(3, 9).name, encode_archive("c", 3, 9, []))
    assert FileRows(file).problems == []
    assert len(FileRows(file).piece(3, 9)[0]["offset"]) == 0
