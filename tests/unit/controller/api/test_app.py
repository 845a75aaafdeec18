"""Every call as a client sees it, and every kind of bad input."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pidkeeper.controller.state.requests import AllocateProducerIds, BrokerHeartbeat, RegisterBroker, UnregisterBroker
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import AllocatedBlocksPage, Problem, QuorumDescription
from pidkeeper.service.content import MAX_BODY_BYTES
from tests.support.memory_member import CLUSTER_ID, URLS, MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Serve

ALLOCATE = "/v1/producer-ids/allocate"
FLOOR = "/v1/producer-ids/floor"
REGISTER = "/v1/brokers/5/register"
INIT = "/v1/transactions/init-producer-id"
ADD = "/v1/transactions/add-partitions"
END = "/v1/transactions/end"
ABORT = "/v1/transactions/abort"
PRODUCER = {"broker_id": 5, "broker_epoch": 1, "transactional_id": "tx", "producer_id": 0, "producer_epoch": 0}


def problem(answer: Answer, status: int, code: ErrorCode) -> Problem:
    """The problem document of an answer, once its status, media type and code are as they should be."""
    assert (answer.status, answer.content_type) == (status, "application/problem+json"), answer.body
    document = msgspec.json.decode(answer.body, type=Problem)
    assert document.status == status
    assert (document.code, document.error_code) == (code.name, code.kafka_code)
    assert document.retryable is code.retriable
    assert document.title == code.meaning
    assert document.detail
    assert document.type.startswith("urn:pidkeeper:problem:")
    return document


async def registered(api: Api) -> int:
    answer = await api.call("POST", REGISTER, json={"incarnation_id": "a", "cluster_id": CLUSTER_ID})
    assert answer.status == 200, answer.body
    epoch: int = answer.json()["broker_epoch"]
    return epoch


async def test_register_and_allocate_and_find_the_owner(api: Api, member: MemoryMember) -> None:
    epoch = await registered(api)
    first = await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch})
    second = await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch, "cluster_id": CLUSTER_ID})
    assert first.json() == {
        "error_code": 0,
        "producer_id_start": 0,
        "producer_id_len": 1000,
        "throttle_time_ms": 0,
        "founding_id": None,
        "succession": None,
        "more": [],
    }
    assert second.json()["producer_id_start"] == 1000
    assert second.content_type == "application/json"
    assert (await api.call("GET", "/v1/producer-ids/1999/owner")).json() == {
        **msgspec.to_builtins(member.history[1]),
        "transactional": None,
        "free": False,
    }
    problem(await api.call("GET", "/v1/producer-ids/2000/owner"), 404, ErrorCode.RESOURCE_NOT_FOUND)
    assert member.submitted == [
        RegisterBroker(5, "a"),
        AllocateProducerIds(5, epoch),
        AllocateProducerIds(5, epoch),
    ]


async def test_heartbeat_and_unregister(api: Api, member: MemoryMember) -> None:
    epoch = await registered(api)
    answer = await api.call("POST", "/v1/brokers/5/heartbeat", json={"broker_epoch": epoch})
    assert answer.json() == {"fenced": False, "metadata_version": 1, "founding_id": None, "succession": None}
    assert member.submitted[-1] == BrokerHeartbeat(5, epoch)
    answer = await api.call("POST", "/v1/brokers/5/unregister", json={"broker_epoch": epoch})
    assert answer.json() == {"broker_id": 5}
    gone = await api.call("POST", "/v1/brokers/5/heartbeat", json={"broker_epoch": epoch})
    problem(gone, 404, ErrorCode.BROKER_ID_NOT_REGISTERED)


async def test_a_broker_is_fenced_by_its_newest_epoch_or_the_one_that_is_named(api: Api, member: MemoryMember) -> None:
    path = "/v1/brokers/5/fence"
    problem(await api.call("POST", path, json={}), 404, ErrorCode.RESOURCE_NOT_FOUND)
    epoch = await registered(api)
    other = await api.call("POST", path, json={"broker_epoch": epoch + 1})
    assert f"has epoch {epoch}, not {epoch + 1}" in problem(other, 400, ErrorCode.INVALID_REQUEST).detail
    assert member.submitted == [RegisterBroker(5, "a")]
    fenced = await api.call("POST", path, json={})
    assert fenced.json() == {"broker_id": 5, "broker_epoch": epoch}
    assert member.submitted[-1] == UnregisterBroker(5, epoch)
    refused = await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch})
    problem(refused, 404, ErrorCode.BROKER_ID_NOT_REGISTERED)
    again = await registered(api)
    assert (await api.call("POST", path, json={"broker_epoch": again})).json()["broker_epoch"] == again > epoch


async def test_the_history_comes_in_pages(api: Api) -> None:
    epoch = await registered(api)
    for _ in range(3):
        await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch})
    first = msgspec.json.decode(
        (await api.call("GET", "/v1/producer-ids/blocks?limit=2")).body, type=AllocatedBlocksPage
    )
    assert [block.first for block in first.blocks] == [0, 1000]
    rest = await api.call("GET", f"/v1/producer-ids/blocks?after={first.next_after}&limit=2")
    page = msgspec.json.decode(rest.body, type=AllocatedBlocksPage)
    assert ([block.first for block in page.blocks], page.next_after) == ([2000], None)


async def test_the_floor_rises_only(api: Api) -> None:
    answer = await api.call("POST", FLOOR, json={"at_least": 5000})
    assert answer.json() == {"next_producer_id": 5000, "raised": True}
    answer = await api.call("POST", FLOOR, json={"at_least": 10})
    assert answer.json() == {"next_producer_id": 5000, "raised": False}


async def test_quorum_and_transfer(api: Api, member: MemoryMember) -> None:
    described = msgspec.json.decode((await api.call("GET", "/v1/quorum")).body, type=QuorumDescription)
    assert described == member.describe()
    for target in (2, None):
        answer = await api.call("POST", "/v1/quorum/transfer", json={"target": target})
        assert answer.status == 200
    assert member.transfers == [2, None]
    refused = await api.call("POST", "/v1/quorum/transfer", json={"target": 9})
    problem(refused, 404, ErrorCode.RESOURCE_NOT_FOUND)


async def test_a_refusal_by_the_state_is_a_problem(api: Api, member: MemoryMember) -> None:
    epoch = await registered(api)
    stale = await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch - 1})
    assert problem(stale, 409, ErrorCode.STALE_BROKER_EPOCH).retryable
    member.next_id = 2**63 - 1
    exhausted = await api.call("POST", ALLOCATE, json={"broker_id": 5, "broker_epoch": epoch})
    assert not problem(exhausted, 507, ErrorCode.PRODUCER_IDS_EXHAUSTED).retryable


PROPOSALS: list[tuple[str, dict[str, Any]]] = [
    (ALLOCATE, {"broker_id": 5, "broker_epoch": 1}),
    (REGISTER, {"incarnation_id": "a"}),
    ("/v1/brokers/5/heartbeat", {"broker_epoch": 1}),
    ("/v1/brokers/5/unregister", {"broker_epoch": 1}),
    (FLOOR, {"at_least": 1}),
    ("/v1/quorum/transfer", {"target": 2}),
    (INIT, {**PRODUCER, "transaction_timeout_ms": 1000}),
    (ADD, {**PRODUCER, "topics": [{"topic": "t", "partitions": [0]}]}),
    (END, {**PRODUCER, "committed": True}),
    (ABORT, {"transactional_id": "tx"}),
]


@pytest.mark.parametrize(("path", "body"), PROPOSALS)
async def test_a_follower_names_the_leader(api: Api, member: MemoryMember, path: str, body: dict[str, Any]) -> None:
    member.leader_id = 2
    document = problem(await api.call("POST", path, json=body), 421, ErrorCode.NOT_CONTROLLER)
    assert (document.leader_id, document.leader) == (2, URLS[2])
    assert URLS[2] in document.detail
    assert (member.submitted, member.transfers) == ([], [])


@pytest.mark.parametrize(("path", "body"), PROPOSALS)
async def test_without_a_leader_nobody_is_named(
    api: Api, member: MemoryMember, path: str, body: dict[str, Any]
) -> None:
    member.leader_id = None
    answer = await api.call("POST", path, json=body)
    document = problem(answer, 421, ErrorCode.NOT_CONTROLLER)
    assert (document.leader_id, document.leader) == (None, None)
    assert "leader_id" not in answer.json()


@pytest.mark.parametrize(
    ("path", "body"), [(ALLOCATE, {"broker_id": 5, "broker_epoch": 1}), (REGISTER, {"incarnation_id": "a"})]
)
async def test_another_cluster_is_refused_by_both_names(
    api: Api, member: MemoryMember, path: str, body: dict[str, Any]
) -> None:
    answer = await api.call("POST", path, json={**body, "cluster_id": "elsewhere"})
    document = problem(answer, 409, ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert "'elsewhere'" in document.detail
    assert repr(CLUSTER_ID) in document.detail
    assert member.submitted == []


def changed(**changes: Any) -> bytes:
    """The body of a producer's request with these members."""
    return msgspec.json.encode({**PRODUCER, **changes})


