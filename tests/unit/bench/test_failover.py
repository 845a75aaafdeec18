from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest

from bench import failover
from bench.failover import Caller, time_to_success
from tests.support.stub_controller import StubQuorum

BODY = '{"broker_id": 7, "broker_epoch": 1}'


def caller_of(session: aiohttp.ClientSession, quorum: StubQuorum) -> Caller:
    quorum.epochs[7] = 1
    return Caller(session, quorum.urls, BODY, random.Random(1))


async def test_it_follows_the_named_leader_and_keeps_to_it() -> None:
    async with StubQuorum(3) as quorum, aiohttp.ClientSession() as session:
        caller = caller_of(session, quorum)
        quorum.leader = quorum.members[2]
        for _ in range(3):
            assert (await caller.allocate())[0] == quorum.urls[2]
        assert caller.starts == [0, 1000, 2000]
        assert [member.requests for member in quorum.members] == [1, 0, 3]


async def test_a_hung_leader_is_left_after_the_deadline() -> None:
    async with StubQuorum(3) as quorum:
        timeout = aiohttp.ClientTimeout(total=0.05)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            caller = caller_of(session, quorum)
            quorum.members[0].hangs = True
            quorum.leader = quorum.members[1]
            assert (await caller.allocate())[0] == quorum.urls[1]


async def test_only_a_block_from_another_member_ends_the_round() -> None:
    async with StubQuorum(3) as quorum, aiohttp.ClientSession() as session:
        caller = caller_of(session, quorum)

        def lead() -> None:
            quorum.leader = quorum.members[1]

        def drain_and_hand_over() -> None:
            asyncio.get_running_loop().call_later(0.05, lead)

        seconds = await time_to_success(caller, quorum.urls[0], 0.05, drain_and_hand_over)
        assert 0 < seconds < failover.ROUND_SECONDS
        assert quorum.members[0].requests > 1, "the leader was asked before the signal"
        assert quorum.members[1].requests == 1, "what the leader still gave after the signal does not count"


async def test_a_block_asked_for_before_the_signal_does_not_count() -> None:
    async with StubQuorum(2) as quorum, aiohttp.ClientSession() as session:
        caller = caller_of(session, quorum)
        quorum.leader = quorum.members[1]
        quorum.delays.append(0.3)
        answered: list[int] = []
        await time_to_success(caller, quorum.urls[0], 0.1, lambda: answered.append(len(caller.starts)))
        assert answered == [0], "the signal came while the first request waited for its answer"
        assert len(caller.starts) == 2


async def test_a_round_without_a_successor_says_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "ROUND_SECONDS", 0.3)
    async with StubQuorum(3) as quorum, aiohttp.ClientSession() as session:
        caller = caller_of(session, quorum)

        def lose_leader() -> None:
            quorum.leader = None

        with pytest.raises(TimeoutError, match=r"within 0\.3 s; last refusal: .*NOT_CONTROLLER"):
            await time_to_success(caller, quorum.urls[0], 0.02, lose_leader)
