"""Malformed and unlawful input at the controllers: a clear refusal, and the replicated state stays as it was."""

from __future__ import annotations

import contextlib
import random
import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from pidkeeper.controller.raft.messages import Heartbeat
from pidkeeper.controller.transport.frames import PROTOCOL_VERSION, Hello, Proof, frame
from tests.support.cluster import allocate, log_of, quorum, register, wait_until
from tests.support.http_calls import call, exchange

NOISE = random.Random(730)
INT64_MAX = 2**63 - 1
ALLOCATE = "/v1/producer-ids/allocate"
FLOOR = "/v1/producer-ids/floor"
ACCEPTED = {"broker_id": 1, "broker_epoch": 1}


@contextlib.contextmanager
def nothing_changes(cluster: LocalCluster) -> Iterator[None]:
    """What all members hold is the same before and after."""

    def state() -> list[tuple[int, ...]]:
        names = ("term", "leader_id", "commit_index", "log_end_index", "next_producer_id")
        return [tuple(quorum(member)[name] for name in names) for member in cluster.layout.controllers]

    wait_until(lambda: len(set(state())) == 1, "all members to hold the same")
    before = state()
    yield
    assert state() == before
    assert all(cluster.ready(member) for member in cluster.members())


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (ALLOCATE, {"broker_id": 404, "broker_epoch": 1}, 404, "BROKER_ID_NOT_REGISTERED"),
        (ALLOCATE, {"broker_id": 1, "broker_epoch": INT64_MAX}, 409, "STALE_BROKER_EPOCH"),
        (ALLOCATE, {"broker_id": 1, "broker_epoch": INT64_MAX + 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": 1, "broker_epoch": 10**40}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": 1, "broker_epoch": -1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": 2**31, "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": -1, "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": "1", "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": 1.5, "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": True, "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": None, "broker_epoch": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, {"broker_id": 1}, 400, "INVALID_REQUEST"),
        (ALLOCATE, ACCEPTED | {"block_size": 10**6}, 400, "INVALID_REQUEST"),
        (ALLOCATE, ACCEPTED | {"cluster_id": "elsewhere"}, 409, "INCONSISTENT_CLUSTER_ID"),
        (ALLOCATE, ACCEPTED | {"cluster_id": "x" * 65}, 400, "INVALID_REQUEST"),
        (ALLOCATE, [1, 1], 400, "INVALID_REQUEST"),
        (ALLOCATE, b"", 400, "INVALID_REQUEST"),
        (ALLOCATE, b'{"broker_id": 1, "broker_ep', 400, "INVALID_REQUEST"),
        (ALLOCATE, b"\xff\xfe\x00", 400, "INVALID_REQUEST"),
        (ALLOCATE, b"[" * 60_000, 400, "INVALID_REQUEST"),
        (ALLOCATE, b'{"broker_id": 1, "pad": "' + b"x" * 70_000 + b'"}', 413, "MESSAGE_TOO_LARGE"),
        ("/v1/brokers/1/register", {"incarnation_id": ""}, 400, "INVALID_REQUEST"),
        ("/v1/brokers/1/register", {"incarnation_id": "x" * 65}, 400, "INVALID_REQUEST"),
        ("/v1/brokers/1/register", {"incarnation_id": "a", "cluster_id": "other"}, 409, "INCONSISTENT_CLUSTER_ID"),
        ("/v1/brokers/-1/register", {"incarnation_id": "a"}, 400, "INVALID_REQUEST"),
        ("/v1/brokers/99999999999999999999/register", {"incarnation_id": "a"}, 400, "INVALID_REQUEST"),
        ("/v1/brokers/one/register", {"incarnation_id": "a"}, 400, "INVALID_REQUEST"),
        ("/v1/brokers/404/heartbeat", {"broker_epoch": 1}, 404, "BROKER_ID_NOT_REGISTERED"),
        (FLOOR, {"at_least": -1}, 400, "INVALID_REQUEST"),
        (FLOOR, {"at_least": INT64_MAX + 1}, 400, "INVALID_REQUEST"),
        (FLOOR, {"at_least": INT64_MAX - 7}, 400, "INVALID_REQUEST"),
        (FLOOR, {"at_least": 10**13}, 400, "INVALID_REQUEST"),
        (FLOOR, {"at_least": 10**13, "force": True}, 403, "CLUSTER_AUTHORIZATION_FAILED"),
        ("/v1/quorum/transfer", {"target": 9}, 400, "INVALID_REQUEST"),
        ("/v1/nothing", {}, 404, "RESOURCE_NOT_FOUND"),
        ("/v1/quorum", {}, 405, "INVALID_REQUEST"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict | list | bytes) else None,
)
def test_a_refused_call_changes_nothing(healthy: LocalCluster, path: str, body: Any, status: int, code: str) -> None:
    with nothing_changes(healthy):
        answer = call(healthy.leader().http, "POST", path, body)
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["status"]) == (code, status)
    assert len(problem["detail"]) > 10


@pytest.mark.parametrize(
    "path",
    [
        "/v1/producer-ids/-1/owner",
        f"/v1/producer-ids/{INT64_MAX + 1}/owner",
        "/v1/producer-ids/blocks?limit=0",
        "/v1/producer-ids/blocks?limit=1001",
        "/v1/producer-ids/blocks?after=1&after=2",
        "/v1/producer-ids/blocks?from=1",
    ],
)
def test_a_refused_query_says_what_was_wrong(healthy: LocalCluster, path: str) -> None:
    answer = call(healthy.leader().http, "GET", path)
    assert (answer.status, answer.json()["code"]) == (400, "INVALID_REQUEST")


