"""Following the controllers' list of brokers, and leaving on it what they have to know of this one."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.session.session import Session
from pidkeeper.broker_agent.waiting import wait_at_most
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.messages import BrokerDescription
from pidkeeper.protocol.metadata_version import LATEST, PARTITION_LOGS

REFRESH_SECONDS: Final = 0.1
"""Least time between two looks at who lives, however often clients ask for coordinators."""

ADVERTISE_SECONDS: Final = 1.0
"""Least time between two attempts to leave the address with the controllers: one a second beside two heartbeats stays
below the five requests a second that they grant one broker."""

_log = logging.getLogger(__name__)


class Discovery:
    """Learns which brokers live. `on_brokers` gets every list; `wanted` makes it look again soon."""

    def __init__(
        self,
        session: Session,
        client: ControllerClient,
        on_brokers: Callable[[Iterable[BrokerDescription]], None],
        wanted: asyncio.Event,
    ) -> None:
        self._session = session
        self._client = client
        self._on_brokers = on_brokers
        self._wanted = wanted
        self._advertised_at = -math.inf

    async def follow_forever(self) -> None:
        """Learn who lives, as often as heartbeats are sent, and when it is wanted."""
        known = True
        while True:
            self._wanted.clear()
            try:
                answer = await self._client.brokers()
            except RequestError as error:
                # Not even a refusal for good matters here: heartbeats find that out, and any agent can coordinate.
                if known:
                    _log.warning("the controllers do not say which agents live, going on: %s", error)
                known = False
            else:
                known = True
                self._on_brokers(answer.brokers)
                await self._advertise(answer.brokers)
            await asyncio.sleep(REFRESH_SECONDS)
            await wait_at_most(self._wanted, self._session.heartbeat_seconds)

    async def _advertise(self, brokers: list[BrokerDescription]) -> None:
        """Leave address and store with the controllers if they lack them: they take none before some metadata version.
        A leader that waits for agents forgets with its leadership which versions they know, and is told once more.

        The same incarnation registers again, which keeps its epoch.
        """
        session = self._session
        own = (session.broker_id, session.broker_epoch)
        store_id = session.store_id if session.metadata_version >= PARTITION_LOGS else None
        # Also if they have the store, but no answer said so: nothing is committed before one did.
        untold = store_id is not None and session.store_epoch != session.broker_epoch
        lacking = any(
            (one.broker_id, one.broker_epoch) == own
            and (
                untold
                or one.kafka != session.kafka
                or store_id not in {None, one.store_id}
                or one.metadata_version not in {None, LATEST}
            )
            for one in brokers
        )
        now = asyncio.get_running_loop().time()
        if not lacking or now - self._advertised_at < ADVERTISE_SECONDS:
            return
        self._advertised_at = now
        try:
            await session.advertise()
        except RequestError as error:
            # Should it be for good, the next heartbeat is refused as well.
            _log.debug("the address is not left with the controllers, trying again: %s", error)
