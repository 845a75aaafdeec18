"""The calls about consumer groups over HTTP: what goes through to the state, what comes back."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.state.requests import (
    CommitGroup,
    CommitOffsets,
    ConfirmState,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
)
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import MAX_LISTED_GROUPS, OffsetsTransaction
from pidkeeper.protocol.groups import GroupMember, PartitionOffset, TopicOffsets
from pidkeeper.protocol.logs import MAX_INT64
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Clock, Serve

BROKER = {"broker_id": 5, "broker_epoch": 1}
MEMBER = ("m", "static", "client", "host", 45_000)


@pytest.fixture
def member(member: MemoryMember) -> MemoryMember:
    """Broker 5 is registered with epoch 1, and there is a topic."""
    member.epochs = {5: 1}
    member.decide_on_logs(CreateTopic(uuid.UUID(int=9), "t", 4, -1, -1, None, validate_only=False))
    return member


async def post(api: Api, path: str, **body: Any) -> Answer:
    return await api.call("POST", f"/v1/groups/{path}", json=body)


async def join(api: Api, group: str = "g", *members: list[str | None], after: int = -1, **more: Any) -> Answer:
    wanted = {**BROKER, "group_id": group, "after": after, "generation": 3, "protocol_type": "consumer"}
    return await post(api, "commit", **{**wanted, "members": list(members or [MEMBER]), **more})


async def commit(api: Api, *offsets: tuple[int, int], group: str = "g", **more: Any) -> Answer:
    topics = [["t", [[partition, offset, 2, "meta"] for partition, offset in offsets]]]
    return await post(api, "offsets/commit", **{**BROKER, "group_id": group, "topics": topics, **more})


def refused(answer: Answer, code: ErrorCode) -> None:
    assert (answer.status, answer.json()["code"]) == (code.http_status, code.name), answer.text


async def test_a_group_is_found_as_it_was_committed(api: Api, member: MemoryMember) -> None:
    assert (await post(api, "find", group_id="g")).json() == {"group": None}
    joined = (await join(api)).json()
    assert joined["taken"]
    assert joined["group"] == {
        "group_id": "g",
        "version": member.log_machine.next_offset - 1,
        "generation": 3,
        "protocol_type": "consumer",
        "members": [list(MEMBER)],
        "broker_id": 5,
        "broker_epoch": 1,
        "offsets": 0,
        "pending": 0,
        "timestamp_ms": joined["group"]["timestamp_ms"],
    }
    assert (await post(api, "find", group_id="g")).json() == {"group": joined["group"]}
    assert (await api.call("GET", "/v1/groups/describe?group=g")).json() == joined["group"]
    record = CommitGroup((5, 1), "g", -1, 3, "consumer", (GroupMember(*MEMBER),))
    assert member.submitted == [ConfirmState(), record, ConfirmState()]


async def test_of_two_who_go_on_from_one_version_one_does(api: Api) -> None:
    version = (await join(api)).json()["group"]["version"]
    assert (await join(api, "g", ["n", None, "", ""])).json()["taken"] is False
    taken = (await join(api, "g", ["n", None, "", ""], after=version)).json()
    assert taken["taken"]
    assert [one[0] for one in taken["group"]["members"]] == ["n"]
    assert (await join(api, "g", ["n", None, "", ""], after=version)).json() == taken, "its answer was lost"


async def test_offsets_are_fetched_as_they_were_committed(api: Api, member: MemoryMember) -> None:
    await join(api)
    one: dict[str, Any] = {"generation": 3, "member_id": "m", "instance_id": "static"}
    assert (await commit(api, (0, 7), (9, 1), (3, 8), **one)).json() == {"codes": [0, 3, 0]}
    topics = (TopicOffsets("t", tuple(PartitionOffset(*place, 2, "meta") for place in ((0, 7), (9, 1), (3, 8)))),)
    assert CommitOffsets((5, 1), "g", topics, 3, "m", "static", None) == member.submitted[-1]
    page = (await post(api, "offsets/fetch", group_id="g")).json()
    assert [row[:5] for row in page["offsets"]] == [["t", 0, 7, 2, "meta"], ["t", 3, 8, 2, "meta"]]
    assert page["next_after"] is None
    assert isinstance(member.submitted[-1], ConfirmState)
    page = (await post(api, "offsets/fetch", group_id="g", topics=[["t", [3, 1]], ["u", [0]]], after=["t", 0])).json()
    assert [row[:4] for row in page["offsets"]] == [["t", 1, -1, -1], ["t", 3, 8, 2], ["u", 0, -1, -1]]
    assert (await post(api, "offsets/fetch", group_id="unknown")).json() == {"offsets": [], "next_after": None}


async def test_a_transaction_goes_along_with_offsets(api: Api, member: MemoryMember) -> None:
    producer = {"transactional_id": "tx", "producer_id": 4, "producer_epoch": 0}
    refused(await commit(api, (0, 7), transaction=producer), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    (asked,) = member.submitted
    assert isinstance(asked, CommitOffsets)
    assert asked.transaction == OffsetsTransaction("tx", 4, 0)


async def test_what_members_must_not_commit_is_refused(api: Api) -> None:
    await join(api)
    refused(await commit(api, (0, 7)), ErrorCode.UNKNOWN_MEMBER_ID)
    refused(await commit(api, (0, 7), generation=2, member_id="m"), ErrorCode.ILLEGAL_GENERATION)
    other: dict[str, Any] = {"generation": 3, "member_id": "n", "instance_id": "static"}
    refused(await commit(api, (0, 7), **other), ErrorCode.FENCED_INSTANCE_ID)
    refused(await commit(api, (0, 7), broker_epoch=2), ErrorCode.STALE_BROKER_EPOCH)
    refused(await commit(api, (0, 7), broker_epoch=MAX_INT64 + 1), ErrorCode.INVALID_REQUEST)


async def test_an_operator_resets_a_group_without_members_alone(api: Api, member: MemoryMember) -> None:
    topics = [["t", [[1, 5, -1, ""]]]]
    assert (await post(api, "offsets/reset", group_id="new", topics=topics)).json() == {"codes": [0]}
    rows = (TopicOffsets("t", (PartitionOffset(1, 5, -1, ""),)),)
    assert member.submitted == [CommitOffsets(None, "new", rows, -1, "", None, None)]
    await join(api)
    refused(await post(api, "offsets/reset", group_id="g", topics=topics), ErrorCode.NON_EMPTY_GROUP)
    refused(await post(api, "offsets/forget", group_id="g", topics=[["t", [1]]]), ErrorCode.NON_EMPTY_GROUP)


async def test_offsets_and_groups_are_forgotten(api: Api, member: MemoryMember) -> None:
    await commit(api, (0, 1), (1, 2), (2, 3), group="s")
    deleted = await post(api, "offsets/delete", **BROKER, group_id="s", topics=[["t", [1, 3]]])
    assert deleted.json() == {"deleted": 1}
    assert (await post(api, "offsets/forget", group_id="s", topics=[["t", [2]]])).json() == {"deleted": 1}
    page = (await post(api, "offsets/fetch", group_id="s")).json()
    assert [row[:3] for row in page["offsets"]] == [["t", 0, 1]]
    assert (await post(api, "delete", **BROKER, group_id="s")).json() == {"group_id": "s"}
    refused(await api.call("DELETE", "/v1/groups?group=s"), ErrorCode.GROUP_ID_NOT_FOUND)
    await commit(api, (0, 1), group="s")
    assert (await api.call("DELETE", "/v1/groups?group=s")).json() == {"group_id": "s"}
    orders = [one for one in member.submitted if isinstance(one, DeleteGroup | DeleteOffsets)]
    assert orders == [
        DeleteOffsets((5, 1), "s", (TopicPartitions("t", (1, 3)),)),
        DeleteOffsets(None, "s", (TopicPartitions("t", (2,)),)),
        DeleteGroup((5, 1), "s"),
        DeleteGroup(None, "s"),
        DeleteGroup(None, "s"),
    ]


async def test_a_broker_says_who_it_is(api: Api, member: MemoryMember) -> None:
    refused(await post(api, "delete", group_id="g"), ErrorCode.INVALID_REQUEST)
    refused(await post(api, "offsets/delete", group_id="g", topics=[["t", [0]]]), ErrorCode.INVALID_REQUEST)
    refused(await post(api, "delete", group_id="g", broker_id=5, broker_epoch=2**70), ErrorCode.INVALID_REQUEST)
    assert member.submitted == []


async def test_groups_are_listed_by_their_ids_whatever_these_are(api: Api) -> None:
    for name in ("b&c", "", "a", "é/%20"):
        await commit(api, (0, 1), group=name)
    page = (await api.call("GET", "/v1/groups?limit=3")).json()
    assert ([one["group_id"] for one in page["groups"]], page["next_after"]) == (["", "a", "b&c"], "b&c")
    page = (await api.call("GET", "/v1/groups?after=b%26c")).json()
    assert ([one["group_id"] for one in page["groups"]], page["next_after"]) == (["é/%20"], None)
    page = (await api.call("GET", "/v1/groups?after=&limit=1")).json()
    assert [one["group_id"] for one in page["groups"]] == ["a"]
    assert (await api.call("GET", "/v1/groups/describe?group=")).json()["offsets"] == 1
    refused(await api.call("GET", "/v1/groups/describe?group=c"), ErrorCode.GROUP_ID_NOT_FOUND)
    refused(await api.call("GET", "/v1/groups/offsets?group=c"), ErrorCode.GROUP_ID_NOT_FOUND)
    refused(await api.call("GET", f"/v1/groups?limit={MAX_LISTED_GROUPS + 1}"), ErrorCode.INVALID_REQUEST)


async def test_offsets_are_listed_page_by_page(api: Api) -> None:
    await commit(api, (0, 1), (1, 2), (3, 4))
    page = (await api.call("GET", "/v1/groups/offsets?group=g&limit=2")).json()
    assert ([row[:3] for row in page["offsets"]], page["next_after"]) == ([["t", 0, 1], ["t", 1, 2]], ["t", 1])
    page = (await api.call("GET", "/v1/groups/offsets?group=g&after_topic=t&after_partition=1")).json()
    assert ([row[:3] for row in page["offsets"]], page["next_after"]) == ([["t", 3, 4]], None)


async def test_a_follower_names_the_leader_of_the_groups(api: Api, member: MemoryMember) -> None:
    member.leader_id = 2
    for answer in (
        await post(api, "find", group_id="g"),
        await join(api),
        await commit(api, (0, 1)),
        await post(api, "offsets/fetch", group_id="g"),
        await post(api, "offsets/reset", group_id="g", topics=[["t", [[1, 5, -1, ""]]]]),
        await api.call("GET", "/v1/groups"),
        await api.call("GET", "/v1/groups/describe?group=g"),
        await api.call("GET", "/v1/groups/offsets?group=g"),
        await api.call("DELETE", "/v1/groups?group=g"),
    ):
        refused(answer, ErrorCode.NOT_CONTROLLER)
    assert member.submitted == []


async def test_groups_take_the_tokens_of_commits_and_reads(serve: Serve, clock: Clock) -> None:
    api = await serve(limits=ApiLimits(broker_commits=Rate(1.0, 1), broker_reads=Rate(1.0, 1)))
    assert (await join(api)).status == 200
    refused(await commit(api, (0, 1)), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert (await post(api, "find", group_id="g")).status == 200
    refused(await post(api, "offsets/fetch", group_id="g"), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    clock.advance(1)
    assert (await commit(api, (0, 1), generation=3, member_id="m")).status == 200