BAD_BODIES: list[tuple[str, bytes]] = [
    (ALLOCATE, b""),
    (ALLOCATE, b"{"),
    (ALLOCATE, b'{"broker_id": 5, "broker_ep'),
    (ALLOCATE, b"\xff\xfe"),
    (ALLOCATE, b"[]"),
    (ALLOCATE, b"null"),
    (ALLOCATE, b"{}"),
    (ALLOCATE, b'{"broker_id": 5}'),
    (ALLOCATE, b'{"broker_id": "5", "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": true, "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": 5.0, "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": null, "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": -1, "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": 2147483648, "broker_epoch": 1}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": -1}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 9223372036854775808}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": ' + b"9" * 6000 + b"}"),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 1, "surprise": 1}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 1, "cluster_id": ""}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 1, "cluster_id": "' + b"x" * 65 + b'"}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 1, "cluster_id": "\xed\xa0\x80"}'),
    (ALLOCATE, b'{"broker_id": 5, "broker_epoch": 1} trailing'),
    (ALLOCATE, b"[" * 60_000),
    (REGISTER, b'{"incarnation_id": ""}'),
    (REGISTER, b'{"incarnation_id": "' + b"x" * 65 + b'"}'),
    (REGISTER, b'{"incarnation_id": 7}'),
    ("/v1/brokers/5/heartbeat", b'{"broker_epoch": 9223372036854775808}'),
    ("/v1/brokers/5/unregister", b'{"broker_epoch": 9223372036854775808}'),
    ("/v1/brokers/-1/register", b'{"incarnation_id": "a"}'),
    ("/v1/brokers/2147483648/register", b'{"incarnation_id": "a"}'),
    ("/v1/brokers/five/register", b'{"incarnation_id": "a"}'),
    ("/v1/brokers/5%0d%0aX/register", b'{"incarnation_id": "a"}'),
    (FLOOR, b'{"at_least": -1}'),
    (FLOOR, b'{"at_least": 9223372036854775808}'),
    ("/v1/quorum/transfer", b'{"target": 0}'),
    ("/v1/quorum/transfer", b'{"target": "two"}'),
    (REGISTER, b'{"incarnation_id": "a", "kafka": "nowhere"}'),
    (REGISTER, b'{"incarnation_id": "a", "kafka": ""}'),
    (REGISTER, b'{"incarnation_id": "a", "kafka": "' + b"x" * 300 + b':9092"}'),
    (REGISTER, b'{"incarnation_id": "a", "kafka": "' + b"a:" * 130 + b'9092"}'),
    (INIT, changed(transaction_timeout_ms=2**31)),
    (INIT, changed(transaction_timeout_ms=1, broker_epoch=2**63)),
    (INIT, changed(transaction_timeout_ms=1, transactional_id=None)),
    (INIT, changed(transaction_timeout_ms=1, candidate=-2)),
    (INIT, changed(transaction_timeout_ms=1, producer_epoch=2**15)),
    (ADD, changed(topics=[])),
    (ADD, changed(topics=[{"topic": "t", "partitions": []}])),
    (ADD, changed(topics=[{"topic": "", "partitions": [0]}])),
    (ADD, changed(topics=[{"topic": "t" * 250, "partitions": [0]}])),
    (ADD, changed(topics=[{"topic": "t", "partitions": [-1]}])),
    (ADD, changed(topics=[{"topic": "t", "partitions": [0] * 16_385}])),
    (ADD, changed(topics=[{"topic": "t", "partitions": [0]}], broker_epoch=2**63)),
    (END, changed(committed=1)),
    (END, changed(committed=True, broker_epoch=2**63)),
    (ABORT, b'{"transactional_id": ""}'),
    (ABORT, b'{"transactional_id": "' + b"x" * 250 + b'"}'),
    (ABORT, b'{"transactional_id": "tx", "producer_id": -2}'),
]


