"""A head that was met is read as it was the first time, whatever comes behind it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA
from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.known_produces import MAX_HEAD_BYTES, MAX_HEADS, MAX_SIZES, KnownProduces
from pidkeeper.broker_agent.kafka.wire.data.produce import ProduceRequest, read_produce_request
from pidkeeper.service.kafka.wire.headers import RequestHeader, read_request_header
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.support.data_codecs import versions_of
from tests.support.plain_messages import requests

VERSIONS = versions_of("produce")
Read = tuple[RequestHeader, ProduceRequest]


def frame(version: int = 9, records: bytes | None = b"records", **message: Any) -> bytes:
    """One with a partition; `name`, `index`: which one."""
    partition = {"index": message.pop("index", 0), "records": records}
    topic = {"name": message.pop("name", "t"), "partition_data": [partition]}
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 5, "topic_data": [topic], **message}
    body = requests("produce", version, asked)[0]
    return struct.pack(">i", len(body)) + body


def plainly(data: bytes, known: KnownProduces | None = None, start: int = 0) -> Read:
    """What a frame says, read from its beginning to its end. Raises WireError."""
    reader = RecordsReader(data, start=start + 4)
    header = read_request_header(reader, WITH_DATA.served)
    request = read_produce_request(reader, header.api_version)
    if known is not None:
        known.learn(data, start, reader.records_at, header, request)
    return header, request


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_of_a_producer_is_known(version: int) -> None:
    known = KnownProduces()
    first, second = (frame(version, records, transactional_id="x") for records in (b"one", bytes(200)))
    second = second[:8] + struct.pack(">i", -7) + second[12:]
    assert known.read(first, 0, len(first)) is None
    plainly(first, known)
    between = b"before" + second + b"behind"
    found = known.read(between, 6, 6 + len(second))
    assert found == plainly(second)
    assert found is not None and found[0].correlation_id == -7


@pytest.mark.parametrize(
    "other", [{"acks": 1}, {"timeout_ms": 6}, {"index": 1}, {"name": "u"}, {"transactional_id": "x"}, {"version": 10}]
)
def test_another_head_is_not_known(other: dict[str, Any]) -> None:
    known = KnownProduces()
    plainly(frame(), known)
    data = frame(**other)
    assert known.read(data, 0, len(data)) is None


parts = st.tuples(
    st.sampled_from(VERSIONS), st.none() | st.binary(max_size=200), st.sampled_from("tu"), st.integers(0, 1)
)
damage = st.none() | st.tuples(st.integers(0), st.integers(0, 255))


@given(st.lists(st.tuples(parts, damage, st.integers(0, 3)), max_size=12))
def test_what_is_known_is_what_is_read(history: list[tuple[Any, tuple[int, int] | None, int]]) -> None:
    known = KnownProduces()
    for (version, records, name, index), hit, cut in history:
        data = bytearray(frame(version, records, name=name, index=index))
        if hit is not None:
            data[hit[0] % len(data)] = hit[1]
        whole = bytes(data[: len(data) - cut])
        found = known.read(whole, 0, len(whole)) if whole[4:6] == b"\0\0" else None
        try:
            expected = plainly(whole, known)
        except WireError:
            assert found is None
        else:
            assert found in (None, expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_that_reaches_into_the_next_frame_is_none(version: int) -> None:
    known = KnownProduces()
    data = frame(version)
    plainly(data, known)
    for end in range(8, len(data)):
        assert known.read(data, 0, end) is None
        assert known.read(data[:end], 0, end) is None


@pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 9])
@pytest.mark.parametrize("at", [-1, -2, -3])
def test_what_has_tagged_fields_is_read_in_full(version: int, at: int) -> None:
    known = KnownProduces()
    data = bytearray(frame(version))
    plainly(bytes(data), known)
    data[at] = 1
    assert known.read(bytes(data), 0, len(data)) is None


def test_of_what_is_remembered_there_is_a_bound() -> None:
    known = KnownProduces()
    for index in range(MAX_HEADS + 1):
        plainly(frame(index=index), known)
    first, last = frame(index=0), frame(index=MAX_HEADS)
    assert known.read(first, 0, len(first)) is None
    assert known.read(last, 0, len(last)) is not None
    for size in range(2, MAX_SIZES + 2):
        plainly(frame(name="t" * size), known)
    least, most = frame(name="t" * MAX_SIZES), frame(name="t" * (MAX_SIZES + 1))
    assert known.read(least, 0, len(least)) is not None
    assert known.read(most, 0, len(most)) is None
    other = KnownProduces()
    long = frame(transactional_id="x" * MAX_HEAD_BYTES)
    plainly(long, other)
    assert other.read(long, 0, len(long)) is None


def test_several_partitions_are_none() -> None:
    known = KnownProduces()
    partitions = [{"index": index, "records": b"x"} for index in range(2)]
    data = frame(topic_data=[{"name": "t", "partition_data": partitions}])
    plainly(data, known)
    assert known.read(data, 0, len(data)) is None
