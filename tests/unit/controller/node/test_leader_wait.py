"""Callers wait out an election at a member, for a while, and only where one is to be expected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pidkeeper.controller.node import leader_wait
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.leader_wait import LeaderWait
from tests.support.loopback_cluster import LoopbackCluster, eventually
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LoopbackCluster]:
    cluster = LoopbackCluster(tmp_path, learners=1)
    await cluster.start()
    yield cluster
    await cluster.close()


def waiting(member: ClusterMember) -> int:
    return len(member.driver.leader_wait)


async def known(member: ClusterMember, seconds: float = PATIENCE_SECONDS) -> None:
    await MemberInterface(member).leader_known(seconds)


async def test_nobody_waits_where_a_leader_is_heard(cluster: LoopbackCluster) -> None:
    for member in (await cluster.leader(), *await cluster.followers()):
        await known(member)


async def test_a_caller_waits_from_the_loss_of_a_leader_until_the_next_one_is_known(cluster: LoopbackCluster) -> None:
    lost = await cluster.leader()
    followers = await cluster.followers()
    await cluster.stop(lost.node_id, hand_over=False)
    await eventually(lambda: all(follower.core.misses_leader for follower in followers))
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        await asyncio.gather(*map(known, followers))
    leaders = [MemberInterface(follower).leader() for follower in followers]
    assert None not in leaders and lost.node_id not in {leader[0] for leader in leaders if leader is not None}
    (serving,) = {leader[0] for leader in leaders if leader is not None}
    assert cluster.members[serving].leadership.serving()


async def test_a_leader_that_is_silent_is_missed_before_it_is_lost(cluster: LoopbackCluster) -> None:
    follower = (await cluster.followers())[0]
    leader = await cluster.leader()
    leader.links.send = lambda messages: None  # type: ignore[method-assign]
    await eventually(lambda: follower.core.misses_leader)
    named = MemberInterface(follower).leader()
    assert named is not None
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        await known(follower)
    assert not follower.core.misses_leader


async def test_without_a_majority_a_caller_waits_as_long_as_it_may(cluster: LoopbackCluster) -> None:
    left = (await cluster.followers())[0]
    await cluster.stop(*(member for member in cluster.members if member != left.node_id), hand_over=False)
    await eventually(lambda: left.core.misses_leader)
    await known(left, 0.01)
    assert waiting(left) == 0


async def test_a_voter_of_a_quorum_without_majority_keeps_so_many_and_no_more(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_wait, "MAX_WAITING", 2)
    left = (await cluster.followers())[0]
    await cluster.stop(*(member for member in cluster.members if member != left.node_id), hand_over=False)
    await eventually(lambda: left.core.misses_leader)
    kept = [asyncio.create_task(known(left)) for _ in range(2)]
    await eventually(lambda: waiting(left) == 2)
    await known(left)
    kept[0].cancel()
    await eventually(lambda: waiting(left) == 1)
    left.leadership.close()
    left.driver.pump()
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        await kept[1]


async def test_a_controller_that_only_stands_by_answers_at_once(cluster: LoopbackCluster) -> None:
    await cluster.start(4)
    assert MemberInterface(cluster.members[4]).leader() is None
    await known(cluster.members[4])


async def test_callers_go_on_in_the_order_in_which_they_came() -> None:
    missed = True
    wait = LeaderWait(lambda: missed)
    gone_on: list[int] = []

    async def caller(number: int) -> None:
        await wait.over(PATIENCE_SECONDS)
        gone_on.append(number)

    callers = [asyncio.create_task(caller(number)) for number in range(100)]
    await eventually(lambda: len(wait) == 100)
    missed = False
    wait.look()
    await asyncio.gather(*callers)
    assert gone_on == list(range(100))
