"""The load of the demonstration: claims over the Kafka wire at a steady pace, and single allocations over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Final

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.cli.kafka_load import ClaimConnection, ClaimTally, connect
from pidkeeper.cli.local_cluster import Agent
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.messages import AllocateProducerIdsRequest, RegisterBrokerRequest

CONNECTIONS_PER_AGENT: Final = 4
PACE_SECONDS: Final = 0.01
PROBE_SECONDS: Final = 0.01
PROBE_BROKER: Final = 1000


class ClaimLoad:
    """Claims `rate` IDs a second from all agents together until stopped."""

    def __init__(self, agents: Sequence[Agent], rate: int) -> None:
        self._agents = agents
        self._each = max(1, round(rate * PACE_SECONDS / (len(agents) * CONNECTIONS_PER_AGENT)))
        self.tallies: dict[int, list[ClaimTally]] = {agent.id: [] for agent in agents}

    @property
    def claims(self) -> int:
        """IDs received so far."""
        return sum(tally.claims for tallies in self.tallies.values() for tally in tallies)

    async def reach(self, claims: int) -> None:
        """Wait until so many IDs were received."""
        while self.claims < claims:  # noqa: ASYNC110 - counted on the hot path, which sets no events
            await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Claim while the block runs, then wait for the last answers."""
        connections: list[ClaimConnection] = []
        for agent in self._agents:
            for _ in range(CONNECTIONS_PER_AGENT):
                tally = ClaimTally()
                self.tallies[agent.id].append(tally)
                connections.append(await connect(agent.kafka, tally))
        pacing = asyncio.create_task(self._pace(connections))
        try:
            yield
        finally:
            pacing.cancel()
            await asyncio.wait([pacing])
            await _drain(connections)
            for connection in connections:
                connection.close()

    async def _pace(self, connections: list[ClaimConnection]) -> None:
        due = time.monotonic()
        while True:
            for connection in connections:
                connection.send(self._each)
            due = max(due + PACE_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


async def _drain(connections: list[ClaimConnection]) -> None:
    """Wait, bounded, until every request is answered."""
    for _ in range(500):
        if not any(connection.outstanding for connection in connections):
            return
        await asyncio.sleep(0.01)


class AllocationProbe:
    """Allocates one block at a time as a broker of its own, and notes how long each takes, failovers included."""

    def __init__(self, controllers: tuple[str, ...]) -> None:
        self._controllers = controllers
        self.latencies_ms: list[float] = []
        self.blocks: list[tuple[int, int]] = []
        self.failures = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe while the block runs."""
        probing = asyncio.create_task(self._probe())
        try:
            yield
        finally:
            probing.cancel()
            await asyncio.wait([probing])
            if not probing.cancelled() and (error := probing.exception()) is not None:
                raise error

    async def _probe(self) -> None:
        async with AiohttpTransport() as transport:
            client = ControllerClient(self._controllers, transport, random.SystemRandom())
            registered = await client.register(PROBE_BROKER, RegisterBrokerRequest(f"probe-{uuid.uuid4()}"))
            request = AllocateProducerIdsRequest(PROBE_BROKER, registered.broker_epoch, registered.cluster_id)
            while True:
                started = time.perf_counter()
                try:
                    answer = await client.allocate(request)
                except RequestError:
                    self.failures += 1
                else:
                    self.latencies_ms.append((time.perf_counter() - started) * 1000)
                    self.blocks.append((answer.producer_id_start, answer.producer_id_len))
                await asyncio.sleep(PROBE_SECONDS)
