"""The records in the entries of a log, as rows of one width: a column that a type of record does not have is None."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pidkeeper.pipeline.formats.problems import MALFORMED, Problem
from pidkeeper.pipeline.formats.write_ahead_log import LogEntry
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord, SuccessionRecord
from pidkeeper.protocol.groups import GroupRecord, OffsetsRecord, RemoveGroupRecord, RemoveOffsetsRecord
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.logs import (
    BrokerStoreRecord,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pidkeeper.protocol.migration import MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    Record,
    RecordError,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    decode_batch,
)
from pidkeeper.protocol.segments import CollectionReleasedRecord, LogStartsRecord, SegmentRecord
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionalBlockRecord,
    TransactionRecord,
)

INT64: Final = range(-(2**63), 2**63)
"""What a column of a table takes; a foreign file may hold any number."""


class RecordRow(msgspec.Struct, frozen=True, gc=False):
    """One record. `position`: of its entry's frame. `record_number`: within its entry. `digest`: a sum of what a
    record of a group says. `logs.RECORDS` has the same columns."""

    segment: str
    position: int
    index: int
    term: int
    offset: int | None
    record_number: int
    record_type: str
    committed: bool
    first_id: int | None = None
    last_id: int | None = None
    broker_id: int | None = None
    broker_epoch: int | None = None
    incarnation_id: str | None = None
    fenced: bool | None = None
    kafka: str | None = None
    next_producer_id: int | None = None
    metadata_version: int | None = None
    leader_id: int | None = None
    voters: str | None = None
    phase: str | None = None
    claimed_by: str | None = None
    znode_version: int | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transaction_status: int | None = None
    founding_id: str | None = None
    predecessor: str | None = None
    held_to: int | None = None
    group_id: str | None = None
    digest: str | None = None
    timestamp_ms: int | None = None


def sum_of(value: Any) -> str:
    """Of a record or of a part of a snapshot: equal ones have equal sums, whichever member's they are."""
    return hashlib.blake2b(msgspec.msgpack.encode(value), digest_size=8).hexdigest()


def _renamed(**names: str) -> Callable[[Any], dict[str, Any]]:
    """Reads columns from a record's fields; `names`: column by field."""
    return lambda record: {column: getattr(record, field) for field, column in names.items()}


def _migration(record: MigrationRecord) -> dict[str, Any]:
    return {
        "phase": record.phase.name,
        "claimed_by": record.claimed_by,
        "znode_version": record.znode_version,
        "timestamp_ms": record.timestamp_ms,
    }


def _founding(record: FoundingRecord) -> dict[str, Any]:
    return {"founding_id": str(record.founding_id), "timestamp_ms": record.timestamp_ms}


def _succession(record: SuccessionRecord) -> dict[str, Any]:
    return {
        "founding_id": str(record.founding_id),
        "predecessor": str(record.predecessor),
        "next_producer_id": record.floor,
        "timestamp_ms": record.timestamp_ms,
    }


def _evidence(record: EvidenceRecord) -> dict[str, Any]:
    return {
        "broker_id": record.broker_id,
        "founding_id": str(record.founding_id),
        "held_to": record.highest_producer_id,
        "timestamp_ms": record.timestamp_ms,
    }


def _object(record: ObjectRecord | SegmentRecord) -> dict[str, Any]:
    name = record.object
    return {"broker_id": name.broker_id, "broker_epoch": name.broker_epoch, "timestamp_ms": record.timestamp_ms}


def _of_group(**names: str) -> Callable[[Any], dict[str, Any]]:
    """The same of a record of a group, with a sum of all that it says."""
    columns = _renamed(**names, group_id="group_id", timestamp_ms="timestamp_ms")
    return lambda record: columns(record) | {"digest": sum_of(record)}


_PLAIN_OFFSETS: Final = _of_group()
_HELD_OFFSETS: Final = _of_group(producer_id="producer_id", producer_epoch="producer_epoch")


def _offsets(record: OffsetsRecord) -> dict[str, Any]:
    return (_PLAIN_OFFSETS if record.producer_id == NO_PRODUCER_ID else _HELD_OFFSETS)(record)


def _voters(record: VotersRecord) -> dict[str, Any]:
    return {"voters": msgspec.json.encode(record.members).decode()}


