"""What an agent shows of the groups that it coordinates, and of the offsets that it commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from pidkeeper.broker_agent.api.group_metrics import PREFIX, GroupCollector
from pidkeeper.broker_agent.groups.coordinator import CALM_SECONDS, LOOK_SECONDS
from pidkeeper.broker_agent.groups.counters import CommitCounters
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeavingMember
from pidkeeper.protocol.errors import ErrorCode
from tests.support.coordinator_rig import CoordinatorRig, come_together
from tests.support.group_rig import CLIENT, join_request
from tests.support.metrics_page import differences, exposed, listed

LATER_SECONDS = 2 * LOOK_SECONDS

SESSION_MS = 600_000
"""So long nobody is given up on."""


class Shown:
    """A coordinator in virtual time, and what its metrics show."""

    def __init__(self, rig: CoordinatorRig) -> None:
        self.rig = rig
        self.coordinator = rig.agents[1].coordinator
        self.commits = CommitCounters()
        self.collector = GroupCollector(self.coordinator, self.commits)

    def value(self, name: str, **labels: str) -> float:
        (value,) = [
            sample.value
            for family in self.collector.collect()
            for sample in family.samples
            if sample.name == PREFIX + name and sample.labels == labels
        ]
        return value

    def states(self) -> dict[str, float]:
        """How many groups are in each state that some are in."""
        names = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
        return {name: count for name in names if (count := self.value("held", state=name))}


@pytest.fixture
def shown() -> Iterator[Shown]:
    with contextlib.closing(CoordinatorRig(1)) as rig:
        yield Shown(rig)


def test_the_page_of_metrics_says_what_there_is(shown: Shown) -> None:
    shown.commits.count([0, ErrorCode.ILLEGAL_GENERATION.kafka_code])
    assert differences(listed("Consumer groups at agents"), exposed(shown.collector.collect())) == []


def test_commits_are_counted_by_what_became_of_their_offsets(shown: Shown) -> None:
    shown.commits.count([0, 0, ErrorCode.ILLEGAL_GENERATION.kafka_code])
    shown.commits.count([9999])
    assert shown.value("commit_requests_total") == 2
    assert shown.value("offsets_committed_total") == 2
    assert shown.value("offsets_refused_total", code="ILLEGAL_GENERATION") == 1
    assert shown.value("offsets_refused_total", code="OTHER") == 1


def test_groups_are_shown_by_their_states_and_with_their_members(shown: Shown) -> None:
    async def scenario() -> None:
        members = await come_together(shown.coordinator, 3)
        assert shown.states() == {"Stable": 1}
        assert shown.value("members") == 3
        joining = asyncio.create_task(shown.coordinator.join_group(join_request(), CLIENT))
        await asyncio.sleep(0.1)
        assert shown.states() == {"PreparingRebalance": 1}
        leaving = [LeavingMember(one.member_id) for one in members]
        await shown.coordinator.leave_group(LeaveGroupRequest("group", leaving))
        assert (await joining).generation == 2
        assert shown.states() == {"CompletingRebalance": 1}
        assert (shown.value("members"), shown.value("rebalances_total"), shown.value("lost_total")) == (1, 2, 0)

    shown.rig.run(scenario())


def test_a_group_is_restless_until_it_was_stable_for_a_minute(shown: Shown) -> None:
    async def scenario() -> None:
        assert shown.value("restless_seconds") == 0
        for _ in range(5):
            (member,) = await come_together(shown.coordinator, session_timeout_ms=SESSION_MS)
            await asyncio.sleep(CALM_SECONDS / 2)
            await shown.coordinator.leave_group(LeaveGroupRequest("group", [LeavingMember(member.member_id)]))
            await asyncio.sleep(CALM_SECONDS / 2)
        assert shown.value("restless_seconds") >= 5 * CALM_SECONDS - LATER_SECONDS
        await asyncio.sleep(CALM_SECONDS)
        assert shown.value("restless_seconds") == 0

    shown.rig.run(scenario())


def test_a_rebalance_that_does_not_come_to_its_end_is_restless_all_the_while(shown: Shown) -> None:
    async def scenario() -> None:
        await come_together(shown.coordinator, 1, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS)
        await asyncio.sleep(CALM_SECONDS + LATER_SECONDS)
        assert shown.value("restless_seconds") == 0
        joining = asyncio.create_task(shown.coordinator.join_group(join_request(session_timeout_ms=SESSION_MS), CLIENT))
        await asyncio.sleep(5 * CALM_SECONDS)
        assert shown.states() == {"PreparingRebalance": 1}
        assert shown.value("restless_seconds") >= 5 * CALM_SECONDS - LATER_SECONDS
        joining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await joining

    shown.rig.run(scenario())
