"""One broker's agent: its rooms, put together, and the loops that run in them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.coordinator.late_requests import LateRequests
from pidkeeper.broker_agent.coordinator.transactions import Transactions
from pidkeeper.broker_agent.ids.candidates import Candidates
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.supply import Supply
from pidkeeper.broker_agent.session.discovery import Discovery
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
        self.supply = Supply(
            broker_id,
            client,
            settings,
            incarnation_id=incarnation_id,
            rng=rng,
            kafka=kafka,
            heartbeat_seconds=heartbeat_seconds,
            highest_given=lambda: self.transactions.highest_given,
            let_go=self._let_go,
        )
        self.session, self.prefetcher, self.reserve = self.supply.session, self.supply.prefetcher, self.supply.reserve
        self.candidates = Candidates(self.reserve.claim)
        self.late_requests = LateRequests(boot_clock)
        self.transactions = Transactions(self.session, client, self.candidates, self.late_requests)
        brokers_wanted = asyncio.Event()
        self._brokers_wanted = brokers_wanted
        self.directory = Directory(Node(broker_id, kafka.host, kafka.port), brokers_wanted.set)
        self.discovery = Discovery(self.session, client, self.directory.update, brokers_wanted)
        self.stopping = False

    def found_store(self, store_id: uuid.UUID) -> None:
        """The store where it keeps records is `store_id`: the quorum is told with the next registration, or at once."""
        self.session.store_id = store_id
        self._brokers_wanted.set()

    def _let_go(self) -> None:
        self.candidates.discard()

    @property
    def ready(self) -> bool:
        """Registered, filled once, not out of IDs, not stopping."""
        return not self.why_not_ready()

    def why_not_ready(self) -> list[str]:
        """What keeps the agent from being ready, in words; empty when it is ready."""
        return (["the agent is stopping"] if self.stopping else []) + self.supply.why_not_ready()

    async def run(self) -> None:
        """Serve until cancelled. Raises FatalAgentError."""
        await self.supply.run(self.discovery.follow_forever)
