"""Quotas, pending requests and time limits, as a client sees them."""

from __future__ import annotations

import asyncio

import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Clock, Serve

ALLOCATE = "/v1/producer-ids/allocate"


async def allocate(api: Api, broker_id: int) -> Answer:
    return await api.call("POST", ALLOCATE, json={"broker_id": broker_id, "broker_epoch": 1})


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
