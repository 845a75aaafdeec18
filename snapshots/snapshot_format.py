"""A snapshot file, byte by byte. Integers are big-endian.

    offset  size
    0       8     magic `PIDSNAP1`
    8       2     format version, u16
    10      2     zero
    12      64    cluster id, ASCII, padded with zeroes
    76      8     log index of the last entry covered, u64
    84      8     its term, u64
    92      8     bytes of the body, u64
    100           body: the `StateImage` as a msgpack map, its `version` first
    ...     4     CRC32C of all bytes above, u32

The file ends there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.transactions import TransactionRecord, lean
from pidkeeper.snapshots.cluster_id import pack_cluster_id, unpack_cluster_id
from pidkeeper.snapshots.groups_image import GroupsImage
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.logs_image import LogImage, LogsImage
from pidkeeper.snapshots.rows import Rows

SNAPSHOT_VERSION: Final = 1
MAX_SNAPSHOT_BYTES: Final = 256 * 1024 * 1024
"""A million broker registrations at 200 bytes each, and some to spare. A larger file is refused unread."""

_MAGIC: Final = b"PIDSNAP1"
_HEADER: Final = struct.Struct(">8sHxx64sQQQ")
_CHECKSUM: Final = struct.Struct(">I")
PIECE_BYTES: Final = 1024 * 1024
_ENCODER: Final = msgspec.msgpack.Encoder()
_FIELDS: Final = msgspec.structs.fields(StateImage)
_LOGS_FIELDS: Final = msgspec.structs.fields(LogsImage)
_TRANSACTION_DECODER: Final = msgspec.msgpack.Decoder(TransactionRecord)


class SnapshotError(ValueError):
    """A snapshot that cannot be used. The message names the file and what is wrong with it."""


class NewerSnapshot(SnapshotError):  # noqa: N818 - what the operator reads
    """It is whole, but a newer build wrote it."""


class _Undecoded(StateImage, frozen=True):
    """A state whose transactions are decoded one by one: at their limits, all at once take ten times their bytes."""

    transactions: list[msgspec.Raw] = msgspec.field(default_factory=list)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Nothing is checked before it is a StateImage."""


_DECODER: Final = msgspec.msgpack.Decoder(_Undecoded)


class _Version(msgspec.Struct):
    version: int


_VERSION_DECODER: Final = msgspec.msgpack.Decoder(_Version)


def at_once() -> None:
    """No rest between rows."""


def encode_snapshot(cluster_id: str, image: StateImage, rest: Callable[[], None] = at_once) -> Iterator[bytes]:
    """The file that keeps `image`, the same bytes on every member, in pieces of about a MiB.

    A state at its limits leaves no room in a member's memory for its own encoding. `rest` is called between rows, so
    that whoever encodes them beside an event loop can leave the interpreter to it. Raises SnapshotError if the file
    would be too large.
    """
    body_bytes = sum(map(len, _rested(_body(image), rest)))
    size = _HEADER.size + body_bytes + _CHECKSUM.size
    if size > MAX_SNAPSHOT_BYTES:
        raise SnapshotError(f"a snapshot of {size} bytes is above the limit of {MAX_SNAPSHOT_BYTES}")
    fields = image.index, image.term, body_bytes
    return _pieces(
        _HEADER.pack(_MAGIC, SNAPSHOT_VERSION, pack_cluster_id(cluster_id), *fields), _rested(_body(image), rest)
    )


def _pieces(header: bytes, body: Iterable[bytes]) -> Iterator[bytes]:
    piece, checksum = bytearray(header), 0
    for part in body:
        piece += part
        if len(piece) >= PIECE_BYTES:
            checksum = google_crc32c.extend(checksum, bytes(piece))
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + _CHECKSUM.pack(google_crc32c.extend(checksum, bytes(piece)))


def _rested(parts: Iterator[bytes], rest: Callable[[], None]) -> Iterator[bytes]:
    for part in parts:
        yield part
        rest()


def _body(image: StateImage) -> Iterator[bytes]:
    """What msgspec makes of `image`, but each transaction, log, producer, group and offset for itself."""
    fields = [field for field in _FIELDS if field.required or getattr(image, field.name)]
    yield _msgpack_head(0x80, len(fields))
    for field in fields:
        yield _ENCODER.encode(field.encode_name)
        if field.name == "transactions":
            yield from _one_by_one(image.transactions)
        elif field.name == "logs" and image.logs is not None:
            yield from _logs(image.logs)
        elif field.name == "groups" and image.groups is not None:
            yield from _groups(image.groups)
        else:
            yield _ENCODER.encode(getattr(image, field.name))


def _logs(logs: LogsImage) -> Iterator[bytes]:
    fields = [field for field in _LOGS_FIELDS if field.required or getattr(logs, field.name)]
    yield _msgpack_head(0x80, len(fields))
    for field in fields:
        yield _ENCODER.encode(field.encode_name)
        value = getattr(logs, field.name)
        if field.name == "logs":
            yield _msgpack_head(0x90, len(value))
            for log in value:
                yield from _log(log)
        elif field.name == "objects":
            yield from _columns(value)
        elif isinstance(value, (list, Rows)):
            yield from _one_by_one(value)
        else:
            yield _ENCODER.encode(value)


