"""The cluster id as every file header has it: 64 bytes of ASCII, padded with zeroes."""

from __future__ import annotations

from pidkeeper.protocol.messages import MAX_CLUSTER_ID_LENGTH


def pack_cluster_id(cluster_id: str) -> bytes:
    """A cluster id as the 64-byte field of every file header. Raises ValueError unless it is printable ASCII."""
    if not (1 <= len(cluster_id) <= MAX_CLUSTER_ID_LENGTH and cluster_id.isascii() and cluster_id.isprintable()):
        raise ValueError(f"a cluster id is 1 to {MAX_CLUSTER_ID_LENGTH} printable ASCII characters, not {cluster_id!r}")
    return cluster_id.encode().ljust(MAX_CLUSTER_ID_LENGTH, b"\0")


def unpack_cluster_id(field: bytes) -> str:
    """The inverse of `pack_cluster_id`. Raises ValueError for bytes that it never makes."""
    cluster_id = field.rstrip(b"\0").decode("ascii", errors="replace")
    if pack_cluster_id(cluster_id) != field:
        raise ValueError(f"{field!r} is not a cluster id")
    return cluster_id