@pytest.mark.parametrize(("path", "body"), BAD_BODIES, ids=lambda value: repr(value)[:48])
async def test_a_malformed_request_changes_nothing(api: Api, member: MemoryMember, path: str, body: bytes) -> None:
    answer = await api.call("POST", path, data=body, headers={"Content-Type": "application/json"})
    document = problem(answer, 400, ErrorCode.INVALID_REQUEST)
    assert len(document.detail) < 400
    assert (member.submitted, member.transfers) == ([], [])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/producer-ids/-1/owner",
        "/v1/producer-ids/9223372036854775808/owner",
        "/v1/producer-ids/1e3/owner",
        "/v1/producer-ids/blocks?limit=0",
        "/v1/producer-ids/blocks?limit=1001",
        "/v1/producer-ids/blocks?after=-2",
        "/v1/producer-ids/blocks?after=",
        "/v1/producer-ids/blocks?after=x",
        "/v1/producer-ids/blocks?after=1&after=2",
        "/v1/producer-ids/blocks?page=1",
        "/v1/transactions?limit=0",
        "/v1/transactions?limit=1001",
        "/v1/transactions?limit=many",
        "/v1/transactions?producer_id=-1",
        "/v1/transactions?producer_id=x",
        "/v1/transactions?state=Dead",
        "/v1/transactions?state=",
        "/v1/transactions?state=Empty&state=Ongoing",
        "/v1/transactions?after=" + "x" * 250,
        "/v1/transactions?page=1",
        "/v1/transactions/describe",
        "/v1/transactions/describe?transactional_id=",
        "/v1/transactions/describe?transactional_id=" + "x" * 250,
        "/v1/transactions/describe?transactional_id=a&transactional_id=b",
    ],
)
async def test_a_malformed_parameter_is_refused(api: Api, path: str) -> None:
    problem(await api.call("GET", path), 400, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "nonsense", "", "x" * 500]
)
async def test_another_media_type_is_refused(api: Api, member: MemoryMember, content_type: str) -> None:
    answer = await api.call("POST", REGISTER, data=b'{"incarnation_id": "a"}', headers={"Content-Type": content_type})
    document = problem(answer, 415, ErrorCode.INVALID_REQUEST)
    assert "application/msgpack" in document.detail
    assert answer.headers["Accept"] == "application/json, application/msgpack"
    assert member.submitted == []


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", None])
async def test_json_under_its_other_names_is_served(api: Api, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    skip = ["Content-Type"] if content_type is None else []
    answer = await api.call("POST", REGISTER, data=b'{"incarnation_id": "a"}', headers=headers, skip_auto_headers=skip)
    assert answer.status == 200


async def test_msgpack_both_ways(api: Api) -> None:
    body = msgspec.msgpack.encode({"incarnation_id": "a"})
    headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    answer = await api.call("POST", REGISTER, data=body, headers=headers)
    assert (answer.status, answer.content_type) == (200, "application/msgpack")
    assert msgspec.msgpack.decode(answer.body) == {
        "broker_epoch": 1,
        "cluster_id": CLUSTER_ID,
        "metadata_version": 1,
        "founding_id": None,
        "succession": None,
    }


async def test_request_and_response_media_types_are_independent(api: Api) -> None:
    packed = await api.call("POST", REGISTER, json={"incarnation_id": "a"}, headers={"Accept": "application/msgpack"})
    assert msgspec.msgpack.decode(packed.body)["broker_epoch"] == 1
    body = msgspec.msgpack.encode({"incarnation_id": "b"})
    plain = await api.call("POST", REGISTER, data=body, headers={"Content-Type": "application/msgpack"})
    assert plain.json()["broker_epoch"] == 2


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81", b"\x80", b"\x81\xa1a\x01", b"\xdd\xff\xff\xff\xff"])
async def test_malformed_msgpack_changes_nothing(api: Api, member: MemoryMember, body: bytes) -> None:
    answer = await api.call("POST", REGISTER, data=body, headers={"Content-Type": "application/msgpack"})
    problem(answer, 400, ErrorCode.INVALID_REQUEST)
    assert member.submitted == []


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *lines, "", "")).encode()


