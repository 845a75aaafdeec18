"""What coordinates groups at one simulated agent: its room as it ships, asked past the wire of Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from pidkeeper.broker_agent.coordinator.caller import ANYBODY
from pidkeeper.broker_agent.groups import fetching
from pidkeeper.broker_agent.groups.room import GroupRoom
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.kafka.wire.groups.offset_commit import OffsetCommitRequest
from pidkeeper.broker_agent.kafka.wire.groups.offset_fetch import FetchedGroup, GroupOffsets
from pidkeeper.broker_agent.kafka.wire.groups.txn_offset_commit import TxnOffsetCommitRequest
from pidkeeper.protocol.messages import BrokerDescription
from tests.simulation.agent import Agent
from tests.simulation.data_agent import STORE_ID
from tests.simulation.world import World

TXN_VERSION = 3
JOINING_VERSION = 5


class GroupAgent:
    """`room`: of one process of a broker."""

    def __init__(self, agent: Agent, settings: GroupSettings, world: World) -> None:
        shipped = self._shipped = agent._agent
        self.agent = agent
        rng = world.stream(f"groups-{agent.broker_id}-{agent.incarnation}")
        rooms = shipped.client, shipped.session, shipped.directory, shipped.late_requests
        self.room = GroupRoom(settings, *rooms, rng)
        self._heard = shipped.discovery._on_brokers
        numbers = itertools.count(1)
        names = f"{agent.broker_id}.{agent.incarnation}"
        self.room.coordinator._new_id = lambda: f"{names}.{next(numbers)}"
        self._run(self.room.coordinator.run())
        self._run(self.room._adopter.run())

    def ask(self, work: Callable[[GroupAgent], Awaitable[Any]], done: Callable[[Any], None]) -> None:
        """Have it do something for a client. `done` is never called if the process ends before."""

        async def asked() -> None:
            done(await work(self))

        self._run(asked())

    async def commit(self, request: OffsetCommitRequest) -> int:
        """Kafka's code of an OffsetCommit for one partition."""
        (topic,) = await self.room.answers._committer.commit(request, ANYBODY)
        return topic.partitions[0].error_code

    async def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> int:
        """Likewise of a TxnOffsetCommit."""
        version = JOINING_VERSION if request.joining else TXN_VERSION
        (topic,) = await self.room.answers._committer.commit_in_transaction(request, version, ANYBODY)
        return topic.partitions[0].error_code

    async def fetch(self, wanted: GroupOffsets, *, stable: bool) -> FetchedGroup:
        """The offsets of a group."""
        fetcher = self.room.answers._fetcher
        with fetching._Share(fetcher._budget) as share:
            return await fetcher._fetched(wanted, ANYBODY, share, stable=stable)

    def mislead(self) -> Callable[[], None]:
        """It hears of itself alone, so that it coordinates all groups; what is called ends that."""
        discovery = self._shipped.discovery
        kafka = f"agent-{self.agent.broker_id}:9092"
        self._heard([BrokerDescription(self.agent.broker_id, 0, fenced=False, kafka=kafka, store_id=STORE_ID)])
        discovery._on_brokers = lambda brokers: None

        def ended() -> None:
            discovery._on_brokers = self._heard

        return ended

    def _run(self, work: Any) -> None:
        assert self.agent.data is not None, "every agent of a history has data"
        self.agent.data._run(work)
