"""Rows of every type of record, next to what the product's dump of the same log says."""

from __future__ import annotations

import io
import uuid
from typing import Any

import msgspec
import pytest

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.storage.dump import DumpedFrame, dump_log
from pidkeeper.pipeline.formats.log_records import RecordRow, record_rows, sum_of
from pidkeeper.pipeline.formats.problems import MALFORMED, Problem
from pidkeeper.pipeline.formats.write_ahead_log import LogDirectory, LogEntry, read_entries, survey_log
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord, SuccessionRecord
from pidkeeper.protocol.groups import (
    GroupMember,
    GroupRecord,
    OffsetsRecord,
    PartitionOffset,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
    TopicOffsets,
)
from pidkeeper.protocol.logs import (
    BatchCoordinates,
    BrokerStoreRecord,
    ObjectId,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    _RECORD_CLASSES,
    AllocateProducerIdsRecord,
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    QuorumMember,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    VotersRecord,
    encode_batch,
)
from pidkeeper.protocol.segments import CollectionReleasedRecord, LogStartsRecord, SegmentName, SegmentRecord
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionalBlockRecord,
    TransactionRecord,
)
from tests.support.log_builder import META, WAL, hard_state, new_disk, open_log, segments

VOTER = QuorumMember(1, None, "127.0.0.1:1", "http://127.0.0.1:2", True)
FOUNDING_ID = uuid.UUID(int=3)
OFFSETS = (TopicOffsets("t", (PartitionOffset(0, 5, -1, ""),)),)
EVERY: list[tuple[Record, dict[str, Any]]] = [
    (LeaderChangeRecord(3), {"leader_id": 3}),
    (
        AllocateProducerIdsRecord(7, 40, 1999, 1000, 1000, 1_700_000_000_000),
        {"broker_id": 7, "broker_epoch": 40, "first_id": 1000, "last_id": 1999, "timestamp_ms": 1_700_000_000_000},
    ),
    (RegisterBrokerRecord(7, 40, "one"), {"broker_id": 7, "broker_epoch": 40, "incarnation_id": "one"}),
    (UnregisterBrokerRecord(7, 40), {"broker_id": 7, "broker_epoch": 40}),
    (BrokerRegistrationChangeRecord(7, 40, True), {"broker_id": 7, "broker_epoch": 40, "fenced": True}),
    (ProducerIdFloorRecord(5000, 12), {"next_producer_id": 5000, "timestamp_ms": 12}),
    (VotersRecord((VOTER,)), {"voters": msgspec.json.encode((VOTER,)).decode()}),
    (FeatureLevelRecord(4), {"metadata_version": 4}),
    (
        TransactionRecord("t", 9, 2, 8, 1, 60_000, 1, 13),
        {
            "transactional_id": "t",
            "producer_id": 9,
            "producer_epoch": 2,
            "transaction_status": 1,
            "timestamp_ms": 13,
        },
    ),
    (
        AddPartitionsRecord("t", 9, 2, (TopicPartitions("u", (1,)),), 14),
        {"transactional_id": "t", "producer_id": 9, "producer_epoch": 2, "timestamp_ms": 14},
    ),
    (ForgetTransactionRecord("t"), {"transactional_id": "t"}),
    (BrokerEndpointRecord(7, 40, "h:9"), {"broker_id": 7, "broker_epoch": 40, "kafka": "h:9"}),
    (
        MigrationRecord(MigrationPhase.FINALIZING, "pidkeeper/c/1", 6, 14),
        {"phase": "FINALIZING", "claimed_by": "pidkeeper/c/1", "znode_version": 6, "timestamp_ms": 14},
    ),
    (
        TransactionalBlockRecord(3000, 3999, 16),
        {"broker_id": -1, "broker_epoch": -1, "first_id": 3000, "last_id": 3999, "timestamp_ms": 16},
    ),
    (FoundingRecord(FOUNDING_ID, 1000, False, 17), {"founding_id": str(FOUNDING_ID), "timestamp_ms": 17}),
    (
        EvidenceRecord(7, FOUNDING_ID, 8999, 18),
        {"broker_id": 7, "founding_id": str(FOUNDING_ID), "held_to": 8999, "timestamp_ms": 18},
    ),
    (
        SuccessionRecord(FOUNDING_ID, uuid.UUID(int=8), 5000, 20),
        {
            "founding_id": str(FOUNDING_ID),
            "predecessor": str(uuid.UUID(int=8)),
            "next_producer_id": 5000,
            "timestamp_ms": 20,
        },
    ),
    (BrokerStoreRecord(7, 40, FOUNDING_ID), {"broker_id": 7, "broker_epoch": 40}),
    (TopicRecord(FOUNDING_ID, "t", 1, 0, -1, -1, 21), {"timestamp_ms": 21}),
    (RemoveTopicRecord(FOUNDING_ID, 22), {"timestamp_ms": 22}),
    (
        ObjectRecord(
            ObjectId(7, 40, 0), 80, (0,), (BatchCoordinates(0, 0, 1, 0, 80, -1, -1, -1, 5, transactional=False),), 23
        ),
        {"broker_id": 7, "broker_epoch": 40, "timestamp_ms": 23},
    ),
    (ProducersExpiredRecord(((0, 9),)), {}),
    (ObjectsDeletedRecord((0,), 25), {"timestamp_ms": 25}),
    (
        SegmentRecord(ObjectId(7, 40, 3), 0, SegmentName("t", 0, 0), 9, 100, 10, 5, 2, 26),
        {"broker_id": 7, "broker_epoch": 40, "timestamp_ms": 26},
    ),
    (LogStartsRecord(((0, 9),), 27), {"timestamp_ms": 27}),
    (CollectionReleasedRecord((FOUNDING_ID,), 28), {"timestamp_ms": 28}),
    (
        GroupRecord("g", -1, 1, "consumer", (GroupMember("m", None, "c", "h"),), 7, 40, 29),
        {"broker_id": 7, "broker_epoch": 40, "group_id": "g", "timestamp_ms": 29},
    ),
    (RemoveGroupRecord("g", 30), {"group_id": "g", "timestamp_ms": 30}),
    (
        OffsetsRecord("g", 9, 2, OFFSETS, 31),
        {"producer_id": 9, "producer_epoch": 2, "group_id": "g", "timestamp_ms": 31},
    ),
    (OffsetsRecord("g", -1, -1, OFFSETS, 32), {"group_id": "g", "timestamp_ms": 32}),
    (RemoveOffsetsRecord("g", (TopicPartitions("t", (0,)),), 33), {"group_id": "g", "timestamp_ms": 33}),
    (EvidenceDismissedRecord(7, 19), {"broker_id": 7, "timestamp_ms": 19}),
    (
        ZooKeeperBlockRecord(3000, -1, 6, 15),
        {"next_producer_id": 3000, "broker_id": -1, "znode_version": 6, "timestamp_ms": 15},
    ),
]


