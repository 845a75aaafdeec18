"""What the checks say: one row for each finding, whatever the check."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

VIOLATION: Final = "violation"
"""The promise is broken, or somebody's records cannot be trusted: the audit ends with exit code 5."""

WARNING: Final = "warning"
"""Something that a person should look at, and that breaks no promise."""

NOTE: Final = "note"
"""Unusual, and explained."""

_TEXT: Final = pa.string()
_LONG: Final = pa.int64()
_INT: Final = pa.int32()

FINDINGS: Final = pa.schema(
    [
        ("check", _TEXT),  # name of the check, as `overlap`
        ("severity", _TEXT),
        ("subject", _TEXT),  # whom or what it is about, for the eye: `IDs 5000 to 5999`, `orders-0, producer 17`
        ("first_id", _LONG),  # lowest producer ID concerned
        ("last_id", _LONG),  # highest producer ID concerned, inclusive
        ("broker_id", _INT),
        ("offset", _LONG),  # log offset of the quorum's record, or offset in the partition
        ("topic", _TEXT),
        ("partition", _INT),
        ("timestamp_ms", _LONG),  # when it happened, milliseconds since the epoch
        ("member", _TEXT),  # whose copy shows it
        ("file", _TEXT),  # file that shows it
        ("position", _LONG),  # byte in that file
        ("detail", _TEXT),  # what was found and why it matters, one sentence with the figures
    ]
)
"""Null where a column does not apply. A finding is given once, however many copies show it."""