async def test_a_giant_declared_body_is_refused_unread(api: Api, member: MemoryMember) -> None:
    """Not one byte of it is sent, so an answer can only rest on the declared size."""
    answer = await api.raw(head(ALLOCATE, f"Content-Length: {MAX_BODY_BYTES + 1}"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert b"MESSAGE_TOO_LARGE" in answer
    assert member.submitted == []


async def test_a_giant_body_of_unknown_size_is_refused(api: Api, member: MemoryMember) -> None:
    async def chunks() -> Any:
        for _ in range(MAX_BODY_BYTES // 1024 + 1):
            yield b" " * 1024

    answer = await api.call("POST", ALLOCATE, data=chunks(), headers={"Content-Type": "application/json"})
    problem(answer, 413, ErrorCode.MESSAGE_TOO_LARGE)
    assert member.submitted == []


async def test_an_endless_body_is_refused_at_the_limit(api: Api, member: MemoryMember) -> None:
    """No last chunk is ever sent, so an answer can only rest on the bytes so far."""
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    answer = await api.raw(head(ALLOCATE, "Transfer-Encoding: chunked") + chunk * (MAX_BODY_BYTES // 1024 + 1))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert member.submitted == []


async def test_a_giant_body_that_is_there_already_is_refused(api: Api) -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    answer = await api.call("POST", ALLOCATE, data=body, headers={"Content-Type": "application/json"})
    problem(answer, 413, ErrorCode.MESSAGE_TOO_LARGE)


async def test_the_largest_body_is_read(api: Api) -> None:
    body = b'{"incarnation_id": "a"}'.ljust(MAX_BODY_BYTES)
    answer = await api.call("POST", REGISTER, data=body, headers={"Content-Type": "application/json"})
    assert answer.status == 200


async def test_a_body_in_pieces_is_read(api: Api) -> None:
    async def pieces() -> Any:
        for piece in (b'{"incarnat', b'ion_id": ', b'"a"}'):
            yield piece
            await asyncio.sleep(0)

    answer = await api.call("POST", REGISTER, data=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status == 200


async def test_a_truncated_body_changes_nothing(api: Api, member: MemoryMember) -> None:
    await api.raw(head(REGISTER, "Content-Length: 100") + b'{"incarnation_id": "a"}', half_close=True)
    assert member.submitted == []
    assert (await api.call("GET", "/livez")).status == 200


async def test_a_stalled_body_is_given_up(api: Api, member: MemoryMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.service.body.BODY_TIMEOUT_SECONDS", 0.05)
    answer = await api.raw(head(REGISTER, "Content-Length: 100") + b'{"incarnation_id": "a"}')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"23 of 100 bytes" in answer
    assert member.submitted == []


@pytest.mark.parametrize(
    "data",
    [
        head(REGISTER, "Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n",
        head(REGISTER, "Content-Length: -1"),
        head(REGISTER, "Content-Length: 2", "Content-Length: 3") + b"{}",
        head(REGISTER, "Transfer-Encoding: chunked", "Content-Length: 2") + b"{}",
        head(REGISTER, "X-Long: " + "x" * 20_000),
        b"BREW /coffee HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=["chunk", "negative length", "two lengths", "length and chunks", "long header", "method", "TLS"],
)
async def test_bytes_that_are_no_http_change_nothing(
    api: Api, member: MemoryMember, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    answer = await api.raw(data)
    assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 ")), answer
    assert member.submitted == []
    assert not caplog.records, "a hostile caller cannot fill the log"


async def test_a_compressed_body_is_not_inflated(api: Api, member: MemoryMember) -> None:
    import gzip

    body = gzip.compress(b'{"incarnation_id": "a"}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    problem(await api.call("POST", REGISTER, data=body, headers=headers), 400, ErrorCode.INVALID_REQUEST)
    assert member.submitted == []


@pytest.mark.parametrize(
    "path", ["/v1", "/v2/quorum", "/console/console.py", "/v1/brokers//register", "/v1/producer-ids/1/2/owner"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_unknown_path(api: Api, method: str, path: str) -> None:
    problem(await api.call(method, path), 404, ErrorCode.RESOURCE_NOT_FOUND)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", ALLOCATE, "POST"),
        ("PUT", REGISTER, "POST"),
        ("DELETE", "/v1/quorum", "GET"),
        ("POST", "/livez", "GET, HEAD"),
        ("PROPFIND", "/metrics", "GET, HEAD"),
    ],
)
async def test_an_unknown_method(api: Api, method: str, path: str, allowed: str) -> None:
    answer = await api.call(method, path)
    problem(answer, 405, ErrorCode.INVALID_REQUEST)
    assert answer.headers["Allow"] == allowed


async def test_a_fault_is_answered_without_its_details(
    api: Api, member: MemoryMember, caplog: pytest.LogCaptureFixture
) -> None:
    member.fault = RuntimeError("secret path")
    answer = await api.call("POST", REGISTER, json={"incarnation_id": "a"})
    problem(answer, 500, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "secret" not in answer.text
    assert "register_broker failed" in caplog.text


TOKEN = "correct horse"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \u00e9"],
)
async def test_without_the_token_nothing_happens(serve: Serve, member: MemoryMember, header: str | None) -> None:
    api = await serve(token=TOKEN)
    headers = {} if header is None else {"Authorization": header}
    for method, path in (("POST", REGISTER), ("POST", "/v1/quorum/transfer"), ("GET", "/v1/quorum")):
        answer = await api.call(method, path, headers=headers, **({"json": {}} if method == "POST" else {}))
        problem(answer, 401, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert (member.submitted, member.transfers) == ([], [])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_with_the_token_calls_are_served(serve: Serve, scheme: str) -> None:
    api = await serve(token=TOKEN)
    answer = await api.call("GET", "/v1/quorum", headers={"Authorization": f"{scheme} {TOKEN}"})
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/readyz/leader", "/metrics", "/openapi.json"])
async def test_probes_metrics_and_document_are_open(serve: Serve, path: str) -> None:
    api = await serve(token=TOKEN)
    assert (await api.call("GET", path)).status == 200


OPERATORS = "horse battery"
FAR = {"at_least": 10**13}


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_where_operators_have_a_token_nobody_else_changes_the_cluster(
    serve: Serve, member: MemoryMember, token: str | None
) -> None:
    api = await serve(token=token, operator_token=OPERATORS)
    for path, body in (("/v1/quorum/transfer", {"target": 2}), (FLOOR, {"at_least": 7})):
        refused = await api.call("POST", path, json=body, headers=bearer(token))
        problem(refused, 403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert (await api.call("POST", path, json=body, headers=bearer(OPERATORS))).status == 200
    assert member.transfers == [2]
    fencing = await api.call("POST", "/v1/brokers/5/fence", json={}, headers=bearer(token))
    problem(fencing, 403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # All the rest is as it was, for brokers and for operators.
    for known in (token, OPERATORS):
        answer = await api.call("POST", REGISTER, json={"incarnation_id": "a"}, headers=bearer(known))
        assert answer.status == 200


async def test_one_call_does_not_burn_the_ids(serve: Serve, member: MemoryMember) -> None:
    api = await serve(operator_token=OPERATORS)
    operator = bearer(OPERATORS)
    for end in (2**63 - 1, 2**63 - 1000):
        gone = await api.call("POST", FLOOR, json={"at_least": end, "force": True}, headers=operator)
        assert "would leave no block" in problem(gone, 400, ErrorCode.INVALID_REQUEST).detail
    far = await api.call("POST", FLOOR, json=FAR, headers=operator)
    assert "force it, with the operators' token" in problem(far, 400, ErrorCode.INVALID_REQUEST).detail
    assert member.next_id == 0
    assert (await api.call("POST", FLOOR, json={**FAR, "force": True}, headers=operator)).status == 200
    assert member.next_id == 10**13


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_force_takes_an_operator_who_has_proven_to_be_one(
    serve: Serve, member: MemoryMember, token: str | None
) -> None:
    """Not just anybody, where nobody has to prove anything; nor whoever has the common token."""
    api = await serve(token=token)
    refused = await api.call("POST", FLOOR, json={**FAR, "force": True}, headers=bearer(token))
    assert "operator_token_file" in problem(refused, 403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED).detail
    assert member.next_id == 0


async def test_a_page_of_another_origin_gives_no_orders_though_its_browser_has_a_name(
    api: Api, member: MemoryMember
) -> None:
    headers = {"Origin": "https://evil.example"}
    problem(
        await api.call("POST", FLOOR, data=b'{"at_least": 5}', headers=headers, skip_auto_headers=["Content-Type"]),
        403,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
    assert member.submitted == []
    assert (await api.call("GET", "/v1/quorum", headers=headers)).status == 200
    own = {"Origin": "http://{}:{}".format(*api.address)}
    assert (await api.call("POST", FLOOR, json={"at_least": 5}, headers=own)).status == 200
    assert len(member.submitted) == 1
