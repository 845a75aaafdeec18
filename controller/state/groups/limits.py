"""What is kept of consumer groups, at most. At a bound a caller is told COORDINATOR_NOT_AVAILABLE, and tries again."""

from __future__ import annotations

from typing import Final

MAX_GROUPS: Final = 10_000
"""Those of which offsets alone are known included: about 1 KiB of memory each, beside their members and offsets."""

MAX_MEMBERS_BYTES: Final = 16 * 1024 * 1024
"""Of the members of all groups, as `GroupMember.encoded_bytes` counts them: 130,000 at 128 bytes each, or 250 groups
as large as one may be."""

MAX_OFFSETS: Final = 200_000
"""Offsets of all groups, committed ones and pending ones: about 250 bytes of memory each, and 50 in a snapshot, beside
their names and metadata. As many as twenty groups have that read every partition there may be."""

MAX_OFFSET_BYTES: Final = 32 * 1024 * 1024
"""Of the names and the metadata of all offsets, as `text_bytes` counts them: 160 bytes for each offset. A snapshot
names the group and the topic with each of them."""

MAX_PENDING: Final = 10_000
"""Offsets that one transaction holds: a group's in every partition there may be. Its end settles them all at once,
10 ms' work to decide and as much to replay. More of them are refused with INVALID_COMMIT_OFFSET_SIZE."""


def text_bytes(text: str) -> int:
    """Bytes that a text takes at most, in memory and in UTF-8: four for each character, unless all are ASCII."""
    return len(text) if text.isascii() else 4 * len(text)
