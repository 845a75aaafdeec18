"""What members' files tell of partition logs, as tables that come to the driver.

A row has the log `index` of the entry that told it, or that of the snapshot: behind the committed ones it counts for
nothing. `file_id` and `at` are the file and the byte that tell it, the byte null in a snapshot.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pidkeeper.pipeline.formats.log_records import INT64

MAX_FAULTS: Final = 1000
"""Of one snapshot, or of the groups of one view, the first: a state that is wrong from its beginning would give one for
each batch or offset."""
_ID: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_COPY: Final = (("member_id", _ID), ("file_id", _ID), ("index", _LONG), ("at", _LONG))

COORDINATES: Final = pa.schema(
    [
        *_COPY,
        ("log_offset", _LONG),
        ("log", _LONG),
        ("base_offset", _LONG),
        ("records", _LONG),
        ("founding", _TEXT),
        ("broker_id", _ID),
        ("broker_epoch", _LONG),
        ("number", _LONG),
        ("object_size", _LONG),
        ("position", _LONG),
        ("size", _LONG),
        ("max_timestamp", _LONG),
        ("producer_id", _LONG),
        ("producer_epoch", _ID),
        ("base_sequence", _LONG),
        ("transactional", pa.bool_()),
        ("timestamp_ms", _LONG),
    ]
)
"""A batch, and where it is in which object. Null in a snapshot, which does not keep them: `log_offset`, that of the
record in the quorum's log, `timestamp_ms`, the leader's clock, and all of the producer. `founding` is null where no
file tells which it was."""
MARKERS: Final = pa.schema(
    [
        *_COPY,
        ("log", _LONG),
        ("base_offset", _LONG),
        ("producer_id", _LONG),
        ("producer_epoch", _ID),
        ("committed", pa.bool_()),
        ("timestamp_ms", _LONG),
    ]
)
"""The end of a transaction in a log: a snapshot keeps it, and the record of the transaction's end makes it."""
ROLLS: Final = pa.schema([*_COPY, ("broker_id", _ID), ("broker_epoch", _LONG), ("number", _LONG)])
"""A segment that an agent committed; in a snapshot the last one of each broker."""
COMMITS: Final = ROLLS
"""The same of objects with batches, whether or not a log needs any of them."""
VIEWS: Final = pa.schema(
    [
        ("member_id", _ID),
        ("view", _ID),
        ("from_index", _LONG),
        ("to_index", _LONG),
        ("followed", pa.bool_()),
        ("store_id", _TEXT),
        ("groups", _LONG),
        ("group_offsets", _LONG),
    ]
)
"""What is known whole: the state of a snapshot, or of a log that is followed from a snapshot or from its beginning.
`groups`, `group_offsets`: how many it has at its end, pending offsets too."""
PLACES: Final = pa.schema(
    [
        ("member_id", _ID),
        ("view", _ID),
        ("log", _LONG),
        ("topic", _TEXT),
        ("partition", _ID),
        ("created_index", _LONG),
        ("removed_index", _LONG),
    ]
)
"""The logs of a view. `removed_index`: of the entry that deleted the topic, null for none."""
STARTS: Final = pa.schema([("member_id", _ID), ("view", _ID), ("log", _LONG), ("index", _LONG), ("start", _LONG)])
"""Where a log of a view begins from an entry on, if not at 0."""
ROLLED: Final = pa.schema(
    [
        *_COPY,
        ("view", _ID),
        ("log", _LONG),
        ("topic", _TEXT),
        ("partition", _ID),
        ("base_offset", _LONG),
        ("end_offset", _LONG),
        ("founding", _TEXT),
        ("broker_id", _ID),
        ("broker_epoch", _LONG),
        ("number", _LONG),
        ("size", _LONG),
        ("index_size", _LONG),
        ("max_timestamp", _LONG),
        ("until_index", _LONG),
    ]
)
"""A segment that a log of a view reads from, from the entry `index` on. `topic`, `partition`: by its own name.
`until_index`: of the entry that took another one in its place, or cut the log; null for none."""
LOG_FAULTS: Final = pa.schema(
    [
        *_COPY,
        ("check", _TEXT),
        ("log", _LONG),
        ("base_offset", _LONG),
        ("producer_id", _LONG),
        ("timestamp_ms", _LONG),
        ("detail", _TEXT),
    ]
)
"""What does not follow within one view, by the check that finds it."""
GROUP_FAULTS: Final = pa.schema(
    [
        *_COPY,
        ("log_offset", _LONG),
        ("check", _TEXT),
        ("severity", _TEXT),
        ("group_id", _TEXT),
        ("topic", _TEXT),
        ("partition", _ID),
        ("producer_id", _LONG),
        ("timestamp_ms", _LONG),
        ("detail", _TEXT),
    ]
)
"""The same of consumer groups; `topic` and `partition` are null where it is about the group. `log_offset`: of the
record in the quorum's log, or of the next one behind a snapshot."""
TABLES: Final[dict[str, Any]] = {
    "coordinates": COORDINATES,
    "markers": MARKERS,
    "rolls": ROLLS,
    "commits": COMMITS,
    "views": VIEWS,
    "places": PLACES,
    "starts": STARTS,
    "rolled": ROLLED,
    "log_faults": LOG_FAULTS,
    "group_faults": GROUP_FAULTS,
}


def as_time(ms: int | None) -> int | None:
    """As a column takes it; null for none."""
    return ms if ms is None or ms in INT64 else None
