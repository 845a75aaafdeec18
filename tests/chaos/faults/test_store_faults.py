"""Faults of the store of a real agent: records wait for their end, none is lost, and IDs are handed out meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from pidkeeper.cli.local_cluster import Agent
from tests.chaos.fault import Fault
from tests.chaos.faults.stores import KINDS
from tests.chaos.links.laying import Links
from tests.chaos.links.own_proxies import OwnProxies
from tests.chaos.plan import Target
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.preload import Shim
from tests.chaos.small_stage import fault_of, kind_of
from tests.chaos.stage import ChaosCluster, Stage
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back
from tests.support.http_calls import call
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))

TOPIC: Final = "kept"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three controllers and an agent that keeps records, with the library preloaded."""
    directory = tmp_path_factory.mktemp("stores")
    shim = Shim(directory / "shim")
    # The patient profile: a test that makes commits slow is to make nobody stand for election.
    options = CONTROLLER_OPTIONS | {"profile": "wan"}
    cluster = ChaosCluster(directory, (shim,), agents=1, data=True, controller_options=options)
    try:
        bring_back(cluster)
        yield Stage(cluster, Links(cluster, shim, OwnProxies()))
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


@pytest.fixture
def stage(shared: Stage) -> Stage:
    """It, with all members ready, and who leads."""
    bring_back(shared.cluster)
    shared.leader_id = shared.cluster.leader().id
    return shared


class Writing:
    """Records that are sent to the agent one after the other; `stored`: how many were acknowledged."""

    def __init__(self, agent: Agent) -> None:
        settings = {"bootstrap.servers": agent.kafka, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer(settings)
        self.sent = self.stored = 0

    def one(self) -> None:
        """Send one more, and take what was answered."""
        self._producer.produce(TOPIC, b"x", partition=0, on_delivery=self._delivered)
        self.sent += 1
        self._producer.poll(0)

    def settled(self) -> bool:
        """Whether all were acknowledged."""
        self._producer.poll(0.05)
        return self.stored == self.sent

    def _delivered(self, error: object, _: object) -> None:
        assert error is None, error
        self.stored += 1


@contextlib.asynccontextmanager
async def writing(stage: Stage) -> AsyncIterator[Writing]:
    """Records are written meanwhile; at the end all of them are stored."""
    (agent,) = stage.cluster.layout.agents
    writer = Writing(agent)
    writer.one()
    await until(writer.settled)

    async def write() -> None:
        while True:
            writer.one()
            await asyncio.sleep(0.05)

    task = asyncio.create_task(write())
    try:
        yield writer
    finally:
        task.cancel()
    await until(writer.settled)


@pytest.mark.parametrize("name", ["store_fails", "store_full", "store_slow", "store_hangs", "store_away"])
async def test_records_wait_for_the_store_and_ids_do_not(stage: Stage, name: str) -> None:
    kind = kind_of(KINDS, name)
    fault = fault_of(stage, kind, kind.targets[0], seconds=1.0, strength=1.0)
    async with writing(stage) as writer:
        await fault.begin()
        before = writer.stored
        await fault.hold()
        assert writer.stored <= before + 2, "what was under way may have been stored"
        assert _claim(stage) == 200
        await fault.end()
    assert await fault.bites() > 0


async def test_an_agent_that_died_before_its_commit_loses_nothing(stage: Stage) -> None:
    kind = kind_of(KINDS, "killed_before_commit")
    fault: Fault = fault_of(stage, kind, Target.CLUSTER)
    async with writing(stage):
        await fault.begin()
        await fault.hold()
        await fault.end()
    assert await fault.bites() == 1


def _claim(stage: Stage) -> int:
    (agent,) = stage.cluster.layout.agents
    return call(agent.http, "POST", "/v1/init-producer-id", {}).status
