"""Whom certificates name, and what these may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.service.access import EVERY_ROLE, Access, Principal
from pidkeeper.service.certified import (
    KINDS,
    Certificate,
    CertifiedName,
    controllers_in,
    names_in,
    principal_of,
)

ROLES = {kind: sorted(role.value for role in roles) for kind, roles in KINDS.items()}


def certificate(*uris: str, subject: tuple[tuple[str, str], ...] = (("commonName", "app-7"),)) -> Certificate:
    """As `getpeercert` gives one."""
    return {
        "subject": tuple(((name, value),) for name, value in subject),
        "subjectAltName": (("DNS", "pidkeeper://c/operator/dns"), *(("URI", uri) for uri in uris)),
    }


TEXT = st.text(min_size=1, max_size=20)


@given(TEXT, st.sampled_from(["operator", "viewer", "producer"]), TEXT)
def test_a_name_is_read_as_it_was_written(cluster: str, kind: str, name: str) -> None:
    written = CertifiedName(cluster, kind, name)
    assert written.uri.isascii()
    assert list(names_in(certificate(written.uri))) == [written]


@pytest.mark.parametrize(
    "uri",
    [
        "pidkeeper://c/operator",
        "pidkeeper://c/operator/",
        "pidkeeper:///operator/x",
        "pidkeeper://c/operator/x/y",
        "pidkeeper://c/operator/x/",
        "pidkeeper://c/root/x",
        "pidkeeper://c/Operator/x",
        "PIDKEEPER://c/operator/x",
        "spiffe://c/operator/x",
        "pidkeeper://c/%6fperator/x",
        "pidkeeper://c/operator/%78",
        "pidkeeper://c/operator/a b",
        "pidkeeper://c/operator/%ff",
        "pidkeeper://c/broker/x",
        "pidkeeper://c/broker/-1",
        "pidkeeper://c/broker/007",
        "pidkeeper://c/broker/1.0",
        "pidkeeper://c/broker/99999999999",
        "pidkeeper://c/controller/%D9%A1",
        "",
    ],
)
def test_what_is_nearly_a_name_names_nobody(uri: str) -> None:
    assert list(names_in(certificate(uri))) == []
    assert principal_of(certificate(uri), "c").roles == {Access.PRODUCER}


def test_what_each_kind_may_do() -> None:
    assert {
        "controller": [],
        "broker": ["broker", "viewer"],
        "operator": sorted(role.value for role in EVERY_ROLE | {Access.OVERRIDE}),
        "viewer": ["viewer"],
        "producer": ["producer"],
    } == ROLES


def test_a_broker_is_one_for_itself_alone() -> None:
    found = principal_of(certificate("pidkeeper://c/broker/7", "pidkeeper://c/viewer/x"), "c")
    assert found == Principal("broker 7", frozenset({Access.BROKER, Access.VIEWER}), frozenset({7}))
    assert [found.may_act_for(broker) for broker in (7, 8)] == [True, False]
    both = principal_of(certificate("pidkeeper://c/broker/7", "pidkeeper://c/broker/8"), "c")
    assert [both.may_act_for(broker) for broker in (7, 8, 9)] == [True, True, False]
    operator = principal_of(certificate("pidkeeper://c/operator/alice", "pidkeeper://c/broker/7"), "c")
    assert operator.may_act_for(9)


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_names_of_another_cluster_are_good_for_nothing(kind: str) -> None:
    other = certificate(f"pidkeeper://other/{kind}/7")
    assert principal_of(other, "c") == Principal(f"{kind} 7 of cluster other", frozenset())
    assert controllers_in(other, "c") == frozenset()
    assert controllers_in(certificate("pidkeeper://c/controller/7", "pidkeeper://other/controller/8"), "c") == {7}


def test_a_certificate_without_a_name_of_ours_is_a_producers() -> None:
    found = principal_of(certificate(subject=(("organizationName", "shop"), ("commonName", "app-7"))), "c")
    assert found == Principal("CN=app-7,O=shop", frozenset({Access.PRODUCER}), None)
    assert principal_of({}, "c").name == "a certificate"
