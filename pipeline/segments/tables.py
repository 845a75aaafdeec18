"""The tables between reading, judging and concluding. All columns are numbers, flags or words of ours: no names.

Times are milliseconds since the epoch, null where a batch has none that is one; days are numbers of days since the
epoch in UTC. A place is `file_id` and `position`, the byte in the file.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_ID: Final = pa.int32()
_LONG: Final = pa.int64()
_FLAG: Final = pa.bool_()
_WORD: Final = pa.string()

BATCHES: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("part", _ID),
        ("position", _LONG),
        ("base_offset", _LONG),
        ("epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("is_control", _FLAG),
        ("is_transactional", _FLAG),
        # Data of a transaction. The cleaner empties batches, but never from the start of an open transaction on.
        ("opens", _FLAG),
        ("broker_clock", _FLAG),
        ("timestamp_ms", _LONG),
        ("seen_ms", _LONG),
        ("missing", _LONG),
        ("holes", _ID),
    ]
)
"""The batches and markers of producers, cut into buckets by producer.

Three running figures go from the start of the part up to and with the row: `missing`, offsets that no batch has;
`holes`, problems behind which batches may be lost; `seen_ms`, the newest timestamp. What stands before the part in its
log is added by carrying.py.
"""

PARTS: Final = pa.schema(
    [
        ("part", _ID),
        ("file_id", _ID),
        ("log_id", _ID),
        ("partition_id", _ID),
        ("topic_id", _ID),
        ("member_id", _ID),
        ("sequenced", _FLAG),
        ("whole", _FLAG),
        ("first_base", _LONG),
        ("reach", _LONG),
        ("missing", _LONG),
        ("holes", _LONG),
        ("newest_ms", _LONG),
        ("clock_ms", _LONG),
        ("key", _LONG),
    ]
)
"""One row for each part; every bucket has all of them. `key` is what it is called in every audit of a ledger.

`first_base` and `reach` are the first and the highest offset of batches whose offsets are no negative numbers, null
without one; `missing`, the offsets between them that no batch of the part has; `newest_ms`, the newest timestamp, and
`clock_ms`, that of brokers' clocks.
"""

SEGMENT_PARTS: Final = pa.schema(
    [
        *PARTS,
        ("batches", _LONG),
        ("records", _LONG),
        ("first_offset", _LONG),
        ("last_offset", _LONG),
        ("max_timestamp_ms", _LONG),
        ("problems", _LONG),
        ("first_position", _LONG),
        ("first_ms", _LONG),
        ("holes_first", _LONG),
        ("holes_last", _LONG),
        ("old", _LONG),
        ("old_first", _LONG),
        ("old_last", _LONG),
        ("last_position", _LONG),
        ("last_crc", _LONG),
        ("anew", _FLAG),
    ]
)
"""PARTS with what tables of files need, and with what stands at the seams.

`first_position` and `first_ms` are of the batch of `first_base`; `holes_first` and `holes_last`, the holes before the
first and the last such batch; `old`, `old_first` and `old_last` the same of messages in formats 0 and 1, whose offsets
are not looked at. `problems` counts all, whether or not they are rows of PROBLEMS. `last_position` and `last_crc` are
of the last batch. `anew`: read by this audit.
"""

SEGMENT_DAYS: Final = pa.schema(
    [
        ("file_id", _ID),
        ("partition_id", _ID),
        ("day", _ID),
        ("batches", _LONG),
        ("records", _LONG),
        ("first_timestamp_ms", _LONG),
        ("last_timestamp_ms", _LONG),
        ("last_offset", _LONG),
    ]
)
"""Batches by the day of their greatest timestamp, null without one: rows for each part and day, to be summed up."""

PROBLEMS: Final = pa.schema(
    [("file_id", _ID), ("kind", _WORD), ("position", _LONG), ("index", _LONG), ("detail", _WORD)]
)
"""As `schemas.PROBLEMS`, but for a number in place of names. Bounded for each part, see read.py."""

_PLACE: Final = (("partition_id", _ID), ("file_id", _ID), ("position", _LONG), ("timestamp_ms", _LONG))

OFFSET_HOLES: Final = pa.schema([*_PLACE, ("first_offset", _LONG), ("last_offset", _LONG), ("damaged", _FLAG)])
"""Offsets without a batch within a part of a topic that is never compacted; the place is of the batch behind them.

`damaged`: whether the file is damaged there. Bounded for each part, see read.py.
"""

FAULTS: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("fault", _WORD),
        ("severity", _WORD),
        ("epoch", _ID),
        *_PLACE,
        ("base_offset", _LONG),
        ("base_sequence", _LONG),
        ("last_sequence", _LONG),
        ("batches", _LONG),
        ("top", _LONG),
        ("gap", _LONG),
        ("lost", _LONG),
    ]
)
"""Each fault of a copy's sequences once: `fault` is the name of the check that reports it. See streams.py."""

FENCED: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("epoch", _ID),
        ("fenced_by", _ID),
        ("batches", _LONG),
        *_PLACE,
        ("base_offset", _LONG),
    ]
)
"""Data of a fenced epoch in a copy, at the first batch."""

OPEN_TRANSACTIONS: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("epoch", _ID),
        ("batches", _LONG),
        *_PLACE,
        ("base_offset", _LONG),
        ("age_ms", _LONG),
        ("whole", _FLAG),
    ]
)
"""Transactions of a copy without an end, older than they may be; `whole`: nothing is missing or damaged behind it."""

