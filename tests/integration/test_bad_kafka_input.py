"""Malformed input at an agent's two ports: refused or cut off, no ID is spent on it, and the agent goes on."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest

from pidkeeper.broker_agent.kafka.dispatch import SERVED
from pidkeeper.cli.kafka_load import ANSWER_BYTES, request_frame
from pidkeeper.cli.local_cluster import Agent, LocalCluster
from pidkeeper.service.content import MAX_BODY_BYTES
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES
from tests.support.cluster import metrics
from tests.support.http_calls import address_of, call, exchange

INIT_PRODUCER_ID, METADATA, FIND_COORDINATOR, API_VERSIONS = 22, 3, 10, 18


def kafka_request(api_key: int, version: int, body: bytes) -> bytes:
    """A request with header v1: what follows the client id is up to `body`."""
    payload = struct.pack(">hhih3s", api_key, version, 7, 3, b"bad") + body
    return struct.pack(">i", len(payload)) + payload


def claim(agent: Agent) -> int:
    """One ID over the Kafka wire."""
    answer = exchange(agent.kafka, request_frame(), wanted=ANSWER_BYTES)
    error, producer_id = struct.unpack_from(">hq", answer, 13)
    assert error == 0, f"error code {error}"
    return int(producer_id)


def claims(agent: Agent) -> float:
    """IDs that the agent has given out so far."""
    return metrics(agent)["pidkeeper_agent_claims_total"]


BAD_FRAMES = {
    "giant": struct.pack(">i", 2**31 - 1) + b"x",
    "negative": struct.pack(">i", -1) + b"x" * 20,
    "just-too-large": struct.pack(">i", MAX_FRAME_BYTES + 1),
    "empty": struct.pack(">i", 0),
    "no-header": struct.pack(">ih", 2, INIT_PRODUCER_ID),
    "unknown-key": kafka_request(0, 3, b""),
    "negative-key": kafka_request(-1, 0, b""),
    "version-6": kafka_request(INIT_PRODUCER_ID, 6, b"\x00" * 30),
    "version-negative": kafka_request(INIT_PRODUCER_ID, -1, b"\x00" * 30),
    "array-bomb": kafka_request(METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "array-negative": kafka_request(METADATA, 1, struct.pack(">i", -2)),
    "compact-array-bomb": kafka_request(FIND_COORDINATOR, 4, b"\x00\x00\xff\xff\xff\xff\x0f"),
    "varint-without-end": kafka_request(INIT_PRODUCER_ID, 4, b"\xff" * 20),
    "tag-bomb": kafka_request(INIT_PRODUCER_ID, 4, b"\xff\xff\xff\xff\x0f" + b"\x00" * 30),
    "string-bomb": kafka_request(INIT_PRODUCER_ID, 1, struct.pack(">h", 32_767) + b"x"),
    "left-over": request_frame()[:3] + bytes([request_frame()[3] + 1]) + request_frame()[4:] + b"\x00",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": b"\x7f" + random.Random(98).randbytes(600),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_closes_its_connection_alone(healthy: LocalCluster, data: bytes) -> None:
    (agent,) = healthy.layout.agents
    before = claims(agent)
    with socket.create_connection(address_of(agent.kafka)) as bystander:
        assert exchange(agent.kafka, data) == b""
        assert claims(agent) == before
        bystander.sendall(request_frame())
        answer = b""
        while len(answer) < ANSWER_BYTES:
            chunk = bystander.recv(ANSWER_BYTES)
            assert chunk, "a good connection was closed too"
            answer += chunk
    assert struct.unpack_from(">h", answer, 13) == (0,)


def test_good_requests_before_a_bad_one_are_answered(healthy: LocalCluster) -> None:
    (agent,) = healthy.layout.agents
    answers = exchange(agent.kafka, 3 * request_frame() + BAD_FRAMES["unknown-key"])
    assert len(answers) == 3 * ANSWER_BYTES
    ids = [struct.unpack_from(">q", answers, position * ANSWER_BYTES + 15)[0] for position in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("kept", [1, 4, 12, -1])
def test_a_client_that_dies_within_a_frame_costs_nothing(healthy: LocalCluster, kept: int) -> None:
    (agent,) = healthy.layout.agents
    before = claims(agent)
    assert exchange(agent.kafka, request_frame()[:kept], end=True) == b""
    assert claims(agent) == before
    assert claim(agent) >= 0


def test_api_versions_above_ours_is_told_what_is_served(healthy: LocalCluster) -> None:
    (agent,) = healthy.layout.agents
    request = kafka_request(API_VERSIONS, 99, b"\x00" * 10)
    answer = exchange(agent.kafka, request, end=True)
    size, correlation, error, count = struct.unpack_from(">iihi", answer)
    assert (size, correlation, error, count) == (len(answer) - 4, 7, 35, len(SERVED))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "INVALID_REQUEST"),
        (b"\xff", 400, "INVALID_REQUEST"),
        ({"producer_id": -2}, 400, "INVALID_REQUEST"),
        ({"producer_id": 2**63}, 400, "INVALID_REQUEST"),
        ({"producer_epoch": 2**15}, 400, "INVALID_REQUEST"),
        ({"unknown": 1}, 400, "INVALID_REQUEST"),
        ({"transactional_id": ""}, 400, "INVALID_REQUEST"),
        ({"transactional_id": "x" * 250}, 400, "INVALID_REQUEST"),
        ({"transactional_id": "t"}, 400, "INVALID_TRANSACTION_TIMEOUT"),
        ({"transactional_id": "x" * MAX_BODY_BYTES}, 413, "MESSAGE_TOO_LARGE"),
    ],
)
def test_a_bad_http_claim_is_refused(healthy: LocalCluster, body: Any, status: int, code: str) -> None:
    (agent,) = healthy.layout.agents
    before = claims(agent)
    answer = call(agent.http, "POST", "/v1/init-producer-id", body)
    assert (answer.status, answer.json()["code"]) == (status, code)
    assert claims(agent) == before
    assert call(agent.http, "POST", "/v1/init-producer-id", {}).status == 200
