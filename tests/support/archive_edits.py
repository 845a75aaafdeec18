"""Archive files with other rows, under checksums that are right for them: what a foreign or broken writer leaves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import decode_archive, encode_header

_ROW: Final = struct.Struct(">qqqqqi4x")

Edit = Callable[[list[AllocatedBlock]], object]


def edit_archive(file: Path, edit: Edit) -> None:
    """Change the rows of a file in place; the header names as many as there are then, and their first and last ID."""
    header, rows = decode_archive(file.read_bytes())
    edit(rows)
    data = b"".join(
        _ROW.pack(row.first, row.last, row.offset, row.broker_epoch, row.timestamp_ms, row.broker_id) for row in rows
    )
    named = {"rows": len(rows), "first_id": rows[0].first, "last_id": rows[-1].last}
    header = msgspec.structs.replace(header, rows_checksum=google_crc32c.value(data), **named)
    file.write_bytes(encode_header(header) + data)
