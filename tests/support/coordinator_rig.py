"""Coordinators of groups at some agents, and consumers that come and go, in virtual time over one quorum."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.groups.coordinator import Coordinator
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest, JoinGroupResponse
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeavingMember
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import MemberAssignment, SyncGroupRequest, SyncGroupResponse
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import BrokerDescription
from pidkeeper.protocol.metadata_version import GROUPS
from tests.simulation.loop import SimLoop, enter
from tests.simulation.world import SECOND, World
from tests.support.group_quorum import GroupQuorum
from tests.support.group_rig import CLIENT, join_request

_Result = TypeVar("_Result")
STORE = uuid.UUID(int=43)

LOOK_ELSEWHERE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.kafka_code,
    ErrorCode.NOT_COORDINATOR.kafka_code,
}


class StubSession:
    """A registration as a test sets it. `doubted`: the epochs that were reported stale."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch: int | None = broker_epoch
        self.metadata_version = GROUPS
        self.doubted: list[int] = []

    def doubt_epoch(self, epoch: int) -> None:
        self.doubted.append(epoch)


class Agent:
    """One that keeps records, and coordinates groups. `lookups`: how often the directory was asked for one."""

    def __init__(self, broker_id: int, rig: CoordinatorRig) -> None:
        self.session = StubSession(broker_id, rig.quorum.register(broker_id))
        self.lookups = 0
        self.directory = Directory(Node(broker_id, "host", 9092), self._looked_up)
        self.coordinator = Coordinator(
            self.session,
            self.directory,
            rig.quorum,
            rig.world.stream(f"backoff-{broker_id}"),
            GroupSettings(),
            lambda: f"id{next(rig.ids)}",
        )
        self.hear(broker_id)

    def _looked_up(self) -> None:
        self.lookups += 1

    def hear(self, *brokers: int) -> None:
        """These are said to live."""
        self.directory.update(BrokerDescription(one, 1, False, f"host:{9000 + one}", store_id=STORE) for one in brokers)


class _Loop(SimLoop):
    """`failures`: what tasks and timers failed with, which is nobody's concern elsewhere."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.failures: list[dict[str, Any]] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)


class CoordinatorRig:
    """`agents`: by broker id; each believes that it is the only one, until it hears otherwise."""

    def __init__(self, *broker_ids: int, seed: int = 1) -> None:
        self.world = World(seed)
        self.loop = _Loop(self.world)
        self.quorum = GroupQuorum()
        self.ids = itertools.count(1)
        self.agents = {one: Agent(one, self) for one in broker_ids}
        self._beside = [self.loop.create_task(agent.coordinator.run()) for agent in self.agents.values()]

    @property
    def now(self) -> float:
        return self.loop.time()

    def run(self, work: Coroutine[Any, Any, _Result], seconds: float = 1000.0) -> _Result:
        """Let time pass until `work` is done. Fails if it is not within so many seconds."""
        task = self.loop.create_task(work)
        try:
            self.world.run(self.world.now + round(seconds * SECOND), task.done)
        finally:
            enter(None)
        assert task.done(), f"not done within {seconds} s"
        return task.result()

    def close(self) -> None:
        self.run(self._stop())
        gc.collect()
        self.loop.close()
        assert not self.loop.failures

    async def _stop(self) -> None:
        for task in self._beside:
            task.cancel()
        for agent in self.agents.values():
            await agent.coordinator.stop()
        await asyncio.gather(*self._beside, return_exceptions=True)


async def come_together(coordinator: Coordinator, count: int = 1, **changes: Any) -> list[JoinGroupResponse]:
    """New members join, and their leader assigns."""
    joined = await asyncio.gather(*(coordinator.join_group(join_request(**changes), CLIENT) for _ in range(count)))
    assert {one.error_code for one in joined} == {0}, joined
    for one in joined:
        if one.member_id == one.leader:
            assert (await sync(coordinator, one)).error_code == 0
    return list(joined)


async def sync(coordinator: Coordinator, member: JoinGroupResponse) -> SyncGroupResponse:
    assignments = [MemberAssignment(one.member_id, b"to " + one.member_id.encode()) for one in member.members]
    return await coordinator.sync_group(
        SyncGroupRequest("group", member.generation, member.member_id, None, None, None, assignments)
    )


class Consumer:
    """A consumer as client libraries are one: it joins, syncs, lives, and does what answers tell it to do.

    `history`: generation, leader and assignment of each time that it was assigned something. `agent`: whom it asks; it
    looks for another one among those of `rig` when it is told to.
    """

    def __init__(self, rig: CoordinatorRig, agent: int, rng: random.Random, instance_id: str | None = None) -> None:
        self.rig = rig
        self.agent = agent
        self.rng = rng
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.alive = True
        self.history: list[tuple[int, str, bytes]] = []
        self.joins: list[JoinGroupResponse] = []
        self.longest_join = 0.0
        self.task = rig.loop.create_task(self._live())

    @property
    def coordinator(self) -> Coordinator:
        return self.rig.agents[self.agent].coordinator

    def die(self) -> None:
        """Without a word."""
        self.alive = False
        self.task.cancel()

    async def leave(self) -> None:
        self.die()
        await self.coordinator.leave_group(LeaveGroupRequest("group", [LeavingMember(self.member_id)]))

    async def _live(self) -> None:
        while True:
            if not await self._join():
                await asyncio.sleep(0.1 + self.rng.random() / 10)
                continue
            code = 0
            while code == 0:
                await asyncio.sleep(3)
                beat = HeartbeatRequest("group", self.generation, self.member_id, self.instance_id)
                code = (await self.coordinator.heartbeat(beat)).kafka_code
                code = 0 if self._look_elsewhere(code) else code
            self._reset(code)

    async def _join(self) -> bool:
        began = self.rig.now
        answer = await self.coordinator.join_group(self._request(), CLIENT)
        self.longest_join = max(self.longest_join, self.rig.now - began)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED.kafka_code:
            self.member_id = answer.member_id
            return False
        if answer.error_code:
            self._look_elsewhere(answer.error_code)
            self._reset(answer.error_code)
            return False
        self.joins.append(answer)
        self.member_id, self.generation = answer.member_id, answer.generation
        assignments = (
            []
            if answer.skip_assignment
            else [MemberAssignment(one.member_id, one.member_id.encode()) for one in answer.members]
        )
        request = SyncGroupRequest(
            "group", self.generation, self.member_id, self.instance_id, "consumer", "range", assignments
        )
        synced = await self.coordinator.sync_group(request)
        if synced.error_code:
            self._look_elsewhere(synced.error_code)
            self._reset(synced.error_code)
            return False
        self.history.append((self.generation, answer.leader, synced.assignment))
        return True

    def _request(self) -> JoinGroupRequest:
        return join_request(self.member_id, instance_id=self.instance_id, takes_member_id=True)

    def _look_elsewhere(self, code: int) -> bool:
        if code in LOOK_ELSEWHERE:
            self.agent = self.rig.agents[self.agent].directory.group_coordinator("group").id
        return code in LOOK_ELSEWHERE

    def _reset(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID.kafka_code:
            self.member_id = ""
