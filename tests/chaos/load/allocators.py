"""Brokers of their own that ask the controllers for blocks over HTTP: one whose epoch is good, one whose never is."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Final

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.ids.prefetch import MAX_BURST
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AllocateProducerIdsRequest, RegisterBrokerRequest
from pidkeeper.service.tls import Tls
from tests.chaos.load.actor import Actor, Addresses, Route, directly
from tests.chaos.load.recording import RecordingTransport

PACE_SECONDS: Final = 0.02
STALE_PACE_SECONDS: Final = 0.05
SEVERAL: Final = 0.05
REQUESTS_PER_EPOCH: Final = 20
"""So many requests the stale one makes with an epoch before it takes another one."""

_ANEW: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class Allocator(Actor):
    """Has one block after the other, every `pace` seconds; the times of its answers show the gaps in service.

    `several`: the share of requests for more than one block, as agents make them.

    `tls`: with the files of somebody who may act for the broker, where the controllers want certificates.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        controllers: Addresses,
        broker_id: int,
        *,
        route: Route = directly,
        tls: Tls | None = None,
        pace: float = PACE_SECONDS,
        several: float = SEVERAL,
    ) -> None:
        super().__init__(name, directory)
        self.broker_id = broker_id
        self.pace = pace
        self.several = several
        self._controllers = controllers
        self._route = route
        self._tls = tls

    async def act(self) -> None:
        async with AiohttpTransport(tls=self._tls) as inner:
            transport = RecordingTransport(inner, self.journal, self._route)
            while True:
                # A client anew now and then, for the members may have become others.
                client = ControllerClient(self._controllers(), transport, self.rng)
                try:
                    await self.serve(client)
                except RequestError as refusal:
                    if refusal.throttle_time_ms:
                        await asyncio.sleep(refusal.throttle_time_ms / 1000)
                    await self.back_off(1)

    async def serve(self, client: ControllerClient) -> None:
        """Register, and allocate as long as that goes. Raises RequestError."""
        epoch = await self.registered(client)
        while True:
            blocks = self.rng.randint(2, MAX_BURST) if self.rng.random() < self.several else 1
            await client.allocate(AllocateProducerIdsRequest(self.broker_id, epoch), blocks)
            await asyncio.sleep(self.pace)

    async def registered(self, client: ControllerClient) -> int:
        """The epoch of a new process of this broker. Raises RequestError."""
        request = RegisterBrokerRequest(f"{self.name}-{uuid.uuid4()}")
        return (await client.register(self.broker_id, request)).broker_epoch


class StaleAllocator(Allocator):
    """Asks with the epochs of processes that were replaced, which must never be granted."""

    async def serve(self, client: ControllerClient) -> None:
        """Register twice, and ask with the epoch that is stale now. Raises RequestError."""
        stale = await self.registered(client)
        await self.registered(client)
        for _ in range(REQUESTS_PER_EPOCH):
            try:
                await client.allocate(AllocateProducerIdsRequest(self.broker_id, stale))
            except RequestError as refusal:
                if refusal.code not in _ANEW:
                    raise
            await asyncio.sleep(STALE_PACE_SECONDS)
