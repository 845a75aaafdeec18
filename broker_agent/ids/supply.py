"""One broker's supply of IDs: its registration with the quorum, and the reserve that is kept filled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.prefetcher import Prefetcher
from pidkeeper.broker_agent.session.refusals import FatalAgentError
from pidkeeper.broker_agent.session.session import Session
from pidkeeper.protocol.addresses import HostPort


class Supply:
    """`incarnation_id` names this process, and no other one ever. `kafka`: where Kafka clients reach it, if they do.

    `highest_given()`: the highest ID that was passed on without having been held; -1 before the first. `let_go()` is
    called with the IDs at hand thrown away: the quorum is another one than the one that gave them.
    """

    def __init__(
        self,
        broker_id: int,
        client: ControllerClient,
        settings: PrefetchSettings,
        *,
        incarnation_id: str,
        rng: Random,
        kafka: HostPort | None,
        heartbeat_seconds: float,
        highest_given: Callable[[], int] = lambda: -1,
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
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
        self._highest_given = highest_given
        self._also_let_go = let_go

    @property
    def highest_known(self) -> int:
        """The highest ID that was held here, or passed on; -1 before the first. Never falls.

        The quorum hears of it with every sign of life: one that lost its disks must give neither a second time.
        """
        return max(self.reserve.highest_held, self._highest_given())

    def why_not_ready(self) -> list[str]:
        """What keeps claims from being served, in words; empty when nothing does."""
        reasons = [] if self.session.broker_epoch is not None else ["not registered with the controller yet"]
        return reasons + self.prefetcher.why_not_ready()

    async def run(self, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Register, and keep the reserve filled until cancelled; what runs `beside` begins then. Raises
        FatalAgentError."""
        await self.session.register()
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (self.session.heartbeat_forever, *beside, self.prefetcher.run_forever):
                    group.create_task(loop())
        except BaseExceptionGroup as group_error:
            # The first cause is what the operator needs; a group of one would bury it.
            fatal = group_error.subgroup(FatalAgentError)
            raise (fatal or group_error).exceptions[0] from None

    def _let_go(self) -> None:
        self.reserve.discard()
        self._also_let_go()
