"""Rows as arrays, next to `snapshots.archive_format`'s own decoding of them."""

from __future__ import annotations

import google_crc32c
import msgspec
import pytest

np = pytest.importorskip("numpy", reason="the rows are read with numpy, which is not installed")

from pidkeeper.pipeline.formats.archive import FileName, Piece, WholeFile, read_whole  # noqa: E402
from pidkeeper.pipeline.formats.archive_rows import ROW_TYPE, piece_rows, row_problem  # noqa: E402
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
    rows, positions = piece_rows(Piece(whole(), 3, 9))
    names = [field.name for field in msgspec.structs.fields(AllocatedBlock)]
    columns = {"first": "first_id", "last": "last_id"}
    found = [AllocatedBlock(*(int(row[columns.get(name, name)]) for name in names)) for row in rows]
    assert found == BLOCKS
    assert positions.tolist() == [HEADER_BYTES, HEADER_BYTES + ROW_BYTES, HEADER_BYTES + 2 * ROW_BYTES]
    assert row_problem(whole()) is None


def test_a_piece_gives_the_rows_of_its_offsets() -> None:
    rows, positions = piece_rows(Piece(whole(), 5, 8))
    assert (rows["offset"].tolist(), positions.tolist()) == ([7], [HEADER_BYTES + ROW_BYTES])


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\xff"),
        (8, bytes(8)),
        (16, b"\0\0\0\0\0\0\0\4"),
        (16, b"\0\0\0\0\0\0\0\x09"),
        (24, b"\x80"),
        (40, b"\x80"),
        (44, b"\1"),
        (0, b"\0\0\0\0\0\0\3\xe7"),
    ],
)
def test_a_row_that_breaks_the_format_is_left_out_and_named(at: int, data: bytes) -> None:
    file = changed(1, at, data)
    problem = row_problem(file)
    assert problem is not None
    assert (problem.kind, problem.position) == (MALFORMED, HEADER_BYTES + ROW_BYTES)
    assert 7 not in piece_rows(Piece(file, 3, 9))[0]["offset"].tolist()


def test_a_file_without_rows_is_nothing_bad() -> None:
    file = read_whole(FileName(3, 9).name, encode_archive("c", 3, 9, []))
    assert row_problem(file) is None
    assert len(piece_rows(Piece(file, 3, 9))[0]) == 0
