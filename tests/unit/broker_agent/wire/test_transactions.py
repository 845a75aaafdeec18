"""The requests and answers of transactions, against two other codecs in every version."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.broker_agent.kafka.dispatch import DISPATCH, SERVED
from pidkeeper.broker_agent.kafka.wire.transactions import (
    add_partitions_to_txn_response,
    end_txn_response,
    error_response,
)
from pidkeeper.protocol.messages import TransactionTopic
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.primitives import Reader, WireError
from tests.support.kafka_oracles import (
    KAFKA_PYTHON,
    kafka_python_request,
    kafka_python_response,
    kio_nested,
    kio_request,
    kio_response,
)

names = st.text(st.characters(codec="utf-8"), max_size=40)
int32s = st.integers(-(2**31), 2**31 - 1)
producers = st.tuples(names, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**15), 2**15 - 1))
topic_lists = st.lists(st.tuples(names, st.lists(int32s, max_size=5)), max_size=4)
codes = st.sampled_from([0, 14, 42, 47, 48, 49, 51, 90])


def read(frame: bytes) -> tuple[RequestHeader, TransactionStep]:
    reader = Reader(frame)
    header = read_request_header(reader, SERVED)
    return header, DISPATCH[header.api_key].read(reader, header.api_version)


def both(api: str, version: int, fields: dict[str, Any], kio_fields: dict[str, Any] | None = None) -> list[bytes]:
    return [
        kafka_python_request(api, version, -9, "c", **fields),
        kio_request(api, version, -9, "c", **(kio_fields or fields)),
    ]


@given(st.integers(0, 3), producers, topic_lists)
def test_add_partitions(version: int, producer: tuple[str, int, int], topics: list[tuple[str, list[int]]]) -> None:
    names_of_fields = ("transactional_id", "producer_id", "producer_epoch")
    fields: dict[str, Any] = {f"v3_and_below_{n}": v for n, v in zip(names_of_fields, producer, strict=True)}
    topic = KAFKA_PYTHON["add_partitions_to_txn"][0].AddPartitionsToTxnTopic
    kio_topic = kio_nested("add_partitions_to_txn", version, "request", "AddPartitionsToTxnTopic")
    theirs = [topic(version=version, name=name, partitions=numbers) for name, numbers in topics]
    kio_theirs = tuple(kio_topic(name=name, partitions=tuple(numbers)) for name, numbers in topics)
    expected = AddPartitionsToTxn(*producer, [TransactionTopic(*one) for one in topics])
    for frame in both(
        "add_partitions_to_txn",
        version,
        fields | {"v3_and_below_topics": theirs},
        fields | {"v3_and_below_topics": kio_theirs},
    ):
        assert read(frame) == (RequestHeader(24, version, -9, "c"), expected)


@given(st.integers(0, 3), producers, names)
def test_add_offsets(version: int, producer: tuple[str, int, int], group_id: str) -> None:
    fields = {"transactional_id": producer[0], "producer_id": producer[1], "producer_epoch": producer[2]}
    for frame in both("add_offsets_to_txn", version, fields | {"group_id": group_id}):
        assert read(frame) == (RequestHeader(25, version, -9, "c"), AddOffsetsToTxn(*producer, group_id))


@given(st.integers(0, 5), producers, st.booleans())
def test_end(version: int, producer: tuple[str, int, int], committed: bool) -> None:
    fields = {"transactional_id": producer[0], "producer_id": producer[1], "producer_epoch": producer[2]}
    for frame in both("end_txn", version, fields | {"committed": committed}):
        assert read(frame) == (RequestHeader(26, version, -9, "c"), EndTxn(*producer, committed, version >= 5))


@given(st.integers(0, 3), topic_lists, codes)
def test_add_partitions_answers(version: int, topics: list[tuple[str, list[int]]], code: int) -> None:
    header = RequestHeader(24, version, 77, None)
    body = add_partitions_to_txn_response(version, [TransactionTopic(*one) for one in topics], code)
    frame = frame_response(header, SERVED[24], body)[4:]
    expected = [(name, [(number, code) for number in numbers]) for name, numbers in topics]
    response = kafka_python_response("add_partitions_to_txn", version, frame)
    assert expected == [
        (one.name, [(part.partition_index, part.partition_error_code) for part in one.results_by_partition])
        for one in response.results_by_topic_v3_and_below
    ]
    correlation_id, kio = kio_response("add_partitions_to_txn", version, frame)
    assert correlation_id == 77
    assert expected == [
        (one.name, [(part.partition_index, part.partition_error_code.value) for part in one.results_by_partition])
        for one in kio.results_by_topic_v3_and_below
    ]


@pytest.mark.parametrize(("api", "key", "highest"), [("add_offsets_to_txn", 25, 3), ("end_txn", 26, 4)])
@pytest.mark.parametrize("code", [0, 47, 51])
def test_answers_that_are_a_code(api: str, key: int, highest: int, code: int) -> None:
    for version in range(highest + 1):
        body = error_response(code, flexible=SERVED[key].is_flexible(version))
        frame = frame_response(RequestHeader(key, version, 77, None), SERVED[key], body)[4:]
        assert kafka_python_response(api, version, frame).error_code == code
        correlation_id, kio = kio_response(api, version, frame)
        assert (correlation_id, kio.error_code.value) == (77, code)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(("code", "pair"), [(0, (2**40, 7)), (48, (-1, -1))])
def test_answers_to_an_end(version: int, code: int, pair: tuple[int, int]) -> None:
    frame = frame_response(RequestHeader(26, version, 77, None), SERVED[26], end_txn_response(version, code, pair))[4:]
    _, kio = kio_response("end_txn", version, frame)
    assert kio.error_code.value == code == kafka_python_response("end_txn", version, frame).error_code
    if version >= 5:
        assert (kio.producer_id, kio.producer_epoch) == pair


PRODUCER: dict[str, Any] = {"transactional_id": "t", "producer_id": 5, "producer_epoch": 1}
VALID = [
    kafka_python_request(
        "add_partitions_to_txn",
        version,
        1,
        "c",
        **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
        v3_and_below_topics=[
            KAFKA_PYTHON["add_partitions_to_txn"][0].AddPartitionsToTxnTopic(version=version, name="a", partitions=[1])
        ],
    )
    for version in (1, 3)
]
VALID += [kafka_python_request("add_offsets_to_txn", version, 1, "c", **PRODUCER, group_id="g") for version in (1, 3)]
VALID += [kafka_python_request("end_txn", version, 1, "c", **PRODUCER, committed=True) for version in (1, 4, 5)]


@pytest.mark.parametrize("frame", VALID, ids=lambda frame: f"{frame[1]}-{frame[3]}")
def test_every_truncation_and_any_extra_byte_is_refused(frame: bytes) -> None:
    read(frame)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            read(frame[:size])
    with pytest.raises(WireError, match="left over"):
        read(frame + b"\x00")


@given(st.sampled_from(VALID), st.lists(st.tuples(st.integers(9, 60), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_mutated_frame_is_read_or_refused_and_nothing_else(frame: bytes, changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(frame)
    for position, value in changes:
        mutated[position % len(mutated)] = value
    try:
        read(bytes(mutated))
    except WireError:
        return


HEAD_3 = struct.pack(">hhihB", 24, 3, 0, -1, 0) + b"\x02t" + struct.pack(">qh", 5, 1)
HEAD_0 = struct.pack(">hhihh", 24, 0, 0, -1, 1) + b"t" + struct.pack(">qh", 5, 1)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (HEAD_3 + b"\xff\xff\xff\xff\x0f", "array of 4294967294"),
        (HEAD_3 + b"\x82\x20" + bytes(20_000), "array of 4097"),
        (HEAD_3 + b"\x00\x00", "must not be null"),
        (HEAD_3 + b"\x02\x02a\xff\xff\xff\xff\x0f", "array of 4294967294"),
        (HEAD_3 + b"\x02\x02a\x00\x00\x00", "must not be null"),
        (HEAD_3 + b"\x02\x00\x01\x00\x00", "must not be null"),
        (HEAD_0 + struct.pack(">i", 2**31 - 1), "array of 2147483647"),
        (HEAD_0 + struct.pack(">ih1si", 1, 1, b"a", 2**29) + bytes(40), "array of 536870912"),
        (struct.pack(">hhih", 24, 4, 0, -1), "version 4 of API key 24"),
        (struct.pack(">hhih", 25, 4, 0, -1), "version 4 of API key 25"),
        (struct.pack(">hhih", 26, 6, 0, -1), "version 6 of API key 26"),
        (struct.pack(">hhih", 28, 0, 0, -1), "API key 28 is not served"),
    ],
)
def test_malformed(frame: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        read(frame)
