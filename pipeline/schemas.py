"""The schema of every table that the sources give. Column names and types are stable; each column says what it is."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

_FLAG: Final = BooleanType()
_BYTE: Final = ByteType()
_SHORT: Final = ShortType()
_INT: Final = IntegerType()
_LONG: Final = LongType()
_TEXT: Final = StringType()

Column = tuple[str, DataType, str]


def _table(*columns: Column) -> StructType:
    """All columns are nullable, as Spark makes them of a source's anyway."""
    return StructType([StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns])


_BATCHES_WHERE: Final[tuple[Column, ...]] = (
    ("member", _TEXT, "whose copy: node.id in the meta.properties beside the topics, else the path of their folder"),
    ("file", _TEXT, "path of the segment"),
)
_BATCHES_OF: Final[tuple[Column, ...]] = (
    ("topic", _TEXT, "topic by the name of the segment's folder; null if that is no <topic>-<partition>"),
    ("partition", _INT, "its partition"),
    ("segment_base_offset", _LONG, "offset in the segment's file name; null if it is none"),
)

BATCHES: Final = _table(
    *_BATCHES_WHERE,
    ("position", _LONG, "byte in the file at which the batch starts"),
    *_BATCHES_OF,
    ("base_offset", _LONG, "offset of the first record when it was written; compaction may have removed the record"),
    ("last_offset", _LONG, "offset of the last record when it was written"),
    ("batch_length", _INT, "bytes from the leader epoch to the end; the whole batch has 12 more"),
    ("partition_leader_epoch", _INT, "epoch of the leader that appended it; outside of the CRC"),
    ("magic", _BYTE, "format of the batch, 2"),
    ("crc", _LONG, "CRC-32C, which is right"),
    ("attributes", _SHORT, "the bits of the next five columns and of has_delete_horizon"),
    ("compression", _TEXT, "none, gzip, snappy, lz4 or zstd"),
    ("timestamp_type", _TEXT, "CreateTime or LogAppendTime"),
    ("is_transactional", _FLAG, "part of a transaction, markers included"),
    ("is_control", _FLAG, "holds a control record and no data"),
    ("has_delete_horizon", _FLAG, "the cleaner put into base_timestamp_ms when tombstones and markers may go"),
    ("base_timestamp_ms", _LONG, "milliseconds since the epoch of the first record; see has_delete_horizon"),
    ("max_timestamp_ms", _LONG, "greatest timestamp of a record, -1 if there is none"),
    ("producer_id", _LONG, "-1 without one"),
    ("producer_epoch", _SHORT, "-1 without a producer id"),
    ("base_sequence", _INT, "sequence of the first record, -1 without one"),
    ("last_sequence", _INT, "sequence of the last record, -1 without one; 0 follows 2147483647"),
    ("record_count", _INT, "records in the batch now"),
    ("marker", _TEXT, "commit or abort; null if the batch is no marker of a transaction"),
    ("coordinator_epoch", _INT, "epoch of the transaction coordinator that wrote the marker"),
)

BATCHES_PROBLEMS: Final = _table(
    *_BATCHES_WHERE,
    ("kind", _TEXT, "what is wrong, a word of pipeline.formats.log_segment"),
    ("position", _LONG, "byte at which it is wrong"),
    ("index", _LONG, "null: a segment of Kafka has no log index"),
    ("detail", _TEXT, "what is wrong, for the eye"),
)

BATCHES_FILES: Final = _table(
    *_BATCHES_WHERE,
    *_BATCHES_OF,
    ("bytes", _LONG, "length of the file; null if it cannot be read"),
    ("batches", _LONG, "good batches"),
    ("records", _LONG, "records in them"),
    ("first_offset", _LONG, "base offset of the first good batch; null without one"),
    ("last_offset", _LONG, "last offset of the last good batch"),
    ("max_timestamp_ms", _LONG, "greatest timestamp in a good batch"),
    ("problems", _LONG, "rows of this file in the table problems"),
)

BATCHES_TABLES: Final = {"batches": BATCHES, "problems": BATCHES_PROBLEMS, "files": BATCHES_FILES}
"""Tables of "kafka_segment", the default first."""
