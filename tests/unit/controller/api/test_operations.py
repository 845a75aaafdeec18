"""Quotas, pending requests and time limits, as a client sees them."""

from __future__ import annotations

import asyncio

import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AllocateProducerIdsResponse
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Clock, Serve

ALLOCATE = "/v1/producer-ids/allocate"


async def allocate(api: Api, broker_id: int, blocks: int | None = None) -> Answer:
    query = "" if blocks is None else f"?blocks={blocks}"
    return await api.call("POST", ALLOCATE + query, json={"broker_id": broker_id, "broker_epoch": 1})


def firsts(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.text
    document = answer.json()
    assert {one["producer_id_len"] for one in (document, *document["more"])} == {1000}
    return [one["producer_id_start"] for one in (document, *document["more"])]


async def until(condition: object, attempts: int = 2000) -> None:
    """Let the loop turn until `condition()` holds."""
    assert callable(condition)
    for _ in range(attempts):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition never held")


def throttled(answer: Answer, wait_ms: int) -> None:
    assert answer.status == 429
    document = answer.json()
    assert (document["code"], document["error_code"]) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED.name, 89)
    assert document["throttle_time_ms"] == wait_ms
    assert document["retryable"] is True
    assert answer.headers["Retry-After"] == str(-(-wait_ms // 1000))


@pytest.fixture
def registered(member: MemoryMember) -> MemoryMember:
    member.epochs = dict.fromkeys(range(10), 1)
    return member


async def test_a_broker_above_its_quota_waits_as_long_as_told(
    serve: Serve, clock: Clock, registered: MemoryMember
) -> None:
    api = await serve(limits=ApiLimits(broker_allocations=Rate(0.4, 2)))
    assert [(await allocate(api, 1)).status for _ in range(2)] == [200, 200]
    throttled(await allocate(api, 1), 2500)
    assert len(registered.submitted) == 2, "the throttle comes before the proposal"
    assert (await allocate(api, 2)).status == 200
    clock.advance(2.4)
    throttled(await allocate(api, 1), 100)
    clock.advance(0.1)
    assert (await allocate(api, 1)).status == 200


async def test_all_brokers_share_the_quota_of_the_cluster(serve: Serve, registered: MemoryMember) -> None:
    api = await serve(limits=ApiLimits(cluster_allocations=Rate(1.0, 3)))
    assert [(await allocate(api, broker)).status for broker in range(3)] == [200] * 3
    throttled(await allocate(api, 3), 1000)
    assert len(registered.submitted) == 3


async def test_registrations_and_heartbeats_have_buckets_of_their_own(serve: Serve, registered: MemoryMember) -> None:
    api = await serve(limits=ApiLimits(broker_sessions=Rate(1.0, 2)))
    for _ in range(2):
        assert (await api.call("POST", "/v1/brokers/1/heartbeat", json={"broker_epoch": 1})).status == 200
    throttled(await api.call("POST", "/v1/brokers/1/heartbeat", json={"broker_epoch": 1}), 1000)
    throttled(await api.call("POST", "/v1/brokers/1/register", json={"incarnation_id": "a"}), 1000)
    throttled(await api.call("POST", "/v1/brokers/1/unregister", json={"broker_epoch": 1}), 1000)
    assert (await allocate(api, 1)).status == 200
    assert (await api.call("POST", "/v1/brokers/2/register", json={"incarnation_id": "a"})).status == 200


async def test_a_follower_uses_up_no_quota(serve: Serve, registered: MemoryMember) -> None:
    api = await serve(limits=ApiLimits(broker_allocations=Rate(1.0, 1)))
    registered.leader_id = 2
    assert [(await allocate(api, 1)).status for _ in range(3)] == [421] * 3
    registered.leader_id = 1
    assert (await allocate(api, 1)).status == 200


async def test_the_number_of_waiting_requests_is_bounded(serve: Serve, registered: MemoryMember) -> None:
    api = await serve(limits=ApiLimits(max_pending=2))
    registered.hold = True
    waiting = [asyncio.create_task(allocate(api, 1)) for _ in range(2)]
    await until(lambda: len(registered.held) == 2)
    throttled(await allocate(api, 1), 100)
    throttled(await api.call("POST", "/v1/producer-ids/floor", json={"at_least": 1}), 100)
    assert len(registered.submitted) == 2
    metrics = (await api.call("GET", "/metrics")).text
    assert "pidkeeper_api_pending_requests 2.0" in metrics
    assert 'pidkeeper_throttled_total{quota="pending"} 2.0' in metrics
    registered.hold = False
    for future in registered.held:
        future.set_result({"error_code": 0})
    assert [(await task).status for task in waiting] == [200, 200]
    assert (await allocate(api, 1)).status == 200


async def test_a_request_without_an_answer_times_out_as_unknown(
    serve: Serve, clock: Clock, registered: MemoryMember
) -> None:
    api = await serve(limits=ApiLimits(request_timeout_ms=3000))
    registered.hold = True
    task = asyncio.create_task(allocate(api, 1))
    await until(lambda: len(registered.held) == 1)
    clock.advance(3.0)
    answer = await task
    assert (answer.status, answer.json()["code"]) == (504, ErrorCode.REQUEST_TIMED_OUT.name)
    assert registered.held[0].cancelled()


async def test_one_request_brings_as_many_blocks_as_it_asks_for(serve: Serve, registered: MemoryMember) -> None:
    api = await serve()
    assert firsts(await allocate(api, 1)) == [0]
    assert firsts(await allocate(api, 1, 1)) == [1000]
    assert firsts(await allocate(api, 1, 3)) == [2000, 3000, 4000]
    assert len(registered.submitted) == 5


async def test_all_blocks_of_a_request_are_taken_before_the_first_one_is_there(
    serve: Serve, registered: MemoryMember
) -> None:
    """So that one batch of the log carries them."""
    api = await serve()
    registered.hold = True
    task = asyncio.create_task(allocate(api, 1, 8))
    await until(lambda: registered.held)
    assert len(registered.held) == 8
    for place, future in enumerate(registered.held):
        future.set_result(AllocateProducerIdsResponse(0, place * 1000, 1000))
    assert firsts(await task) == list(range(0, 8000, 1000))


@pytest.mark.parametrize("blocks", ["0", "65", "-1", "x", "1.5", ""])
async def test_no_number_of_blocks_is_refused(serve: Serve, registered: MemoryMember, blocks: str) -> None:
    answer = await (await serve()).call("POST", f"{ALLOCATE}?blocks={blocks}", json={"broker_id": 1, "broker_epoch": 1})
    assert (answer.status, answer.json()["code"]) == (400, "INVALID_REQUEST")
    assert "blocks" in answer.json()["detail"]
    assert registered.submitted == []


async def test_each_block_of_a_request_costs_a_token_and_a_quota_ends_within_it(
    serve: Serve, clock: Clock, registered: MemoryMember
) -> None:
    api = await serve(limits=ApiLimits(broker_allocations=Rate(1.0, 3)))
    assert firsts(await allocate(api, 1, 2)) == [0, 1000]
    assert firsts(await allocate(api, 1, 2)) == [2000]
    throttled(await allocate(api, 1, 2), 1000)
    clock.advance(1.0)
    assert firsts(await allocate(api, 1, 64)) == [3000]
    assert len(registered.submitted) == 4


async def test_a_request_for_blocks_takes_no_more_room_than_there_is(serve: Serve, registered: MemoryMember) -> None:
    api = await serve(limits=ApiLimits(max_pending=3))
    registered.hold = True
    task = asyncio.create_task(allocate(api, 1, 8))
    await until(lambda: registered.held)
    assert len(registered.held) == 3
    throttled(await allocate(api, 2, 8), 100)
    for place, future in enumerate(registered.held):
        future.set_result(AllocateProducerIdsResponse(0, place * 1000, 1000))
    assert firsts(await task) == [0, 1000, 2000]


async def test_blocks_that_were_granted_are_told_whatever_became_of_the_others(
    serve: Serve, registered: MemoryMember
) -> None:
    api = await serve()
    registered.hold = True
    lost = RequestError(ErrorCode.NOT_CONTROLLER, "the lead is gone")
    for granted in ([1], [0, 2], []):
        registered.held.clear()
        task = asyncio.create_task(allocate(api, 1, 3))
        await until(lambda: len(registered.held) == 3)
        for place, future in enumerate(registered.held):
            if place in granted:
                future.set_result(AllocateProducerIdsResponse(0, place * 1000, 1000))
            else:
                future.set_exception(lost)
        if granted:
            assert firsts(await task) == [place * 1000 for place in granted]
        else:
            assert ((await task).status, (await task).json()["code"]) == (421, "NOT_CONTROLLER")


async def test_a_broker_with_a_stale_epoch_gets_no_block_of_several(serve: Serve, registered: MemoryMember) -> None:
    registered.epochs[1] = 2
    answer = await allocate(await serve(), 1, 4)
    assert answer.json()["code"] == "STALE_BROKER_EPOCH"
    assert registered.history == []
