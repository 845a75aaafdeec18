"""An agent's transport in Kafka's protocol: what it carries is answered as over HTTP."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.broker_agent.controllers import kafka_transport
from pidkeeper.broker_agent.controllers.kafka_requests import kafka_request
from pidkeeper.broker_agent.controllers.kafka_transport import KafkaTransport
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.state.requests import RegisterBroker
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import Problem
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import MAX_SECRET_BYTES
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import CLUSTER_ID
from tests.support.waiting import until
from tests.unit.controller.kafka.conftest import Serve, Served

SECONDS: Final = 5.0
INCARNATION: Final = str(uuid.UUID(int=77))
FOUNDING: Final = uuid.UUID(int=5)
HELD: Final = {"founding_id": str(FOUNDING), "highest_producer_id": 7}
PRODUCER: Final = {"broker_id": 5, "broker_epoch": 1, "transactional_id": "t", "producer_id": 0, "producer_epoch": 0}
INIT: Final = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1, "candidate": -1}

CALLS: Final[list[tuple[str, Any]]] = [
    ("/v1/brokers/5/register", {"incarnation_id": INCARNATION}),
    ("/v1/brokers/5/register", {"incarnation_id": INCARNATION, "cluster_id": CLUSTER_ID, "kafka": "h:1", "held": HELD}),
    ("/v1/brokers/5/register", {"incarnation_id": INCARNATION, "cluster_id": "another"}),
    ("/v1/brokers/5/register", {"incarnation_id": INCARNATION, "held": HELD}),
    ("/v1/brokers/5/register", {"incarnation_id": INCARNATION, "kafka": "no address"}),
    ("/v1/brokers/5/heartbeat", {"broker_epoch": 1}),
    ("/v1/brokers/5/heartbeat?reserve_ids=9", {"broker_epoch": 1, "held": HELD}),
    ("/v1/brokers/5/heartbeat", {"broker_epoch": 99}),
    ("/v1/brokers/6/heartbeat", {"broker_epoch": 1}),
    ("/v1/producer-ids/allocate", {"broker_id": 5, "broker_epoch": 1}),
    ("/v1/producer-ids/allocate?blocks=4", {"broker_id": 5, "broker_epoch": 1, "cluster_id": CLUSTER_ID, "held": HELD}),
    ("/v1/producer-ids/allocate", {"broker_id": 5, "broker_epoch": 1, "cluster_id": "another"}),
    ("/v1/producer-ids/allocate", {"broker_id": 5, "broker_epoch": 99}),
    ("/v1/brokers", None),
    ("/v1/transactions/init-producer-id", {**PRODUCER, **INIT}),
    ("/v1/transactions/end", {**PRODUCER, "committed": True}),
    ("/v1/nowhere", {}),
    ("/v1/brokers/7/register?metadata_version=13", {"incarnation_id": INCARNATION}),
    ("/v1/brokers/5/unregister", {"broker_epoch": 1}),
    ("/v1/brokers/5/unregister", {"broker_epoch": 1}),
]


@pytest.fixture
async def transport() -> AsyncIterator[KafkaTransport]:
    async with KafkaTransport() as transport:
        yield transport


def url(served: Served) -> str:
    return f"kafka://{served.address}"


async def by_http(served: Served, path: str, body: bytes | None) -> tuple[int, Any]:
    headers = CIMultiDict({"Content-Type": "application/json"})
    answer = await served.app.dispatch(HttpRequest("GET" if body is None else "POST", URL(path), headers, body or b""))
    return answer.status, msgspec.json.decode(answer.body)


async def by_kafka(transport: KafkaTransport, served: Served, path: str, body: bytes | None) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    status, content = await transport.exchange(method, url(served), path, body, SECONDS)
    return status, msgspec.json.decode(content)


@pytest.mark.parametrize("leader", [1, None])
async def test_every_call_is_answered_as_over_http(serve: Serve, transport: KafkaTransport, leader: int | None) -> None:
    """The same answers, and the same requests of the quorum."""
    one, other = await serve(), await serve()
    for served in (one, other):
        served.member.leader_id = leader
        served.member.founding_id = FOUNDING
    for path, request in CALLS:
        body = None if request is None else msgspec.json.encode(request)
        assert await by_kafka(transport, one, path, body) == await by_http(other, path, body), path
    assert one.member.submitted == other.member.submitted
    assert (RegisterBroker(7, INCARNATION, metadata_version=13) in one.member.submitted) == (leader == 1)


async def test_a_member_that_follows_names_the_leader_as_it_can_be_reached(
    serve: Serve, transport: KafkaTransport
) -> None:
    served = await serve()
    served.member.leader_id = 2
    for path, request in (CALLS[0], CALLS[5], CALLS[9], CALLS[14]):
        status, content = await transport.exchange("POST", url(served), path, msgspec.json.encode(request), SECONDS)
        problem = msgspec.json.decode(content, type=Problem)
        assert (status, problem.code, problem.leader) == (421, "NOT_CONTROLLER", "kafka://127.0.0.1:2")
    served.member.leader_id = 3
    _, content = await transport.exchange("POST", url(served), *_encoded(CALLS[9]), SECONDS)
    assert msgspec.json.decode(content, type=Problem).leader is None, "nobody said where 3 listens"


def _encoded(call: tuple[str, Any]) -> tuple[str, bytes]:
    return call[0], msgspec.json.encode(call[1])


async def test_a_quota_says_how_long_to_wait(serve: Serve, transport: KafkaTransport) -> None:
    served = await serve(limits=ApiLimits(broker_allocations=Rate(1.0, 1)))
    answers = [await transport.exchange("POST", url(served), *_encoded(CALLS[9]), SECONDS) for _ in range(2)]
    problem = msgspec.json.decode(answers[1][1], type=Problem)
    assert (answers[1][0], problem.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
    assert 0 < problem.throttle_time_ms <= 1000


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
async def test_every_refusal_comes_as_what_it_is(serve: Serve, transport: KafkaTransport, code: ErrorCode) -> None:
    """Also those of ours, which have one number in Kafka."""
    served = await serve()
    served.member.fault = RequestError(code, "why", throttle_time_ms=5)
    for call in (CALLS[0], CALLS[5], CALLS[9], CALLS[14], CALLS[17]):
        status, content = await transport.exchange("POST", url(served), *_encoded(call), SECONDS)
        problem = msgspec.json.decode(content, type=Problem)
        told = (status, problem.code, problem.error_code, problem.detail, problem.throttle_time_ms)
        assert told == (code.http_status, code.name, code.kafka_code, "why", 5)


async def test_a_connection_serves_one_request_after_another(serve: Serve, transport: KafkaTransport) -> None:
    served = await serve()
    for _ in range(5):
        await transport.exchange("POST", url(served), *_encoded(CALLS[0]), SECONDS)
    assert served.interface.listener.accepted == 1
    await asyncio.gather(*(transport.exchange("GET", url(served), "/v1/brokers", None, SECONDS) for _ in range(9)))
    assert served.interface.listener.accepted <= 9


async def test_what_is_given_up_ends_its_connection(serve: Serve, transport: KafkaTransport) -> None:
    """Its answer may still come, and must not be that of the next request; and nobody waits for it any more."""
    served = await serve()
    served.member.hold = True
    with pytest.raises(TimeoutError):
        await transport.exchange("POST", url(served), *_encoded(CALLS[9]), 0.1)
    status, content = await transport.exchange("GET", url(served), "/v1/brokers", None, SECONDS)
    assert (status, msgspec.json.decode(content)) == (200, {"brokers": []})
    assert served.interface.listener.accepted == 2
    served.member.held[0].set_exception(RequestError(ErrorCode.NOT_CONTROLLER))
    await until(lambda: len(served.interface.listener.connections) == 1)


async def test_no_more_connections_than_that(
    serve: Serve, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_transport, "MAX_CONNECTIONS_PER_MEMBER", 3)
    served = await serve()
    served.member.hold = True
    asked = [
        asyncio.create_task(transport.exchange("POST", url(served), *_encoded(CALLS[9]), SECONDS)) for _ in "12345"
    ]
    await until(lambda: len(served.member.held) == 3)
    assert served.interface.listener.accepted == 3
    for task in asked:
        task.cancel()
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*asked, return_exceptions=True))


async def test_members_that_are_named_and_gone_are_not_remembered_for_ever(transport: KafkaTransport) -> None:
    for port in range(1, 40):
        with pytest.raises(OSError, match="onnect"):
            await transport.exchange("GET", f"kafka://127.0.0.1:{port}", "/v1/brokers", None, SECONDS)
    assert len(transport._members) == kafka_transport.MAX_MEMBERS


async def test_a_request_that_no_frame_can_hold_is_refused_before_it_is_sent(
    serve: Serve, transport: KafkaTransport
) -> None:
    served = await serve()
    body = b'"' + b"x" * (MAX_FRAME_BYTES - 50) + b'"'
    status, content = await transport.exchange("POST", url(served), "/v1/transactions/end", body, SECONDS)
    assert (status, msgspec.json.decode(content)["code"]) == (413, "MESSAGE_TOO_LARGE")
    assert served.interface.listener.accepted == 0
    largest = b'"' + b"x" * (MAX_FRAME_BYTES - 200) + b'"'
    status, _ = await transport.exchange("POST", url(served), "/v1/transactions/end", largest, SECONDS)
    assert status == 400


async def test_a_stream_is_not_told_here(serve: Serve, transport: KafkaTransport) -> None:
    served = await serve()
    status, _ = await transport.exchange("GET", url(served), "/v1/events", None, SECONDS)
    assert status == 400
    for path in ("http://elsewhere/v1/brokers", "//elsewhere/v1/brokers", "v1/brokers", "http://[::1"):
        status, _ = await transport.exchange("GET", url(served), path, None, SECONDS)
        assert status in {400, 404}, path


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_token_that_is_refused_is_looked_for_again(serve: Serve, tmp_path: Path, replaced: bool) -> None:
    served, file = await serve(token="the new one"), tmp_path / "token"
    file.write_text("the old one")
    token = Refreshed("token", [str(file)], file.read_text)
    if replaced:
        file.write_text("the new one")
    async with KafkaTransport(token=token) as transport:
        status, content = await transport.exchange("GET", url(served), "/v1/brokers", None, SECONDS)
    if replaced:
        assert status == 200
    else:
        assert (status, msgspec.json.decode(content)["code"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")


@pytest.mark.parametrize("length", [1, MAX_SECRET_BYTES])
async def test_a_token_may_be_as_long_as_over_http(serve: Serve, length: int) -> None:
    served = await serve(token="t" * length)
    async with KafkaTransport(token=Refreshed("token", [], lambda: "t" * length)) as transport:
        assert (await transport.exchange("GET", url(served), "/v1/brokers", None, SECONDS))[0] == 200


async def test_a_token_that_nobody_wants_is_no_hindrance(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    async with KafkaTransport(token=Refreshed("token", [], lambda: "secret")) as transport:
        assert (await transport.exchange("GET", url(served), "/v1/brokers", None, SECONDS))[0] == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x7f\xff\xff\xff",
        (24).to_bytes(4, "big") + (9).to_bytes(4, "big") + bytes(20),
        (5).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\x00",
        (23).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(5) + b"\x05" + bytes(13),
    ],
    ids=["nothing", "too long", "of another request", "no body", "an error without a name"],
)
async def test_an_answer_that_is_none_is_the_members_failure(transport: KafkaTransport, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ConnectionError, ValueError)):
            await transport.exchange("POST", f"kafka://127.0.0.1:{port}", *_encoded(CALLS[9]), SECONDS)


def test_what_has_no_word_in_kafka_is_a_call_of_ours() -> None:
    keys = {path: kafka_request("GET" if body is None else "POST", path, _body(body)).key for path, body in CALLS}
    assert {key for path, key in keys.items() if "/brokers/" in path} == {62, 63}
    assert {key for path, key in keys.items() if "allocate" in path} == {67}
    assert {key for path, key in keys.items() if "transactions" in path or path == "/v1/brokers"} == {0x7069}


def _body(request: Any) -> bytes | None:
    return None if request is None else msgspec.json.encode(request)
