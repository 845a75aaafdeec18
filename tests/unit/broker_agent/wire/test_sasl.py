"""The requests and answers of SASL, against two other codecs in every version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.dispatch import DISPATCH, SERVED
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.sasl import (
    AuthenticateRequest,
    HandshakeRequest,
    authenticate_response,
    handshake_response,
)
from pidkeeper.service.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response, kio_request, kio_response

names = st.text(st.characters(codec="utf-8"), max_size=40)
codes = st.sampled_from([ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.SASL_AUTHENTICATION_FAILED])


def read(frame: bytes) -> Any:
    reader = Reader(frame)
    header = read_request_header(reader, SERVED)
    return DISPATCH[header.api_key].read(reader, header.api_version)


@given(names)
def test_a_handshake(mechanism: str) -> None:
    for request in (kafka_python_request, kio_request):
        assert read(request("sasl_handshake", 1, 7, "c", mechanism=mechanism)) == HandshakeRequest(mechanism)


@given(codes, st.lists(names, max_size=4))
def test_the_answer_to_a_handshake(code: ErrorCode, mechanisms: list[str]) -> None:
    header = RequestHeader(SASL_HANDSHAKE, 1, 7, "c")
    frame = frame_response(header, SERVED[SASL_HANDSHAKE], handshake_response(code, mechanisms))[4:]
    theirs = kafka_python_response("sasl_handshake", 1, frame)
    assert (theirs.error_code, list(theirs.mechanisms)) == (code.kafka_code, mechanisms)
    assert tuple(kio_response("sasl_handshake", 1, frame)[1].mechanisms) == tuple(mechanisms)


@given(st.integers(0, 2), st.binary(max_size=300))
def test_a_message(version: int, message: bytes) -> None:
    for request in (kafka_python_request, kio_request):
        assert read(request("sasl_authenticate", version, 7, "c", auth_bytes=message)) == AuthenticateRequest(message)


@given(st.integers(0, 2), codes, st.none() | names, st.binary(max_size=300))
def test_the_answer_to_a_message(version: int, code: ErrorCode, detail: str | None, message: bytes) -> None:
    header = RequestHeader(SASL_AUTHENTICATE, version, 7, "c")
    body = authenticate_response(version, code, detail, message)
    frame = frame_response(header, SERVED[SASL_AUTHENTICATE], body)[4:]
    theirs = kafka_python_response("sasl_authenticate", version, frame)
    assert (theirs.error_code, theirs.error_message, theirs.auth_bytes) == (code.kafka_code, detail, message)
    assert kio_response("sasl_authenticate", version, frame)[1].auth_bytes == message
