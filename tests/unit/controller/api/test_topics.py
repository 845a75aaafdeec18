"""The description of a topic: pages of its partitions, and what is refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.protocol.log_messages import MAX_DESCRIBED_PARTITIONS
from tests.support.memory_member import FOUNDING_ID, MemoryMember
from tests.unit.controller.api.conftest import Api

ROOT = "/v1/topics"


async def create(api: Api, name: str, partitions: int) -> None:
    body = {"topic_id": str(uuid.uuid4()), "name": name, "partitions": partitions}
    assert (await api.call("POST", ROOT, json=body)).status == 200


async def page(api: Api, query: str) -> Any:
    answer = await api.call("GET", f"{ROOT}/describe?{query}")
    assert answer.status == 200, answer.text
    return answer.json()


async def test_pages_go_through_all_partitions(api: Api) -> None:
    await create(api, "before", 3)
    await create(api, "wide", 5)
    first = await page(api, "name=wide&limit=2")
    assert (first["topic"]["name"], first["topic"]["partitions"], first["next_after"]) == ("wide", 5, 1)
    assert [one[:2] for one in first["partitions"]] == [[0, 3], [1, 4]]
    last = await page(api, "name=wide&after=1&limit=3")
    assert [one[:2] for one in last["partitions"]] == [[2, 5], [3, 6], [4, 7]]
    assert last["next_after"] is None
    behind = await page(api, "name=wide&after=4")
    assert (behind["partitions"], behind["next_after"]) == ([], None)
    behind = await page(api, "name=wide&after=9999")
    assert (behind["partitions"], behind["next_after"]) == ([], None)


async def test_a_partition_has_what_its_log_has(api: Api, member: MemoryMember) -> None:
    await create(api, "events", 2)
    member.epochs = {1: 1}
    commit = {
        "broker_id": 1,
        "broker_epoch": 1,
        "founding_id": str(FOUNDING_ID),
        "number": 0,
        "size": 200,
        "batches": [[1, 3, 0, 80, -1, -1, -1, 5, False], [1, 2, 80, 120, -1, -1, -1, 5, False]],
    }
    assert (await api.call("POST", "/v1/objects/commit", json=commit)).status == 200
    assert (await page(api, "name=events"))["partitions"] == [
        [0, 0, 0, 0, 0, 0, 0, None, None, 0],
        [1, 1, 0, 5, 5, 200, 2, None, None, 0],
    ]


async def test_the_widest_page_is_small(api: Api) -> None:
    await create(api, "wide", 10_000)
    answer = await api.call("GET", f"{ROOT}/describe?name=wide&limit={MAX_DESCRIBED_PARTITIONS}")
    assert len(answer.json()["partitions"]) == MAX_DESCRIBED_PARTITIONS
    assert len(answer.text) < 130 * 1024


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("name=nobody", 404),
        ("", 400),
        ("name=", 400),
        ("name=t&after=-2", 400),
        ("name=t&after=10000", 400),
        ("name=t&limit=0", 400),
        (f"name=t&limit={MAX_DESCRIBED_PARTITIONS + 1}", 400),
    ],
)
async def test_what_cannot_be_described_is_refused(api: Api, query: str, status: int) -> None:
    answer = await api.call("GET", f"{ROOT}/describe?{query}")
    assert answer.status == status, answer.text


async def test_the_leader_alone_describes(api: Api, member: MemoryMember) -> None:
    await create(api, "t", 1)
    member.leader_id = 2
    assert (await api.call("GET", f"{ROOT}/describe?name=t")).status == 421
