"""ListGroups and DescribeGroups."""

from __future__ import annotations

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.groups import describing
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.describing import GroupDescriber
from pidkeeper.broker_agent.kafka.wire.groups.describe_groups import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
)
from pidkeeper.broker_agent.kafka.wire.groups.list_groups import ListGroupsRequest
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import GroupDescription
from pidkeeper.protocol.groups import GroupMember
from pidkeeper.protocol.messages import BrokerDescription
from tests.support.group_calls import MemoryCalls, Registered, ToldCoordination


class Rig:
    """The describer of agent 7, which lives alone."""

    def __init__(self) -> None:
        self.calls, self.coordination = MemoryCalls(), ToldCoordination()
        self.directory = Directory(Node(7, "own", 9092))
        self.describer = GroupDescriber(self.calls, Registered(), self.directory, self.coordination)

    def know(self, group_id: str, members: int = 0) -> None:
        of = [GroupMember(f"m{at}", None, "c", "h") for at in range(members)]
        self.calls.listed.append(GroupDescription(group_id, 5, 1, "consumer" if members else "", of, 7, 70, 0, 0, 0))

    async def listed(
        self, states: tuple[str, ...] = (), types: tuple[str, ...] = (), caller: Caller = ANYBODY
    ) -> dict[str, tuple[str, str]]:
        code, groups = await self.describer.list_groups(ListGroupsRequest([*states], [*types]), caller)
        assert code == 0
        assert {one.group_type for one in groups} <= {"classic"}
        return {one.group_id: (one.protocol_type, one.state) for one in groups}

    async def describe(self, *group_ids: str, version: int = 6, caller: Caller = ANYBODY) -> list[DescribedGroup]:
        return await self.describer.describe_groups(DescribeGroupsRequest([*group_ids]), version, caller)


async def test_groups_are_listed_with_their_states() -> None:
    rig = Rig()
    rig.know("empty")
    rig.know("loaded", 2)
    rig.know("moved", 1)
    rig.coordination.states["loaded"] = State.STABLE
    everything = {"empty": ("", "Empty"), "loaded": ("consumer", "Stable"), "moved": ("consumer", "PreparingRebalance")}
    assert await rig.listed() == everything
    assert {*await rig.listed(states=("stable", "EMPTY"))} == {"empty", "loaded"}
    assert await rig.listed(types=("Classic", "share")) == everything
    assert await rig.listed(types=("consumer",)) == {}
    caller = Caller(may=lambda operation, name: (operation, name) != ("group-describe", "loaded"))
    assert {*await rig.listed(caller=caller)} == {"empty", "moved"}


async def test_all_pages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "LISTED_AT_ONCE", 2)
    rig = Rig()
    for number in range(5):
        rig.know(f"g{number}")
    assert [*await rig.listed()] == [f"g{number}" for number in range(5)]
    assert rig.calls.requests == [(None, 2), ("g1", 2), ("g3", 2)]


async def test_each_group_is_listed_by_one_agent() -> None:
    brokers = [BrokerDescription(number, 1, False, f"h{number}:1") for number in (7, 8, 9)]
    listed: list[str] = []
    for own in (7, 8, 9):
        rig = Rig()
        rig.directory.update(brokers)
        rig.describer._session.broker_id = own
        for number in range(40):
            rig.know(f"g{number}")
        listed += await rig.listed()
    assert sorted(listed) == sorted(f"g{number}" for number in range(40))


async def test_what_the_quorum_refuses_is_told_of_the_list() -> None:
    rig = Rig()
    rig.calls.refusals = [ErrorCode.NOT_CONTROLLER]
    assert await rig.describer.list_groups(ListGroupsRequest([], []), ANYBODY) == (14, ())


async def test_groups_are_described() -> None:
    rig = Rig()
    known = DescribedGroup("g", 0, "Stable", "consumer", "range", [DescribedMember("m", None, "c", "h", b"a", b"b")])
    rig.coordination.described["g"] = known
    caller = Caller(may=lambda operation, name: (operation, name) != ("group-describe", "secret"))
    unknown = DescribedGroup("other", 69, "Dead", error_message="unknown")
    expected = [known, DescribedGroup("secret", 30), unknown]
    assert await rig.describe("g", "secret", "other", caller=caller) == expected
    assert rig.coordination.asked == ["g", "other"]


@pytest.mark.parametrize("version", range(6))
async def test_an_unknown_group_is_a_dead_one_in_older_versions(version: int) -> None:
    assert await Rig().describe("other", version=version) == [DescribedGroup("other", state="Dead")]


async def test_no_more_is_described_than_an_answer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`DescribeConsumerGroupsHandler` asks again for the groups with COORDINATOR_LOAD_IN_PROGRESS."""
    monkeypatch.setattr(describing, "MAX_DESCRIBED_BYTES", 5000)
    rig = Rig()
    for name in "abc":
        members = [DescribedMember("m", None, "c", "h", bytes(1000), bytes(1000))]
        rig.coordination.described[name] = DescribedGroup(name, 0, "Stable", "consumer", "range", members)
    assert [one.error_code for one in await rig.describe("a", "b", "c", "a")] == [0, 0, 14, 14]
    assert rig.coordination.asked == ["a", "b"]


async def test_nothing_is_described_to_whoever_has_gone() -> None:
    rig = Rig()
    (group,) = await rig.describe("g", caller=Caller(has_hung_up=lambda: True))
    assert (group.error_code, rig.coordination.asked) == (14, [])
