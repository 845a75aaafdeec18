"""The calls about topics and partition logs over HTTP: what goes through to the state, what comes back."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.state.requests import CommitObject, ConfirmState, CreateTopic, DeleteTopic
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import MAX_INT64, MAX_OBJECT_BATCHES, ObjectId
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import FOUNDING_ID, MemoryMember
from tests.support.waiting import until
from tests.unit.controller.api.conftest import Answer, Api, Clock, Serve

TOPIC_ID = str(uuid.UUID(int=9))


@pytest.fixture
def member(member: MemoryMember) -> MemoryMember:
    """Broker 5 is registered with epoch 1, with the cluster's store."""
    member.epochs = {5: 1}
    return member


async def post(api: Api, path: str, **body: Any) -> Answer:
    return await api.call("POST", f"/v1/{path}", json=body)


async def create(api: Api, name: str = "t", **more: Any) -> Answer:
    wanted = {"topic_id": TOPIC_ID, "name": name, "partitions": 2, "broker_id": 5, "broker_epoch": 1}
    return await post(api, "topics/create", **wanted | more)


async def commit(api: Api, number: int = 1, *, log: int = 0, **more: Any) -> Answer:
    batches = [[log, 3, 0, 10, -1, -1, -1, 77, False]]
    wanted: dict[str, Any] = {"broker_id": 5, "broker_epoch": 1, "founding_id": str(FOUNDING_ID), "number": number}
    wanted |= {"size": 10, "batches": batches}
    return await post(api, "objects/commit", **wanted | more)


def refused(answer: Answer, code: ErrorCode) -> None:
    assert (answer.status, answer.json()["code"]) == (code.http_status, code.name), answer.text


async def test_a_topic_is_created_written_to_read_and_deleted(api: Api, member: MemoryMember) -> None:
    described = {"topic_id": TOPIC_ID, "name": "t", "partitions": 2, "first_log": 0}
    described |= {"retention_ms": -1, "retention_bytes": -1}
    assert (await create(api)).json() == described
    assert (await create(api)).json() == described, "asked again, it is answered alike"
    assert (await commit(api)).json() == {"outcomes": [0], "referenced": True}
    found = (await post(api, "logs/read", logs=[[0, 0, 100], [7, 0, 100]])).json()
    assert found["objects"] == [f"wal/{FOUNDING_ID}/5/1/{1:020}"]
    assert found["logs"][0] == {
        "log": 0,
        "log_start": 0,
        "end": 3,
        "last_stable": 3,
        "batches": [[0, 0, 0, 10]],
    }
    assert found["logs"][1] == {"log": 7, "error_code": 3}
    found = (await post(api, "logs/offsets", logs=[[0, -1], [0, 77]])).json()
    assert found["offsets"] == [[0, 3, -1, None, None], [0, 0, 77, [0, 0, 0, 10], None]]
    assert [name.split("/")[0] for name in found["objects"]] == ["wal"]
    gone = await post(api, "topics/delete", name="t", broker_id=5, broker_epoch=1)
    assert gone.json() == {"topic_id": TOPIC_ID, "name": "t"}
    assert (await commit(api, 2)).json() == {"outcomes": [-3], "referenced": False}
    topic_id = uuid.UUID(TOPIC_ID)
    batch = OfferedBatch(0, 3, 0, 10, -1, -1, -1, 77, False)
    created = CreateTopic(topic_id, "t", 2, -1, -1, (5, 1), False)
    assert member.submitted == [
        created,
        created,
        CommitObject(ObjectId(5, 1, 1), FOUNDING_ID, 10, (batch,)),
        ConfirmState(),
        DeleteTopic("t", None, (5, 1)),
        CommitObject(ObjectId(5, 1, 2), FOUNDING_ID, 10, (batch,)),
    ]


async def test_a_read_is_confirmed_if_it_is_to_be(api: Api, member: MemoryMember) -> None:
    await create(api)
    await post(api, "logs/read", logs=[[0, 0, 1]])
    assert ConfirmState() not in member.submitted
    await post(api, "logs/read", logs=[[0, 0, 1]], confirmed=True)
    assert member.submitted[-1] == ConfirmState()