def entry(payload: bytes, offset: int | None = 100) -> LogEntry:
    return LogEntry(5, 2, payload, "one.wal", 160, offset, True)


def row(number: int, record: Record, columns: dict[str, Any], offset: int | None) -> RecordRow:
    if "group_id" in columns:
        columns = columns | {"digest": sum_of(record)}
    return RecordRow("one.wal", 160, 5, 2, offset, number, type(record).__name__, True, **columns)


@pytest.mark.parametrize(("record", "columns"), EVERY, ids=lambda value: type(value).__name__)
def test_every_type_of_record_fills_the_columns_that_it_has(record: Record, columns: dict[str, Any]) -> None:
    assert list(record_rows(entry(encode_batch([record])))) == [row(0, record, columns, 100)]


def test_no_type_of_record_is_forgotten() -> None:
    assert {type(record) for record, _ in EVERY} == set(_RECORD_CLASSES)


def test_records_of_one_entry_are_numbered_and_have_an_offset_each() -> None:
    several = [(record, columns) for record, columns in EVERY if not isinstance(record, VotersRecord)]
    payload = encode_batch([record for record, _ in several])
    for start in (100, None):
        rows = [row(n, *one, None if start is None else start + n) for n, one in enumerate(several)]
        assert list(record_rows(entry(payload, start))) == rows


def test_an_entry_without_records_gives_no_row() -> None:
    assert list(record_rows(entry(b""))) == []


@pytest.mark.parametrize("payload", [b"junk", msgspec.msgpack.encode([(99, 0, [1])]), encode_batch([EVERY[0][0]])[:-1]])
def test_an_entry_that_cannot_be_decoded_is_reported_with_its_place(payload: bytes) -> None:
    (problem,) = list(record_rows(entry(payload)))
    assert isinstance(problem, Problem)
    assert (problem.file, problem.kind, problem.position, problem.index) == ("one.wal", MALFORMED, 160, 5)


def test_a_block_whose_ends_and_length_differ_is_reported_and_given_as_it_stands() -> None:
    record = AllocateProducerIdsRecord(7, 40, 1998, 1000, 1000, 1)
    problem, given = list(record_rows(entry(encode_batch([record]))))
    assert isinstance(problem, Problem)
    assert "1000 IDs from 1000 do not end at 1998" in problem.detail
    assert isinstance(given, RecordRow)
    assert (given.first_id, given.last_id) == (1000, 1998)


def test_a_number_beyond_64_bits_with_sign_is_reported_instead_of_cut() -> None:
    (problem,) = list(record_rows(entry(encode_batch([UnregisterBrokerRecord(7, 2**63)]))))
    assert isinstance(problem, Problem)
    assert f"broker_epoch {2**63} does not fit" in problem.detail


def test_a_log_gives_the_records_that_its_dump_shows() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append([], hard_state())
    for index, (record, _) in enumerate(EVERY, 1):
        log.append([Entry(1, index, encode_batch([record]))], None)
    log.close()
    dumped = [frame for frame in dump_log(files, WAL) if isinstance(frame, DumpedFrame)]
    directory = LogDirectory(
        segments(files),
        lambda name: io.BytesIO(files.read_bytes(WAL / name)),
        (META.cluster_id, META.directory_id),
    )
    found = [
        one
        for item in read_entries(survey_log(directory), {})
        if isinstance(item, LogEntry)
        for one in record_rows(item)
    ]
    expected = [
        (frame.segment, frame.offset, frame.term, frame.index, type(frame.records[0]).__name__)
        for frame in dumped
        if frame.type == "entry"
    ]
    assert len(expected) == len(EVERY)
    got = [
        (one.segment, one.position, one.term, one.index, one.record_type) for one in found if isinstance(one, RecordRow)
    ]
    assert got == expected
