"""Every call of an agent as a client sees it, and every kind of bad input."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.api.metrics import AgentCollector
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.messages import InitProducerIdRequest
from pidkeeper.service.access import Access
from pidkeeper.service.content import MAX_BODY_BYTES
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.token_hashes import digest_of
from pidkeeper.service.token_list import ListedToken, TokenList
from tests.support.served_app import served
from tests.support.stub_controller import StubQuorum
from tests.support.whole_agent import direct_agent, make_agent


@pytest.fixture
def agent() -> Agent:
    client = ControllerClient(("http://c:1",), AiohttpTransport(), random.Random())
    return make_agent(client, settings=PrefetchSettings(min_blocks=1))


@pytest.fixture
async def http(agent: Agent) -> AsyncIterator[ClientSession]:
    async with served(build_app(agent, KafkaListener(Access.PRODUCER))) as session:
        yield session


PRODUCER = {"transactional_id": "t", "producer_id": 5, "producer_epoch": 0}


def give(agent: Agent, ids: int = 10) -> None:
    agent.session.broker_epoch, agent.session.cluster_id = 5, "x"
    agent.reserve.offer(ProducerIdBlock(100, ids))


async def test_init_producer_id(agent: Agent, http: ClientSession) -> None:
    give(agent)
    for expected in (100, 101):
        response = await http.post("/v1/init-producer-id", json={"transactional_id": None})
        assert response.status == 200
        answer = await response.json()
        assert answer == {"error_code": 0, "producer_id": expected, "producer_epoch": 0, "throttle_time_ms": 0}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "INVALID_REQUEST"),
        (b"[]", 400, "INVALID_REQUEST"),
        (b"[" * 10_000, 400, "INVALID_REQUEST"),
        (b'{"x": ' + b"[" * 10_000, 400, "INVALID_REQUEST"),
        (b'{"transactionalId": null}', 400, "INVALID_REQUEST"),
        (b'{"producer_id": 9223372036854775808}', 400, "INVALID_REQUEST"),
        (b'{"transactional_id": "\xff"}', 400, "INVALID_REQUEST"),
        (b'{"transactional_id": ""}', 400, "INVALID_REQUEST"),
        (b'{"transactional_id": "%s"}' % (b"x" * 250), 400, "INVALID_REQUEST"),
        (b'{"transactional_id": "t"}', 400, "INVALID_TRANSACTION_TIMEOUT"),
        (b'{"producer_id": 5}', 400, "INVALID_REQUEST"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "MESSAGE_TOO_LARGE"),
    ],
)
async def test_a_bad_request_gets_a_problem_and_claims_nothing(
    agent: Agent, http: ClientSession, body: bytes, status: int, code: str
) -> None:
    give(agent)
    response = await http.post("/v1/init-producer-id", data=body, headers={"Content-Type": "application/json"})
    problem = await response.json()
    assert (response.status, problem["status"], problem["code"]) == (status, status, code)
    assert response.content_type == "application/problem+json"
    assert problem["detail"]
    assert problem["retryable"] is False
    assert agent.reserve.claimed == 0


async def test_msgpack_by_content_type(agent: Agent, http: ClientSession) -> None:
    give(agent)
    headers = {"Content-Type": "application/msgpack"}
    response = await http.post("/v1/init-producer-id", data=msgspec.msgpack.encode({}), headers=headers)
    assert (response.status, response.content_type) == (200, "application/msgpack")
    assert msgspec.msgpack.decode(await response.read())["producer_id"] == 100
    for bad in (b"", b"\xc1", b"\x81\xb0transactional_id\xa1\xff"):
        assert (await http.post("/v1/init-producer-id", data=bad, headers=headers)).status == 400
    assert agent.reserve.claimed == 1


async def test_with_no_id_at_hand_the_answer_is_503_and_retryable(http: ClientSession) -> None:
    response = await http.post("/v1/init-producer-id", json={})
    problem = await response.json()
    assert (response.status, problem["code"], problem["error_code"], problem["retryable"]) == (
        503,
        "COORDINATOR_LOAD_IN_PROGRESS",
        14,
        True,
    )


async def test_where_no_id_will_ever_be_at_hand_the_answer_is_final(agent: Agent, http: ClientSession) -> None:
    agent.reserve.exhaust()
    response = await http.post("/v1/init-producer-id", json={})
    problem = await response.json()
    assert (response.status, problem["code"], problem["retryable"]) == (507, "PRODUCER_IDS_EXHAUSTED", False)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("add-partitions", {"topics": [{"topic": "a", "partitions": [1]}]}),
        ("add-offsets", {"group_id": "g"}),
        ("end", {"committed": True}),
    ],
)
async def test_a_step_of_a_transaction_in_both_forms(path: str, more: dict[str, Any]) -> None:
    whole = direct_agent(StubQuorum())
    await whole.transactions.init_producer_id(InitProducerIdRequest("t", 60_000))
    app = build_app(whole.agent, whole.listener)
    if path == "end":
        await whole.transactions.step(AddOffsetsToTxn("t", 0, 0, "g"))
    body = {**PRODUCER, "producer_id": 0, **more}
    headers = {"Content-Type": "application/msgpack"}
    async with served(app) as client:
        for _ in range(2):
            response = await client.post(f"/v1/transactions/{path}", json=body)
            assert (response.status, await response.json()) == (200, {"error_code": 0})
        packed = msgspec.msgpack.encode(body)
        response = await client.post(f"/v1/transactions/{path}", data=packed, headers=headers)
        assert (response.status, response.content_type) == (200, "application/msgpack")
        assert msgspec.msgpack.decode(await response.read()) == {"error_code": 0}
        response = await client.post(f"/v1/transactions/{path}", json={**body, "producer_epoch": 7})
        problem = await response.json()
        assert (response.status, problem["code"], problem["retryable"]) == (409, "PRODUCER_FENCED", False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("add-partitions", {**PRODUCER, "topics": []}),
        ("add-partitions", {**PRODUCER, "topics": [{"topic": "a", "partitions": []}]}),
        ("add-partitions", {**PRODUCER, "topics": [{"topic": "a", "partitions": [-1]}]}),
        ("add-partitions", PRODUCER),
        ("add-offsets", PRODUCER),
        ("add-offsets", {**PRODUCER, "group_id": None}),
        ("end", {**PRODUCER, "committed": 1}),
        ("end", {**PRODUCER, "committed": True, "more": 1}),
        ("end", {**PRODUCER, "committed": True, "producer_epoch": 2**15}),
        ("end", {**PRODUCER, "committed": True, "transactional_id": None}),
    ],
)
async def test_a_malformed_step_gets_a_problem(http: ClientSession, path: str, body: dict[str, Any]) -> None:
    response = await http.post(f"/v1/transactions/{path}", json=body)
    problem = await response.json()
    assert (response.status, problem["code"]) == (400, "INVALID_REQUEST")
    assert response.content_type == "application/problem+json"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/init-producer-id", 405)])
async def test_a_wrong_path_or_method_gets_a_problem(http: ClientSession, method: str, path: str, status: int) -> None:
    response = await http.request(method, path)
    problem = await response.json()
    assert (response.status, response.content_type, problem["status"]) == (status, "application/problem+json", status)
    assert status != 405 or response.headers["Allow"] == "POST"


async def test_readiness_follows_the_reserve(agent: Agent, http: ClientSession) -> None:
    async def ready() -> tuple[int, str]:
        response = await http.get("/readyz")
        return response.status, await response.text()

    def unready(reason: str) -> tuple[int, str]:
        return 503, f"[-]claims failed: {reason}\n[+]shutdown ok\nreadyz check failed\n"

    assert (await http.get("/livez")).status == 200
    assert await ready() == unready("not registered with the controller yet; the first fill of the reserve is not done")
    give(agent, ids=1)
    assert await ready() == (200, "ok\n")
    agent.reserve.claim()
    assert await ready() == unready("the reserve is empty")
    agent.reserve.offer(ProducerIdBlock(500, 5))
    assert await ready() == (200, "ok\n")
    agent.stopping = True
    assert await ready() == unready("the agent is stopping")
    assert (await http.get("/livez")).status == 200


async def test_metrics_show_the_counters(agent: Agent, http: ClientSession) -> None:
    give(agent)
    for _ in range(11):
        agent.reserve.claim()
    agent.prefetcher.rounds["failed"] += 2
    agent.prefetcher.on_round(0.2, 0)
    await http.post("/v1/transactions/end", json={**PRODUCER, "transactional_id": "", "committed": True})
    text = await (await http.get("/metrics")).text()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    prefix = "pidkeeper_agent_"
    assert samples[prefix + "claims_total",] == 10
    assert samples[prefix + "claim_errors_total",] == 1
    assert samples[prefix + "reserve_ids",] == 0
    assert samples[prefix + "broker_epoch",] == 5
    assert samples[prefix + "connections",] == 0
    assert samples[prefix + "prefetch_rounds_total", "failed"] == 2
    assert samples[prefix + "prefetch_duration_seconds_count",] == 1
    assert samples[prefix + "starved_seconds_total",] > 0
    assert samples[prefix + "transactional_requests_total", "end", "INVALID_REQUEST"] == 1
    assert samples[prefix + "transactional_requests_under_way",] == 0
    assert samples[prefix + "transactional_duration_seconds_count", "end"] == 1
    assert samples[prefix + "transactional_duration_seconds_count", "init_producer_id"] == 0
    assert samples[prefix + "candidates_kept",] == 0
    assert samples[prefix + "known_agents",] == 1
    assert samples["pidkeeper_api_requests_total", "INVALID_REQUEST", "end_txn"] == 1
    assert samples["pidkeeper_http_connections",] == 1
    assert {name.split("_")[0] for name, *_ in samples} == {"pidkeeper", "process"}


async def test_the_last_success_is_told_of_and_lasts(agent: Agent) -> None:
    now = 1_000.0
    collector = AgentCollector(agent, KafkaListener(Access.PRODUCER), lambda: now)

    def told() -> float:
        (value,) = [
            sample.value
            for family in collector.collect()
            for sample in family.samples
            if sample.name == "pidkeeper_agent_last_success_timestamp_seconds"
        ]
        return value

    agent.prefetcher.on_round(0.1, 0)
    assert told() == 0
    agent.prefetcher.on_round(0.1, 2)
    assert told() == 1_000
    now = 2_000.0
    agent.prefetcher.on_round(0.1, 0)
    assert told() == 1_000


async def test_status(agent: Agent, http: ClientSession) -> None:
    give(agent)
    agent.reserve.claim()
    status = await (await http.get("/v1/status")).json()
    assert (status["broker_id"], status["broker_epoch"], status["cluster_id"]) == (7, 5, "x")
    assert (status["reserve_ids"], status["claimed"], status["ready"]) == (9, 1, True)
    assert status["leader"] == "http://c:1"


async def test_the_openapi_document_is_valid_and_names_every_route(agent: Agent, http: ClientSession) -> None:
    document = await (await http.get("/openapi.json")).json()
    validate(document)
    announced = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    served_calls = build_app(agent, KafkaListener(Access.PRODUCER)).served()
    assert announced == {(method, path) for method, path in served_calls if method != "HEAD"}
    assert "InitProducerIdRequest" in document["components"]["schemas"]


async def test_a_broken_invariant_is_reported_to_the_process(agent: Agent, http: ClientSession) -> None:
    give(agent)
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    agent.reserve._last_claimed = 10**9
    response = await http.post("/v1/init-producer-id", json={})
    assert (response.status, (await response.json())["code"]) == (500, "UNKNOWN_SERVER_ERROR")
    assert isinstance(reported[0], AssertionError)


async def test_with_a_token_calls_need_it_and_probes_do_not(agent: Agent, tmp_path: Path) -> None:
    give(agent)
    file = tmp_path / "tokens"
    file.write_text(ListedToken("app", ("producer",), digest_of(b"secret")).line)
    async with served(build_app(agent, KafkaListener(Access.PRODUCER), tokens=TokenList(str(file)))) as http:
        refused = await http.post("/v1/init-producer-id", json={})
        problem = await refused.json()
        assert (refused.status, problem["code"]) == (401, "CLUSTER_AUTHORIZATION_FAILED")
        assert agent.reserve.claimed == 0
        assert (await http.get("/readyz")).status == 200
        headers = {"Authorization": "Bearer secret"}
        assert (await http.post("/v1/init-producer-id", json={}, headers=headers)).status == 200


async def test_an_accept_header_decides_on_the_form_of_the_answer(agent: Agent, http: ClientSession) -> None:
    give(agent)
    packed, plain = {"Content-Type": "application/msgpack"}, {"Accept": "application/json"}
    response = await http.post("/v1/init-producer-id", data=msgspec.msgpack.encode({}), headers={**packed, **plain})
    assert (response.content_type, (await response.json())["producer_id"]) == ("application/json", 100)
    response = await http.post("/v1/init-producer-id", json={}, headers={"Accept": "application/msgpack"})
    assert msgspec.msgpack.decode(await response.read())["producer_id"] == 101


async def test_another_media_type_is_refused(agent: Agent, http: ClientSession) -> None:
    give(agent)
    response = await http.post("/v1/init-producer-id", data=b"{}", headers={"Content-Type": "text/plain"})
    assert (response.status, (await response.json())["code"]) == (415, "INVALID_REQUEST")
    assert agent.reserve.claimed == 0
