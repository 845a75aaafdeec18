"""Transactions over HTTP: what goes through to the state, what comes back, and the quotas."""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import quote

import msgspec
import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.models import TransactionState
from pidkeeper.controller.node import transaction_views
from pidkeeper.controller.node.transaction_views import STATE_NAMES
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    RegisterBroker,
)
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import BrokerDescription, BrokersResponse, TransactionDescription, TransactionsPage
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import NOW_MS, MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Serve

ROOT = "/v1/transactions"


@pytest.fixture
def member(member: MemoryMember) -> MemoryMember:
    """Broker 5 is registered with epoch 1, and 1000 IDs are allocated."""
    member.epochs = {5: 1}
    member.next_id = 1000
    return member


def body(name: str, producer: tuple[int, int] = (-1, -1), **more: Any) -> dict[str, Any]:
    return {
        "broker_id": 5,
        "broker_epoch": 1,
        "transactional_id": name,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        **more,
    }


async def init(api: Api, name: str, candidate: int = -1, producer: tuple[int, int] = (-1, -1)) -> Answer:
    wanted = body(name, producer, transaction_timeout_ms=5000, candidate=candidate)
    return await api.call("POST", f"{ROOT}/init-producer-id", json=wanted)


async def add(api: Api, name: str, producer: tuple[int, int], *topics: tuple[str, list[int]]) -> Answer:
    wanted = [{"topic": topic, "partitions": partitions} for topic, partitions in topics or [("t", [0])]]
    return await api.call("POST", f"{ROOT}/add-partitions", json=body(name, producer, topics=wanted))


async def end(api: Api, name: str, producer: tuple[int, int], committed: bool = True) -> Answer:
    return await api.call("POST", f"{ROOT}/end", json=body(name, producer, committed=committed))


async def page(api: Api, query: str = "") -> TransactionsPage:
    answer = await api.call("GET", f"{ROOT}?{query}")
    assert answer.status == 200, answer.text
    return msgspec.json.decode(answer.body, type=TransactionsPage)


async def names(api: Api, query: str = "") -> list[str]:
    return [found.transactional_id for found in (await page(api, query)).transactions]


def refused(answer: Answer, code: ErrorCode) -> None:
    assert (answer.status, answer.json()["code"]) == (code.http_status, code.name), answer.text


async def test_a_transaction_goes_through_with_all_that_was_said(api: Api, member: MemoryMember) -> None:
    answer = await init(api, "tx", candidate=7)
    assert answer.json() == {"error_code": 0, "producer_id": 7, "producer_epoch": 0, "throttle_time_ms": 0}
    bumped = await init(api, "tx", producer=(7, 0))
    assert bumped.json()["producer_epoch"] == 1
    assert (await add(api, "tx", (7, 1), ("t", [3, 0]), ("u", [1]))).json() == {"error_code": 0}
    assert (await end(api, "tx", (7, 1))).json() == {"error_code": 0}
    assert member.submitted == [
        InitProducerId(5, 1, "tx", 5000, -1, -1, 7),
        InitProducerId(5, 1, "tx", 5000, 7, 0, -1),
        AddPartitionsToTxn(5, 1, "tx", 7, 1, (TopicPartitions("t", (3, 0)), TopicPartitions("u", (1,)))),
        EndTxn(5, 1, "tx", 7, 1, True),
    ]


