"""The files of transactional owners, byte by byte: which producer ID was given to which transactional id.

One file holds the IDs that were given by the records of one range of log offsets. Integers are big-endian.

    offset  size
    0       8     magic `PIDOWNR1`
    8       2     format version, u16
    10      2     zero
    12      64    cluster id, ASCII, padded with zeroes
    76      8     first log offset covered, i64
    84      8     log offset after the last one covered, i64
    92      8     rows, i64
    100     8     bytes of the names, i64
    108     4     CRC32C of the rows and the names, u32
    112     4     zero
    116     4     CRC32C of the 116 bytes above, u32
    120           rows, then the names (transactional ids in UTF-8) one behind the other

A row is 40 bytes; rows ascend by producer ID and by offset at once:

    0       8     producer ID, i64
    8       8     log offset of the record that gave it, i64
    16      8     the leader's wall clock at the decision, milliseconds since the epoch, i64
    24      4     where its name begins among the names, u32
    28      2     bytes of its name, u16
    30      2     zero
    32      4     CRC32C of the first 24 bytes of the row and of the name, u32
    36      4     zero

The checksum of a row leaves out where its name stands, so that files are merged without a look at the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.transactions import MAX_TRANSACTIONAL_ID_LENGTH
from pidkeeper.snapshots.archive_format import ArchiveError
from pidkeeper.snapshots.cluster_id import pack_cluster_id, unpack_cluster_id

OWNER_VERSION: Final = 1
OWNER_HEADER_BYTES: Final = 120
OWNER_ROW_BYTES: Final = 40
MAX_NAME_BYTES: Final = 4 * MAX_TRANSACTIONAL_ID_LENGTH

MAX_OWNER_FILE_BYTES: Final = 16 * 1024 * 1024
"""A file: 200,000 IDs with names of 36 characters. It is what opening and merging hold in memory; more IDs take more
files."""

_MAGIC: Final = b"PIDOWNR1"
_HEADER: Final = struct.Struct(">8sHxx64sqqqqI4x")
_ROW: Final = struct.Struct(">qqqIHxxI4x")
_KEY: Final = struct.Struct(">qqq")
_PLACE: Final = struct.Struct(">I")
_PLACE_AT: Final = _KEY.size
_CHECKSUM: Final = struct.Struct(">I")


class OwnerError(ArchiveError):
    """A file of owners, or what is to become one, breaks the format. The message says where."""


class Owner(msgspec.Struct, frozen=True):
    """A producer ID was given to a transactional id by the record at `offset`, at `timestamp_ms`."""

    producer_id: int
    offset: int
    timestamp_ms: int
    transactional_id: str

    @property
    def encoded_bytes(self) -> int:
        """What it takes in a file."""
        return OWNER_ROW_BYTES + len(self.transactional_id.encode())


class OwnerHeader(msgspec.Struct, frozen=True):
    """What a file covers: log offsets [from_offset, to_offset), `rows` IDs, and `name_bytes` of names."""

    cluster_id: str
    from_offset: int
    to_offset: int
    rows: int
    name_bytes: int
    checksum: int

    @property
    def file_bytes(self) -> int:
        """Of the whole file."""
        return OWNER_HEADER_BYTES + self.rows * OWNER_ROW_BYTES + self.name_bytes


class Place(msgspec.Struct, frozen=True):
    """A row without its name, which stands at `name_at` among the names. `checksum`: of both."""

    producer_id: int
    offset: int
    timestamp_ms: int
    name_at: int
    name_bytes: int
    checksum: int

    def owner(self, name: bytes) -> Owner:
        """The whole row. Raises OwnerError for a name that is not its own."""
        key = _KEY.pack(self.producer_id, self.offset, self.timestamp_ms)
        if google_crc32c.value(key + name) != self.checksum:
            raise OwnerError(f"the checksum of the row of producer ID {self.producer_id} does not match")
        try:
            return Owner(self.producer_id, self.offset, self.timestamp_ms, name.decode())
        except UnicodeDecodeError as error:
            raise OwnerError(f"the name of producer ID {self.producer_id} is not UTF-8") from error


def encode_owners(cluster_id: str, from_offset: int, to_offset: int, owners: Sequence[Owner]) -> bytes:
    """A whole file. Raises OwnerError for a range or rows that break the format."""
    _check_ascending(owners, from_offset, to_offset)
    # Not lists of them: hundreds of thousands of small objects would take several times the file.
    rows, names = bytearray(), bytearray()
    for owner in owners:
        name = owner.transactional_id.encode()
        key = _KEY.pack(owner.producer_id, owner.offset, owner.timestamp_ms)
        checksum = google_crc32c.value(key + name)
        rows += _ROW.pack(owner.producer_id, owner.offset, owner.timestamp_ms, len(names), len(name), checksum)
        names += name
    return assembled(cluster_id, from_offset, to_offset, bytes(rows), bytes(names))


def assembled(cluster_id: str, from_offset: int, to_offset: int, rows: bytes, names: bytes) -> bytes:
    """The file with these rows and names. Raises OwnerError if it would be too large."""
    checksum = google_crc32c.extend(google_crc32c.value(rows), names)
    count = len(rows) // OWNER_ROW_BYTES
    header = OwnerHeader(cluster_id, from_offset, to_offset, count, len(names), checksum)
    _check_header(header)
    packed = _HEADER.pack(
        _MAGIC, OWNER_VERSION, pack_cluster_id(cluster_id), from_offset, to_offset, count, len(names), checksum
    )
    return b"".join((packed, _CHECKSUM.pack(google_crc32c.value(packed)), rows, names))


def split_owners(data: bytes) -> tuple[OwnerHeader, bytes, bytes]:
    """Header, rows and names of a whole file. Raises OwnerError if a checksum or a length is wrong."""
    if len(data) < OWNER_HEADER_BYTES:
        raise OwnerError(f"the file ends after {len(data)} of {OWNER_HEADER_BYTES} header bytes")
    magic, version, cluster_field, *numbers = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise OwnerError(f"the file does not start with {_MAGIC!r} but with {magic!r}: it holds no owners")
    if data[_HEADER.size : OWNER_HEADER_BYTES] != _CHECKSUM.pack(google_crc32c.value(data[: _HEADER.size])):
        raise OwnerError("the checksum of the header does not match its content")
    if version != OWNER_VERSION:
        raise OwnerError(f"unknown version {version} of a file of owners: this build reads version {OWNER_VERSION}")
    try:
        header = OwnerHeader(unpack_cluster_id(cluster_field), *numbers)
    except ValueError as error:
        raise OwnerError(str(error)) from error
    _check_header(header)
    names_at = OWNER_HEADER_BYTES + header.rows * OWNER_ROW_BYTES
    rows, names = data[OWNER_HEADER_BYTES:names_at], data[names_at:]
    checksum = google_crc32c.extend(google_crc32c.value(rows), names)
    if len(data) != header.file_bytes or checksum != header.checksum:
        raise OwnerError("the checksum of the rows and the names does not match, or the file is cut")
    return header, rows, names


def decode_owners(data: bytes) -> list[Owner]:
    """A whole file. Raises OwnerError for anything that `encode_owners` and a merge do not make."""
    header, rows, names = split_owners(data)
    owners = []
    for at in range(0, len(rows), OWNER_ROW_BYTES):
        place = decode_place(rows[at : at + OWNER_ROW_BYTES])
        owners.append(place.owner(names[place.name_at : place.name_at + place.name_bytes]))
    if encode_owners(header.cluster_id, header.from_offset, header.to_offset, owners) != data:
        raise OwnerError("its names or its empty fields are not laid out as a member writes them")
    return owners


def decode_place(row: bytes) -> Place:
    """One row of 40 bytes. Raises OwnerError."""
    if len(row) != OWNER_ROW_BYTES:
        raise OwnerError(f"a row takes {OWNER_ROW_BYTES} bytes, not {len(row)}")
    place = Place(*_ROW.unpack(row))
    if not 0 <= place.producer_id < MAX_PRODUCER_ID or not 1 <= place.name_bytes <= MAX_NAME_BYTES:
        raise OwnerError(f"producer ID {place.producer_id} with a name of {place.name_bytes} bytes is no row")
    return place


def moved(rows: bytes, by: int) -> bytes:
    """The rows, with their names `by` bytes further on. Raises OwnerError for a name that would be in no file."""
    changed = bytearray(rows)
    for at in range(_PLACE_AT, len(rows), OWNER_ROW_BYTES):
        place = _PLACE.unpack_from(rows, at)[0] + by
        if place >= MAX_OWNER_FILE_BYTES:
            raise OwnerError(f"a name at byte {place} of the names is in no file")
        _PLACE.pack_into(changed, at, place)
    return bytes(changed)


def _check_ascending(owners: Sequence[Owner], from_offset: int, to_offset: int) -> None:
    highest, before = -1, from_offset - 1
    for owner in owners:
        if not (highest < owner.producer_id < MAX_PRODUCER_ID and before < owner.offset < to_offset):
            raise OwnerError(
                f"producer ID {owner.producer_id} at log offset {owner.offset} does not come after {highest} at "
                f"{before}, or not before offset {to_offset}"
            )
        if not 1 <= len(owner.transactional_id.encode()) <= MAX_NAME_BYTES:
            raise OwnerError(f"the name of producer ID {owner.producer_id} is too long, or empty")
        highest, before = owner.producer_id, owner.offset


def _check_header(header: OwnerHeader) -> None:
    if not 0 <= header.from_offset < header.to_offset < 2**63:
        raise OwnerError(f"log offsets {header.from_offset} to {header.to_offset} are not a range")
    if header.rows < 0 or header.name_bytes < 0 or header.file_bytes > MAX_OWNER_FILE_BYTES:
        raise OwnerError(f"{header.rows} rows with {header.name_bytes} bytes of names do not fit into one file")
