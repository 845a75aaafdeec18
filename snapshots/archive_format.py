"""The allocation archive's files, byte by byte: written by the members, read by the pipeline.

One file holds the blocks that were allocated by the records of one range of log offsets. Integers are big-endian.

    offset  size
    0       8     magic `PIDARCH1`
    8       2     format version, u16
    10      2     zero
    12      64    cluster id, ASCII, padded with zeroes
    76      8     first log offset covered, i64
    84      8     log offset after the last one covered, i64
    92      8     rows, i64
    100     8     lowest producer ID in the rows, i64; -1 without rows
    108     8     highest producer ID in the rows, i64; -1 without rows
    116     4     CRC32C of the rows, u32
    120     4     zero
    124     4     CRC32C of the 124 bytes above, u32
    128           rows

A row is 48 bytes; rows ascend by ID and by offset at once and never overlap:

    0       8     first producer ID of the block, i64
    8       8     last producer ID, inclusive, i64
    16      8     log offset of the allocation's record, i64
    24      8     broker epoch, i64
    32      8     the leader's wall clock at the decision, milliseconds since the epoch, i64
    40      4     broker id, i32
    44      4     zero

A block that the quorum took for its transactional producers has -1 as broker epoch and broker id. A file with such a
row is of version 2, every other one of version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.cluster_id import pack_cluster_id, unpack_cluster_id

FIRST_VERSION: Final = 1
ARCHIVE_VERSION: Final = 2
"""The newest, in which blocks may be the quorum's own."""

HEADER_BYTES: Final = 128
ROW_BYTES: Final = 48

MAX_ARCHIVE_ROWS: Final = 1 << 20
"""Rows in one file: 48 MiB, which is what a merge holds in memory. A longer history takes more files."""

_MAGIC: Final = b"PIDARCH1"
_HEADER: Final = struct.Struct(">8sHxx64sqqqqqI4x")
_ROW: Final = struct.Struct(">qqqqqi4s")
_CHECKSUM: Final = struct.Struct(">I")
_NO_ID: Final = -1
_RESERVED: Final = bytes(4)


class ArchiveError(ValueError):
    """An archive file, or what is to become one, breaks the format. The message says where."""


class ArchiveHeader(msgspec.Struct, frozen=True):
    """What a file covers: log offsets [from_offset, to_offset), `rows` blocks, IDs first_id to last_id (-1: none).

    `version`: of its format.
    """

    cluster_id: str
    from_offset: int
    to_offset: int
    rows: int
    first_id: int
    last_id: int
    rows_checksum: int
    version: int = FIRST_VERSION


def encode_archive(cluster_id: str, from_offset: int, to_offset: int, blocks: Sequence[AllocatedBlock]) -> bytes:
    """A whole file. Raises ArchiveError for a range or rows that break the format."""
    rows = b"".join([_encode_row(block) for block in blocks])
    first_id, last_id = (blocks[0].first, blocks[-1].last) if blocks else (_NO_ID, _NO_ID)
    version = ARCHIVE_VERSION if any(map(_is_own, blocks)) else FIRST_VERSION
    header = ArchiveHeader(
        cluster_id, from_offset, to_offset, len(blocks), first_id, last_id, google_crc32c.value(rows), version
    )
    check_rows(header, blocks)
    return encode_header(header) + rows


def encode_header(header: ArchiveHeader) -> bytes:
    """The first 128 bytes of a file. Raises ArchiveError for a range or a count that breaks the format."""
    _check_header(header)
    data = _HEADER.pack(
        _MAGIC,
        header.version,
        pack_cluster_id(header.cluster_id),
        header.from_offset,
        header.to_offset,
        header.rows,
        header.first_id,
        header.last_id,
        header.rows_checksum,
    )
    return data + _CHECKSUM.pack(google_crc32c.value(data))


def decode_header(data: bytes) -> ArchiveHeader:
    """The header of a file from its first 128 bytes. Raises ArchiveError."""
    if len(data) < HEADER_BYTES:
        raise ArchiveError(f"the file ends after {len(data)} of {HEADER_BYTES} header bytes")
    magic, version, cluster_field, *numbers = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ArchiveError(f"the file does not start with {_MAGIC!r} but with {magic!r}: it is no allocation archive")
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if checksum != google_crc32c.value(data[: _HEADER.size]):
        raise ArchiveError("the checksum of the header does not match its content")
    if not FIRST_VERSION <= version <= ARCHIVE_VERSION:
        raise ArchiveError(f"unknown archive version {version}: this build reads version {ARCHIVE_VERSION} at most")
    try:
        header = ArchiveHeader(unpack_cluster_id(cluster_field), *numbers)
        header = msgspec.structs.replace(header, version=version)
    except ValueError as error:
        raise ArchiveError(str(error)) from error
    _check_header(header)
    return header