async def test_an_operators_topic_is_of_no_broker(api: Api, member: MemoryMember) -> None:
    wanted = {"topic_id": TOPIC_ID, "name": "o", "partitions": 1, "retention_ms": 7}
    assert (await post(api, "topics", **wanted)).json()["retention_ms"] == 7
    other = uuid.UUID(int=8)
    refused(await api.call("DELETE", f"/v1/topics?name=o&topic_id={other}"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (await api.call("DELETE", f"/v1/topics?name=o&topic_id={TOPIC_ID}")).json()["name"] == "o"
    assert member.submitted == [
        CreateTopic(uuid.UUID(TOPIC_ID), "o", 1, 7, -1, None, False),
        DeleteTopic("o", other, None),
        DeleteTopic("o", uuid.UUID(TOPIC_ID), None),
    ]


async def test_the_answers_of_the_state_become_problems(api: Api) -> None:
    refused(await create(api, "."), ErrorCode.INVALID_TOPIC_EXCEPTION)
    await create(api)
    refused(await create(api, topic_id=str(uuid.UUID(int=8))), ErrorCode.TOPIC_ALREADY_EXISTS)
    refused(await create(api, broker_epoch=2), ErrorCode.STALE_BROKER_EPOCH)
    refused(await create(api, broker_id=None), ErrorCode.INVALID_REQUEST)
    refused(await create(api, broker_epoch=MAX_INT64 + 1), ErrorCode.INVALID_REQUEST)
    refused(await commit(api, broker_epoch=2), ErrorCode.STALE_BROKER_EPOCH)
    refused(await commit(api, size=9), ErrorCode.INVALID_REQUEST)
    refused(
        await post(api, "topics/delete", name="u", broker_id=5, broker_epoch=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


async def test_what_is_too_large_changes_nothing(api: Api, member: MemoryMember) -> None:
    one = [0, 1, 0, 1, -1, -1, -1, 0, False]
    broken: list[dict[str, Any]] = [
        {"batches": []},
        {"batches": [one] * (MAX_OBJECT_BATCHES + 1)},
        {"number": MAX_INT64 + 1},
        {"batches": [[*one[:7], MAX_INT64 + 1, False]]},
        {"batches": [[*one[:7], 2**70, False]]},
    ]
    for more in broken:
        refused(await commit(api, **more), ErrorCode.INVALID_REQUEST)
    refused(await create(api, retention_ms=2**64), ErrorCode.INVALID_REQUEST)
    refused(await post(api, "logs/read", logs=[]), ErrorCode.INVALID_REQUEST)
    refused(await post(api, "logs/watch", logs=[[0, 0, 0]], wait_ms=10_001), ErrorCode.INVALID_REQUEST)
    assert member.submitted == []


async def test_topics_are_listed_and_found(api: Api) -> None:
    for number, name in enumerate(["b", "a", "c"]):
        await create(api, name, topic_id=str(uuid.UUID(int=number)))
    page = (await api.call("GET", "/v1/topics?limit=2")).json()
    assert ([one["name"] for one in page["topics"]], page["next_after"]) == (["a", "b"], "b")
    page = (await api.call("GET", "/v1/topics?after=b")).json()
    assert ([one["name"] for one in page["topics"]], page["next_after"]) == (["c"], None)
    found = (await post(api, "topics/find", names=["c", "none"])).json()
    assert [one["first_log"] for one in found["topics"]] == [4]


async def test_a_watch_ends_when_the_log_goes_on(api: Api, member: MemoryMember) -> None:
    await create(api)
    waiting = asyncio.create_task(post(api, "logs/watch", logs=[[0, 0, 0], [1, 0, 0]], wait_ms=10_000))
    await until(lambda: bool(member.log_watch._watches))
    await commit(api, log=1)
    assert (await asyncio.wait_for(waiting, 5)).json() == {"logs": [1]}
    assert member.log_watch._watches == {}


async def test_a_watch_ends_when_its_time_is_up(api: Api, member: MemoryMember) -> None:
    await create(api)
    assert (await post(api, "logs/watch", logs=[[0, 0, 0]], wait_ms=1)).json() == {"logs": []}
    assert (await post(api, "logs/watch", logs=[[0, 0, 0]], wait_ms=0)).json() == {"logs": []}
    assert member.log_watch._watches == {}
    assert (await post(api, "logs/watch", logs=[[7, 0, 0]], wait_ms=0)).json() == {"logs": [7]}


async def test_a_follower_names_the_leader_of_the_logs(api: Api, member: MemoryMember) -> None:
    member.leader_id = 2
    for answer in (
        await create(api),
        await commit(api),
        await post(api, "logs/read", logs=[[0, 0, 1]]),
        await post(api, "logs/watch", logs=[[0, 0, 0]], wait_ms=1),
        await post(api, "logs/offsets", logs=[[0, -1]]),
        await post(api, "topics/find", names=["t"]),
        await api.call("GET", "/v1/topics"),
    ):
        refused(answer, ErrorCode.NOT_CONTROLLER)
    assert member.submitted == []


async def test_commits_and_reads_have_tokens_of_their_own(serve: Serve, clock: Clock) -> None:
    api = await serve(limits=ApiLimits(broker_commits=Rate(1.0, 1), broker_reads=Rate(1.0, 2)))
    await create(api)
    assert (await commit(api)).status == 200
    refused(await commit(api, 2), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert (await post(api, "logs/read", logs=[[0, 0, 1]])).status == 200
    assert (await post(api, "topics/find", names=["t"])).status == 200
    refused(await post(api, "logs/offsets", logs=[[0, -1]]), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    clock.advance(1)
    assert (await commit(api, 2)).status == 200
