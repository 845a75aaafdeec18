"""A process with many simulated agents: `python -m bench.agents_process` with a spec as one line on stdin.

Each has what a real agent has towards the controllers: its registration, heartbeats, prefetching, and connections of
its own; in place of listeners there is a steady claim rate, from the moment when a real one would be ready. The process
prints its status as one line for each further line on stdin, and a last one, with all block starts, when stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import resource
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

import msgspec
import uvloop

from bench.figures import quantile_ms
from bench.lean_transport import LeanTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.controllers.kafka_transport import KafkaTransport
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.ids.supply import Supply
from pidkeeper.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

Transport = Literal["http", "kafka"]

TICK_SECONDS: Final = 0.05
"""Between two portions of an agent's claims: 25 of them at 500 a second."""

MAX_REASONS: Final = 5


class AgentsSpec(msgspec.Struct, frozen=True):
    """`agents` with broker ids from `first_broker_id` on, each with so many `claims` a second, and a heartbeat every
    `heartbeat_seconds`."""

    controllers: list[str]
    transport: Transport
    first_broker_id: int
    agents: int
    claims: float
    heartbeat_seconds: float


class AgentsStatus(msgspec.Struct, frozen=True):
    """What there was since the start.

    `claimed` and `failed`: claims of each agent; `remaining`: IDs that each has at hand. `wanted`: IDs that it should
    have. `ready`: how many are; `registered_seconds` and `ready_seconds`: until the last one was, None before.
    `rounds`: requests for blocks by their outcome, which brought so many `blocks`; `p99_ms`: of these requests, since
    the status before. `cpu_seconds`: of this process. `starts`: of all blocks, in the last status. `ended`: why agents
    ended, which none should.
    """

    claimed: list[int]
    failed: list[int]
    remaining: list[int]
    wanted: list[int]
    ready: int
    registered_seconds: float | None
    ready_seconds: float | None
    rounds: dict[str, int]
    blocks: int
    p99_ms: float
    cpu_seconds: float
    starts: list[int] = []
    ended: list[str] = []


class NotingClient(ControllerClient):
    """Notes the starts of all blocks that are given to it."""

    def __init__(self, members: tuple[str, ...], transport: LeanTransport | KafkaTransport) -> None:
        super().__init__(members, transport, random.Random())
        self.starts: list[int] = []

    async def allocate(self, request: AllocateProducerIdsRequest, blocks: int = 1) -> AllocateProducerIdsResponse:
        answer = await super().allocate(request, blocks)
        self.starts += [answer.producer_id_start, *(one.producer_id_start for one in answer.more)]
        return answer


class SimulatedAgent:
    """One agent and its clients. `latencies`: where the seconds of its rounds go."""

    def __init__(self, spec: AgentsSpec, broker_id: int, latencies: list[float]) -> None:
        self._rate = spec.claims
        self._transport = LeanTransport() if spec.transport == "http" else KafkaTransport()
        self._claimed_until: float | None = None
        self.client = NotingClient(tuple(spec.controllers), self._transport)
        self.supply = Supply(
            broker_id,
            self.client,
            PrefetchSettings(),
            incarnation_id=str(uuid.uuid4()),
            rng=random.Random(),
            kafka=None,
            heartbeat_seconds=spec.heartbeat_seconds,
        )
        self.supply.prefetcher.on_round = lambda seconds, _: latencies.append(seconds)

    async def run(self) -> None:
        """Until it is cancelled. Raises FatalAgentError."""
        async with self._transport:
            await self.supply.run()

    @property
    def ready(self) -> bool:
        """Whether its clients have begun to claim."""
        return self._claimed_until is not None

    def claim_what_is_due(self, now: float) -> None:
        """What its clients claim until `now`."""
        if self._claimed_until is None:
            if not self.supply.why_not_ready():
                self._claimed_until = now
            return
        count = int((now - self._claimed_until) * self._rate)
        self._claimed_until += count / self._rate
        reserve = self.supply.reserve
        if count and reserve.claim_run(count) == NO_ID:
            for _ in range(count):
                reserve.claim()


class SimulatedAgents:
    """All agents of one process."""

    def __init__(self, spec: AgentsSpec) -> None:
        self._latencies: list[float] = []
        self._agents = [
            SimulatedAgent(spec, spec.first_broker_id + number, self._latencies) for number in range(spec.agents)
        ]
        self._begun = time.monotonic()
        self._registered_seconds: float | None = None
        self._ready_seconds: float | None = None
        self._ended: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them at once, meanwhile."""
        self._begun = time.monotonic()
        tasks = [asyncio.create_task(self._run(agent.run)) for agent in self._agents]
        tasks.append(asyncio.create_task(self._run(self._claim_for_ever)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def status(self, *, last: bool = False) -> AgentsStatus:
        """What there was until now."""
        supplies = [agent.supply for agent in self._agents]
        latencies, self._latencies[:] = self._latencies.copy(), []
        usage = resource.getrusage(resource.RUSAGE_SELF)
        rounds: dict[str, int] = {}
        for supply in supplies:
            for outcome, count in supply.prefetcher.rounds.items():
                rounds[outcome] = rounds.get(outcome, 0) + count
        return AgentsStatus(
            claimed=[supply.reserve.claimed for supply in supplies],
            failed=[supply.reserve.failed_claims for supply in supplies],
            remaining=[supply.reserve.remaining for supply in supplies],
            wanted=[supply.prefetcher.policy.target_ids() for supply in supplies],
            ready=sum(agent.ready for agent in self._agents),
            registered_seconds=self._registered_seconds,
            ready_seconds=self._ready_seconds,
            rounds=rounds,
            blocks=sum(supply.reserve.blocks_accepted for supply in supplies),
            p99_ms=quantile_ms(latencies, 0.99) if latencies else 0.0,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            starts=[start for agent in self._agents for start in agent.client.starts] if last else [],
            ended=self._ended[:MAX_REASONS],
        )

    async def _run(self, what: Callable[[], Awaitable[None]]) -> None:
        try:
            await what()
        except Exception as error:  # noqa: BLE001 - one that ends must be told of, not missed
            self._ended.append(f"{type(error).__name__}: {error}"[:200])

    async def _claim_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for agent in self._agents:
                agent.claim_what_is_due(now)
            self._note_times(now)

    def _note_times(self, now: float) -> None:
        if self._registered_seconds is None and all(agent.supply.session.registrations for agent in self._agents):
            self._registered_seconds = now - self._begun
        if self._ready_seconds is None and all(agent.ready for agent in self._agents):
            self._ready_seconds = now - self._begun


async def main() -> None:
    """Run the agents of a spec until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    agents = SimulatedAgents(msgspec.json.decode(await reader.readline(), type=AgentsSpec))
    async with agents.running():
        while await reader.readline():
            _tell(agents.status())
        _tell(agents.status(last=True))


def _tell(status: AgentsStatus) -> None:
    sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # A leader that is killed is told of a thousand times.
    logging.getLogger("pidkeeper").setLevel(logging.ERROR)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main())
