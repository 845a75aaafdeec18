"""A broker agent as it ships, in virtual time: its registration, heartbeats, rounds, transactional calls and retries.

Simulated are its event loop, its way to the controllers, and those who claim IDs from it.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.broker_agent.agent import Agent as ShippedAgent
from pidkeeper.broker_agent.controllers.client import ControllerClient, InitOutcome
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.reserve import NO_ID, BlockReserve, RejectedBlockError
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.controller.state import requests
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.messages import InitProducerIdRequest, RegisterBrokerResponse, TransactionalInitRequest
from tests.simulation.agent_transport import PRODUCER, AgentTransport
from tests.simulation.data_agent import STORE_ID, AgentData
from tests.simulation.history import AgentClaims, Operation
from tests.simulation.loop import SimLoop
from tests.simulation.member import base_url
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

HEARTBEAT_SECONDS: Final = 1.0
STEP_SECONDS: Final = 1.0
"""How often somebody claims IDs, many at a time."""

TransactionalRequest = InitProducerIdRequest | AddOffsetsToTxn | AddPartitionsToTxn | EndTxn
Done = Callable[[Any, RequestError | None], None]


class Agent:
    """One process of a broker. `let_go`: the highest ID that it had held each time when it threw away all at hand."""

    def __init__(self, cluster: Cluster, broker_id: int, incarnation: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.incarnation = incarnation
        self.claims = AgentClaims(f"agent {broker_id}.{incarnation}")
        self._rng = rng = cluster.world.stream(f"agent-{broker_id}-{incarnation}")
        # Its timers are never early, not by part of a microsecond: who waits for a moment may look at the clock.
        self._loop = SimLoop(cluster.world, whole=math.ceil)
        self._newest_epoch: int | None = None
        transport = AgentTransport(cluster, rng, self._observe)
        settings = PrefetchSettings(
            reserve_seconds=rng.choice((0.2, 1.0)),
            min_reserve_ids=cluster.swarm.block_size * cluster.swarm.reserve_blocks,
        )
        members = list(cluster.members)
        rng.shuffle(members)
        client = ControllerClient(tuple(map(base_url, members)), transport, rng)
        _watch_outcomes(client, self.claims.name)
        self._agent = ShippedAgent(
            broker_id,
            client,
            settings,
            incarnation_id=f"agent-{broker_id}-{incarnation}",
            rng=rng,
            kafka=HostPort(f"agent-{broker_id}", 9092),
            heartbeat_seconds=HEARTBEAT_SECONDS,
            boot_clock=self._loop.time,
        )
        self.data: AgentData | None = None
        if cluster.data is not None:
            self._agent.found_store(STORE_ID)
            data_rng = cluster.world.stream(f"data-{broker_id}-{incarnation}")
            self.data = AgentData(cluster.data.store, self._loop, self._agent, data_rng)
            self.data.begin()
        if cluster.transactional.ids and cluster.data is None and rng.random() < cluster.transactional.old_agents:
            # One of the build before says less, does not look at what it is told, and sends candidates for ever.
            transport.earlier = True
            self._agent.session._heard = lambda answer: None  # type: ignore[method-assign]
            self._agent.session.meet = lambda founding_id, succession: None  # type: ignore[method-assign]
            cluster.world.fault("agent_of_the_build_before")
        self.let_go: list[int] = []
        let_go = self._agent.session._let_go

        def noted() -> None:
            self.let_go.append(self._agent.reserve.highest_held)
            let_go()

        self._agent.session._let_go = noted
        watched: Any = _WatchedReserve(self._agent.reserve, self._offered, self.claims.name)
        self._agent.prefetcher.reserve = watched

    @property
    def highest_given(self) -> int:
        """The highest ID that a transactional producer was told here, -1 before the first."""
        return self._agent.transactions.highest_given

    @property
    def broker_epoch(self) -> int | None:
        """That of its registration; before the first it cannot be asked for transactions."""
        return self._agent.session.broker_epoch

    @property
    def founding_id(self) -> uuid.UUID | None:
        """That of the quorum, as of its newest answer."""
        return self._agent.session.founding_id

    def lets_come_again(self) -> bool:
        """Whether it has no ID, and tells whoever wants one to come again."""
        reserve = self._agent.reserve
        return not reserve.remaining and reserve.refusal.retriable

    @property
    def alive(self) -> bool:
        """Whether anybody listens there."""
        return not self._loop.is_closed()

    def claim(self) -> int:
        """An ID for a producer of its own; NO_ID if none is at hand, or the process is gone."""
        if self._loop.is_closed() or (claimed := self._agent.reserve.claim()) == NO_ID:
            return NO_ID
        self.claims.claimed(claimed)
        return claimed

    def start(self) -> None:
        """Register, then run."""
        self._loop.create_task(self._agent.run()).add_done_callback(self._ended)
        self._loop.call_later(STEP_SECONDS * self._rng.random(), self._step)

    def stop(self) -> None:
        """The process is gone."""
        self._loop.close()

    def ask(self, wanted: TransactionalRequest, done: Done, producer: int) -> None:
        """Ask for a transactional producer. `done` is never called if the process ends before."""
        if self._loop.is_closed():
            return

        def ended(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None and not isinstance(error, RequestError):
                raise error
            if error is not None and error.code is ErrorCode.PRODUCER_IDS_EXHAUSTED:
                self.cluster.floors.found_none(self, error.code)
            done(None if error is not None else task.result(), error)

        context = copy_context()
        context.run(PRODUCER.set, producer)
        transactions = self._agent.transactions
        answer = (
            transactions.init_producer_id(wanted)
            if isinstance(wanted, InitProducerIdRequest)
            else transactions.step(wanted)
        )
        self._loop.create_task(answer, context=context).add_done_callback(ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if not isinstance(error, FatalAgentError):
            raise error or Violation("agent-failed", f"{self.claims.name} ended by itself")
        self.stop()
        self.cluster.agent_refused(self)

    def _step(self) -> None:
        if not self.cluster.loaded:
            self.stop()
            return
        self._loop.call_later(STEP_SECONDS, self._step)
        claim = self._agent.reserve.claim
        for _ in range(int(self.cluster.swarm.claims_per_second * STEP_SECONDS * 2 * self._rng.random())):
            claimed = claim()
            if claimed == NO_ID:
                self.cluster.floors.found_none(self, self._agent.reserve.refusal)
                return
            self.claims.claimed(claimed)

    def _observe(self, operation: Operation) -> None:
        request = operation.request
        if isinstance(request, requests.InitProducerId) and request.candidate != NO_ID and operation.answer is None:
            self.claims.candidates.add(request.candidate)
        if isinstance(operation.answer, RegisterBrokerResponse):
            self._newest_epoch = operation.answer.broker_epoch

    def _offered(self, block: ProducerIdBlock) -> None:
        self.claims.offered(block.first, block.last, self._newest_epoch)


def _watch_outcomes(client: ControllerClient, name: str) -> None:
    """An outcome is certain after one attempt alone: any other may take effect later, candidate and all."""
    ask = client.init_producer_id

    async def watched(attempt: Callable[[], TransactionalInitRequest]) -> InitOutcome:
        made = 0

        def counted() -> TransactionalInitRequest:
            nonlocal made
            made += 1
            return attempt()

        outcome = await ask(counted)
        if outcome.certain and made > 1:
            raise Violation("certain-after-a-retry", f"{name} is sure of {outcome.answer} after {made} attempts")
        return outcome

    client.init_producer_id = watched  # type: ignore[method-assign]


class _WatchedReserve:
    """A reserve that tells of the blocks it takes. One that it does not take is a violation: nothing overtakes."""

    def __init__(self, reserve: BlockReserve, offered: Callable[[ProducerIdBlock], None], name: str) -> None:
        self._reserve = reserve
        self._offered = offered
        self._name = name

    def offer(self, block: ProducerIdBlock) -> None:
        try:
            self._reserve.offer(block)
        except RejectedBlockError as rejected:
            raise Violation("block-rejected", f"{self._name}: {rejected}") from rejected
        self._offered(block)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reserve, name)
