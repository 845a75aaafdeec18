"""DeleteGroups and OffsetDelete."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.groups.deleting import GroupDeleter
from pidkeeper.broker_agent.groups.subscriptions import subscribed_topics
from pidkeeper.broker_agent.kafka.wire.groups.delete_groups import DeleteGroupsRequest
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import DescribedGroup, DescribedMember
from pidkeeper.broker_agent.kafka.wire.groups.offset_delete import OffsetDeleteRequest
from pidkeeper.broker_agent.kafka.wire.groups.partitions import TopicPartitions
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import FetchedOffset
from tests.support.group_calls import MemoryCalls, Registered, ToldCoordination
from tests.support.kafka_oracles import kafka_python_subscription

TOPICS = [TopicPartitions("t", [0, 1]), TopicPartitions("u", [0])]


def subscription(*topics: str, version: int = 0) -> bytes:
    return kafka_python_subscription(version, [*topics])


def stable(*metadata: bytes, protocol_type: str = "consumer", state: str = "Stable") -> DescribedGroup:
    members = [DescribedMember(f"m{at}", None, "", "", one, b"") for at, one in enumerate(metadata)]
    return DescribedGroup("g", 0, state, protocol_type, "range", members)


class Rig:
    """A deleter over offsets in memory: of group `g`, partitions 0 and 1 of topic `t` and 0 of `u`."""

    def __init__(self) -> None:
        self.calls, self.session, self.coordination = MemoryCalls(), Registered(), ToldCoordination()
        places = [("t", 0), ("t", 1), ("u", 0)]
        self.calls.kept["g"] = {place: FetchedOffset(*place, 5, -1, "") for place in places}
        self.deleter = GroupDeleter(self.calls, self.session, self.coordination)

    async def delete(
        self, topics: list[TopicPartitions] = TOPICS, caller: Caller = ANYBODY
    ) -> tuple[int, list[list[int]]]:
        code, outcomes = await self.deleter.delete_offsets(OffsetDeleteRequest("g", topics), caller)
        return code, [[one.error_code for one in outcome.partitions] for outcome in outcomes]

    @property
    def left(self) -> set[tuple[str, int]]:
        return {*self.calls.kept["g"]}


async def test_offsets_of_a_group_without_members_are_forgotten() -> None:
    rig = Rig()
    assert await rig.delete([TopicPartitions("t", [1, -1, 7]), TopicPartitions("", [0])]) == (0, [[0, 3, 0], [3]])
    assert rig.left == {("t", 0), ("u", 0)}
    (request,) = rig.calls.requests
    assert (request.broker_id, request.broker_epoch) == (7, 70)


async def test_those_of_topics_to_which_members_are_subscribed_are_kept() -> None:
    """`testDeleteOffsetsOfStableConsumerGroupWithTopicPartition` and its neighbours."""
    rig = Rig()
    rig.coordination.described["g"] = stable(subscription("u"), subscription("v", version=3))
    assert await rig.delete() == (0, [[0, 0], [86]])
    assert rig.left == {("u", 0)}


@pytest.mark.parametrize(
    ("group", "outcome"),
    [
        (stable(b"?"), (0, [[86, 86], [86]])),
        (stable(subscription("x"), state="PreparingRebalance"), (68, [])),
        (stable(b"", protocol_type="connect"), (68, [])),
        (DescribedGroup("g", 16), (16, [])),
        (DescribedGroup("g", 14), (14, [])),
    ],
)
async def test_where_it_is_not_known_who_reads_what_nothing_is_forgotten(
    group: DescribedGroup, outcome: tuple[int, list[list[int]]]
) -> None:
    rig = Rig()
    rig.coordination.described["g"] = group
    assert await rig.delete() == outcome
    assert len(rig.left) == 3


async def test_what_the_quorum_refuses_is_told_of_the_whole_request() -> None:
    rig = Rig()
    for error, code in ((ErrorCode.GROUP_ID_NOT_FOUND, 69), (ErrorCode.STALE_BROKER_EPOCH, 14)):
        rig.calls.refusals = [error]
        assert await rig.delete() == (code, [])
    assert rig.session.doubted == [70]
    rig.session.broker_epoch = None
    assert await rig.delete() == (14, [])


async def test_rules() -> None:
    """DELETE of the group, READ of each topic."""
    rig = Rig()
    assert await rig.delete(caller=Caller(may=lambda one, name: (one, name) != ("group-delete", "g"))) == (30, [])
    assert rig.coordination.asked == []
    assert await rig.delete(caller=Caller(may=lambda one, name: (one, name) != ("topic-read", "t"))) == (
        0,
        [[29, 29], [0]],
    )
    assert rig.left == {("t", 0), ("t", 1)}


async def test_groups_are_deleted_by_their_coordinator_for_whoever_may() -> None:
    rig = Rig()
    caller = Caller(may=lambda operation, name: (operation, name) != ("group-delete", "secret"))
    request = DeleteGroupsRequest(["g", "secret", "x" * 250])
    outcomes = await rig.deleter.delete_groups(request, caller)
    assert [(one.group_id, one.error_code) for one in outcomes] == [("g", 0), ("secret", 30), ("x" * 250, 24)]
    rig.coordination.code = ErrorCode.NON_EMPTY_GROUP
    (outcome,) = await rig.deleter.delete_groups(DeleteGroupsRequest(["h"]), ANYBODY)
    assert (outcome.error_code, rig.coordination.asked) == (68, ["g", "h"])
    (outcome,) = await rig.deleter.delete_groups(DeleteGroupsRequest(["h"]), Caller(has_hung_up=lambda: True))
    assert (outcome.error_code, len(rig.coordination.asked)) == (14, 2)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_in_every_version(version: int) -> None:
    assert subscribed_topics(subscription("t", "ü", version=version)) == frozenset({"t", "ü"})
    assert subscribed_topics(subscription(version=version)) == frozenset()


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", subscription("topic")[:10], b"\xff" * 9]
)
def test_what_is_no_subscription_may_be_any(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