_BROKER: Final = {"broker_id": "broker_id", "broker_epoch": "broker_epoch"}
_COLUMNS: Final[dict[type[Any], Callable[[Any], dict[str, Any]]]] = {
    LeaderChangeRecord: _renamed(leader_id="leader_id"),
    AllocateProducerIdsRecord: _renamed(
        **_BROKER, producer_id_start="first_id", producer_id_end="last_id", timestamp_ms="timestamp_ms"
    ),
    BrokerStoreRecord: _renamed(**_BROKER),
    TopicRecord: _renamed(timestamp_ms="timestamp_ms"),
    RemoveTopicRecord: _renamed(timestamp_ms="timestamp_ms"),
    ObjectRecord: _object,
    ProducersExpiredRecord: _renamed(),
    ObjectsDeletedRecord: _renamed(timestamp_ms="timestamp_ms"),
    SegmentRecord: _object,
    LogStartsRecord: _renamed(timestamp_ms="timestamp_ms"),
    CollectionReleasedRecord: _renamed(timestamp_ms="timestamp_ms"),
    GroupRecord: _of_group(**_BROKER),
    RemoveGroupRecord: _of_group(),
    OffsetsRecord: _offsets,
    RemoveOffsetsRecord: _of_group(),
    TransactionalBlockRecord: _renamed(
        **_BROKER, producer_id_start="first_id", producer_id_end="last_id", timestamp_ms="timestamp_ms"
    ),
    RegisterBrokerRecord: _renamed(**_BROKER, incarnation_id="incarnation_id"),
    UnregisterBrokerRecord: _renamed(**_BROKER),
    BrokerRegistrationChangeRecord: _renamed(**_BROKER, fenced="fenced"),
    ProducerIdFloorRecord: _renamed(next_producer_id="next_producer_id", timestamp_ms="timestamp_ms"),
    VotersRecord: _voters,
    FeatureLevelRecord: _renamed(metadata_version="metadata_version"),
    TransactionRecord: _renamed(
        transactional_id="transactional_id",
        producer_id="producer_id",
        producer_epoch="producer_epoch",
        status="transaction_status",
        update_ms="timestamp_ms",
    ),
    AddPartitionsRecord: _renamed(
        transactional_id="transactional_id",
        producer_id="producer_id",
        producer_epoch="producer_epoch",
        update_ms="timestamp_ms",
    ),
    ForgetTransactionRecord: _renamed(transactional_id="transactional_id"),
    BrokerEndpointRecord: _renamed(**_BROKER, kafka="kafka"),
    MigrationRecord: _migration,
    FoundingRecord: _founding,
    SuccessionRecord: _succession,
    EvidenceRecord: _evidence,
    EvidenceDismissedRecord: _renamed(broker_id="broker_id", timestamp_ms="timestamp_ms"),
    ZooKeeperBlockRecord: _renamed(
        next_producer_id="next_producer_id",
        broker_id="broker_id",
        znode_version="znode_version",
        timestamp_ms="timestamp_ms",
    ),
}


def entry_records(entry: LogEntry) -> Sequence[Record] | Problem:
    """The records of one entry."""
    try:
        return decode_batch(entry.payload) if entry.payload else ()
    except RecordError as error:
        return _problem(entry, str(error))


def record_rows(entry: LogEntry, records: Sequence[Record] | Problem | None = None) -> Iterator[RecordRow | Problem]:
    """The records of one entry, and what is wrong with them: an entry that cannot be decoded gives no row at all.

    records: those of `entry_records`, where somebody has asked for them already.
    """
    records = entry_records(entry) if records is None else records
    if isinstance(records, Problem):
        yield records
        return
    for number, record in enumerate(records):
        yield from _record(entry, number, record)


def _record(entry: LogEntry, number: int, record: Record) -> Iterator[RecordRow | Problem]:
    columns = _COLUMNS[type(record)](record)
    too_large = [name for name, value in columns.items() if isinstance(value, int) and value not in INT64]
    if too_large:
        yield _problem(entry, f"record {number}: {too_large[0]} {columns[too_large[0]]} does not fit into 64 bits")
        return
    if columns.get("last_id") is not None and not columns["first_id"] <= columns["last_id"] < MAX_PRODUCER_ID:
        yield _problem(entry, f"record {number}: no block has IDs {columns['first_id']} to {columns['last_id']}")
        return
    if isinstance(record, AllocateProducerIdsRecord):
        ids = record.producer_id_end - record.producer_id_start + 1
        if ids != record.length:
            yield _problem(
                entry,
                f"record {number}: {record.length} IDs from {record.producer_id_start} do not end at "
                f"{record.producer_id_end}",
            )
    offset = None if entry.offset is None else entry.offset + number
    yield RecordRow(
        entry.segment,
        entry.position,
        entry.index,
        entry.term,
        offset,
        number,
        type(record).__name__,
        entry.committed,
        **columns,
    )


def _problem(entry: LogEntry, detail: str) -> Problem:
    return Problem(entry.segment, MALFORMED, entry.position, detail, entry.index)
