"""The server's side of PLAIN and SCRAM, against another implementation of the client's."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from pidkeeper.broker_agent.security.sasl import Plain, Sasl, Scram
from pidkeeper.broker_agent.security.user_list import User, UserList
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.kafka.mechanisms import MAX_MESSAGE_BYTES, PLAIN, Challenge, Proven, RefusedError
from tests.support.sasl_users import plain

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def sasl(users: UserList) -> Sasl:
    return Sasl(users)


def log_in(sasl: Sasl, mechanism: str, name: str, password: str) -> Proven:
    """Both sides of SCRAM to their end. Raises RefusedError, or ScramException if the server is not the right one."""
    server = sasl.begin(mechanism)
    assert isinstance(server, Scram)
    client = ScramClient([mechanism], name, password)
    client.set_server_first(server.step(client.get_client_first().encode()).message.decode())
    proven = server.step(client.get_client_final().encode())
    client.set_server_final(proven.message.decode())
    assert isinstance(proven, Proven)
    return proven


@pytest.mark.parametrize("mechanism", SCRAM)
def test_who_knows_the_password_is_let_in_and_sees_that_the_server_knows_it_too(sasl: Sasl, mechanism: str) -> None:
    principal, user, _ = log_in(sasl, mechanism, "alice", "pencil")
    assert principal == Principal("alice", frozenset({Access.PRODUCER}))
    assert isinstance(user, User)
    assert (user.name, user.verifier.mechanism) == ("alice", mechanism)
    assert sasl.stands(user)
    assert not sasl.stands("alice")


@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [
        ("SCRAM-SHA-256", "alice", "pencils"),
        ("SCRAM-SHA-512", "alice", "brush"),
        ("SCRAM-SHA-256", "bob", "brush"),
        ("SCRAM-SHA-256", "mallory", "pencil"),
    ],
)
def test_who_does_not_is_refused_at_the_last_step(sasl: Sasl, mechanism: str, name: str, password: str) -> None:
    server = sasl.begin(mechanism)
    assert isinstance(server, Scram)
    client = ScramClient([mechanism], name, password)
    client.set_server_first(server.step(client.get_client_first().encode()).message.decode())
    with pytest.raises(RefusedError):
        server.step(client.get_client_final().encode())


def test_an_unknown_name_is_asked_as_a_known_one_is(sasl: Sasl) -> None:
    """With a salt that stays the same, as that of somebody who exists would."""

    def asked(name: str) -> list[str]:
        answers = [sasl.begin("SCRAM-SHA-256").step(f"n,,n={name},r=abc".encode()) for _ in range(2)]
        return re.findall(r"s=([^,]+)", " ".join(map(repr, answers)))

    mallory, trudy, alice = (asked(name) for name in ("mallory", "trudy", "alice"))
    assert mallory[0] == mallory[1] != trudy[0] == trudy[1]
    assert len(mallory[0]) == len(alice[0])


def test_a_proof_of_another_exchange_is_worth_nothing(sasl: Sasl) -> None:
    client = ScramClient(["SCRAM-SHA-256"], "alice", "pencil")
    first, second = sasl.begin("SCRAM-SHA-256"), sasl.begin("SCRAM-SHA-256")
    hello = client.get_client_first().encode()
    answer = first.step(hello)
    second.step(hello)
    assert isinstance(answer, Challenge)
    client.set_server_first(answer.message.decode())
    proof = client.get_client_final().encode()
    with pytest.raises(RefusedError, match="nonce"):
        second.step(proof)
    first.step(proof)
    with pytest.raises(RefusedError):
        first.step(proof)


def test_plain_asks_for_the_password_of_the_user(sasl: Sasl) -> None:
    for name, password, good in (("alice", "pencil", True), ("bob", "brush", True), ("alice", "brush", False)):
        check = Plain(sasl).step(plain(name, password))
        assert check.proven is not None
        assert (check.proven.principal.name, check.matches()) == (name, good)
    assert Plain(sasl).step(plain("alice", "pencil", "alice")).matches()
    unknown = Plain(sasl).step(plain("mallory", "pencil"))
    assert (unknown.proven, unknown.matches()) == (None, False)
    assert not Plain(sasl).step(plain("alice", "\u0007")).matches()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"alice\0pencil",
        b"\0a\0b\0c",
        b"bob\0alice\0pencil",
        b"\xff\0alice\0pencil",
        b"\0a\0" + b"p" * 2000,
    ],
)
def test_what_is_no_message_of_plain_is_refused(sasl: Sasl, message: bytes) -> None:
    with pytest.raises(RefusedError):
        Plain(sasl).step(message)


def test_plain_is_offered_over_tls_alone(sasl: Sasl) -> None:
    assert set(sasl.offered(encrypted=True)) == {PLAIN, *SCRAM}
    assert set(sasl.offered(encrypted=False)) == set(SCRAM)


messages = st.one_of(
    st.binary(max_size=MAX_MESSAGE_BYTES + 1),
    st.text(max_size=200).map(str.encode),
    st.text("n,=ruiacp-=3D2C\0", max_size=60).map(str.encode),
    st.builds("n,,n={},r={}".format, st.text(max_size=20), st.text(max_size=20)).map(str.encode),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SCRAM), st.lists(messages, min_size=1, max_size=3))
def test_whatever_strangers_send_is_answered_or_refused(sasl: Sasl, mechanism: str, sent: list[bytes]) -> None:
    server = sasl.begin(mechanism)
    try:
        for message in sent:
            assert isinstance(server.step(message), Challenge)
    except RefusedError:
        pass
