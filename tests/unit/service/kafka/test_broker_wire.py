"""What brokers and controllers say to each other, against a codec that is not ours."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.controller.kafka.application import SERVED
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.messages import FurtherBlock, HeldIds
from pidkeeper.service.kafka.wire import allocate_producer_ids, broker_heartbeat, broker_registration, own_call
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.own_call import OwnAnswer, OwnCall
from pidkeeper.service.kafka.wire.own_field import TAG, Answered, Asked, read_answered, read_asked, tagged
from pidkeeper.service.kafka.wire.primitives import Reader, WireError, varint
from tests.support.kafka_oracles import KEYS, kio_nested, kio_request, kio_response

NONE = b"\x00"
INCARNATION = uuid.UUID(int=0x1234)
MODULES: dict[str, Any] = {
    "allocate_producer_ids": allocate_producer_ids,
    "broker_heartbeat": broker_heartbeat,
    "broker_registration": broker_registration,
}


def requests(api: str, version: int) -> dict[str, Any]:
    """Fields of a request as Kafka's brokers fill them."""
    if api == "allocate_producer_ids":
        return {"broker_id": 7, "broker_epoch": 2**40}
    fields: dict[str, Any]
    if api == "broker_heartbeat":
        fields = {"broker_id": 7, "broker_epoch": 2**40, "current_metadata_offset": 9}
        fields |= {"want_fence": True, "want_shut_down": True}
        return fields | ({"offline_log_dirs": (INCARNATION,)} if version >= 1 else {})
    listener = kio_nested(api, version, "request", "Listener")
    feature = kio_nested(api, version, "request", "Feature")
    fields = {"broker_id": 7, "cluster_id": "c", "incarnation_id": INCARNATION, "rack": None}
    fields["listeners"] = (listener(name="A", host="h", port=65_535, security_protocol=3),) * 2
    fields["features"] = (feature(name="kraft.version", min_supported_version=0, max_supported_version=1),) * 3
    fields |= {"is_migrating_zk_broker": True} if version >= 1 else {}
    fields |= {"log_dirs": (INCARNATION, uuid.UUID(int=5))} if version >= 2 else {}
    return fields | ({"previous_broker_epoch": 3} if version >= 3 else {})


EVERY = [
    (api, version)
    for api, module in MODULES.items()
    for version in range(module.VERSIONS.lowest, module.VERSIONS.highest + 1)
]


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_what_another_codec_asks_is_read_to_the_end(api: str, version: int) -> None:
    reader = Reader(kio_request(api, version, 5, "b", **requests(api, version)))
    header = read_request_header(reader, SERVED)
    assert (header.api_key, header.api_version, header.correlation_id) == (KEYS[api], version, 5)
    request = MODULES[api].read_request(reader, version)
    expected = {
        "allocate_producer_ids": (7, 2**40, None),
        "broker_heartbeat": (7, 2**40, True, None),
        "broker_registration": (7, "c", INCARNATION, None),
    }
    assert tuple(request) == expected[api]


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_a_request_that_is_cut_or_has_more_is_refused(api: str, version: int) -> None:
    frame = kio_request(api, version, 5, "b", **requests(api, version))
    for damaged in [frame + b"\x00", *(frame[:length] for length in range(len(frame)))]:
        reader = Reader(damaged)
        with pytest.raises(WireError):
            MODULES[api].read_request(reader, read_request_header(reader, SERVED).api_version)


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_another_codec_reads_what_is_answered(api: str, version: int) -> None:
    bodies = {
        "allocate_producer_ids": allocate_producer_ids.write_response(250, 89, 5000, 1000, NONE),
        "broker_heartbeat": broker_heartbeat.write_response(250, 89, NONE, is_fenced=True, should_shut_down=False),
        "broker_registration": broker_registration.write_response(250, 89, 77, NONE),
    }
    frame = frame_response(RequestHeader(KEYS[api], version, 5, None), MODULES[api].VERSIONS, bodies[api])
    number, answer = kio_response(api, version, frame[4:])
    assert (number, answer.throttle_time, int(answer.error_code)) == (5, timedelta(milliseconds=250), 89)
    if api == "allocate_producer_ids":
        assert (answer.producer_id_start, answer.producer_id_len) == (5000, 1000)
    elif api == "broker_heartbeat":
        assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (False, True, False)
    else:
        assert answer.broker_epoch == 77


