"""What a client may say before it is known, in which order, and who it is then."""

from __future__ import annotations

import struct

import pytest
from scramp import ScramClient

from pidkeeper.broker_agent.kafka.dispatch import SERVED
from pidkeeper.broker_agent.kafka.features import features_at
from pidkeeper.broker_agent.security.sasl import Sasl
from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.kafka.negotiation import MAX_FRAME_BYTES, Negotiation, PasswordCall
from pidkeeper.service.kafka.wire.primitives import Reader, WireError
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response, kio_response
from tests.support.sasl_users import api_versions, authenticate, handshake, plain

INIT = struct.pack(">ihhihch", 17, 22, 0, 7, 1, b"c", -1) + struct.pack(">i", 0)
CERTIFIED = Principal("producer shop", frozenset({Access.PRODUCER}))


@pytest.fixture
def begin(users: UserList) -> Negotiation:
    return Negotiation(Sasl(users), SERVED, encrypted=True, certified=None)


def answered(negotiation: Negotiation, frame: bytes) -> bytes:
    """The answer without its length."""
    answer, used = negotiation.respond(frame + b"more")
    assert used == len(frame)
    if isinstance(answer, PasswordCall):
        answer = answer.answer(answer.matches())
    return answer[4:]


def said(negotiation: Negotiation, message: bytes, version: int = 2) -> tuple[int, str | None, bytes]:
    """The error, what is said of it, and the server's message."""
    response = kafka_python_response(
        "sasl_authenticate", version, answered(negotiation, authenticate(message, version=version))
    )
    return response.error_code, response.error_message, response.auth_bytes


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_of_plain_is_let_in(begin: Negotiation, version: int) -> None:
    assert kafka_python_response("sasl_handshake", 1, answered(begin, handshake("PLAIN"))).error_code == 0
    assert said(begin, plain("alice", "pencil"), version) == (0, None, b"")
    assert begin.principal == Principal("alice", frozenset({Access.PRODUCER}))
    assert begin.credential is not None
    assert begin.refused is None


def test_who_is_not_let_in_yet_hears_what_the_cluster_has_agreed_on(users: UserList) -> None:
    negotiation = Negotiation(
        Sasl(users), SERVED, encrypted=True, certified=None, features=lambda: features_at(TRANSACTION_EPOCHS)
    )
    request = kafka_python_request("api_versions", 3, 7, "c", client_software_name="n", client_software_version="1")
    _, told = kio_response("api_versions", 3, answered(negotiation, struct.pack(">i", len(request)) + request))
    assert [one.name for one in told.finalized_features] == ["transaction.version"]


def test_a_user_of_scram_is_let_in_after_two_messages(begin: Negotiation) -> None:
    answered(begin, api_versions())
    answered(begin, handshake("SCRAM-SHA-512"))
    client = ScramClient(["SCRAM-SHA-512"], "alice", "pencil")
    error, _, message = said(begin, client.get_client_first().encode())
    assert (error, begin.principal) == (0, None)
    client.set_server_first(message.decode())
    error, _, message = said(begin, client.get_client_final().encode())
    client.set_server_final(message.decode())
    assert begin.principal is not None
    assert (error, begin.principal.name, begin.mechanism) == (0, "alice", "SCRAM-SHA-512")


@pytest.mark.parametrize("message", [plain("alice", "wrong"), plain("mallory", "pencil"), b"nonsense"])
def test_whoever_is_not_let_in_is_told_no_reason(begin: Negotiation, message: bytes) -> None:
    answered(begin, handshake("PLAIN"))
    assert said(begin, message) == (58, "authentication by PLAIN failed: user or password are wrong", b"")
    assert begin.principal is None
    assert begin.refused is not None


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(users: UserList) -> None:
    for encrypted, asked in ((True, "GSSAPI"), (False, "PLAIN")):
        negotiation = Negotiation(Sasl(users), SERVED, encrypted=encrypted, certified=None)
        response = kafka_python_response("sasl_handshake", 1, answered(negotiation, handshake(asked)))
        assert (response.error_code, asked in response.mechanisms) == (33, False)
        assert set(response.mechanisms) >= {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert negotiation.refused is not None


def test_a_second_handshake_is_refused(begin: Negotiation) -> None:
    answered(begin, handshake("PLAIN"))
    assert kafka_python_response("sasl_handshake", 1, answered(begin, handshake("PLAIN"))).error_code == 34
    assert begin.refused is not None


def test_nothing_else_is_answered(begin: Negotiation) -> None:
    with pytest.raises(WireError, match="API key 22 before"):
        begin.respond(INIT)
    with pytest.raises(WireError, match="without a handshake"):
        begin.respond(authenticate(plain("alice", "pencil")))
    with pytest.raises(WireError, match="before it has authenticated"):
        begin.respond(struct.pack(">i", MAX_FRAME_BYTES + 1))
    with pytest.raises(WireError):
        begin.respond(struct.pack(">i", -1) + b"\0" * 8)
    assert begin.principal is None


def test_a_certificate_will_do_unless_the_client_wants_to_be_somebody_else(users: UserList) -> None:
    certified = Negotiation(Sasl(users), SERVED, encrypted=True, certified=CERTIFIED)
    answered(certified, api_versions())
    assert certified.respond(INIT) == (b"", 0)
    assert (certified.principal, certified.credential) == (CERTIFIED, None)
    both = Negotiation(Sasl(users), SERVED, encrypted=True, certified=CERTIFIED)
    answered(both, handshake("PLAIN"))
    with pytest.raises(WireError, match="before it has authenticated"):
        both.respond(INIT)
    said(both, plain("bob", "brush"))
    assert both.principal is not None
    assert both.principal.name == "bob"


@pytest.mark.parametrize("cut", [0, 3, 4, 10, -1])
def test_a_frame_that_is_not_complete_is_waited_for(begin: Negotiation, cut: int) -> None:
    frame = handshake("PLAIN")
    assert begin.respond(frame[:cut]) == (b"", 0)
    assert answered(begin, frame)


def test_what_a_frame_says_of_its_bytes_is_checked(begin: Negotiation) -> None:
    answered(begin, handshake("PLAIN"))
    frame = authenticate(b"x" * 10, version=0)
    for length in (-1, 11, 2**31 - 1):
        at = len(frame) - 14
        with pytest.raises(WireError):
            begin.respond(frame[:at] + struct.pack(">i", length) + frame[at + 4 :])
    assert Reader(struct.pack(">i", 2) + b"ab").byte_string(flexible=False) == b"ab"
