from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.coordinator.directory import Node
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.messages import BrokerDescription, HeldIds
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until
from tests.support.whole_agent import controller_client, make_agent

SECONDS = 15.0


@pytest.fixture
async def quorum() -> AsyncIterator[StubQuorum]:
    async with StubQuorum(3) as running:
        yield running


@contextlib.asynccontextmanager
async def running(
    quorum: StubQuorum, *, heartbeat_seconds: float = 0.02, **client_options: Any
) -> AsyncIterator[tuple[Agent, asyncio.Task[None]]]:
    async with controller_client(quorum.urls, **client_options) as client:
        agent = make_agent(client, heartbeat_seconds=heartbeat_seconds)
        task = asyncio.create_task(agent.run())
        try:
            yield agent, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_registers_fills_and_is_ready(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        assert agent.why_not_ready() == [
            "not registered with the controller yet",
            "the first fill of the reserve is not done",
        ]
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert agent.ready
        assert (agent.session.broker_epoch, agent.session.cluster_id) == (1, "stub-cluster")
        await until(lambda: quorum.heartbeats >= 3, task)
    assert quorum.incarnations == {7: agent.session.incarnation_id}


async def test_answers_that_overtake_one_another_are_offered_in_order(quorum: StubQuorum) -> None:
    """The first of four answers comes last: offered as it came, it would be thrown away."""
    async with running(quorum) as (agent, task):
        await until(lambda: agent.session.broker_epoch is not None, task)
        quorum.delays.extend([0.15, 0.1, 0.05, 0.0])
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert agent.prefetcher.blocks_rejected == 0
        claimed = [agent.reserve.claim() for _ in range(4000)]
    assert claimed == list(range(4000))


async def test_claims_go_on_without_an_error_while_the_quorum_is_away(quorum: StubQuorum) -> None:
    async with running(quorum, call_seconds=0.3) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.leader = None
        ids = [agent.reserve.claim() for _ in range(3500)]
        await until(lambda: agent.prefetcher.rounds["failed"] >= 1, task)
        ids += [agent.reserve.claim() for _ in range(400)]
        assert agent.ready
        quorum.leader = quorum.members[1]
        await until(lambda: agent.reserve.remaining >= 4000, task)
        ids += [agent.reserve.claim() for _ in range(4000)]
    assert NO_ID not in ids
    assert len(set(ids)) == 7900
    assert agent.prefetcher.starved_seconds == 0


async def test_an_empty_reserve_is_not_ready_counts_and_recovers(quorum: StubQuorum) -> None:
    async with running(quorum, call_seconds=0.2) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.leader = None
        for _ in range(4001):
            agent.reserve.claim()
        assert agent.why_not_ready() == ["the reserve is empty"]
        await until(lambda: agent.prefetcher.starved_seconds > 0.01, task)
        quorum.leader = quorum.members[0]
        await until(lambda: agent.ready, task)
        starved = agent.prefetcher.starved_seconds
        assert starved > 0.01
        await asyncio.sleep(0.02)
        assert agent.prefetcher.starved_seconds == starved


async def test_what_was_held_goes_along_with_every_sign_of_life_once_the_founding_is_known(quorum: StubQuorum) -> None:
    """Not before: a build without foundings refuses a field that it does not know."""
    founding_id = uuid.UUID(int=1)
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.epochs[7] += 100
        await until(lambda: agent.session.registrations == 2, task)
        assert set(quorum.held) == {None}
        quorum.founding_id = founding_id
        await until(lambda: agent.session.founding_id == founding_id, task)
        quorum.held.clear()
        quorum.epochs[7] += 100
        await until(lambda: agent.session.registrations == 3 and quorum.heartbeats > 3, task)
        assert set(quorum.held) == {HeldIds(founding_id, 3999)}
        quorum.held.clear()
        assert NO_ID not in [agent.reserve.claim() for _ in range(1500)]
        await until(lambda: agent.reserve.blocks_accepted >= 6, task)
        # Behind an answer that came too late, it is a block further on.
        assert agent.reserve.highest_held >= 5999
        await until(lambda: HeldIds(founding_id, agent.reserve.highest_held) in quorum.held, task)


async def test_another_founding_is_told_what_was_held_and_none_of_it_is_handed_out_any_more(
    quorum: StubQuorum, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    quorum.founding_id = first
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        claimed = [agent.reserve.claim() for _ in range(50)]
        quorum.founding_id, quorum.epochs = second, {}
        quorum.allocate_refusals.extend([RequestError(ErrorCode.EVIDENCE_OPEN)] * 3)
        await until(lambda: agent.session.founding_id == second, task)
        assert HeldIds(first, 3999) in quorum.held
        assert agent.reserve.remaining == 0
        assert agent.reserve.claim() == NO_ID
        assert agent.reserve.claimed == 50
        assert not agent.ready
        quorum.next_producer_id = 5000
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert [agent.reserve.claim() for _ in range(50)] == list(range(5000, 5050))
        assert agent.reserve.claimed == 100
    assert claimed == list(range(50))
    assert (
        f"the quorum is of founding {second}, this agent was of {first}: letting go of all IDs up to 3999"
        in caplog.text
    )


@pytest.mark.parametrize("first_told_by", ["heartbeat", "block"])
async def test_under_a_quorum_that_took_the_place_of_the_first_it_goes_on_with_what_lies_below_the_floor(
    quorum: StubQuorum, caplog: pytest.LogCaptureFixture, first_told_by: str
) -> None:
    lost, new = uuid.UUID(int=1), uuid.UUID(int=2)
    quorum.founding_id = lost
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        if first_told_by == "block":
            agent.session.heartbeat_seconds = 60.0
            await until(lambda: quorum.heartbeats > 0, task)
        quorum.founding_id, quorum.succession = new, Succession(lost, 4000)
        quorum.next_producer_id = 4000
        claimed = [agent.reserve.claim() for _ in range(4000)]
        await until(lambda: agent.reserve.remaining > 0, task)
        assert claimed == list(range(4000)), "nothing was let go of"
        assert agent.session.founding_id == new
        assert agent.reserve.claim() == 4000
    assert f"takes the place of {lost} from ID 4000 on: this agent holds none above 3999" in caplog.text


@pytest.mark.parametrize(("predecessor", "floor"), [(1, 3999), (3, 4000)], ids=["floor too low", "of a third"])
async def test_what_may_have_been_given_to_somebody_else_is_let_go_of(
    quorum: StubQuorum, predecessor: int, floor: int
) -> None:
    """Between the one that gave it and this one there may have been a quorum that gave it again."""
    quorum.founding_id = uuid.UUID(int=1)
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.allocate_refusals.extend([RequestError(ErrorCode.EVIDENCE_OPEN)] * 3)
        quorum.founding_id = uuid.UUID(int=2)
        quorum.succession = Succession(uuid.UUID(int=predecessor), floor)
        await until(lambda: agent.session.founding_id == quorum.founding_id, task)
        assert agent.reserve.claim() == NO_ID


async def test_an_agent_that_is_not_believed_ends(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.refusals.extend([RequestError(ErrorCode.STALE_BROKER_EPOCH), RequestError(ErrorCode.EVIDENCE_REFUSED)])
        with pytest.raises(FatalAgentError, match="EVIDENCE_REFUSED"):
            await asyncio.wait_for(task, SECONDS)


async def test_a_cluster_without_ids_is_no_reason_to_ask_again(quorum: StubQuorum) -> None:
    """What is held is handed out first. If the quorum has IDs after all, they are served."""
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.allocate_refusals.extend([RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED)] * 20)
        assert NO_ID not in [agent.reserve.claim() for _ in range(3900)]
        await until(lambda: agent.reserve.exhausted, task)
        assert agent.ready
        assert NO_ID not in [agent.reserve.claim() for _ in range(100)]
        assert agent.reserve.claim() == NO_ID
        assert agent.reserve.refusal is ErrorCode.PRODUCER_IDS_EXHAUSTED
        assert agent.why_not_ready() == ["no producer ID is left in this cluster"]
        quorum.allocate_refusals.clear()
        await until(lambda: agent.ready, task)
        assert not agent.reserve.exhausted


async def test_an_agent_that_begins_when_no_id_is_left_says_so(quorum: StubQuorum) -> None:
    quorum.allocate_refusals.extend([RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED)] * 100)
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.exhausted, task)
        assert agent.why_not_ready() == ["no producer ID is left in this cluster"]


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
async def test_registers_anew_when_the_epoch_is_refused(quorum: StubQuorum, code: ErrorCode) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.refusals.append(RequestError(code))
        await until(lambda: agent.session.registrations == 2, task)
        assert agent.session.broker_epoch == quorum.epochs[7] > 1
        for _ in range(3000):
            assert agent.reserve.claim() != NO_ID
        await until(lambda: agent.reserve.remaining >= 4000, task)


