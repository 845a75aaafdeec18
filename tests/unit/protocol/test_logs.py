"""The vocabulary of partition logs: names, sequences, how much a record takes, and numbers that are refused."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.log_messages import CommitObjectRequest, CreateTopicRequest, OfferedBatch
from pidkeeper.protocol.logs import (
    BATCH_BYTES,
    MAX_INT64,
    MAX_OBJECT_BATCHES,
    MAX_OBJECT_BYTES,
    MAX_PARTITIONS,
    MAX_SEQUENCE,
    OBJECT_BYTES,
    TOPIC_BYTES,
    BatchCoordinates,
    BrokerStoreRecord,
    ObjectId,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
    TopicRecord,
    last_sequence,
)
from pidkeeper.protocol.records import Record, decode_batch, encode_batch

SOME = uuid.UUID(int=2**128 - 1)
NAME = ObjectId(MAX_BROKER_ID, MAX_INT64, MAX_INT64)
BATCH = BatchCoordinates(
    MAX_INT64,
    MAX_INT64,
    2**31 - 1,
    MAX_OBJECT_BYTES,
    MAX_OBJECT_BYTES,
    MAX_PRODUCER_ID,
    2**15 - 1,
    MAX_SEQUENCE,
    -MAX_INT64 - 1,
    True,
)
RECORDS: list[Record] = [
    BrokerStoreRecord(MAX_BROKER_ID, MAX_INT64, SOME),
    TopicRecord(SOME, "t", MAX_PARTITIONS, MAX_INT64, MAX_INT64, -1, -1),
    RemoveTopicRecord(SOME, MAX_INT64),
    ObjectRecord(NAME, MAX_OBJECT_BYTES, (MAX_INT64, -49), (BATCH,), MAX_INT64),
    ProducersExpiredRecord(((0, MAX_PRODUCER_ID), (MAX_INT64, 0))),
    ObjectRecord(NAME, MAX_OBJECT_BYTES, (-3,), (), MAX_INT64),
    ObjectsDeletedRecord((0, MAX_INT64), MAX_INT64),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_went(record: Record) -> None:
    assert decode_batch(encode_batch([record])) == [record]


@pytest.mark.parametrize("count", [1, MAX_OBJECT_BATCHES])
def test_the_largest_records_take_no_more_than_is_said(count: int) -> None:
    whole = ObjectRecord(NAME, MAX_OBJECT_BYTES, (MAX_INT64,) * count, (BATCH,) * count, MAX_INT64)
    assert len(encode_batch([whole])) <= OBJECT_BYTES + count * BATCH_BYTES
    topic = TopicRecord(SOME, "x" * 249, MAX_PARTITIONS, MAX_INT64, MAX_INT64, MAX_INT64, MAX_INT64)
    assert len(encode_batch([topic])) <= TOPIC_BYTES + 249


@pytest.mark.parametrize(
    ("base", "records", "last"),
    [(0, 1, 0), (5, 3, 7), (MAX_SEQUENCE, 1, MAX_SEQUENCE), (MAX_SEQUENCE, 2, 0), (MAX_SEQUENCE - 1, 4, 1)],
)
def test_zero_follows_the_last_sequence(base: int, records: int, last: int) -> None:
    assert last_sequence(base, records) == last


def test_the_name_of_an_object_sorts_by_its_number() -> None:
    names = [ObjectId(1, 2, number).path(SOME) for number in (9, 10, MAX_INT64)]
    assert names == sorted(names)
    assert names[0] == f"wal/{SOME}/1/2/00000000000000000009"


def commit(**more: Any) -> dict[str, Any]:
    batch = [0, 1, 0, 1, -1, -1, -1, 0, False]
    wanted = {"broker_id": 1, "broker_epoch": 1, "founding_id": str(SOME), "number": 1, "size": 1, "batches": [batch]}
    return wanted | more


def batch(index: int, value: int) -> dict[str, Any]:
    (whole,) = commit()["batches"]
    return commit(batches=[[*whole[:index], value, *whole[index + 1 :]]])


TOO_LARGE = [commit(number=MAX_INT64 + 1), commit(broker_epoch=2**64), batch(0, 2**64)]
TOO_LARGE += [batch(7, time) for time in (MAX_INT64 + 1, 2**70, -MAX_INT64 - 2)]


@pytest.mark.parametrize("wanted", TOO_LARGE)
def test_a_number_that_no_column_holds_is_refused(wanted: dict[str, Any]) -> None:
    """Replayed, it would stop each member, whenever it starts again."""
    assert msgspec.json.decode(encoded(commit()), type=CommitObjectRequest).batches[0] == OfferedBatch(
        0, 1, 0, 1, -1, -1, -1, 0, False
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encoded(wanted), type=CommitObjectRequest)


@pytest.mark.parametrize("field", ["retention_ms", "retention_bytes"])
def test_a_retention_that_no_record_holds_is_refused(field: str) -> None:
    wanted = {"topic_id": str(SOME), "name": "t", "partitions": 1}
    assert getattr(msgspec.convert(wanted | {field: MAX_INT64}, CreateTopicRequest), field) == MAX_INT64
    for value in (MAX_INT64 + 1, 2**64, -2):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(encoded(wanted | {field: value}), type=CreateTopicRequest)


def encoded(wanted: dict[str, Any]) -> str:
    """As JSON, whose numbers have no bound."""
    return json.dumps(wanted)
