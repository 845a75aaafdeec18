"""The index that lies beside a rolled segment: where some of its batches are, and which transactions were aborted.

A CRC-32C of four bytes, big-endian, and what it covers: a msgpack array of version, base offset, end offset and size of
the segment, and six columns. Of an entry: the offset and the position of a batch, and the latest timestamp of records
before it. Of an aborted transaction: producer id, first offset, and the offset of its marker.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import google_crc32c
import msgspec

MAX_INDEX_BYTES: Final = 8 << 20
"""What an agent writes at most: an entry or an aborted transaction takes 27 bytes, and all that there may be, 6 MB."""
NO_TIME: Final = -(2**63)
"""As the latest timestamp where no record comes before."""
_CRC_BYTES: Final = 4

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SparseIndex(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The columns of entries are as long as each other, and so are those of aborted transactions."""

    version: Literal[0]
    base_offset: _Int64
    end_offset: _Int64
    size: _Int64
    offsets: list[_Int64]
    positions: list[_Int64]
    latest: list[_Int64]
    producer_ids: list[_Int64]
    first_offsets: list[_Int64]
    marker_offsets: list[_Int64]


def decode_sparse_index(data: bytes) -> SparseIndex:
    """The index that these bytes are. Raises ValueError that says what is wrong with them."""
    covered, due = data[_CRC_BYTES:], int.from_bytes(data[:_CRC_BYTES], "big")
    if len(data) < _CRC_BYTES:
        raise ValueError(f"{len(data)} bytes are no index")
    if (found := google_crc32c.value(covered)) != due:
        raise ValueError(f"the CRC-32C of its bytes is {found:#010x}, and {due:#010x} stands before them")
    try:
        index = msgspec.msgpack.decode(covered, type=SparseIndex)
    except msgspec.DecodeError as error:
        raise ValueError(f"it makes no sense: {error}") from None
    if not 1 <= len(index.offsets) == len(index.positions) == len(index.latest):
        raise ValueError(f"{len(index.offsets)} offsets, {len(index.positions)} positions, {len(index.latest)} times")
    aborted = {len(column) for column in (index.producer_ids, index.first_offsets, index.marker_offsets)}
    if len(aborted) > 1:
        raise ValueError("its columns of aborted transactions have different lengths")
    return index
