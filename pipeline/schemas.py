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


_MEMBER: Final[Column] = ("member", _TEXT, "whose copy: the node id in meta.json, else the path of the folder")
_CLUSTER: Final[Column] = ("cluster_id", _TEXT, "the cluster id in the file's header")
_FILE: Final[Column] = ("file", _TEXT, "path of the file")
_POSITION: Final[Column] = ("position", _LONG, "byte in the file at which the row stands")

PROBLEMS: Final = _table(
    _MEMBER,
    _FILE,
    ("kind", _TEXT, "what is wrong, a word of pipeline.formats.problems"),
    ("position", _LONG, "byte at which it is wrong"),
    ("index", _LONG, "first log index in doubt; null outside of the log"),
    ("detail", _TEXT, "what is wrong, for the eye"),
)

ARCHIVE_BLOCKS: Final = _table(
    _MEMBER,
    _CLUSTER,
    _FILE,
    _POSITION,
    ("first_id", _LONG, "first producer ID of the block"),
    ("last_id", _LONG, "last producer ID of the block, inclusive"),
    ("offset", _LONG, "log offset of the allocation's record"),
    ("broker_id", _INT, "whom the block was given to; -1: the quorum, for its transactional producers"),
    ("broker_epoch", _LONG, "the broker's registration at that time; -1 without a broker"),
    ("timestamp_ms", _LONG, "the leader's wall clock at the decision, milliseconds since the epoch"),
)

ARCHIVE_FILES: Final = _table(
    _MEMBER,
    _CLUSTER,
    _FILE,
    ("bytes", _LONG, "length of the file"),
    ("from_offset", _LONG, "first log offset covered"),
    ("to_offset", _LONG, "log offset after the last one covered"),
    ("rows", _LONG, "blocks in the file"),
    ("first_id", _LONG, "lowest producer ID; null without rows"),
    ("last_id", _LONG, "highest producer ID; null without rows"),
    ("superseded", _FLAG, "a wider file holds all of its offsets: a crash left it behind a merge"),
)

ARCHIVE_SNAPSHOTS: Final = _table(
    _MEMBER,
    _CLUSTER,
    _FILE,
    ("bytes", _LONG, "length of the file"),
    ("index", _LONG, "log index of the last entry covered"),
    ("term", _LONG, "its term"),
    ("metadata_version", _INT, "metadata version in force"),
    ("next_offset", _LONG, "log offset of the next record"),
    ("next_producer_id", _LONG, "lowest producer ID never handed out"),
    ("last_first_id", _LONG, "first ID of the newest block; null while there is none, as the next five"),
    ("last_last_id", _LONG, "last ID of the newest block, inclusive"),
    ("last_broker_id", _INT, "whom the newest block was given to, as above"),
    ("last_broker_epoch", _LONG, "that broker's registration"),
    ("last_offset", _LONG, "log offset of the newest block's record"),
    ("last_timestamp_ms", _LONG, "the leader's wall clock at that decision"),
    ("brokers", _INT, "broker registrations"),
    ("transactions", _INT, "transactional ids"),
    ("voters", _TEXT, "the members as JSON; null while they are the configured ones"),
    ("phase", _TEXT, "phase of the migration from ZooKeeper; null without one"),
    ("claimed_by", _TEXT, "name under which the quorum claims in ZooKeeper; null without a migration"),
    ("founding_id", _TEXT, "the uuid of the quorum's founding; null before its record"),
)

LOG_RECORDS: Final = _table(
    _MEMBER,
    _CLUSTER,
    _FILE,
    ("segment", _TEXT, "name of the segment"),
    ("position", _LONG, "byte in the segment at which the record's entry stands"),
    ("index", _LONG, "log index of the entry"),
    ("term", _LONG, "term of the entry"),
    ("offset", _LONG, "log offset of the record; null where the log starts behind the last snapshot beside it"),
    ("record_number", _INT, "number of the record within its entry, from 0"),
    ("record_type", _TEXT, "name of its class in protocol.records"),
    ("committed", _FLAG, "whether this member had recorded that the entry is committed"),
    ("first_id", _LONG, "allocation: first producer ID"),
    ("last_id", _LONG, "allocation: last producer ID, inclusive"),
    ("broker_id", _INT, "the broker, -1: the quorum; in a ZooKeeper block who wrote the znode, -1: a controller"),
    ("broker_epoch", _LONG, "the broker's registration"),
    ("incarnation_id", _TEXT, "registration: the broker's process"),
    ("fenced", _FLAG, "registration change: whether the broker is fenced"),
    ("kafka", _TEXT, "endpoint: host:port where Kafka clients reach the broker"),
    ("next_producer_id", _LONG, "floor and ZooKeeper block: no ID below it is handed out from here on"),
    ("metadata_version", _INT, "feature level: the version in force from here on"),
    ("leader_id", _LONG, "leader change: who leads"),
    ("voters", _TEXT, "voters: the members as JSON"),
    ("phase", _TEXT, "migration: the phase from here on"),
    ("claimed_by", _TEXT, "migration: name under which the quorum claims"),
    ("znode_version", _INT, "migration and ZooKeeper block: version of the znode, -1 without one"),
    ("transactional_id", _TEXT, "transaction: whose"),
    ("producer_id", _LONG, "transaction: its producer ID"),
    ("producer_epoch", _INT, "transaction: its producer epoch"),
    ("transaction_status", _INT, "transaction: Kafka's number of its state"),
    ("founding_id", _TEXT, "founding and evidence: the uuid of the founding"),
    ("predecessor", _TEXT, "succession: the uuid of the founding whose place the quorum took"),
    ("held_to", _LONG, "evidence: the highest producer ID that the broker says it holds"),
    ("timestamp_ms", _LONG, "the leader's wall clock, milliseconds since the epoch"),
)

LOG_FILES: Final = _table(
    _MEMBER,
    _CLUSTER,
    _FILE,
    ("number", _LONG, "number of the segment"),
    ("first_sequence", _LONG, "sequence number of its first batch"),
    ("batches", _LONG, "good batches"),
    ("first_index", _LONG, "log index of its first entry frame, replaced ones included; null without one"),
    ("last_index", _LONG, "log index of its last entry frame"),
    ("end", _LONG, "byte after its last good batch"),
    ("commit_index", _LONG, "the log's newest recorded commit index, the same for all of its segments"),
)

ARCHIVE_TABLES: Final = {
    "blocks": ARCHIVE_BLOCKS,
    "snapshots": ARCHIVE_SNAPSHOTS,
    "files": ARCHIVE_FILES,
    "problems": PROBLEMS,
}
"""Tables of "pidkeeper_archive", the default first."""

LOG_TABLES: Final = {"records": LOG_RECORDS, "files": LOG_FILES, "problems": PROBLEMS}
"""Tables of "pidkeeper_log", the default first."""

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

BATCHES_TABLES: Final = {"batches": BATCHES, "problems": PROBLEMS, "files": BATCHES_FILES}
"""Tables of "kafka_segment", the default first."""