async def test_a_round_refused_for_its_epoch_registers_once(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.allocate_refusals.append(RequestError(ErrorCode.STALE_BROKER_EPOCH))
        for _ in range(4000):
            agent.reserve.claim()
        await until(lambda: agent.reserve.remaining >= 4000, task)
        assert agent.session.registrations == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    ],
)
@pytest.mark.parametrize("moment", ["register", "running", "allocate"])
async def test_what_an_operator_must_see_to_ends_the_agent(quorum: StubQuorum, code: ErrorCode, moment: str) -> None:
    if moment == "register":
        quorum.refusals.append(RequestError(code, "go away"))
    elif moment == "allocate":
        quorum.allocate_refusals.append(RequestError(code, "go away"))
    async with running(quorum) as (agent, task):
        if moment == "running":
            await until(lambda: agent.ready, task)
            quorum.refusals.append(RequestError(code, "go away"))
        with pytest.raises(FatalAgentError, match=f"{code.name}: go away"):
            await asyncio.wait_for(task, SECONDS)


async def test_another_clusters_controllers_are_refused(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.ready, task)
        quorum.cluster_id = "another"
        for _ in range(2000):
            agent.reserve.claim()
        with pytest.raises(FatalAgentError, match="INCONSISTENT_CLUSTER_ID"):
            await asyncio.wait_for(task, SECONDS)


