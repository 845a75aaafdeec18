"""A transactional request that may have waited while its caller went elsewhere is not put to the controllers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.late_requests import (
    AGENT_STOOD_STILL,
    CALLER_HUNG_UP,
    QUIET_SECONDS,
    LateRequests,
)
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from pidkeeper.broker_agent.coordinator.transactions import KINDS
from pidkeeper.protocol.messages import InitProducerIdRequest, TransactionTopic
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.pulse import STILL_SECONDS, WARY_SECONDS
from tests.support.served_app import served
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until
from tests.support.whole_agent import WholeAgent, direct_agent, whole_agent
from tests.unit.broker_agent.test_transaction_responder import (
    API,
    INIT,
    Request,
    by_http,
    frame_of,
    over_the_wire,
)

LOADING = 14
STEPS: list[Request] = [
    AddPartitionsToTxn("t", 0, 0, [TransactionTopic("orders", [1])]),
    AddOffsetsToTxn("t", 0, 0, "g"),
    EndTxn("t", 0, 0, True),
]
REQUESTS = [INIT, *STEPS]
GONE = Caller(has_hung_up=lambda: True)


class Aged:
    """An agent by the test's own boot clock, at which `t` has its first pair and an open transaction."""

    def __init__(self) -> None:
        self.now = 0.0
        self.quorum = StubQuorum()
        self.whole = direct_agent(self.quorum, boot_clock=lambda: self.now)
        self.whole.agent.late_requests.beat()

    async def begin(self) -> Aged:
        for request in (INIT, STEPS[0]):
            assert (await over_the_wire(self.whole, request))[0] == 0
        self.quorum.transactional.clear()
        self.whole.transactions.outcomes.clear()
        return self

    def stand_still(self) -> None:
        self.now += STILL_SECONDS + 0.01

    async def by_http(self, request: Request, caller: Caller) -> int:
        headers, body = CIMultiDict({"Content-Type": "application/json"}), msgspec.json.encode(request)
        app = build_app(self.whole.agent, self.whole.listener)
        path = URL(API[type(request)][1])
        answer = await app.dispatch(HttpRequest("POST", path, headers, body, has_hung_up=caller.has_hung_up))
        return int(msgspec.json.decode(answer.body)["error_code"])

    async def ask(self, way: str, request: Request, caller: Caller = ANYBODY) -> int:
        if way == "http":
            return await self.by_http(request, caller)
        code, _, _ = await over_the_wire(self.whole, request, caller=caller)
        return code

    def counted(self, request: Request) -> list[str]:
        """The outcomes that were counted, all of the kind of `request`."""
        outcomes = self.whole.transactions.outcomes
        assert {kind for kind, _ in outcomes} <= {KINDS[type(request)]}
        return sorted(outcome for _, outcome in outcomes.elements())


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("way", ["wire", "http"])
async def test_what_comes_while_the_agent_stood_still_is_told_to_come_again(way: str, request_: Request) -> None:
    aged = await Aged().begin()
    aged.stand_still()
    assert await aged.ask(way, request_) == LOADING, "read before the timer that is due"
    aged.whole.agent.late_requests.beat()
    assert await aged.ask(way, request_) == LOADING, "read after it"
    assert aged.quorum.transactional == []
    assert aged.whole.transactions.under_way == 0
    aged.now += WARY_SECONDS
    aged.whole.agent.late_requests.beat()
    assert await aged.ask(way, request_) in {0, 51}, "it comes again, and is put to the controllers"
    assert len(aged.quorum.transactional) >= 1
    assert aged.counted(request_)[:2] == [AGENT_STOOD_STILL] * 2


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("way", ["wire", "http"])
async def test_the_request_of_a_caller_that_has_hung_up_is_dropped(way: str, request_: Request) -> None:
    aged = await Aged().begin()
    assert await aged.ask(way, request_, GONE) == LOADING
    assert (aged.quorum.transactional, aged.counted(request_)) == ([], [CALLER_HUNG_UP])


async def test_the_candidate_of_a_request_that_was_refused_is_not_lost() -> None:
    aged = Aged()
    assert await aged.ask("wire", INIT, GONE) == LOADING
    candidates, reserve = aged.whole.agent.candidates, aged.whole.agent.reserve
    assert (candidates.lost, reserve.claimed) == (0, 0)


@pytest.mark.parametrize("way", ["wire", "http"])
async def test_claims_without_a_transactional_id_have_no_age(way: str) -> None:
    aged = Aged()
    aged.stand_still()
    assert await aged.ask(way, InitProducerIdRequest(None, 60_000), GONE) == 0


class BootClock:
    """One that goes on by itself, and by what the machine is made to have slept."""

    slept = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.slept


@contextlib.asynccontextmanager
async def leaderless(
    boot_clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[tuple[StubQuorum, WholeAgent, ClientSession]]:
    """A served agent whose controllers have no leader, so that each call goes on being tried."""
    async with (
        StubQuorum() as quorum,
        whole_agent(quorum, boot_clock=boot_clock) as whole,
        served(build_app(whole.agent, whole.listener)) as session,
    ):
        quorum.leader = None
        yield quorum, whole, session
        await until(lambda: whole.transactions.under_way == 0)
        assert quorum.transactional == []


INIT_OUTCOME = ("init_producer_id", CALLER_HUNG_UP)


async def test_who_hangs_up_while_its_request_is_under_way_is_not_asked_for_again_over_the_wire() -> None:
    async with leaderless() as (_, whole, _):
        _, writer = await asyncio.open_connection("127.0.0.1", whole.agent.directory.own.port)
        writer.write(frame_of(INIT, 4, 1))
        await until(lambda: whole.transactions.under_way == 1)
        writer.close()
        await until(lambda: whole.transactions.outcomes[INIT_OUTCOME] == 1)


async def test_who_hangs_up_while_its_request_is_under_way_is_not_asked_for_again_by_http() -> None:
    async with leaderless() as (_, whole, session):
        posting = asyncio.create_task(by_http(session, INIT))
        await until(lambda: whole.transactions.under_way == 1)
        posting.cancel()
        await until(lambda: whole.transactions.outcomes[INIT_OUTCOME] == 1)


@pytest.mark.parametrize("request_", [INIT, STEPS[2]], ids=lambda one: type(one).__name__)
async def test_no_second_attempt_is_made_after_the_agent_stood_still(request_: Any) -> None:
    """The first one got no answer; meanwhile the agent stood still, and its caller may have gone elsewhere."""
    boot_clock = BootClock()
    async with leaderless(boot_clock) as (quorum, whole, _):
        answering = asyncio.create_task(over_the_wire(whole, request_))
        await until(lambda: quorum.members[0].requests > 0 and whole.transactions.under_way == 1)
        whole.agent.late_requests.beat()
        boot_clock.slept = 2 * STILL_SECONDS
        assert (await answering)[0] == LOADING
        assert whole.transactions.outcomes == {(KINDS[type(request_)], AGENT_STOOD_STILL): 1}


def test_the_log_says_for_how_long_the_agent_stood_still_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    late_requests = LateRequests(lambda: now[0])

    def lines_after(seconds: float) -> list[str]:
        caplog.clear()
        now[0] += seconds
        late_requests.beat()
        return caplog.messages

    assert lines_after(0.0) == lines_after(0.1) == []
    (line,) = lines_after(6.25)
    assert line.startswith("this agent stood still for 6.2 s: ")
    assert lines_after(3.0) == lines_after(4.0) == []
    assert lines_after(0.1) == []
    now[0] += QUIET_SECONDS
    (line,) = lines_after(2.0)
    assert "stood still for 12.0 s (2 more since the last such line): " in line
