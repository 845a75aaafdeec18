"""OffsetFetch: what is told, to whom, and what it may take."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.groups.fetching import OFFSET_BYTES, OffsetFetcher
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import VERSIONS, GroupOffsets, OffsetFetchRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import TopicPartitions
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import FetchedOffset
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.versions import OFFSET_FETCH
from tests.support.group_calls import MemoryCalls, Registered
from tests.support.plain_messages import CORRELATION_ID, Plain, response

NAMED = [TopicPartitions("t", [2, 0, 7]), TopicPartitions("u", [0])]
NONE = (-1, -1, "", 0)


class Rig:
    """A fetcher over offsets in memory: of group `g`, partitions 0 to 2 of topic `t` and 0 of `u`."""

    def __init__(self, gathered_bytes: int = 1 << 20) -> None:
        self.calls = MemoryCalls()
        kept = [FetchedOffset("t", number, 10 + number, number, f"m{number}") for number in range(3)]
        kept.append(FetchedOffset("u", 0, 5, -1, ""))
        self.calls.kept["g"] = {(one.topic, one.partition): one for one in kept}
        self.fetcher = OffsetFetcher(self.calls, Registered(), gathered_bytes)

    async def fetch(
        self, *groups: GroupOffsets, version: int = 9, stable: bool = False, caller: Caller = ANYBODY
    ) -> Plain:
        body = await self.fetcher.fetch(OffsetFetchRequest([*groups], stable), version, caller)
        header = RequestHeader(OFFSET_FETCH, version, CORRELATION_ID, None)
        return response("offset_fetch", version, frame_response(header, VERSIONS, body)[4:])


def told(group: Plain) -> dict[tuple[str, int], tuple[Any, ...]]:
    fields = ("committed_offset", "committed_leader_epoch", "metadata", "error_code")
    return {
        (one["name"], each["partition_index"]): tuple(each[name] for name in fields if name in each)
        for one in group["topics"]
        for each in one["partitions"]
    }


async def test_offsets_are_told_in_the_order_of_the_request_and_none_where_there_is_none() -> None:
    rig = Rig()
    (group,) = (await rig.fetch(GroupOffsets("g", NAMED)))["groups"]
    assert (group["group_id"], group["error_code"]) == ("g", 0)
    assert told(group) == {
        ("t", 2): (12, 2, "m2", 0), ("t", 0): (10, 0, "m0", 0), ("t", 7): NONE, ("u", 0): (5, -1, "", 0)
    }  # fmt: skip
    assert [*told(group)] == [("t", 2), ("t", 0), ("t", 7), ("u", 0)]


async def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    """As `OffsetMetadataManager.fetchOffsets`."""
    (group,) = (await Rig().fetch(GroupOffsets("other", NAMED)))["groups"]
    assert (group["error_code"], {*told(group).values()}) == (0, {NONE})
    (group,) = (await Rig().fetch(GroupOffsets("other", None)))["groups"]
    assert (group["error_code"], group["topics"]) == (0, [])


async def test_what_cannot_be_a_partition_is_not_asked_for() -> None:
    rig = Rig()
    (group,) = (await rig.fetch(GroupOffsets("g", [TopicPartitions("", [0]), TopicPartitions("t", [-1, 0])])))["groups"]
    assert told(group) == {("", 0): NONE, ("t", -1): NONE, ("t", 0): (10, 0, "m0", 0)}
    (request,) = rig.calls.requests
    assert [(one.topic, one.partitions) for one in request.topics] == [("t", (0,))]


@pytest.mark.parametrize("page", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("topics", [None, NAMED])
async def test_all_pages_are_gathered(page: int, topics: list[TopicPartitions] | None) -> None:
    rig = Rig()
    rig.calls.page = page
    (group,) = (await rig.fetch(GroupOffsets("g", topics)))["groups"]
    whole = {("t", 0): 10, ("t", 1): 11, ("t", 2): 12, ("u", 0): 5}
    if topics is not None:
        whole = {("t", 2): 12, ("t", 0): 10, ("t", 7): -1, ("u", 0): 5}
    assert {place: one[0] for place, one in told(group).items()} == whole
    assert len(rig.calls.requests) == -(-4 // page)


async def test_long_requests_are_cut() -> None:
    rig = Rig()
    (group,) = (await rig.fetch(GroupOffsets("g", [TopicPartitions("t", [*range(3000)])])))["groups"]
    assert len(told(group)) == 3000
    assert [len(one.topics[0].partitions) for one in rig.calls.requests if one.after is None] == [1024, 1024, 952]


async def test_unstable_offsets_are_told_to_whoever_wants_stable_ones() -> None:
    """KIP-447 as shipped: the code of the partition, offset -1, leader epoch -1, metadata ""."""
    rig = Rig()
    rig.calls.unstable = {("t", 0)}
    for stable, expected in ((True, (-1, -1, "", 88)), (False, (10, 0, "m0", 0))):
        for topics in (NAMED, None):
            (group,) = (await rig.fetch(GroupOffsets("g", topics), stable=stable))["groups"]
            assert told(group)["t", 0] == expected
            assert told(group)["t", 2] == (12, 2, "m2", 0)


async def test_groups_are_answered_each_by_itself() -> None:
    rig = Rig()
    rig.calls.refusals = [None, ErrorCode.NOT_CONTROLLER, None]
    groups = (await rig.fetch(*(GroupOffsets(one, NAMED) for one in ("g", "g", "h", "g" * 250))))["groups"]
    assert [one["error_code"] for one in groups] == [0, 14, 0, 24]
    assert [len(told(one)) for one in groups] == [4, 0, 4, 0]


TROUBLES = [
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.STALE_BROKER_EPOCH,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.name)
@pytest.mark.parametrize("version", range(VERSIONS.lowest, VERSIONS.highest + 1))
async def test_what_may_pass_has_clients_come_again_in_every_version(version: int, trouble: ErrorCode) -> None:
    """Version 1 has no code of the group, and aiokafka looks at none: there each partition has it."""
    rig = Rig()
    rig.calls.refusals = [trouble]
    answer = await rig.fetch(GroupOffsets("g", NAMED), version=version)
    group = answer["groups"][0] if version >= 8 else answer
    assert group.get("error_code", 14) == 14
    assert [one[-1] for one in told(group).values()] == ([] if version >= 8 else [14] * 4)


async def test_rules() -> None:
    """DESCRIBE of the group and of each topic. Of all topics those are told that may be described."""
    rig = Rig()
    caller = Caller(may=lambda operation, name: (operation, name) != ("topic-describe", "t"))
    (group,) = (await rig.fetch(GroupOffsets("g", NAMED), caller=caller))["groups"]
    assert {place: (one[0], one[3]) for place, one in told(group).items()} == {
        ("t", 2): (-1, 29), ("t", 0): (-1, 29), ("t", 7): (-1, 29), ("u", 0): (5, 0)
    }  # fmt: skip
    (group,) = (await rig.fetch(GroupOffsets("g", None), caller=caller))["groups"]
    assert {*told(group)} == {("u", 0)}
    nobody = Caller(may=lambda operation, name: (operation, name) != ("group-describe", "g"))
    asked = len(rig.calls.requests)
    (group,) = (await rig.fetch(GroupOffsets("g", NAMED), caller=nobody))["groups"]
    assert (group["error_code"], group["topics"], len(rig.calls.requests)) == (30, [], asked)


async def test_no_more_is_gathered_than_there_is_room_for_and_the_room_comes_back() -> None:
    size = 3 * (OFFSET_BYTES + 2) + OFFSET_BYTES
    for room, code in ((size, 0), (size - 1, 10)):
        rig = Rig(room)
        rig.calls.page = 1
        for _ in range(3):
            (group,) = (await rig.fetch(GroupOffsets("g", None)))["groups"]
            assert group["error_code"] == code
    rig = Rig(2 * size - 1)
    groups = (await rig.fetch(GroupOffsets("g", None), GroupOffsets("g", None), GroupOffsets("h", None)))["groups"]
    assert [one["error_code"] for one in groups] == [0, 14, 0], "whoever asks for it alone gets the second one"


async def test_nothing_is_gathered_for_whoever_has_gone() -> None:
    rig = Rig()
    rig.calls.page = 1
    looks = iter([False, False, True])
    (group,) = (await rig.fetch(GroupOffsets("g", None), caller=Caller(has_hung_up=lambda: next(looks))))["groups"]
    assert (group["error_code"], len(rig.calls.requests)) == (14, 2)