MIXED: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("inside_file", _ID),
        ("inside_position", _LONG),
        ("inside_offset", _LONG),
        ("inside_ms", _LONG),
        ("outside_file", _ID),
        ("outside_position", _LONG),
        ("outside_offset", _LONG),
        ("outside_ms", _LONG),
    ]
)
"""Producers that write in transactions and outside of them, with the first place of each."""

OVERTAKEN: Final = pa.schema(
    [
        ("producer_id", _LONG),
        ("epoch", _ID),
        ("newer", _ID),
        ("proven", _FLAG),
        ("since_ms", _LONG),
        *_PLACE,
        ("base_offset", _LONG),
    ]
)
"""Epochs whose data goes on long after a newer epoch began elsewhere; `proven` by brokers' clocks."""

UNALLOCATED: Final = pa.schema([("producer_id", _LONG), ("batches", _LONG), *_PLACE, ("base_offset", _LONG)])
"""Producer IDs in no block, from the first block on, with the place of their first batch."""

UNCHECKED_IDS: Final = pa.schema([("known_from", _LONG), ("ids", _LONG), ("first_id", _LONG), ("last_id", _LONG)])
"""How many producer IDs of a bucket lie below the first block, `known_from`, or all of them where there is no block."""

BURSTS: Final = pa.schema(
    [
        ("topic_id", _ID),
        ("timestamp_ms", _LONG),
        ("ids", _LONG),
        ("first_id", _LONG),
        ("last_id", _LONG),
        ("batches", _LONG),
    ]
)
"""Producers that wrote few batches in a topic, by the window of time in which they began, from `timestamp_ms` on."""

PRODUCER_DAYS: Final = pa.schema([("partition_id", _ID), ("day", _ID), ("producers", _LONG)])
"""Distinct producers of a bucket, by partition and day as in SEGMENT_DAYS. No producer is in two buckets."""

PRODUCER_IDS: Final = pa.schema([("producer_id", _LONG)])
"""Allocated IDs that wrote data. Eight bytes each: all that grows with the number of spotless producers."""

LEFT_OUT: Final = pa.schema([("check", _WORD), ("severity", _WORD), ("rows", _LONG)])
"""How many findings there is no evidence of, because a bucket or a part had too many."""

KEPT_FILES: Final = pa.schema([("bucket", _ID), ("name", _WORD), ("file", _WORD), ("rows", _LONG)])
"""What a bucket has in the ledger: files by what is in them, see keeping.py."""

EVIDENCE: Final = {
    "segment_parts": SEGMENT_PARTS,
    "segment_days": SEGMENT_DAYS,
    "problems": PROBLEMS,
    "offset_holes": OFFSET_HOLES,
    "faults": FAULTS,
    "fenced": FENCED,
    "open_transactions": OPEN_TRANSACTIONS,
    "mixed": MIXED,
    "overtaken": OVERTAKEN,
    "unallocated": UNALLOCATED,
    "unchecked_ids": UNCHECKED_IDS,
    "bursts": BURSTS,
    "producer_days": PRODUCER_DAYS,
    "producer_ids": PRODUCER_IDS,
    "left_out": LEFT_OUT,
    "kept_files": KEPT_FILES,
}
"""What comes to the driver, by name."""


def _kept(schema: Any) -> Any:
    """The same with parts as places: what a file and a partition are called differs from audit to audit."""
    fields = [field for field in schema if field.name not in {"partition_id", "file_id"}]
    return pa.schema([pa.field(field.name.replace("_file", "_part"), field.type) for field in fields])


_OF_PART: Final = pa.field("part", _ID)
KEPT: Final = {
    "producer_epochs": pa.schema(
        [
            ("producer_id", _LONG),
            ("epoch", pa.int16()),
            _OF_PART,
            ("batches", _LONG),
            ("data_batches", _LONG),
            ("data_ms", _LONG),
            ("inside", _FLAG),
            ("outside", _FLAG),
            ("from_any", _LONG),
            ("to_any", _LONG),
            ("from_broker", _LONG),
            ("to_broker", _LONG),
            ("reached", _LONG),
            ("last_sequence", pa.int32()),
        ]
    ),
    "dated": pa.schema([("producer_id", _LONG), _OF_PART, ("day", _ID)]),
    "doubtful": pa.schema([("producer_id", _LONG)]),
    "unended": pa.schema([("producer_id", _LONG)]),
    "mixed": _kept(MIXED),
    **{name: _kept(EVIDENCE[name]).append(_OF_PART) for name in ("faults", "fenced", "overtaken", "unallocated")},
}
"""What was judged, by producer, so that it counts again where a producer has nothing new.

`producer_epochs`: all of them, see following.py. `dated`: a row for each segment and day. `doubtful`: whose new rows
are judged with all before them. `unended`: who had an open transaction, however young. `part` is one in which the
producer has rows, or the first of such a segment.
"""

JUDGED: Final = KEPT | {
    "producer_epochs": pa.schema([*KEPT["producer_epochs"], ("log_id", _ID), ("partition_id", _ID)]),
    "open_transactions": _kept(OPEN_TRANSACTIONS).append(_OF_PART),
}
"""The same as one audit has it, where a segment has a log and a partition, and with what only counts in this one."""
