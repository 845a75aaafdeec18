"""One broker's agent: its rooms, put together, and the loops that run in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.coordinator.transactions import Transactions
from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.prefetcher import Prefetcher
from pidkeeper.broker_agent.session.discovery import Discovery
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.broker_agent.session.session import Session
from pidkeeper.protocol.addresses import HostPort


class Agent:
    """`kafka`: where Kafka clients reach it; `incarnation_id` names this process, and no other one ever.

    Time is that of the running event loop, chance comes from `rng`, and I/O from the transport of `client`. By
    `boot_clock`, which goes on while the machine is suspended, it is judged which requests may be late.
    """

    def __init__(
        self,
        broker_id: int,
        client: ControllerClient,
        settings: PrefetchSettings,
        *,
        incarnation_id: str,
        rng: Random,
        kafka: HostPort,
        heartbeat_seconds: float,
        boot_clock: Callable[[], float],
    ) -> None:
        self.client = client
        self.session = Session(
            broker_id,
            client,
            incarnation_id=incarnation_id,
            kafka=kafka,
            heartbeat_seconds=heartbeat_seconds,
            highest_held=lambda: self.reserve.highest_held,
            highest_known=lambda: self.highest_known,
            reserve_ids=lambda: self.reserve.remaining,
            let_go=self._let_go,
        )
        self.prefetcher = Prefetcher(self.session, client, settings, rng)
        self.reserve = self.prefetcher.reserve
        self.candidates = Candidates(self.reserve.claim)
        self.late_requests = LateRequests(boot_clock)
        self.transactions = Transactions(self.session, client, self.candidates, self.late_requests)
        brokers_wanted = asyncio.Event()
        self.directory = Directory(Node(broker_id, kafka.host, kafka.port), brokers_wanted.set)
        self.discovery = Discovery(self.session, client, self.directory.update, brokers_wanted)
        self.stopping = False

    @property
    def highest_known(self) -> int:
        """The highest ID that was held here, or told to a transactional producer; -1 before the first. Never falls.

        The quorum hears of it with every sign of life: one that lost its disks must give neither a second time.
        """
        return max(self.reserve.highest_held, self.transactions.highest_given)

    @property
    def ready(self) -> bool:
        """Registered, filled once, not out of IDs, not stopping."""
        return not self.why_not_ready()

    def why_not_ready(self) -> list[str]:
        """What keeps the agent from being ready, in words; empty when it is ready."""
        reasons = []
        if self.stopping:
            reasons.append("the agent is stopping")
        if self.session.broker_epoch is None:
            reasons.append("not registered with the controller yet")
        return reasons + self.prefetcher.why_not_ready()

    def _let_go(self) -> None:
        self.reserve.discard()
        self.candidates.discard()

    async def run(self) -> None:
        """Serve until cancelled. Raises FatalAgentError."""
        await self.session.register()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.session.heartbeat_forever())
                group.create_task(self.discovery.follow_forever())
                group.create_task(self.prefetcher.run_forever())
        except BaseExceptionGroup as group_error:
            # The first cause is what the operator needs; a group of one would bury it.
            fatal = group_error.subgroup(FatalAgentError)
            raise (fatal or group_error).exceptions[0] from None
