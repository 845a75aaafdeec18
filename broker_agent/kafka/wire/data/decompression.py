"""What compresses the records of a batch, undone. No batch takes more memory than a bound, whatever it tells."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import Compression

MAX_RECORDS_BYTES: Final = 64 << 20
"""Records of one batch: eight times the largest request of a producer. Text shrinks to a fifth, as a rule."""

EXTRA: Final = "pip install 'pidkeeper[compression]'"

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
"""Java's clients put blocks of snappy behind this mark and two versions, each block behind its length."""


class UnreadableError(ValueError):
    """Bytes that are no batch's records, or too many."""


class MissingCodecError(Exception):
    """A package is missing for this compression. The message says which."""


def decompressed(records: Buffer, compression: Compression, limit: int = MAX_RECORDS_BYTES) -> bytes:
    """The records of a batch, of `limit` bytes at most. Raises UnreadableError, and MissingCodecError."""
    if compression == Compression.NONE:
        return bytes(records)
    if compression == Compression.GZIP:
        return _gunzipped(records, limit)
    return _by_cramjam(bytes(records), compression, limit)


def _gunzipped(records: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        found = stream.decompress(records, limit)
    except zlib.error as error:
        raise UnreadableError(f"no gzip: {error}") from error
    if not stream.eof:
        raise UnreadableError(f"gzip that is cut off, or has more than {limit} bytes")
    return found


def _by_cramjam(records: bytes, compression: Compression, limit: int) -> bytes:
    try:
        import cramjam
    except ImportError as error:
        name = compression.name.lower()
        raise MissingCodecError(f"the records are compressed by {name}, which needs cramjam: {EXTRA}") from error
    try:
        if compression == Compression.SNAPPY:
            return _unsnapped(records, limit, cramjam.snappy.decompress_raw_len, cramjam.snappy.decompress_raw_into)
        codec = cramjam.lz4 if compression == Compression.LZ4 else cramjam.zstd
        # Zeroed pages, which take no memory until they are written to.
        room = bytearray(limit)
        written = codec.decompress_into(records, room)
        return bytes(memoryview(room)[:written])
    except cramjam.DecompressionError as error:
        raise UnreadableError(f"no {compression.name.lower()} of up to {limit} bytes: {error}") from error


def _unsnapped(
    records: bytes, limit: int, length: Callable[[bytes], int], decompress_into: Callable[[bytes, bytearray], int]
) -> bytes:
    blocks = _blocks(records) if records.startswith(_XERIAL) else [records]
    sizes = [length(block) for block in blocks]
    if sum(sizes) > limit:
        raise UnreadableError(f"snappy of {sum(sizes)} bytes, and {limit} are taken")
    found = []
    for block, size in zip(blocks, sizes, strict=True):
        room = bytearray(size)
        decompress_into(block, room)
        found.append(bytes(room))
    return b"".join(found)


def _blocks(records: bytes) -> list[bytes]:
    blocks, at = [], _XERIAL_HEAD_BYTES
    while at < len(records):
        start = at + 4
        at = start + int.from_bytes(records[at:start], "big")
        if at > len(records):
            raise UnreadableError("a block of snappy that is cut off")
        blocks.append(records[start:at])
    return blocks