def _groups(groups: GroupsImage) -> Iterator[bytes]:
    yield _msgpack_head(0x80, len(groups.__struct_fields__))
    for field in groups.__struct_fields__:
        yield _ENCODER.encode(field)
        yield from _one_by_one(getattr(groups, field))


def _log(log: LogImage) -> Iterator[bytes]:
    """At once if it is short: there are 10,000 of those."""
    tables = log.columns, log.markers, log.aborted
    if sum(len(column) for table in tables for column in table) < PIECE_BYTES:
        yield _ENCODER.encode(log)
        return
    yield _msgpack_head(0x90, len(log.__struct_fields__))
    for field in log.__struct_fields__:
        value = getattr(log, field)
        yield from _columns(value) if isinstance(value, tuple) else [_ENCODER.encode(value)]


def _columns(columns: Sequence[bytes]) -> Iterator[bytes]:
    """Piece by piece: an encoder that copies them all holds the interpreter meanwhile."""
    yield _msgpack_head(0x90, len(columns))
    for column in columns:
        yield _bytes_head(len(column))
        for start in range(0, len(column), PIECE_BYTES):
            yield column[start : start + PIECE_BYTES]


def _one_by_one(values: Collection[object]) -> Iterator[bytes]:
    """An array. Not `yield from map`: within `sum` the interpreter would not change threads before the last of them."""
    yield _msgpack_head(0x90, len(values))
    for value in values:
        yield _ENCODER.encode(value)


def _msgpack_head(short: int, length: int) -> bytes:
    """Of an array or a map: `short` is what its shortest head begins with."""
    if length < 16:
        return bytes([short | length])
    long = 0xDC if short == 0x90 else 0xDE
    return struct.pack(">BH", long, length) if length < 2**16 else struct.pack(">BI", long + 1, length)


def _bytes_head(length: int) -> bytes:
    if length < 2**8:
        return struct.pack(">BB", 0xC4, length)
    return struct.pack(">BH", 0xC5, length) if length < 2**16 else struct.pack(">BI", 0xC6, length)


def decode_snapshot(data: bytes, name: str, cluster_id: str | None) -> StateImage:
    """The image in a file; `cluster_id` None accepts any cluster's. Raises SnapshotError, also NewerSnapshot."""
    try:
        return _decode(data, cluster_id)
    except NewerSnapshot as error:
        raise NewerSnapshot(f"snapshot {name}: {error}") from error
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise SnapshotError(f"snapshot {name}: {error}") from error


def check_snapshot(data: bytes, name: str, cluster_id: str) -> None:
    """Raise SnapshotError if a file is damaged, or another cluster's; its state is not looked at."""
    try:
        _split(data, cluster_id)
    except ValueError as error:
        raise SnapshotError(f"snapshot {name}: {error}") from error


def _checksum(data: bytes) -> int:
    """Of all but the checksum. Piece by piece: a member at its limits has no room for one more copy of its state."""
    checksum, end = 0, len(data) - _CHECKSUM.size
    for offset in range(0, end, PIECE_BYTES):
        checksum = google_crc32c.extend(checksum, data[offset : min(offset + PIECE_BYTES, end)])
    return checksum


def _split(data: bytes, cluster_id: str | None) -> tuple[int, int, memoryview]:
    """Index, term and body."""
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise ValueError(f"the file ends after {len(data)} bytes, within the header")
    magic, version, cluster_field, index, term, body_bytes = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"the file does not start with {_MAGIC!r} but with {magic!r}: it is no snapshot")
    if data[-_CHECKSUM.size :] != _CHECKSUM.pack(_checksum(data)):
        raise ValueError("the checksum does not match the content: the file is damaged or incomplete")
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"unknown snapshot version {version}: this build reads version {SNAPSHOT_VERSION}")
    found = unpack_cluster_id(cluster_field)
    if cluster_id is not None and found != cluster_id:
        raise ValueError(f"it is of cluster {found}, not of {cluster_id}")
    body = memoryview(data)[_HEADER.size : -_CHECKSUM.size]
    if len(body) != body_bytes:
        raise ValueError(f"the header names {body_bytes} bytes of content, the file holds {len(body)}")
    return index, term, body


def _decode(data: bytes, cluster_id: str | None) -> StateImage:
    index, term, body = _split(data, cluster_id)
    image_version = _VERSION_DECODER.decode(body).version
    if image_version > LATEST:
        raise NewerSnapshot(f"its metadata version is {image_version}, this build reads {LATEST} at most: upgrade it")
    undecoded = _DECODER.decode(body)
    transactions = [lean(_TRANSACTION_DECODER.decode(record)) for record in undecoded.transactions]
    image = StateImage(**{**msgspec.structs.asdict(undecoded), "transactions": transactions})
    if (image.index, image.term) != (index, term):
        raise ValueError(f"the header names entry {index} of term {term}, the state {image.index} of {image.term}")
    return image