async def test_a_registration_with_another_cluster_is_refused_by_the_agent_too(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.ready, task)
        quorum.checks_cluster_id = False
        quorum.cluster_id = "another"
        quorum.refusals.append(RequestError(ErrorCode.STALE_BROKER_EPOCH))
        with pytest.raises(FatalAgentError, match="belong to cluster another, this agent to stub-cluster"):
            await asyncio.wait_for(task, SECONDS)


async def test_a_block_that_was_held_before_is_thrown_away(quorum: StubQuorum) -> None:
    """A controller that goes back would make duplicates; the agent does not take part."""
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.next_producer_id = 2000
        ids = [agent.reserve.claim() for _ in range(3000)]
        await until(lambda: agent.prefetcher.blocks_rejected >= 1, task)
        await until(lambda: agent.reserve.remaining >= 4000, task)
        ids += [agent.reserve.claim() for _ in range(4000)]
        assert agent.prefetcher.rounds["failed"] >= 1, "it was asked again at once"
    assert len(set(ids)) == 7000


async def test_a_controller_that_went_back_is_not_asked_as_fast_as_it_answers(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.next_producer_id = 0
        quorum.block_size = 1
        for _ in range(4000):
            agent.reserve.claim()
        asked = len(quorum.blocks)
        await until(lambda: agent.prefetcher.policy.failures_in_a_row >= 3, task)
        # After the first round a single block a round, each behind a back-off.
        assert len(quorum.blocks) - asked <= 4 + agent.prefetcher.rounds["failed"]


async def test_a_block_of_the_registration_before_is_thrown_away(quorum: StubQuorum) -> None:
    async with running(quorum, heartbeat_seconds=600.0, attempt_seconds=5.0) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        quorum.delays.append(0.3)
        for _ in range(4000):
            agent.reserve.claim()
        await until(lambda: len(quorum.blocks) == 8, task)
        quorum.epochs[7] += 100
        agent.session.doubt_epoch(1)
        await until(lambda: agent.session.registrations == 2, task)
        assert agent.reserve.remaining == 0, "the round is still under way"
        await until(lambda: agent.reserve.remaining >= 4000, task)
        assert agent.prefetcher.blocks_rejected == 4
        assert agent.reserve.claim() >= 8000


async def test_a_round_is_one_request(quorum: StubQuorum) -> None:
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert agent.prefetcher.rounds["ok"] == 1
    assert [query for query in quorum.queries if query.startswith("blocks")] == ["blocks=4"]


async def test_controllers_that_give_fewer_blocks_are_asked_for_the_rest(quorum: StubQuorum) -> None:
    """As earlier builds, which do not look at how many are asked for, and as a quota that ends within a round."""
    quorum.most_blocks = 1
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert (agent.prefetcher.rounds["ok"], agent.prefetcher.rounds["failed"]) == (4, 0)
        claimed = [agent.reserve.claim() for _ in range(4000)]
    assert claimed == list(range(4000))


async def test_blocks_that_nobody_asked_for_are_thrown_away(quorum: StubQuorum) -> None:
    quorum.unasked = 2
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining == 4000, task)
        assert (agent.prefetcher.rounds["failed"], agent.prefetcher.blocks_rejected) == (1, 2)
        claimed = [agent.reserve.claim() for _ in range(4000)]
    assert claimed == list(range(4000))


