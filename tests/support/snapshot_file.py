"""A snapshot file as a whole."""

from __future__ import annotations

from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import encode_snapshot


def snapshot_file(cluster_id: str, image: StateImage) -> bytes:
    """The file that keeps `image`. Raises SnapshotError if it would be too large."""
    return b"".join(encode_snapshot(cluster_id, image))
