"""One process that is a member of a group, as client libraries have it: it joins, syncs, lives, and does what answers
tell it to do (KIP-62, KIP-345, KIP-394). It has a transactional producer beside.

It has a loop of its own. While that stands still others take its place, and then it goes on where it was: a zombie.
Under each epoch of its producer is one transaction at most: what comes late of one is of no other. The end of one gives
the next epoch (KIP-890), or the producer asks for it, as it has to after every failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, EndTxn
from pidkeeper.broker_agent.groups.members import Client
from pidkeeper.broker_agent.kafka.wire.groups.heartbeat import HeartbeatRequest
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinedMember, JoinGroupRequest, JoinProtocol
from pidkeeper.broker_agent.kafka.wire.groups.leave_group import LeaveGroupRequest, LeavingMember
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import GroupOffsets
from pidkeeper.broker_agent.kafka.wire.groups.partitions import PartitionCommit, TopicCommits, TopicPartitions
from pidkeeper.broker_agent.kafka.wire.groups.sync_group import MemberAssignment, SyncGroupRequest
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import InitProducerIdRequest
from tests.simulation.agent import Agent, TransactionalRequest
from tests.simulation.appending_transactions import LATE
from tests.simulation.group_model import NO_PRODUCER, UNSTABLE, GroupModel
from tests.simulation.loop import SimLoop
from tests.simulation.transaction_model import NOBODY, Pair
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.histories.group_agent import GroupAgent
    from tests.histories.grouping import Grouping

CALL_SECONDS: Final = 1.5
JOIN_SECONDS: Final = 8.0
"""Longer than a coordinator may have anybody wait: for members that are gone, one rebalance, and the quorum."""

PAUSE_SECONDS: Final = 0.1
ATTEMPTS: Final = 5

_ELSEWHERE: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.kafka_code,
    ErrorCode.NOT_COORDINATOR.kafka_code,
}
_STALE: Final = {
    ErrorCode.ILLEGAL_GENERATION.kafka_code,
    ErrorCode.UNKNOWN_MEMBER_ID.kafka_code,
    ErrorCode.REBALANCE_IN_PROGRESS.kafka_code,
}
_MEMBER_ID_REQUIRED: Final = ErrorCode.MEMBER_ID_REQUIRED.kafka_code
_UNKNOWN_MEMBER: Final = ErrorCode.UNKNOWN_MEMBER_ID.kafka_code
_FENCED_INSTANCE: Final = ErrorCode.FENCED_INSTANCE_ID.kafka_code
_FENCED: Final = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
_AGAIN: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
}

_KAFKA: Final = Client("client", "/10.0.0.1")


class RejoinError(Exception):
    """It has to join again."""


class FencedError(Exception):
    """Another process has its place, or it cannot go on: it ends."""


class GroupClient:
    """A member of `group`. `places`: what all members share out among themselves, and `assigned` what it has of that.

    `instance_id`: of a static one. `name`: its transactional id; `number`: of no other process. `own_epochs`: the end
    of each transaction gives it the next epoch.
    """

    group: str
    places: Sequence[int]

    def __init__(self, grouping: Grouping, name: str, number: int, instance_id: str | None) -> None:
        self.grouping = grouping
        self.world = grouping.world
        self.plane = grouping.plane
        self.name = name
        self.number = number
        self.instance_id = instance_id
        self.rng = self.world.stream(f"member-{number}")
        self.loop = SimLoop(self.world)
        self.member_id = ""
        self.generation = -1
        self.assigned: list[int] = []
        self.rebalancing = True
        self.pair: Pair = NOBODY
        self.own_epochs = self.rng.random() < grouping.plan.own_epochs
        self._offsets: TxnOffsetCommitRequest | None = None
        self._agent: Agent | None = None
        self.loop.create_task(self._live()).add_done_callback(self._ended)

    async def work(self) -> None:
        """What it does with what it is assigned, until it is `rebalancing`. Raises RejoinError, FencedError."""
        raise NotImplementedError

    def stop(self) -> None:
        """The process is gone, without a word."""
        self.loop.close()

    def leave(self) -> None:
        """It says so, and is gone."""
        request = LeaveGroupRequest(self.group, [LeavingMember(self.member_id, self.instance_id)])
        groups = self._coordinator()
        if groups is not None and self.member_id:
            groups.ask(lambda one: one.room.coordinator.leave_group(request), lambda answer: None)
        self.stop()

    # Its life.

    async def _live(self) -> None:
        await self.begin_epoch()
        while True:
            try:
                await self._join()
                beats = self.loop.create_task(self._beat())
                try:
                    await self.work()
                finally:
                    beats.cancel()
            except RejoinError:
                await self.rest()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if not isinstance(error := task.exception(), FencedError):
            raise error or AssertionError("a member ends by itself")
        self.stop()
        self.grouping.ended(self)

    async def rest(self, seconds: float = PAUSE_SECONDS) -> None:
        """For so long on the average."""
        await asyncio.sleep(seconds * (0.5 + self.rng.random()))

    async def _join(self) -> None:
        self.rebalancing = True
        settings = self.grouping.plan
        request = JoinGroupRequest(
            self.group,
            settings.session_ms,
            settings.rebalance_ms,
            self.member_id,
            self.instance_id,
            "consumer",
            [JoinProtocol("range", b"")],
            takes_member_id=True,
            skips_assignment=True,
        )
        joined = await self.ask_coordinator(lambda one: one.room.coordinator.join_group(request, _KAFKA), JOIN_SECONDS)
        if joined.error_code == _MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            raise RejoinError
        self._heed(joined.error_code)
        self.model.joined(self.group, joined.generation, joined.member_id)
        self.member_id, self.generation = joined.member_id, joined.generation
        sync = SyncGroupRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance_id,
            "consumer",
            "range",
            [] if joined.skip_assignment else self._share_out(joined.members),
        )
        synced = await self.ask_coordinator(lambda one: one.room.coordinator.sync_group(sync), JOIN_SECONDS)
        self._heed(synced.error_code)
        self.assigned = msgspec.json.decode(synced.assignment or b"[]", type=list[int])
        self.grouping.assigned(self)
        self.rebalancing = False

    def _share_out(self, members: Sequence[JoinedMember]) -> list[MemberAssignment]:
        """To each its range."""
        names = sorted((one.instance_id or one.member_id, one.member_id) for one in members)
        shares = [self.places[at :: len(names)] for at in range(len(names))]
        return [
            MemberAssignment(name, msgspec.json.encode(list(share)))
            for (_, name), share in zip(names, shares, strict=True)
        ]

    async def _beat(self) -> None:
        while not self.rebalancing:
            await asyncio.sleep(self.grouping.plan.session_ms / 3000)
            try:
                code = await self.ask_coordinator(self._live_at, CALL_SECONDS)
                self._heed(code.kafka_code)
            except RejoinError:
                continue
            except FencedError:
                self.rebalancing = True

    async def _live_at(self, groups: GroupAgent) -> ErrorCode:
        beat = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        return await groups.room.coordinator.heartbeat(beat)

    def _heed(self, code: int) -> None:
        """Do what an answer about the group asks for. Raises RejoinError, FencedError."""
        if code == _FENCED_INSTANCE:
            raise FencedError
        if code == _UNKNOWN_MEMBER:
            self.member_id = ""
        if code in _ELSEWHERE:
            self._agent = None
        if code in _STALE:
            self.rebalancing = True
        if code:
            raise RejoinError

    # Whom it asks.

    @property
    def model(self) -> GroupModel:
        """Of the groups, as the log has them."""
        return self.plane.monitor.model.groups

    def _coordinator(self) -> GroupAgent | None:
        """As the agent says that it asks first."""
        if self._agent is None or not self._agent.alive:
            asked = self.plane.any_agent()
            if asked is None:
                return None
            node = asked._agent.directory.group_coordinator(self.group)
            self._agent = next(one for one in self.plane.cluster.agents if one.broker_id == node.id)
        return self.grouping.groups_of(self._agent)

    async def ask_coordinator(self, work: Callable[[GroupAgent], Awaitable[Any]], seconds: float) -> Any:
        """The answer of the coordinator. Raises RejoinError if there is none, and Violation if one was owed."""
        groups = self._coordinator()
        if groups is None:
            raise RejoinError
        asked = self.world.now
        try:
            return await self.told(lambda told: groups.ask(work, told), seconds)
        except TimeoutError:
            if groups.agent.alive and self.grouping.calm_since is not None and asked > self.grouping.calm_since:
                raise Violation("member-waits", f"{self.name} for {seconds} s at {groups.agent.claims.name}") from None
            self._agent = None
            raise RejoinError from None

    async def told(self, begin: Callable[[Callable[[Any], None]], object], seconds: float | None = None) -> Any:
        """What something that happens elsewhere comes to. Raises TimeoutError."""
        answer = self.loop.create_future()

        def told(value: Any) -> None:
            if self.grouping.loses_an_answer(seconds):
                return
            self.world.at(0, self.loop.run_event, _settle, answer, value)

        begin(told)
        async with asyncio.timeout(seconds):
            return await answer

    async def ask_any(self, work: Callable[[GroupAgent], Awaitable[Any]]) -> Any:
        """The answer of some agent, None without one."""
        agent = self.plane.any_agent()
        if agent is None:
            return None
        groups = self.grouping.groups_of(agent)
        try:
            return await self.told(lambda told: groups.ask(work, told), CALL_SECONDS)
        except TimeoutError:
            return None

    # Transactions.

    async def step(self, wanted: TransactionalRequest) -> Any:
        """The answer to a step, None if it was refused or did not come. Raises FencedError."""
        for _ in range(ATTEMPTS):
            answer, code = await self._step_once(wanted)
            if code is ErrorCode.NONE:
                return answer or True
            if code in _FENCED:
                raise FencedError
            if code not in _AGAIN:
                return None
            await self.rest()
        return None

    async def _step_once(self, wanted: TransactionalRequest) -> tuple[Any, ErrorCode]:
        agent = self.plane.any_agent()
        if agent is None:
            return None, ErrorCode.REQUEST_TIMED_OUT

        def begin(told: Callable[[Any], None]) -> None:
            agent.ask(wanted, lambda answer, error: told((answer, error)), self.number)

        try:
            answer, error = await self.told(begin, CALL_SECONDS)
        except TimeoutError:
            return None, ErrorCode.REQUEST_TIMED_OUT
        return answer, ErrorCode.NONE if error is None else error.code

    async def begin_epoch(self) -> None:
        """Have the next epoch, or the first one; a transaction that is open is aborted. Raises FencedError."""
        timeout_ms = self.rng.choice(self.plane.load.timeouts_ms)
        answer = await self.step(InitProducerIdRequest(self.name, timeout_ms, *self.pair))
        if answer is None:
            raise FencedError
        self.pair = answer.producer_id, answer.producer_epoch

    async def end(self, *, committed: bool) -> bool:
        """End the transaction; whether it was told that it is. Raises FencedError."""
        wanted = EndTxn(self.name, *self.pair, committed, self.own_epochs)
        answer = await self.step(wanted)
        if answer is not None and self.own_epochs:
            self._come_late(wanted)
            self.pair = answer.producer_id, answer.producer_epoch
        return answer is not None

    async def go_on(self, *, ended: bool) -> None:
        """Have an epoch for the next transaction, unless the end of this one gave it. Raises FencedError."""
        if not (ended and self.own_epochs):
            await self.begin_epoch()

    def _come_late(self, ended: EndTxn) -> None:
        """Of a transaction that has ended its end comes once more or another one, or its offsets do."""
        if self.rng.random() >= LATE:
            return
        self.world.fault("transaction_comes_late")
        offsets = self._offsets
        if offsets is None or self.rng.random() < 0.5:
            again = replace(ended, committed=self.rng.random() < 0.5)
            self.plane.later(lambda agent: agent.ask(again, lambda answer, error: None, self.number))
        else:
            groups_of = self.grouping.groups_of
            self.plane.later(
                lambda agent: groups_of(agent).ask(lambda one: one.commit_in_transaction(offsets), lambda code: None)
            )

    # Offsets.

    async def commit(self, place: int, offset: int) -> bool:
        """Commit an offset by itself; whether that was acknowledged. Raises RejoinError, FencedError."""
        told = (self.group, self.generation, self.member_id, self.instance_id)
        request = OffsetCommitRequest(*told, self._commits(place, offset))
        asked = self.world.now
        code = await self.ask_coordinator(lambda one: one.commit(request), CALL_SECONDS)
        return self._committed(request, place, offset, asked, code)

    async def commit_in_transaction(self, place: int, offset: int) -> bool:
        """Likewise within the transaction (KIP-447). Raises RejoinError, FencedError."""
        if not self.own_epochs and not await self.step(AddOffsetsToTxn(self.name, *self.pair, self.group)):
            return False
        told = (*self.pair, self.generation, self.member_id, self.instance_id)
        request = TxnOffsetCommitRequest(self.name, self.group, *told, self._commits(place, offset), self.own_epochs)
        self._offsets = request
        asked = self.world.now
        for _ in range(ATTEMPTS):
            code = await self.ask_any(lambda one: one.commit_in_transaction(request))
            if code is not None and code not in _ELSEWHERE:
                return self._committed(request, place, offset, asked, code)
            await self.rest()
        return False

    def _commits(self, place: int, offset: int) -> list[TopicCommits]:
        topic, partition = self.plane.place(place)
        return [TopicCommits(topic, [PartitionCommit(partition, offset, -1, None)])]

    def _committed(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, place: int, offset: int, asked: int, code: int
    ) -> bool:
        if code == 0:
            # The member may have heard meanwhile that it is none any more.
            where = (self.group, *self.plane.place(place))
            producer_id = request.producer_id if isinstance(request, TxnOffsetCommitRequest) else NO_PRODUCER
            self.model.committed(where, asked, offset, producer_id, request.generation, request.member_id)
        elif code in _STALE:
            self.grouping.counted["stale offsets refused"] += 1
            self.rebalancing = True
            self.member_id = "" if code == _UNKNOWN_MEMBER else self.member_id
        return code == 0

    async def offsets(self, places: Sequence[int], *, stable: bool) -> dict[int, int] | None:
        """What is committed of each place; None without an answer, or if that is unstable."""
        wanted = [(place, *self.plane.place(place)) for place in places]
        request = GroupOffsets(self.group, [TopicPartitions(topic, [number]) for _, topic, number in wanted])
        asked = self.world.now
        fetched = await self.ask_any(lambda one: one.fetch(request, stable=stable))
        if fetched is None or fetched.error_code:
            return None
        found = {}
        for (place, topic, number), told in zip(wanted, fetched.topics, strict=True):
            (one,) = told.partitions
            self.model.fetched((self.group, topic, number), asked, one.error_code, one.offset, stable=stable)
            if one.error_code != UNSTABLE:
                found[place] = one.offset
        return found if len(found) == len(places) else None


def _settle(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)
