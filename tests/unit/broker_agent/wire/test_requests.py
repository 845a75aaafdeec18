"""Requests made by two other codecs are read by ours, in every version; malformed ones are refused."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.dispatch import DISPATCH, SERVED
from pidkeeper.broker_agent.kafka.wire.find_coordinator import FindCoordinatorRequest
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, Topic
from pidkeeper.protocol.messages import InitProducerIdRequest
from pidkeeper.service.kafka.wire.api_versions import ApiVersionsRequest
from pidkeeper.service.kafka.wire.headers import RequestHeader, read_request_header
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, Reader, WireError
from tests.support.kafka_oracles import KAFKA_PYTHON, KEYS, kafka_python_request, kio_nested, kio_request

names = st.text(st.characters(codec="utf-8"), max_size=40)
client_ids = st.none() | names
int32s = st.integers(-(2**31), 2**31 - 1)


def read(frame: bytes) -> tuple[RequestHeader, Any]:
    reader = Reader(frame)
    header = read_request_header(reader, SERVED)
    return header, DISPATCH[header.api_key].read(reader, header.api_version)


@given(
    version=st.integers(0, 5),
    correlation_id=int32s,
    client_id=client_ids,
    transactional_id=st.none() | names,
    timeout=int32s,
    producer_id=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**15 - 1),
)
def test_init_producer_id(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    timeout: int,
    producer_id: int,
    epoch: int,
) -> None:
    late = {"producer_id": producer_id, "producer_epoch": epoch} if version >= 3 else {}
    kio_late = late
    expected = InitProducerIdRequest(
        transactional_id, timeout, late.get("producer_id", -1), late.get("producer_epoch", -1)
    )
    frames = [
        kafka_python_request(
            "init_producer_id",
            version,
            correlation_id,
            client_id,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout,
            **late,
        ),
        kio_request(
            "init_producer_id",
            version,
            correlation_id,
            client_id,
            transactional_id=transactional_id,
            transaction_timeout=dt.timedelta(milliseconds=timeout),
            **kio_late,
        ),
    ]
    for frame in frames:
        assert read(frame) == (RequestHeader(22, version, correlation_id, client_id), expected)


@given(version=st.integers(0, 6), keys=st.lists(names, min_size=1, max_size=5), key_type=st.integers(0, 1))
def test_find_coordinator(version: int, keys: list[str], key_type: int) -> None:
    keys = keys if version >= 4 else keys[:1]
    fields: dict[str, Any] = {"key_type": key_type} if version >= 1 else {}
    fields |= {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    expected = FindCoordinatorRequest(keys, key_type if version >= 1 else 0)
    kio_fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    for frame in (
        kafka_python_request("find_coordinator", version, 1, "c", **fields),
        kio_request("find_coordinator", version, 1, "c", **kio_fields),
    ):
        assert read(frame) == (RequestHeader(10, version, 1, "c"), expected)


@given(version=st.integers(0, 4), name=names, software_version=names)
def test_api_versions(version: int, name: str, software_version: str) -> None:
    fields = {"client_software_name": name, "client_software_version": software_version} if version >= 3 else {}
    expected = ApiVersionsRequest(**fields)
    for encode in (kafka_python_request, kio_request):
        frame = encode("api_versions", version, 7, None, **fields)
        assert read(frame) == (RequestHeader(18, version, 7, None), expected)


@given(
    version=st.integers(0, 13),
    topics=st.none() | st.lists(st.tuples(names, st.uuids()), max_size=5),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_metadata(version: int, topics: list[tuple[str, uuid.UUID]] | None, flags: tuple[bool, bool, bool]) -> None:
    if version == 0:
        topics = topics or []
    fields: dict[str, Any] = {}
    fields |= {"allow_auto_topic_creation": flags[0]} if version >= 4 else {}
    fields |= {"include_cluster_authorized_operations": flags[1]} if 8 <= version <= 10 else {}
    fields |= {"include_topic_authorized_operations": flags[2]} if version >= 8 else {}
    wanted = None if topics is None else [Topic(n, i) if version >= 10 else Topic(n) for n, i in topics]
    expected = MetadataRequest(wanted or None if version == 0 else wanted, **fields)
    for frame in (
        kafka_python_request("metadata", version, 3, "x", topics=_kafka_python_topics(version, topics), **fields),
        kio_request("metadata", version, 3, "x", topics=_kio_topics(version, topics), **fields),
    ):
        assert read(frame) == (RequestHeader(3, version, 3, "x"), expected)


def test_librdkafka_leaves_three_bytes_behind_a_request_for_all_topics() -> None:
    # As version 2.16.0 sent it.
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    assert read(frame) == (RequestHeader(3, 13, 3, "rdkafka"), MetadataRequest(None, allow_auto_topic_creation=False))
    for left in (frame[:-1], frame[:-2], frame + b"\x00"):
        with pytest.raises(WireError, match="left over"):
            read(left)


def _kafka_python_topics(version: int, topics: list[tuple[str, uuid.UUID]] | None) -> Any:
    if topics is None:
        return None
    make = KAFKA_PYTHON["metadata"][0].MetadataRequestTopic
    return [
        make(version=version, name=n, topic_id=i) if version >= 10 else make(version=version, name=n) for n, i in topics
    ]


def _kio_topics(version: int, topics: list[tuple[str, uuid.UUID]] | None) -> Any:
    if topics is None:
        return None
    make = kio_nested("metadata", version, "request", "MetadataRequestTopic")
    return tuple(make(name=n, topic_id=i) if version >= 10 else make(name=n) for n, i in topics)


VALID = [
    kafka_python_request(
        "init_producer_id",
        4,
        5,
        "fuzz",
        transactional_id="t",
        transaction_timeout_ms=1,
        producer_id=-1,
        producer_epoch=-1,
    ),
    kafka_python_request("init_producer_id", 0, 5, "fuzz", transactional_id=None, transaction_timeout_ms=1),
    kafka_python_request("find_coordinator", 6, 5, "fuzz", key_type=1, coordinator_keys=["a", "b"]),
    kafka_python_request("find_coordinator", 2, 5, "fuzz", key_type=1, key="a"),
    kafka_python_request("api_versions", 4, 5, "fuzz", client_software_name="n", client_software_version="1"),
    kafka_python_request("metadata", 13, 5, "fuzz", topics=_kafka_python_topics(13, [("t", uuid.UUID(int=9))])),
    kafka_python_request("metadata", 5, 5, "fuzz", topics=_kafka_python_topics(5, [("t", uuid.UUID(int=9))])),
]
BY_KEY = {key: api for api, key in KEYS.items()}


def api_of(frame: bytes) -> str:
    return BY_KEY[struct.unpack_from(">h", frame)[0]]


@pytest.mark.parametrize("frame", VALID, ids=lambda frame: f"{api_of(frame)}-{frame[3]}")
def test_every_truncation_and_any_extra_byte_is_refused(frame: bytes) -> None:
    read(frame)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            read(frame[:size])
    with pytest.raises(WireError, match="left over"):
        read(frame + b"\x00")


@given(st.sampled_from(VALID), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_mutated_frame_is_read_or_refused_and_nothing_else(frame: bytes, changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(frame)
    for position, value in changes:
        mutated[position % len(mutated)] = value
    try:
        reader = Reader(bytes(mutated))
        header = read_request_header(reader, SERVED)
        DISPATCH[header.api_key].read(reader, header.api_version)
    except WireError:
        return


@given(st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else(noise: bytes) -> None:
    try:
        reader = Reader(noise)
        header = read_request_header(reader, SERVED)
        DISPATCH[header.api_key].read(reader, header.api_version)
    except WireError:
        return


HEAD_1 = struct.pack(">hhih", 3, 1, 0, -1)
HEAD_13 = struct.pack(">hhihB", 3, 13, 0, -1, 0)
COORDINATOR_6 = struct.pack(">hhihB", 10, 6, 0, -1, 0) + b"\x00"
INIT_4 = struct.pack(">hhihB", 22, 4, 0, -1, 0)
INIT_4_REST = struct.pack(">iqh", 0, -1, -1)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (HEAD_1 + struct.pack(">i", 2**31 - 1), "array of 2147483647"),
        (HEAD_1 + struct.pack(">i", -2), "array of -2"),
        (HEAD_13 + b"\xff\xff\xff\xff\x07" + bytes(60), "array of 2147483646"),
        (HEAD_13 + b"\x05" + bytes(71), "array of 4"),  # four topics take 72 bytes
        (COORDINATOR_6 + b"\xff\xff\xff\xff\x0f", "array of 4294967294"),
        (COORDINATOR_6 + b"\x82\x20" + bytes(5000), "array of 4097"),
        (COORDINATOR_6 + b"\x00\x00", "must not be null"),
        (COORDINATOR_6 + b"\xff\xff\xff\xff\x10", "32 bits"),
        (COORDINATOR_6 + b"\x80\x80\x80\x80\x80\x00", "32 bits"),
        (INIT_4 + b"\x81\x80\x02" + bytes(33_000), "string of 32768"),
        (INIT_4 + b"\x03\xc3\x28" + INIT_4_REST + b"\x00", "not UTF-8"),
        (INIT_4 + b"\x04\xed\xa0\x80" + INIT_4_REST + b"\x00", "not UTF-8"),
        (INIT_4 + b"\x00" + INIT_4_REST + b"\x11" + bytes(34), "17 tagged fields"),
        (INIT_4 + b"\x00" + INIT_4_REST + b"\x02\x01\x00\x01\x00", "tags must rise"),
        (INIT_4 + b"\x00" + INIT_4_REST + b"\x01\x00\xff\xff\xff\xff\x0f", "bytes wanted"),
        (struct.pack(">hhih", 22, 0, 0, -2), "string of -2"),
        (struct.pack(">hhihh", 10, 0, 0, -1, -1), "must not be null"),
        (struct.pack(">hhih", 0, 9, 0, -1), "API key 0 is not served"),
        (struct.pack(">hhih", 22, 6, 0, -1), "version 6 of API key 22"),
        (struct.pack(">hhih", 3, -1, 0, -1), "version -1 of API key 3"),
        (struct.pack(">hhih", 18, -1, 0, -1), "version -1 of API key 18"),
        (bytes(MAX_FRAME_BYTES + 1), "larger than"),
        (
            struct.pack(">hhihB", 3, 10, 0, -1, 0) + b"\x02" + bytes(16) + b"\x00\x00" + b"\x00\x00\x00\x00",
            "without a name",
        ),
    ],
)
def test_malformed(frame: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        read(frame)


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\xff\x01\x00"
    frame = struct.pack(">hhih", 22, 4, 9, -1) + tags + b"\x00" + INIT_4_REST + tags
    assert read(frame) == (RequestHeader(22, 4, 9, None), InitProducerIdRequest(None, 0, -1, -1))


def test_sixteen_tags_are_taken() -> None:
    tags = b"\x10" + b"".join(bytes([tag, 0]) for tag in range(16))
    read(INIT_4 + b"\x00" + INIT_4_REST + tags)