ASKED = Asked("h:1", HeldIds(INCARNATION, 9), 3, "c", 64)
ANSWERED = Answered(
    "NOT_CONTROLLER", "é", "kafka://h:1", "c", 9, INCARNATION, Succession(INCARNATION, 4), [FurtherBlock(1, 2)]
)


def test_ours_is_read_and_whoever_does_not_know_it_skips_it() -> None:
    request = allocate_producer_ids.write_request(1, 2, tagged(ASKED))
    assert read_asked(allocate_producer_ids.read_request(Reader(request), 0).own) == ASKED
    answer = allocate_producer_ids.write_response(0, 0, 5, 6, tagged(ANSWERED))
    read = allocate_producer_ids.read_response(Reader(answer))
    assert (read[:4], read_answered(read.own)) == ((0, 0, 5, 6), ANSWERED)
    plain = Reader(answer)
    plain.skip(18)
    plain.skip_tags()
    plain.finish()


def test_ours_between_others_is_found() -> None:
    other = varint(3) + varint(2) + b"xy"
    later = varint(TAG + 1) + varint(1) + b"z"
    tags = b"\x03" + other + tagged(ASKED)[1:] + later
    assert read_asked(Reader(tags).tagged(TAG)) == ASKED
    assert Reader(b"\x01" + other).tagged(TAG) is None
    with pytest.raises(WireError, match="tags must rise"):
        Reader(b"\x02" + tagged(ASKED)[1:] + other).tagged(TAG)


def test_saying_nothing_is_still_saying_who_one_is() -> None:
    """An agent that holds nothing is answered in our words too."""
    assert read_asked(Reader(tagged(Asked())).tagged(TAG)) == Asked()
    assert Reader(tagged(Asked())).tagged(TAG) is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"blocks":0}', b'{"blocks":65}', b'{"held":{}}', b'{"reserve_ids":-1}', b"\xff", b"[" * 5000],
)
def test_what_is_not_ours_is_refused_and_not_taken_for_it(content: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_asked(content)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"code":5}', b'{"more":[1]}', b"\xff"])
def test_an_answer_that_is_not_ours_is_none(content: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        read_answered(content)


def test_a_registration_of_ours_is_one_of_kafkas() -> None:
    body = broker_registration.write_request(7, "c", INCARNATION, tagged(ASKED))
    request = broker_registration.read_request(Reader(body), broker_registration.VERSIONS.highest)
    assert request[:3] == (7, "c", INCARNATION)
    assert read_asked(request.own) == ASKED
    plain = kio_request(
        "broker_registration",
        4,
        5,
        "b",
        broker_id=7,
        cluster_id="c",
        incarnation_id=INCARNATION,
        listeners=(),
        features=(),
        rack=None,
    )
    assert plain.endswith(broker_registration.write_request(7, "c", INCARNATION, NONE))


def test_a_heartbeat_of_ours_is_one_of_kafkas() -> None:
    fields = {"broker_id": 7, "broker_epoch": 8, "current_metadata_offset": -1, "want_fence": False}
    for ends in (False, True):
        body = broker_heartbeat.write_request(7, 8, NONE, want_shut_down=ends)
        assert kio_request("broker_heartbeat", 2, 5, "b", want_shut_down=ends, **fields).endswith(body)
        answer = broker_heartbeat.write_response(1, 0, NONE, is_fenced=not ends, should_shut_down=ends)
        assert broker_heartbeat.read_response(Reader(answer)) == (1, 0, not ends, ends, None)


def test_an_allocation_of_ours_is_one_of_kafkas() -> None:
    body = allocate_producer_ids.write_request(7, 8, NONE)
    assert kio_request("allocate_producer_ids", 0, 5, "b", broker_id=7, broker_epoch=8).endswith(body)


@given(st.text(max_size=20), st.text(max_size=50), st.binary(max_size=200), st.integers(0, 599))
def test_a_call_of_ours_comes_back_as_it_was(method: str, path: str, body: bytes, status: int) -> None:
    call, answer = OwnCall(method, path, body), OwnAnswer(status, body)
    assert own_call.read_request(Reader(own_call.write_request(call)), 0) == call
    assert own_call.read_response(Reader(own_call.write_response(answer))) == answer
    for cut in range(len(body)):
        with pytest.raises(WireError):
            own_call.read_response(Reader(own_call.write_response(answer)[:cut]))


@given(st.binary(max_size=300))
def test_whatever_bytes_come_they_are_read_or_refused(data: bytes) -> None:
    for api, version in EVERY:
        try:
            request = MODULES[api].read_request(Reader(data), version)
            read_asked(request.own)
        except (WireError, RequestError):
            continue
