"""A group at the agent that coordinates it, and at one that only believes to."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pidkeeper.broker_agent.groups import coordinator as module
from pidkeeper.broker_agent.groups.adopting import ADOPT_SECONDS, Adopter
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.coordinator import (
    COMMIT_SECONDS,
    IDLE_SECONDS,
    LOOK_SECONDS,
    STALL_SECONDS,
    Coordinator,
)
from pidkeeper.broker_agent.groups.members import MEMBER_BYTES
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeavingMember
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import SyncGroupRequest
from pidkeeper.controller.state.requests import CreateTopic
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import DEFAULT_SESSION_TIMEOUT_MS, NO_VERSION
from pidkeeper.protocol.metadata_version import BASE
from tests.simulation.world import MILLISECOND
from tests.support.coordinator_rig import Agent, Consumer, CoordinatorRig, come_together, sync
from tests.support.group_quorum import lagging, losing, raising, waiting
from tests.support.group_rig import CLIENT, SESSION_MS, join_request, sync_request
from tests.support.group_state import keep

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def rig() -> Iterator[CoordinatorRig]:
    with contextlib.closing(CoordinatorRig(1)) as made:
        yield made


@pytest.fixture
def agent(rig: CoordinatorRig) -> Agent:
    return rig.agents[1]


@pytest.fixture
def coordinator(agent: Agent) -> Coordinator:
    return agent.coordinator


def beat(member: JoinGroupResponse, **changes: Any) -> HeartbeatRequest:
    return msgspec.structs.replace(HeartbeatRequest("group", member.generation, member.member_id, None), **changes)


async def join_code(coordinator: Coordinator, **changes: Any) -> ErrorCode:
    answer = await coordinator.join_group(join_request(**changes), CLIENT)
    return next(one for one in ErrorCode if one.kafka_code == answer.error_code)


# One coordinator.


def test_members_come_together(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        members = await come_together(coordinator, 3)
        assert {(one.generation, one.leader) for one in members} == {(1, members[0].member_id)}
        for one in members:
            assert (await sync(coordinator, one)).assignment == b"to " + one.member_id.encode()
            assert await coordinator.heartbeat(beat(one)) is ErrorCode.NONE
        (commit,) = rig.quorum.commits
        epoch = rig.agents[1].session.broker_epoch
        assert (commit.after, commit.generation, commit.broker_id, commit.broker_epoch) == (-1, 1, 1, epoch)
        assert [one.member_id for one in commit.members] == [one.member_id for one in members]
        left = await coordinator.leave_group(LeaveGroupRequest("group", [LeavingMember(members[1].member_id)]))
        assert left.members[0].error_code == 0
        assert await coordinator.heartbeat(beat(members[0])) is ErrorCode.REBALANCE_IN_PROGRESS

    rig.run(scenario())
    assert (coordinator.rebalances, coordinator.groups) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 250}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i" * 250}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": "t" * 65}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "somebody"}, UNKNOWN),
    ],
)
def test_who_cannot_join(
    rig: CoordinatorRig, coordinator: Coordinator, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert rig.run(join_code(coordinator, **changes)) is code
    assert not rig.quorum.commits


def test_members_without_signs_of_life_are_removed(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        alive, dead = await come_together(coordinator, 2)
        codes = set()
        while dead.member_id in {one.member_id for one in (await coordinator.describe_group("group")).members}:
            await asyncio.sleep(1)
            codes.add(await coordinator.heartbeat(beat(alive)))
        assert rig.now == pytest.approx(6 + SESSION_MS / 1000, abs=1.1)
        assert codes == {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        assert await coordinator.heartbeat(beat(dead)) is UNKNOWN

    rig.run(scenario())


def test_whoever_could_not_be_heard_is_not_given_up_on(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    """This agent stands still for longer than a session: what members sent meanwhile is read after it."""
    (member,) = rig.run(come_together(coordinator))
    rig.loop.pause(2 * SESSION_MS * MILLISECOND)

    async def scenario() -> None:
        await asyncio.sleep(STALL_SECONDS / 2)
        assert await coordinator.heartbeat(beat(member)) is ErrorCode.NONE
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        assert coordinator.state("group") is State.EMPTY, "it was silent since"

    rig.run(scenario())


def test_whatever_is_due_sooner_is_not_forgotten(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        (member,) = await come_together(coordinator, session_timeout_ms=300_000)
        await coordinator.join_group(join_request(takes_member_id=True, session_timeout_ms=6_000), CLIENT)
        began = rig.now
        await coordinator.join_group(join_request(member.member_id), CLIENT)
        assert rig.now - began == pytest.approx(6, abs=0.1), "for the member that does not come with its id"

    rig.run(scenario())


def test_a_commit_of_offsets_is_a_sign_of_life(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        (member,) = await come_together(coordinator)
        for _ in range(4):
            await asyncio.sleep(SESSION_MS / 1000 - 0.1)
            assert coordinator.before_commit("group", member.member_id, 1, None) is ErrorCode.NONE
        assert coordinator.state("group") is State.STABLE
        again = asyncio.ensure_future(coordinator.join_group(join_request(), CLIENT))
        await asyncio.sleep(0)
        await coordinator.join_group(join_request(member.member_id), CLIENT)
        assert coordinator.before_commit("group", member.member_id, 2, None) is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await again).generation == 2
        # These are the quorum's to judge: nobody's, one's of an old generation, one's of a group not loaded.
        assert coordinator.before_commit("group", "", -1, None) is ErrorCode.NONE
        assert coordinator.before_commit("group", member.member_id, 1, None) is ErrorCode.NONE
        assert coordinator.before_commit("other", "somebody", 1, None) is ErrorCode.NONE

    rig.run(scenario())


def test_a_group_is_loaded_once(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    rig.quorum.keep("group", "a", "b")
    version = rig.quorum.version("group")

    async def scenario() -> None:
        beats = [HeartbeatRequest("group", 7, one, None) for one in ("a", "b", "c")]
        gone = asyncio.ensure_future(coordinator.heartbeat(beats[0]))
        await asyncio.sleep(0)
        gone.cancel()
        codes = await asyncio.gather(*(coordinator.heartbeat(one) for one in beats))
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, UNKNOWN]
        answers = await asyncio.gather(*(coordinator.join_group(join_request(one), CLIENT) for one in ("a", "b")))
        assert {(one.generation, one.leader) for one in answers} == {(8, "a")}

    rig.run(scenario())
    assert len(rig.quorum.asked("find_group")) == 1
    assert rig.quorum.commits[0].after == version


def test_groups_are_loaded_a_few_at_a_time(
    rig: CoordinatorRig, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LOADS", 2)

    async def scenario() -> None:
        requests = [LeaveGroupRequest(f"group-{one}", [LeavingMember("a")]) for one in range(3)]
        answers = await asyncio.gather(*map(coordinator.leave_group, requests))
        assert [one.error_code for one in answers] == [0, 0, LOADING.kafka_code]

    rig.run(scenario())


def test_groups_have_room_for_so_many(
    rig: CoordinatorRig, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS_HELD", 2)
    rig.quorum.keep("large", *map(str, range(100)))

    async def scenario() -> None:
        await come_together(coordinator)
        for number in range(3):
            # An idle one makes room for the next.
            assert await coordinator.heartbeat(HeartbeatRequest(f"idle-{number}", 7, "a", None)) is UNKNOWN
        assert coordinator.groups == 2
        assert coordinator.state("idle-2") is State.EMPTY
        assert coordinator.state("group") is State.STABLE
        second = asyncio.ensure_future(join_code(coordinator, group_id="second"))
        await asyncio.sleep(1)
        assert not second.done()
        assert await join_code(coordinator, group_id="third") is NOT_AVAILABLE
        coordinator.room.capacity = 100 * MEMBER_BYTES
        monkeypatch.setattr(module, "MAX_GROUPS_HELD", 3)
        assert await join_code(coordinator, group_id="large") is NOT_AVAILABLE

    rig.run(scenario())


def test_the_group_that_was_used_longest_ago_makes_room(
    rig: CoordinatorRig, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS_HELD", 2)

    async def scenario() -> None:
        for name in ("first", "second", "first", "third"):
            assert await coordinator.heartbeat(HeartbeatRequest(name, 7, "a", None)) is UNKNOWN
        assert [coordinator.state(one) for one in ("first", "second", "third")] == [State.EMPTY, None, State.EMPTY]

    rig.run(scenario())


def test_idle_groups_are_dropped(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        (member,) = await come_together(coordinator)
        await coordinator.leave_group(LeaveGroupRequest("group", [LeavingMember(member.member_id)]))
        assert rig.quorum.known().members == [], "before the leave was answered"
        await asyncio.sleep(IDLE_SECONDS - 1)
        assert coordinator.groups == 1
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert coordinator.groups == 0
        assert (await come_together(coordinator))[0].generation == 3

    rig.run(scenario())


# The quorum's troubles.


def test_a_lost_answer_makes_no_second_generation(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        rig.quorum.faults.extend(
            [waiting(0), losing, raising(ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=700), losing]
        )
        began = rig.now
        (member,) = await come_together(coordinator)
        assert member.generation == 1
        assert rig.now - began > 3.7, "it waits as long as it is told to"

    rig.run(scenario())
    assert len(rig.quorum.commits) == 1
    assert len({msgspec.json.encode(one) for one in rig.quorum.asked("commit_group")}) == 1
    assert len(rig.quorum.asked("commit_group")) == 4


def test_a_quorum_that_does_not_answer(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    """The members come again; whether the generation was taken after all is seen when the group is loaded anew."""

    async def scenario() -> None:
        rig.quorum.faults.extend([waiting(0), losing, *[raising(ErrorCode.REQUEST_TIMED_OUT)] * 100])
        began = rig.now
        assert await join_code(coordinator) is NOT_AVAILABLE
        assert rig.now - began == pytest.approx(3 + COMMIT_SECONDS, abs=0.1)
        rig.quorum.faults.clear()
        answer = await coordinator.join_group(join_request("client-id1"), CLIENT)
        assert answer.generation == 2

    rig.run(scenario())
    assert [one.generation for one in rig.quorum.commits] == [1, 2]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (ErrorCode.INVALID_REQUEST, NOT_AVAILABLE),
    ],
)
def test_a_generation_that_the_quorum_refuses(
    rig: CoordinatorRig, coordinator: Coordinator, code: ErrorCode, told: ErrorCode
) -> None:
    rig.quorum.faults.extend([waiting(0), raising(code)])
    assert rig.run(join_code(coordinator)) is told
    assert coordinator.groups == 0


def test_while_the_quorum_is_away_nothing_is_loaded(rig: CoordinatorRig, agent: Agent) -> None:
    coordinator = agent.coordinator
    rig.quorum.faults.append(raising(ErrorCode.REQUEST_TIMED_OUT))
    assert rig.run(join_code(coordinator)) is LOADING
    epoch, agent.session.broker_epoch = agent.session.broker_epoch, None
    assert rig.run(join_code(coordinator)) is LOADING
    agent.session.broker_epoch = epoch
    agent.session.metadata_version = BASE
    assert rig.run(join_code(coordinator)) is NOT_AVAILABLE
    agent.hear()
    assert rig.run(join_code(coordinator)) is LOADING, "nobody is known to keep records"
    assert len(rig.quorum.calls) == 1


def test_while_nothing_is_loaded_members_live_and_join_again(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    """`HeartbeatResponse` and `SyncGroupResponse` of aiokafka know no COORDINATOR_LOAD_IN_PROGRESS."""
    away = raising(ErrorCode.REQUEST_TIMED_OUT)

    async def scenario() -> None:
        rig.quorum.faults.append(away)
        assert await coordinator.heartbeat(HeartbeatRequest("group", 7, "a", None)) is ErrorCode.NONE
        rig.quorum.faults.append(away)
        answer = await coordinator.sync_group(sync_request("a", 7))
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS.kafka_code
        assert await coordinator.heartbeat(HeartbeatRequest("group", 7, "a", None)) is UNKNOWN

    rig.run(scenario())


def test_a_stale_registration_is_doubted(rig: CoordinatorRig, agent: Agent) -> None:
    epoch = rig.quorum.register(1)
    assert rig.run(join_code(agent.coordinator)) is NOT_AVAILABLE
    assert agent.session.doubted == [agent.session.broker_epoch]
    agent.session.broker_epoch = epoch
    assert rig.run(join_code(agent.coordinator)) is ErrorCode.NONE


def test_under_a_new_registration_groups_are_loaded_anew(rig: CoordinatorRig, agent: Agent) -> None:
    coordinator = agent.coordinator

    async def scenario() -> None:
        (member,) = await come_together(coordinator)
        waiting_for_it = asyncio.ensure_future(join_code(coordinator))
        await asyncio.sleep(1)
        agent.session.broker_epoch = rig.quorum.register(1)
        assert await waiting_for_it is NOT_COORDINATOR
        assert await coordinator.heartbeat(beat(member)) is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await coordinator.join_group(join_request(member.member_id), CLIENT)).generation == 2
        # While it is asked for.
        rig.quorum.faults.append(waiting(1))
        asked = asyncio.ensure_future(coordinator.heartbeat(beat(member, group_id="other")))
        await asyncio.sleep(0.5)
        agent.session.broker_epoch = rig.quorum.register(1)
        assert await asked is NOT_COORDINATOR

    rig.run(scenario())
    first, second = (one.broker_epoch for one in rig.quorum.commits)
    assert first < second


# Two agents.


def test_a_group_that_moves_away_keeps_nobody(rig: CoordinatorRig, agent: Agent) -> None:
    coordinator = agent.coordinator

    async def scenario() -> None:
        (member,) = await come_together(coordinator)
        lookups = agent.lookups
        agent.hear(1)
        assert await coordinator.heartbeat(beat(member)) is ErrorCode.NONE
        assert agent.lookups == lookups, "the same agents live, so nobody has to be looked for"
        agent.hear(1, 6)
        assert agent.directory.group_coordinator("group").id == 1
        lookups = agent.lookups
        for _ in range(3):
            assert await coordinator.heartbeat(beat(member)) is ErrorCode.NONE
        assert agent.lookups == lookups + 1
        waiting_for_it = asyncio.ensure_future(join_code(coordinator))
        await asyncio.sleep(0.1)
        agent.hear(2)
        began = rig.now
        assert await waiting_for_it is NOT_COORDINATOR
        assert rig.now - began <= LOOK_SECONDS
        assert await coordinator.heartbeat(beat(member)) is NOT_COORDINATOR
        assert coordinator.before_commit("group", member.member_id, 1, None) is NOT_COORDINATOR
        assert (await coordinator.describe_group("group")).error_code == NOT_COORDINATOR.kafka_code
        assert await coordinator.delete_group("group") is NOT_COORDINATOR
        assert coordinator.groups == 0

    rig.run(scenario())


def test_of_two_coordinators_one_goes_on() -> None:
    with contextlib.closing(CoordinatorRig(1, 2)) as rig:
        one, two = (agent.coordinator for agent in rig.agents.values())

        async def scenario() -> None:
            answers = await asyncio.gather(
                *(coordinator.join_group(join_request(), CLIENT) for coordinator in (one, two, one, two))
            )
            codes = [answer.error_code for answer in answers]
            assert sorted(codes) == [0, 0, NOT_COORDINATOR.kafka_code, NOT_COORDINATOR.kafka_code]
            assert codes[0] == codes[2]
            assert one.lost + two.lost == 1
            # The other one begins with what there is now.
            loser, winner = (two, 1) if two.lost else (one, 2)
            rig.agents[winner].hear(3 - winner)
            answer = await loser.join_group(join_request(), CLIENT)
            assert (answer.generation, len(answer.members)) == (2, 1)

        rig.run(scenario())


def test_an_agents_death_costs_one_rebalance() -> None:
    with contextlib.closing(CoordinatorRig(1, 2)) as rig:
        for agent in rig.agents.values():
            agent.hear(1, 2)
        first = rig.agents[1].directory.group_coordinator("group").id
        consumers = [Consumer(rig, first, rig.world.stream(str(one))) for one in range(4)]
        rig.run(asyncio.sleep(30))
        generation = rig.quorum.known().generation
        before = [one.member_id for one in consumers]
        for agent in rig.agents.values():
            agent.hear(3 - first)
        rig.run(asyncio.sleep(30))
        assert rig.quorum.known().generation == generation + 1
        assert [one.member_id for one in consumers] == before
        assert {one.history[-1][0] for one in consumers} == {generation + 1}
        assert {one.history[-1][2] for one in consumers} == {one.encode() for one in before}


# What others ask for.


def test_description(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        told = await coordinator.describe_group("group")
        assert (told.state, told.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND.kafka_code)
        # Offsets are known of it by now.
        rig.quorum.decide(CreateTopic(uuid.uuid4(), "topic", 1, -1, -1, None, validate_only=False))
        rig.quorum.decide(keep("group", ("topic", 0, 5), operator=True))
        assert rig.quorum.known().version == NO_VERSION
        told = await coordinator.describe_group("group")
        assert (told.state, told.error_code, told.members) == ("Empty", 0, [])
        rig.quorum.keep("group", "a")
        told = await coordinator.describe_group("group")
        assert (told.state, [one.member_id for one in told.members]) == ("PreparingRebalance", ["a"])

    rig.run(scenario())


def test_deletion(rig: CoordinatorRig, agent: Agent) -> None:
    coordinator = agent.coordinator

    async def scenario() -> None:
        assert await coordinator.delete_group("group") is ErrorCode.GROUP_ID_NOT_FOUND
        (member,) = await come_together(coordinator)
        assert await coordinator.delete_group("group") is ErrorCode.NON_EMPTY_GROUP
        assert len(rig.quorum.asked("delete_group")) == 1
        await coordinator.leave_group(LeaveGroupRequest("group", [LeavingMember(member.member_id)]))
        rig.quorum.faults.append(raising(ErrorCode.STALE_BROKER_EPOCH))
        assert await coordinator.delete_group("group") is LOADING
        assert agent.session.doubted == [agent.session.broker_epoch]
        assert await coordinator.delete_group("group") is ErrorCode.NONE
        assert (await come_together(coordinator))[0].generation == 1

    rig.run(scenario())
    assert rig.quorum.asked("delete_group")[-1].broker_epoch == agent.session.broker_epoch


def test_groups_whose_members_are_gone_become_empty(rig: CoordinatorRig, agent: Agent) -> None:
    rig.quorum.page = 1
    names = ("dead-1", "dead-2", "empty")
    for name in names:
        rig.quorum.keep(name, *(["a"] if name != "empty" else []))
    rig.quorum.faults.append(raising(ErrorCode.REQUEST_TIMED_OUT))
    adopter = rig.loop.create_task(Adopter(agent.coordinator, rig.quorum).run())
    rig.run(asyncio.sleep(2 * ADOPT_SECONDS + DEFAULT_SESSION_TIMEOUT_MS / 1000 + 1))
    assert [rig.quorum.known(one).generation for one in names] == [8, 8, 7]
    assert not any(rig.quorum.known(one).members for one in names)
    assert [one.group_id for one in rig.quorum.asked("find_group")] == ["dead-1", "dead-2"]
    agent.hear(2)
    rig.quorum.keep("dead-1", "a", generation=9)
    rig.run(asyncio.sleep(3 * ADOPT_SECONDS))
    assert rig.quorum.known("dead-1").members, "it is another agent's"
    adopter.cancel()


# The end.


def test_whoever_waits_is_answered_at_the_end(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        first, second = await come_together(coordinator, 2)
        again = asyncio.ensure_future(coordinator.join_group(join_request(first.member_id), CLIENT))
        rig.quorum.faults.append(waiting(5))
        loading = asyncio.ensure_future(coordinator.heartbeat(beat(second, group_id="other")))
        await asyncio.sleep(0.1)
        await coordinator.stop()
        assert (await again).error_code == NOT_COORDINATOR.kafka_code
        assert await loading is NOT_COORDINATOR
        assert await coordinator.heartbeat(beat(second)) is NOT_COORDINATOR
        assert coordinator.room.held == 0

    rig.run(scenario())


def test_a_commit_is_under_way_at_the_end(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        rig.quorum.faults.extend([waiting(0), waiting(2)])
        joining = asyncio.ensure_future(join_code(coordinator))
        await asyncio.sleep(4)
        await coordinator.stop()
        assert await joining is NOT_COORDINATOR

    rig.run(scenario())


def test_the_registration_ends_while_a_commit_is_under_way(rig: CoordinatorRig, agent: Agent) -> None:
    coordinator = agent.coordinator

    async def scenario() -> None:
        rig.quorum.faults.extend([waiting(0), lagging(2.0)])
        joining = asyncio.ensure_future(join_code(coordinator))
        await asyncio.sleep(4)
        assert len(rig.quorum.commits) == 1
        agent.session.broker_epoch = rig.quorum.register(1)
        assert await joining is NOT_COORDINATOR
        await asyncio.sleep(10)

    rig.run(scenario())
    assert coordinator.rebalances == 0


def test_a_client_that_goes_away_leaves_a_member_that_expires(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        joining = asyncio.ensure_future(join_code(coordinator))
        await asyncio.sleep(1)
        joining.cancel()
        await asyncio.sleep(2.5)
        assert coordinator.state("group") is State.COMPLETING_REBALANCE
        await asyncio.sleep(SESSION_MS / 1000)
        assert coordinator.state("group") is State.EMPTY

    rig.run(scenario())


def test_a_wrong_kind_of_request_is_refused_as_such(rig: CoordinatorRig, coordinator: Coordinator) -> None:
    async def scenario() -> None:
        synced = await coordinator.sync_group(SyncGroupRequest("group", 1, "a", None, None, None, []))
        assert synced.error_code == UNKNOWN.kafka_code
        left = await coordinator.leave_group(LeaveGroupRequest("", [LeavingMember("a")]))
        assert left.error_code == ErrorCode.INVALID_GROUP_ID.kafka_code

    rig.run(scenario())
