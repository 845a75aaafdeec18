"""A snapshot file as a whole."""

from __future__ import annotations

import msgspec

from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import encode_snapshot


def snapshot_file(cluster_id: str, image: StateImage) -> bytes:
    """The file that keeps `image`. Raises SnapshotError if it would be too large."""
    return b"".join(encode_snapshot(cluster_id, image))


def encoded_at_once(image: StateImage) -> bytes:
    """What one encoder makes of a state; it reserves a longer head for a map of 16 fields than a shorter map needs."""
    whole = msgspec.msgpack.encode(image)
    assert whole[:2] == b"\xde\x00", "a map of less than 256 fields, with a head of three bytes"
    return bytes([0x80 | whole[2]]) + whole[3:]
