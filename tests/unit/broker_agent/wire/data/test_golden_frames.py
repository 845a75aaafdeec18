"""Frames worked out by hand from Kafka's message definitions: they would show an error that all codecs share."""

from __future__ import annotations

from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import frame_pieces
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    PartitionAppend,
    PartitionRecords,
    ProduceRequest,
    RecordError,
    TopicAppend,
    TopicRecords,
    produce_response,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.versions import FETCH
from tests.support.data_codecs import VERSIONS, read

RECORDS = b"\xaa\xbb\xcc"


def test_produce_3() -> None:
    frame = bytes.fromhex(
        "0000 0003 00000011 0001 63"  # key, version, correlation id, client id "c"
        "ffff 0001 00007530"  # no transactional id, acks 1, timeout 30000 ms
        "00000001 0001 74 00000001 00000002 00000003 aabbcc"  # a topic "t", its partition 2, 3 bytes
    )
    header, request = read(frame)
    assert header == RequestHeader(0, 3, 17, "c")
    topics = [TopicRecords("t", [PartitionRecords(2, memoryview(RECORDS))])]
    assert request == ProduceRequest(None, 1, 30_000, topics)


def test_produce_9() -> None:
    frame = bytes.fromhex(
        "0000 0009 00000011 0001 63 00"  # as above, and no tagged field
        "03 7478 ffff 00007530"  # transactional id "tx", acks -1, timeout
        "02 02 74 02 00000002 04 aabbcc 00 00 00"  # lengths plus one; no tags of partition, topic, body
    )
    topics = [TopicRecords("t", [PartitionRecords(2, memoryview(RECORDS))])]
    assert read(frame)[1] == ProduceRequest("tx", -1, 30_000, topics)


def test_an_answer_of_produce_8() -> None:
    partition = PartitionAppend(2, 87, 5, 1, [RecordError(3, None)], "no")
    assert produce_response(8, [TopicAppend("t", [partition])], 6) == bytes.fromhex(
        "00000001 0001 74 00000001"
        "00000002 0057 0000000000000005 ffffffffffffffff 0000000000000001"  # index, error, base, append time, log start
        "00000001 00000003 ffff 0002 6e6f"  # record 3 is wrong, without a message; the batch's message
        "00000006"
    )


def test_fetch_12() -> None:
    frame = bytes.fromhex(
        "0001 000c 00000011 ffff 00"
        "ffffffff 000001f4 00000001 03200000 01 00000000 ffffffff"  # replica, wait, least, most, level, session
        "02 02 74 02 00000002 ffffffff 0000000000000009 fffffffe 0000000000000008 00100000 00 00"
        "01 02 72 01 00 02 02 63"  # nothing forgotten, rack "r", a tag: cluster id "c" in two bytes
    )
    wanted = [FetchTopic("t", [FetchPartition(2, 9, 1 << 20, -1, -2)])]
    level = IsolationLevel.READ_COMMITTED
    assert read(frame)[1] == FetchRequest(-1, 500, 1, 52_428_800, level, wanted, rack_id="r")


def test_an_answer_of_fetch_12() -> None:
    partition = FetchedPartition(2, 0, 9, 8, 1, [AbortedTransaction(7, 5)], [RECORDS[:1], memoryview(RECORDS)[1:]])
    pieces = fetch_response(12, [FetchedTopic("t", [partition])])
    body = (
        "00000000 0000 00000000 02 02 74 02"
        "00000002 0000 0000000000000009 0000000000000008 0000000000000001"
        "02 0000000000000007 0000000000000005 00 ffffffff"  # an aborted transaction, no preferred replica
        "04 aabbcc 00 00 00"
    )
    framed = b"".join(frame_pieces(RequestHeader(FETCH, 12, 17, None), VERSIONS[FETCH], pieces))
    assert framed == bytes.fromhex("0000004e 00000011 00" + body)


def test_an_answer_of_fetch_4() -> None:
    partition = FetchedPartition(2, 1)
    assert b"".join(fetch_response(4, [FetchedTopic("t", [partition])])) == bytes.fromhex(
        "00000000 00000001 0001 74 00000001 00000002 0001 ffffffffffffffff ffffffffffffffff ffffffff 00000000"
    )