def split_archive(data: bytes) -> tuple[ArchiveHeader, bytes]:
    """The header and the bytes of the rows of a whole file. Raises ArchiveError if a checksum or a length is wrong."""
    header = decode_header(data)
    rows = data[HEADER_BYTES:]
    if len(rows) != header.rows * ROW_BYTES:
        raise ArchiveError(f"{header.rows} rows take {header.rows * ROW_BYTES} bytes, the file holds {len(rows)}")
    if google_crc32c.value(rows) != header.rows_checksum:
        raise ArchiveError("the checksum of the rows does not match their content")
    return header, rows


def decode_archive(data: bytes) -> tuple[ArchiveHeader, list[AllocatedBlock]]:
    """A whole file. Raises ArchiveError for anything that `encode_archive` does not make."""
    header, rows = split_archive(data)
    blocks = [decode_row(rows[at : at + ROW_BYTES]) for at in range(0, len(rows), ROW_BYTES)]
    check_rows(header, blocks)
    return header, blocks


def decode_row(data: bytes) -> AllocatedBlock:
    """One row of 48 bytes. Raises ArchiveError for a block that cannot be one."""
    if len(data) != ROW_BYTES:
        raise ArchiveError(f"a row takes {ROW_BYTES} bytes, not {len(data)}")
    first, last, offset, broker_epoch, timestamp_ms, broker_id, reserved = _ROW.unpack(data)
    block = AllocatedBlock(first, last, broker_id, broker_epoch, offset, timestamp_ms)
    _check_block(block)
    if reserved != _RESERVED:
        raise ArchiveError(f"the reserved bytes of the row of ID {first} are {reserved!r}")
    return block


def check_rows(header: ArchiveHeader, blocks: Sequence[AllocatedBlock]) -> None:
    """Raise ArchiveError unless `blocks` ascend, never overlap, and are what `header` says."""
    previous_id, previous_offset = -1, header.from_offset - 1
    for block in blocks:
        if block.first <= previous_id:
            raise ArchiveError(f"the block of ID {block.first} does not start above ID {previous_id} before it")
        if not previous_offset < block.offset < header.to_offset:
            raise ArchiveError(
                f"the block of ID {block.first} has log offset {block.offset}, "
                f"which is not above {previous_offset} and below {header.to_offset}"
            )
        if _is_own(block) and header.version < ARCHIVE_VERSION:
            raise ArchiveError(f"the block of ID {block.first} has no broker, in a file of version {header.version}")
        previous_id, previous_offset = block.last, block.offset
    found = (blocks[0].first, blocks[-1].last) if blocks else (_NO_ID, _NO_ID)
    if (header.first_id, header.last_id, header.rows) != (*found, len(blocks)):
        raise ArchiveError(
            f"the header names {header.rows} rows of IDs {header.first_id} to {header.last_id}, "
            f"the file holds {len(blocks)} of IDs {found[0]} to {found[1]}"
        )


def _encode_row(block: AllocatedBlock) -> bytes:
    _check_block(block)
    try:
        return _ROW.pack(
            block.first, block.last, block.offset, block.broker_epoch, block.timestamp_ms, block.broker_id, _RESERVED
        )
    except struct.error as error:
        raise ArchiveError(f"the block of ID {block.first} does not fit into a row: {error}") from error


def _check_block(block: AllocatedBlock) -> None:
    if not 0 <= block.first <= block.last < MAX_PRODUCER_ID:
        raise ArchiveError(f"IDs {block.first} to {block.last} are not a block")
    given = 0 <= block.broker_id <= MAX_BROKER_ID and block.broker_epoch >= 0
    if not (given or _is_own(block)) or block.offset < 0:
        raise ArchiveError(
            f"the block of ID {block.first} has broker id {block.broker_id}, broker epoch {block.broker_epoch}, "
            f"log offset {block.offset}: one of them is out of bounds"
        )


def _is_own(block: AllocatedBlock) -> bool:
    """Whether the quorum took it for its transactional producers."""
    return block.broker_id == block.broker_epoch == OWN


def _check_header(header: ArchiveHeader) -> None:
    if not 0 <= header.from_offset < header.to_offset < 2**63:
        raise ArchiveError(f"log offsets {header.from_offset} to {header.to_offset} are not a range")
    if not 0 <= header.rows <= min(MAX_ARCHIVE_ROWS, header.to_offset - header.from_offset):
        raise ArchiveError(f"{header.rows} rows do not fit into one file (at most {MAX_ARCHIVE_ROWS}, one per offset)")
    empty = header.first_id == header.last_id == _NO_ID
    if empty != (header.rows == 0) or not (empty or 0 <= header.first_id <= header.last_id):
        raise ArchiveError(f"{header.rows} rows cannot hold IDs {header.first_id} to {header.last_id}")