def test_a_follower_names_the_leader(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    follower = next(member for member in healthy.layout.controllers if member.id != leader.id)
    with nothing_changes(healthy):
        answer = allocate(follower, 1, 1)
    assert answer.status == 421
    problem = answer.json()
    assert (problem["code"], problem["leader"], problem["leader_id"]) == ("NOT_CONTROLLER", leader.http, leader.id)


def test_the_older_of_two_incarnations_is_refused_for_good(healthy: LocalCluster) -> None:
    leader = healthy.leader()
    older = register(leader, 50, "the-older").json()["broker_epoch"]
    newer = register(leader, 50, "the-newer").json()["broker_epoch"]
    assert newer > older
    with nothing_changes(healthy):
        stale = allocate(leader, 50, older)
        again = register(leader, 50, "the-older")
        assert register(leader, 50, "the-newer").json()["broker_epoch"] == newer
    assert (stale.status, stale.json()["code"]) == (409, "STALE_BROKER_EPOCH")
    assert (again.status, again.json()["code"]) == (409, "DUPLICATE_BROKER_REGISTRATION")
    assert not again.json()["retryable"]
    assert "the-newer" in again.json()["detail"]
    assert allocate(leader, 50, newer).status == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{",
        b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n{",
        b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        NOISE.randbytes(512) + b"\r\n\r\n",
    ],
    ids=["truncated", "giant", "negative", "chunks", "long-line", "long-header", "tls", "noise"],
)
def test_a_broken_http_request_changes_nothing(healthy: LocalCluster, request_bytes: bytes) -> None:
    leader = healthy.leader()
    before = log_of(healthy, leader)
    with nothing_changes(healthy):
        answer = exchange(leader.http, request_bytes, end=True)
    assert not answer or re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer[:200]
    told = log_of(healthy, leader).removeprefix(before)
    assert "Traceback" not in told and "UNKNOWN_SERVER_ERROR" not in told, "whoever sent that is at fault, not we"


def hello(cluster: LocalCluster, **changes: Any) -> bytes:
    """A Hello to the first controller that would be welcome, but for `changes`."""
    fields: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "cluster_id": cluster.layout.cluster_id,
        "sender": 2,
        "to": 1,
        "directory_id": "00000000-0000-4000-8000-000000000000",
        "nonce": bytes(16),
    }
    return frame(Hello(**(fields | changes)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sender": 1}, b"this is member 1 too"),
        ({"to": 3}, b"this is member 1, not 3"),
        ({"cluster_id": "elsewhere"}, b"not elsewhere"),
        ({"version": 99}, b"version 99 is not spoken here"),
    ],
)
def test_a_strangers_link_is_refused_with_the_reason(
    healthy: LocalCluster, changes: dict[str, Any], reason: bytes
) -> None:
    with nothing_changes(healthy):
        answer = exchange(healthy.layout.controllers[0].peer, hello(healthy, **changes))
    assert reason in answer


def test_a_peer_that_is_not_a_member_and_does_not_know_the_key_is_sent_away(healthy: LocalCluster) -> None:
    member = healthy.layout.controllers[0]
    before = malformed(member)
    greeting = hello(healthy, sender=9, address=healthy.layout.controllers[1].peer)
    with nothing_changes(healthy):
        answer = exchange(member.peer, greeting + frame(Proof(b"a guess")) + frame(Heartbeat(1_000, 9, 1, 0, 0)))
    assert struct.unpack(">I", answer[:4])[0] == len(answer) - 4, "one Welcome, then the end"
    assert malformed(member) == before + 1


def malformed(member: Controller) -> int:
    """Links that the member closed for what it read before it knew who sent it."""
    text = call(member.http, "GET", "/metrics").body.decode()
    found = re.search(r'^pidkeeper_raft_peer_failures_total{peer="0",reason="malformed"} (\S+)$', text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**32 - 1) + b"x" * 100,
        struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1",
        struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff",
        struct.pack(">I", 0),
        NOISE.randbytes(4096),
    ],
    ids=["http", "giant", "no-msgpack", "array-bomb", "empty-frame", "noise"],
)
def test_garbage_at_the_peer_port_closes_that_link_alone(healthy: LocalCluster, data: bytes) -> None:
    for member in healthy.layout.controllers:
        before = malformed(member)
        with nothing_changes(healthy):
            assert exchange(member.peer, data) == b""
        assert malformed(member) == before + 1, "it was not what was sent that closed the link"


def test_garbage_at_the_peer_port_is_logged_with_its_source_and_does_not_fill_the_log(healthy: LocalCluster) -> None:
    member = healthy.layout.controllers[1]
    before = len(log_of(healthy, member).splitlines())
    for _ in range(50):
        assert exchange(member.peer, NOISE.randbytes(64)) == b""
    lines = log_of(healthy, member).splitlines()[before:]
    assert len(lines) <= 3
    # An earlier test may have had the line that says so, a moment ago.
    assert "a connection from 127.0.0.1" in log_of(healthy, member)


def test_a_silent_caller_at_the_peer_port_is_sent_away(healthy: LocalCluster) -> None:
    with nothing_changes(healthy):
        assert exchange(healthy.layout.controllers[0].peer, b"") == b""


def test_garbage_after_a_welcome_closes_that_link_alone(healthy: LocalCluster) -> None:
    with nothing_changes(healthy):
        answer = exchange(healthy.layout.controllers[0].peer, hello(healthy) + struct.pack(">I", 2**31) + b"x")
    assert struct.unpack(">I", answer[:4])[0] == len(answer) - 4, "one Welcome, then the end"