async def test_the_answers_of_the_state_become_problems(api: Api) -> None:
    refused(await init(api, "tx"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    refused(await init(api, ""), ErrorCode.INVALID_REQUEST)
    await init(api, "tx", candidate=7)
    refused(await init(api, "tx", producer=(7, 4)), ErrorCode.PRODUCER_FENCED)
    refused(await add(api, "tx", (8, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    refused(await end(api, "tx", (7, 0)), ErrorCode.INVALID_TXN_STATE)
    await add(api, "tx", (7, 0))
    refused(await init(api, "tx"), ErrorCode.CONCURRENT_TRANSACTIONS)
    wrong_epoch = {**body("tx", transaction_timeout_ms=1), "broker_epoch": 2}
    refused(await api.call("POST", f"{ROOT}/init-producer-id", json=wrong_epoch), ErrorCode.STALE_BROKER_EPOCH)
    bad_time = body("tx", transaction_timeout_ms=0)
    refused(await api.call("POST", f"{ROOT}/init-producer-id", json=bad_time), ErrorCode.INVALID_TRANSACTION_TIMEOUT)


async def test_a_request_for_too_many_partitions_is_refused(api: Api, member: MemoryMember) -> None:
    """It fits into a body as msgpack, with one byte a partition, and not into an entry of the log."""
    await init(api, "tx", candidate=7)
    topics = [{"topic": f"t{number}", "partitions": [0] * 16_000} for number in range(4)]
    packed = msgspec.msgpack.encode(body("tx", (7, 0), topics=topics))
    headers = {"Content-Type": "application/msgpack"}
    assert (await api.call("POST", f"{ROOT}/add-partitions", data=packed, headers=headers)).status == 200
    many = [{"topic": f"t{number}", "partitions": list(range(120))} for number in range(130)]
    packed = msgspec.msgpack.encode(body("tx", (7, 0), topics=many))
    answer = await api.call("POST", f"{ROOT}/add-partitions", data=packed, headers=headers)
    refused(answer, ErrorCode.MESSAGE_TOO_LARGE)


async def test_an_operator_aborts_a_transaction(api: Api, member: MemoryMember) -> None:
    unknown = await api.call("POST", f"{ROOT}/abort", json={"transactional_id": "tx"})
    refused(unknown, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    await init(api, "tx", candidate=7)
    refused(await api.call("POST", f"{ROOT}/abort", json={"transactional_id": "tx"}), ErrorCode.INVALID_TXN_STATE)
    await add(api, "tx", (7, 0))
    other = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 1}
    refused(await api.call("POST", f"{ROOT}/abort", json=other), ErrorCode.INVALID_TXN_STATE)
    right = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0}
    assert (await api.call("POST", f"{ROOT}/abort", json=right)).json() == {"error_code": 0}
    assert member.submitted[-1] == AbortTransaction("tx", 7, 0)
    refused(await end(api, "tx", (7, 0)), ErrorCode.PRODUCER_FENCED)


async def test_an_id_is_described(api: Api) -> None:
    name = "a/b&c= \N{GREEK SMALL LETTER PI}"
    path = f"{ROOT}/describe?transactional_id={quote(name, safe='')}"
    refused(await api.call("GET", path), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    await init(api, name, candidate=7)
    described = msgspec.json.decode((await api.call("GET", path)).body, type=TransactionDescription)
    assert described == TransactionDescription(name, 7, 0, -1, -1, "Empty", 5000, None, NOW_MS, [])
    await init(api, name, producer=(7, 0))
    await add(api, name, (7, 1), ("u", [4]), ("t", [2, 1]))
    described = msgspec.json.decode((await api.call("GET", path)).body, type=TransactionDescription)
    assert (described.producer_epoch, described.last_producer_id, described.last_producer_epoch) == (1, 7, 0)
    assert (described.state, described.start_ms) == ("Ongoing", NOW_MS)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [1, 2]), ("u", [4])]


async def test_ids_are_listed_in_pages_and_filtered(api: Api) -> None:
    assert await page(api) == TransactionsPage([], None)
    for number, name in enumerate(["d", "a", "c", "b"]):
        await init(api, name, candidate=number)
    await add(api, "c", (2, 0))
    assert await names(api) == ["a", "b", "c", "d"]
    first = await page(api, "limit=3")
    assert ([found.transactional_id for found in first.transactions], first.next_after) == (["a", "b", "c"], "c")
    rest = await page(api, "limit=3&after=c")
    assert ([found.transactional_id for found in rest.transactions], rest.next_after) == (["d"], None)
    assert (await page(api, "limit=4")).next_after is None
    assert await names(api, "state=Ongoing") == ["c"]
    assert await names(api, "state=Empty&after=a") == ["b", "d"]
    assert await names(api, "state=CompleteCommit") == []
    assert await names(api, "producer_id=1") == ["a"]
    assert await names(api, "producer_id=1&after=a") == []
    assert await names(api, "producer_id=1&state=Ongoing") == []
    assert await names(api, "producer_id=999") == []


async def test_a_page_with_many_partitions_ends_early(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_views, "MAX_PAGE_PARTITION_BYTES", 100)
    for number, name in enumerate(["a", "b", "c"]):
        await init(api, name, candidate=number)
        await add(api, name, (number, 0), ("t", list(range(11 + 20 * number))))
    first = await page(api)
    assert ([found.transactional_id for found in first.transactions], first.next_after) == (["a"], "a")
    # Too large for any page: it has one of its own.
    assert await names(api, "after=a") == ["b"]
    assert await names(api, "after=b") == ["c"]


async def test_a_page_looks_at_a_bounded_number_of_ids(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_views, "MAX_LOOKED_AT", 2)
    for number, name in enumerate(["a", "b", "c", "d", "e"]):
        await init(api, name, candidate=number)
    await add(api, "e", (4, 0))
    pages = [await page(api, f"state=Ongoing&after={after}") for after in ("", "b", "d")]
    assert [(len(one.transactions), one.next_after) for one in pages] == [(0, "b"), (0, "d"), (1, None)]


def test_the_states_that_can_be_asked_for_are_all_but_dead() -> None:
    assert STATE_NAMES == (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    )
    assert get_args(TransactionState) == STATE_NAMES[: TransactionStatus.DEAD]


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/describe?transactional_id=tx"])
async def test_only_the_leader_knows_the_newest(api: Api, member: MemoryMember, path: str) -> None:
    member.leader_id = 2
    refused(await api.call("GET", path), ErrorCode.NOT_CONTROLLER)
    assert (await api.call("GET", "/v1/brokers")).status == 200


async def test_brokers_are_listed_with_where_their_clients_reach_them(api: Api, member: MemoryMember) -> None:
    registration = {"incarnation_id": "a", "kafka": "kafka.example:9092"}
    answer = await api.call("POST", "/v1/brokers/3/register", json=registration)
    assert member.submitted == [RegisterBroker(3, "a", "kafka.example:9092")]
    listed = msgspec.json.decode((await api.call("GET", "/v1/brokers")).body, type=BrokersResponse)
    epoch = answer.json()["broker_epoch"]
    assert listed.brokers == [
        BrokerDescription(3, epoch, False, "kafka.example:9092", "memory"),
        BrokerDescription(5, 1, False, None, "memory"),
    ]


async def test_new_producers_and_steps_of_transactions_have_buckets_of_their_own(
    serve: Serve, member: MemoryMember
) -> None:
    limits = ApiLimits(broker_transactional_inits=Rate(1.0, 2), broker_transactions=Rate(1.0, 3))
    api = await serve(limits=limits)
    for _ in range(2):
        assert (await init(api, "tx", candidate=7)).status == 200
    refused(await init(api, "tx"), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert (await add(api, "tx", (7, 1))).status == 200
    assert (await end(api, "tx", (7, 1))).status == 200
    refused(await end(api, "tx", (7, 0)), ErrorCode.PRODUCER_FENCED)
    refused(await add(api, "tx", (7, 1)), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    heartbeat = await api.call("POST", "/v1/brokers/5/heartbeat", json={"broker_epoch": 1})
    assert heartbeat.status == 200
    assert (await api.call("POST", f"{ROOT}/abort", json={"transactional_id": "tx"})).status == 409, "an operator's"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{ROOT}/init-producer-id"),
        ("POST", f"{ROOT}/add-partitions"),
        ("POST", f"{ROOT}/end"),
        ("POST", f"{ROOT}/abort"),
        ("GET", ROOT),
        ("GET", f"{ROOT}/describe?transactional_id=tx"),
        ("GET", "/v1/brokers"),
    ],
)
async def test_a_token_is_required_where_there_is_one(serve: Serve, method: str, path: str) -> None:
    api = await serve(token="secret")
    refused_without = await api.call(method, path)
    assert (refused_without.status, refused_without.json()["code"]) == (401, "CLUSTER_AUTHORIZATION_FAILED")
