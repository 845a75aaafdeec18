"""The files that the log is cut into: names, headers, preallocation. Every integer is big-endian.

A segment is called `<number>-<first index>.wal` (16 and 20 digits), is preallocated with zeroes, and starts with

    offset  size
    0       8     magic `PIDWAL01`
    8       2     format version, u16
    10      2     zero
    12      64    cluster id, ASCII, padded with zeroes
    76      16    uuid of the data directory
    92      8     number of the segment, one higher than that of the segment before it, u64
    100     8     log index of the first entry after the segment's first batch, u64
    108     8     sequence number of its first batch, u64
    116     4     CRC32C at the end of the segment before it, from which its first frame continues, u32
    120     8     bytes of the segment as preallocated, u64
    128     4     CRC32C of the 128 bytes above, u32
    132     4     zero
    136           batches, see `frames`

The seed of the batch heads' checksums is the CRC32C of the bytes 0 to 119: a batch counts only in its own segment. The
first batch of a segment repeats the hard state and the newest restart marker, so that older segments can go.
"""

from __future__ import annotations

import errno
import struct
import uuid
from pathlib import PurePath
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.controller.storage.errors import LogFull
from pidkeeper.disk.files import Files
from pidkeeper.snapshots.cluster_id import pack_cluster_id, unpack_cluster_id

SEGMENT_VERSION: Final = 1
SEGMENT_SUFFIX: Final = ".wal"
BROKEN_SUFFIX: Final = ".broken"
HEADER_BYTES: Final = 136
DEFAULT_SEGMENT_BYTES: Final = 16 * 1024 * 1024
MIN_SEGMENT_BYTES: Final = 1024
"""Room for a header and the batch at its head, with some to spare."""

_MAGIC: Final = b"PIDWAL01"
_IDENTITY: Final = struct.Struct(">8sHxx64s16sQQQI")
_SIZE: Final = struct.Struct(">Q")
_TAIL: Final = struct.Struct(">I4s")
_RESERVED: Final = bytes(4)
_OUT_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class SegmentHeader(msgspec.Struct, frozen=True):
    """The fields of a segment's header; `first_sequence` and `chain` tie it to the segment before it."""

    cluster_id: str
    directory_id: uuid.UUID
    number: int
    first_index: int
    first_sequence: int
    chain: int
    size: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.number:016d}-{self.first_index:020d}{SEGMENT_SUFFIX}"

    @property
    def seed(self) -> int:
        """From which the checksum of every batch head in this segment continues."""
        return int(google_crc32c.value(self._identity()))

    def encode(self) -> bytes:
        """The 136 bytes at the start of the file."""
        data = self._identity() + _SIZE.pack(self.size)
        return data + _TAIL.pack(google_crc32c.value(data), _RESERVED)

    def _identity(self) -> bytes:
        return _IDENTITY.pack(
            _MAGIC,
            SEGMENT_VERSION,
            pack_cluster_id(self.cluster_id),
            self.directory_id.bytes,
            self.number,
            self.first_index,
            self.first_sequence,
            self.chain,
        )


def decode_segment_header(data: bytes) -> SegmentHeader:
    """The header from the start of a segment. Raises ValueError that says what is wrong."""
    if len(data) < HEADER_BYTES:
        raise ValueError(f"the file ends after {len(data)} of {HEADER_BYTES} header bytes")
    magic, version, cluster_field, directory_id, number, first_index, first_sequence, chain = _IDENTITY.unpack_from(
        data
    )
    (size,) = _SIZE.unpack_from(data, _IDENTITY.size)
    checksum, reserved = _TAIL.unpack_from(data, _IDENTITY.size + _SIZE.size)
    if magic != _MAGIC:
        raise ValueError(f"the file does not start with {_MAGIC!r} but with {magic!r}")
    if checksum != google_crc32c.value(data[: _IDENTITY.size + _SIZE.size]) or reserved != _RESERVED:
        raise ValueError("the checksum of the segment header does not match its content")
    if version != SEGMENT_VERSION:
        raise ValueError(f"unknown segment version {version}: this build reads version {SEGMENT_VERSION}")
    return SegmentHeader(
        cluster_id=unpack_cluster_id(cluster_field),
        directory_id=uuid.UUID(bytes=directory_id),
        number=number,
        first_index=first_index,
        first_sequence=first_sequence,
        chain=chain,
        size=size,
    )


def index_in_name(name: str) -> int:
    """The log index in a segment's name, for a message about a segment whose header cannot be read; 0 without one."""
    digits = name.removesuffix(SEGMENT_SUFFIX).rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def segment_names(files: Files, path: PurePath) -> list[str]:
    """The names of the segments in `path`, oldest first."""
    return [name for name in files.listdir(path) if name.endswith(SEGMENT_SUFFIX)]


def allocate(files: Files, path: PurePath, size: int) -> int:
    """Make the file `path` of `size` durable zeroes, and return its handle.

    Raises LogFull, and leaves nothing behind, if the disk has no room for it.
    """
    if files.exists(path):
        files.unlink(path)
    handle = -1
    try:
        handle = files.open(path, create=True)
        files.preallocate(handle, size)
        files.fdatasync(handle)
    except OSError as error:
        if handle >= 0:
            files.close(handle)
            files.unlink(path)
        if error.errno in _OUT_OF_SPACE:
            raise LogFull(
                f"no room for a log segment of {size} bytes in {path.parent}: free some space; "
                "until then this member can accept nothing new"
            ) from error
        raise
    return handle