async def test_a_throttled_round_is_no_failure(quorum: StubQuorum) -> None:
    quorum.allocate_refusals.append(RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=20))
    async with running(quorum) as (agent, task):
        await until(lambda: agent.reserve.remaining >= 4000, task)
        assert (agent.prefetcher.rounds["throttled"], agent.prefetcher.rounds["failed"]) == (1, 0)


async def test_leaves_its_address_once_the_controllers_take_it(
    quorum: StubQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidkeeper.broker_agent.session.discovery.ADVERTISE_SECONDS", 0.0)
    quorum.takes_addresses = False
    async with running(quorum) as (agent, task):
        await until(lambda: quorum.looks >= 1, task)
        assert (quorum.kafka, quorum.epochs) == ({7: None}, {7: 1})
        quorum.refusals.append(RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED))
        quorum.takes_addresses = True
        await until(lambda: quorum.kafka == {7: "agent-7:9092"}, task)
        assert (agent.session.broker_epoch, agent.session.registrations) == (1, 1)
        assert quorum.epochs == {7: 1}


async def test_an_address_that_is_left_with_a_new_registration_takes_its_epoch(
    quorum: StubQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidkeeper.broker_agent.session.discovery.ADVERTISE_SECONDS", 0.0)
    quorum.takes_addresses = False
    async with running(quorum, heartbeat_seconds=600.0) as (agent, task):
        await until(lambda: agent.ready and quorum.looks == 1, task)
        quorum.incarnations.clear()
        quorum.takes_addresses = True
        agent.directory.coordinator("t")
        await until(lambda: agent.session.registrations == 2, task)
        assert agent.session.broker_epoch == quorum.epochs[7] > 1


async def test_unregisters_and_never_raises(quorum: StubQuorum) -> None:
    async with running(quorum, call_seconds=0.2) as (agent, task):
        await until(lambda: agent.ready, task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await agent.session.unregister()
        assert quorum.epochs == {}
        await agent.session.unregister()
        quorum.leader = None
        await agent.session.unregister()


async def test_keeps_trying_to_register_while_nobody_leads(quorum: StubQuorum) -> None:
    quorum.leader = None
    async with running(quorum, call_seconds=0.05) as (agent, task):
        await until(lambda: sum(member.requests for member in quorum.members) > 5, task)
        assert not agent.ready
        quorum.leader = quorum.members[2]
        await until(lambda: agent.ready, task)


async def test_says_where_it_is_and_learns_who_else_lives(quorum: StubQuorum) -> None:
    quorum.others.append(BrokerDescription(9, 1, False, "agent-9:9094"))
    async with running(quorum) as (agent, task):
        own = agent.directory.own
        await until(lambda: len(agent.directory.nodes) == 2, task)
        assert (quorum.kafka, own) == ({7: "agent-7:9092"}, Node(7, "agent-7", 9092))
        assert list(agent.directory.nodes) == [own, Node(9, "agent-9", 9094)]
        quorum.others[:] = [BrokerDescription(9, 1, True, "agent-9:9094")]
        await until(lambda: len(agent.directory.nodes) == 1, task)


async def test_a_client_that_asks_for_a_coordinator_makes_it_look_again(quorum: StubQuorum) -> None:
    async with running(quorum, heartbeat_seconds=600.0) as (agent, task):
        await until(lambda: quorum.looks == 1, task)
        agent.directory.coordinator("t")
        await until(lambda: quorum.looks == 2, task)
        await asyncio.sleep(0.3)
        assert quorum.looks == 2


@pytest.mark.parametrize("code", [ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_controllers_that_do_not_say_who_lives_are_no_trouble(quorum: StubQuorum, code: ErrorCode) -> None:
    quorum.brokers_refused = RequestError(code)
    async with running(quorum) as (agent, task):
        await until(lambda: quorum.looks >= 2 and agent.ready, task)
        assert agent.directory.coordinator("t") == Node(7, "agent-7", 9092)
        quorum.brokers_refused = None
        quorum.others.append(BrokerDescription(9, 1, False, "agent-9:9094"))
        await until(lambda: len(agent.directory.nodes) == 2, task)
