"""A broker agent that keeps records and groups, with its Kafka listener, over a store and a leader in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from pidkeeper.broker_agent.data.answering import DataAnswers, asking
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.broker_agent.groups.answering import asking_groups
from pidkeeper.broker_agent.groups.room import GroupRoom
from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA
from pidkeeper.broker_agent.kafka.quotas.application import MeteredApplication
from pidkeeper.broker_agent.kafka.quotas.meter import Meters
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.broker_agent.security.quota_list import QuotaList
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.access import Access
from pidkeeper.service.kafka.listener import KafkaListener
from tests.support.group_leader import GroupLeader
from tests.support.log_leader import STORE, LogLeader
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until
from tests.support.whole_agent import controller_client, make_agent


class DataAgent:
    """`address`: of its Kafka listener. `groups`: what was asked about groups. `meters`: of its clients, if they have
    quotas."""

    def __init__(
        self,
        address: str,
        leader: LogLeader,
        room: DataRoom,
        store: ObjectStore,
        groups: GroupLeader,
        meters: Meters | None = None,
    ) -> None:
        self.groups = groups
        self.store = store
        self.meters = meters
        self.address = address
        self.leader = leader
        self.room = room


@contextlib.asynccontextmanager
async def data_agent(
    quorum: StubQuorum, leader: LogLeader, store: ObjectStore, quotas: QuotaList | None = None, **settings: Any
) -> AsyncIterator[DataAgent]:
    """An agent that has registered at `quorum`, whose logs `leader` decides on. `quotas`: of its clients."""
    quorum.keep_logs(leader)
    async with controller_client(quorum.urls) as client, contextlib.AsyncExitStack() as stack:
        listener = KafkaListener(Access.PRODUCER)
        kafka = HostPort("127.0.0.1", await listener.bind("127.0.0.1", 0))
        agent = make_agent(client, kafka=kafka, heartbeat_seconds=0.05, store_id=STORE)
        # The leader has all logs rolled, as soon as there is something in them.
        options = DataSettings(store="unused", **{"roll": False, **settings})
        room = DataRoom(options, store, leader, agent.session, agent.directory, random.Random(1))
        stack.push_async_callback(room.stop)
        room.start()
        groups = GroupLeader(leader)
        # Nobody waits for members that do not come.
        quick = GroupSettings(initial_rebalance_delay_ms=100)
        group_room = GroupRoom(quick, groups, agent.session, agent.directory, agent.late_requests, random.Random(1))
        stack.push_async_callback(group_room.stop)
        faults: list[BaseException] = []
        group_room.start(faults.append)
        stack.push_async_callback(listener.stop)
        cluster_id = partial(getattr, agent.session, "cluster_id")
        data = DataAnswers(room, agent.directory, cluster_id)
        ask = asking(data, asking_groups(group_room.answers, TransactionResponder(agent.transactions).answer))
        responder = KafkaResponder(agent.reserve, agent.directory, cluster_id, apis=WITH_DATA)
        application = AgentApplication(responder, ask, apis=WITH_DATA, ask_soon=data.answer_soon)
        meters = None if quotas is None else Meters(quotas, time.monotonic_ns)
        await listener.serve(application if meters is None else MeteredApplication(application, meters))
        task = asyncio.create_task(agent.run())
        try:
            await until(lambda: agent.reserve.remaining > 0 and agent.session.store_known, task)
            yield DataAgent(str(kafka), leader, room, store, groups, meters)
            assert not faults
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
