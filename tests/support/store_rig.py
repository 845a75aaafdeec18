"""Agents that put, commit and delete objects by hand, over one store and a leader of logs in memory."""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Iterable

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.data.collecting import Collector
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.broker_agent.data.store_report import Reporter
from pidkeeper.broker_agent.data.sweeping import Sweeper
from pidkeeper.controller.node.segment_views import kept_objects
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import SuccessionRecord
from pidkeeper.protocol.log_messages import CommitObjectRequest, OfferedBatch
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.messages import BrokerDescription
from pidkeeper.protocol.segment_messages import CommitSegmentRequest
from pidkeeper.protocol.segments import SegmentName, index_path
from tests.support.data_parts import StubRegistration
from tests.support.log_leader import FOUNDING, GIVEN, NOW, LogLeader

BATCH = b"batch"
RECORDS = 2
MAX_KEPT = 10_000
SWEEP_SECONDS = 3600.0


class HandAgent:
    """One process of a broker. `collector` and `sweeper` are those of a real agent; nothing runs by itself."""

    def __init__(self, rig: StoreRig, broker_id: int, sweep_seconds: float) -> None:
        self.store, self.leader = rig.store, rig.leader
        self.session = StubRegistration(rig.leader.register(broker_id))
        self.session.broker_id, self.session.founding_id = broker_id, rig.founding_id
        self.directory = Directory(Node(broker_id, "h", 1))
        self.counters = Counters()
        self.sweeper = Sweeper(self.store, self.leader, self.session, self.counters)
        self.collector = Collector(
            self.store,
            self.leader,
            self.session,
            self.directory,
            self.sweeper,
            random.Random(1),
            self.counters,
            sweep_seconds,
        )
        self.next_number = 0

    async def put(self) -> tuple[ObjectId, str]:
        """An object that nobody knows yet, and its name."""
        object_id = self._next_id()
        path = object_id.path(self._founding_id)
        await self.store.put(path, [BATCH])
        return object_id, path

    async def commit(self, object_id: ObjectId, *logs: int) -> bool:
        """Have one batch of it join each log; whether the quorum let it."""
        batches = [
            OfferedBatch(log, RECORDS, index * len(BATCH), len(BATCH), -1, -1, -1, 0, False)
            for index, log in enumerate(logs)
        ]
        request = CommitObjectRequest(
            object_id.broker_id,
            object_id.broker_epoch,
            self._founding_id,
            object_id.number,
            len(BATCH) * len(logs),
            tuple(batches),
        )
        try:
            return (await self.leader.commit_object(request)).referenced
        except RequestError:
            return False

    async def produce(self, *logs: int) -> str:
        """An object with a batch for each log: its name."""
        object_id, path = await self.put()
        assert await self.commit(object_id, *logs)
        return path

    async def put_segment(self, topic: str, log: int) -> CommitSegmentRequest | None:
        """A segment of all that the tail of partition 0 has, with its index; nobody knows of it yet."""
        kept = self.leader.machine.logs.log(log)
        if kept is None or kept.last_stable <= kept.tail_start:
            return None
        object_id, name = self._next_id(), SegmentName(topic, 0, kept.tail_start)
        path = name.path(object_id, self._founding_id)
        await self.store.put(path, [b"segment"])
        await self.store.put(index_path(path), [b"index"])
        return CommitSegmentRequest(
            object_id.broker_id,
            object_id.broker_epoch,
            self._founding_id,
            object_id.number,
            log,
            name,
            kept.last_stable,
            7,
            5,
            0,
            kept.covered(kept.tail_start, kept.last_stable) or 1,
        )

    async def commit_segment(self, request: CommitSegmentRequest) -> bool:
        """Whether the log reads from it now."""
        try:
            return (await self.leader.commit_segment(request)).joined
        except RequestError:
            return False

    async def collect(self) -> None:
        """All garbage that there is."""
        while await self.collector.collect():
            pass

    def _next_id(self) -> ObjectId:
        epoch = self.session.broker_epoch
        assert epoch is not None
        self.next_number += 1
        return ObjectId(self.session.broker_id, epoch, self.next_number)

    @property
    def _founding_id(self) -> uuid.UUID:
        assert self.session.founding_id is not None
        return self.session.founding_id


class StoreRig:
    """A store, a quorum of `founding_id`, and agents."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.store: ObjectStore = store or MemoryStore()
        self.leader = LogLeader()
        self.founding_id = FOUNDING
        self.session = StubRegistration()

    def agent(self, broker_id: int = 7, *, sweep_seconds: float = SWEEP_SECONDS) -> HandAgent:
        """A new process of a broker: the one before is a zombie."""
        return HandAgent(self, broker_id, sweep_seconds)

    def copy(self) -> StateMachine:
        """Of all that the quorum knows now, as an operator keeps one."""
        return copy.deepcopy(self.leader.machine)

    def restore(self, machine: StateMachine) -> None:
        """Another quorum takes the place of this one, with what a copy knows."""
        before, self.founding_id = self.founding_id, uuid.UUID(int=self.founding_id.int + 100)
        self.leader.machine = machine
        machine.replay([SuccessionRecord(self.founding_id, before, 2 * GIVEN, NOW)])

    def release(self, *foundings: uuid.UUID) -> None:
        """An operator has seen what is there."""
        self.leader.decide(requests.ReleaseCollection(foundings))

    def needed_now(self) -> set[str]:
        """All names that the quorum's logs need."""
        page = kept_objects(self.leader.machine, -1, MAX_KEPT)
        assert page.next_after is None
        return {name for one in page.objects if one.batches for name in one.names}

    def reporter(self, seconds: float = 20) -> Reporter:
        """What makes reports."""
        return Reporter(self.store, self.leader, self.session, seconds)

    async def names(self) -> set[str]:
        """All that is stored."""
        return {one.name for one in await self.store.list("", "", 1000)}


def described(broker_ids: Iterable[int]) -> list[BrokerDescription]:
    """Live brokers with addresses, as the controllers list them."""
    return [BrokerDescription(one, 5, False, f"h:{one + 1}") for one in broker_ids]
