"""A broker that floods, lies, and pretends to be others. It may disturb itself; what it must never be granted is
written down as forbidden, and what it is granted by its own right is checked like everybody's.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AllocateProducerIdsRequest,
    HeldIds,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from pidkeeper.service.throttle import Rate
from pidkeeper.service.tls import Tls
from tests.chaos.load.actor import Actor, Addresses, Route, directly
from tests.chaos.load.kinds import FORBIDDEN, QUOTA
from tests.chaos.load.recording import RecordingTransport

AT_ONCE: Final = 8
"""Requests of a flood that wait for their answers side by side."""
FLOOD_BURSTS: Final = 4
"""A flood is so many times what the quota lets through at once."""
FLOOD_SECONDS: Final = 10.0
"""After which a flood ends that gets no answers."""
INTERVAL_SECONDS: Final = 10.0
ATTEMPT_SECONDS: Final = 2.0
NEVER: Final = 2**62
"""An epoch that no log has reached, and an ID that lies too far above all others to be believed."""
EVIDENCE_ABOVE: Final = 1_000

ALLOCATE_PATH: Final = "/v1/producer-ids/allocate"

MALFORMED: Final[tuple[tuple[str, bytes], ...]] = (
    (ALLOCATE_PATH, b""),
    (ALLOCATE_PATH, b"{"),
    (ALLOCATE_PATH, b"[]"),
    (ALLOCATE_PATH, b'{"broker_id":"1","broker_epoch":0}'),
    (ALLOCATE_PATH, b'{"broker_id":-1,"broker_epoch":0}'),
    (ALLOCATE_PATH, b'{"broker_id":1,"broker_epoch":-1}'),
    (ALLOCATE_PATH, b'{"broker_id":1,"broker_epoch":9223372036854775808}'),
    (ALLOCATE_PATH, b'{"broker_id":1,"broker_epoch":0,"length":1000000}'),
    (ALLOCATE_PATH, b'{"broker_id":1,"broker_epoch":0,"cluster_id":"another"}'),
    (ALLOCATE_PATH, b"[" * 20_000),
    (ALLOCATE_PATH, b'{"broker_id":1,"broker_epoch":0,"cluster_id":"' + b"x" * 1_000_000 + b'"}'),
    ("/v1/brokers/-1/register", b'{"incarnation_id":"x"}'),
    ("/v1/brokers/4294967296/register", b'{"incarnation_id":"x"}'),
    ("/v1/brokers/one/heartbeat", b'{"broker_epoch":0}'),
)

Dismissal = Callable[[int], Awaitable[None]]
"""How an operator judges that what this broker says it holds is wrong."""


class MaliciousBroker(Actor):
    """Every `interval` seconds it floods as broker `broker_id`, over `quota`, and asks in the names of others.

    `tls`: with the files of this broker, where the controllers want certificates; then it uses the epochs of others as
    they are. Without, anybody may speak for anybody, and it uses such as never were or are not any more. `dismissal`:
    with it, the broker says now and then that it holds IDs which were not handed out, which stops the quorum until
    the operator has judged that to be wrong.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        controllers: Addresses,
        broker_id: int,
        quota: Rate,
        *,
        route: Route = directly,
        tls: Tls | None = None,
        dismissal: Dismissal | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        super().__init__(name, directory)
        self.broker_id = broker_id
        self._controllers = controllers
        self._quota = quota
        self._route = route
        self._tls = tls
        self._dismissal = dismissal
        self._interval = interval

    async def act(self) -> None:
        self.journal.ok(self.journal.invoke(QUOTA, broker_id=self.broker_id, **msgspec.structs.asdict(self._quota)))
        async with AiohttpTransport(tls=self._tls) as inner:
            honest = RecordingTransport(inner, self.journal, self._route)
            forbidden = RecordingTransport(inner, self.journal, self._route, FORBIDDEN)
            while True:
                client = ControllerClient(self._controllers(), honest, self.rng)
                bad = ControllerClient(self._controllers(), forbidden, self.rng)
                try:
                    await self._round(client, bad, forbidden)
                except RequestError:
                    await self.back_off(1)

    async def _round(self, client: ControllerClient, bad: ControllerClient, transport: RecordingTransport) -> None:
        """Everything once. Raises RequestError where the broker itself gets no answer."""
        own = await client.register(self.broker_id, RegisterBrokerRequest(f"{self.name}-{uuid.uuid4()}"))
        bad.leader = client.leader
        await self._flood(client, own)
        await self._lie(client, bad, own)
        await self._pretend(client, bad)
        await self._send_malformed(client.leader, transport)
        if self._dismissal is not None:
            await self._stop_the_quorum(client, bad, own, self._dismissal)
        await asyncio.sleep(self._interval)

    async def _flood(self, client: ControllerClient, own: RegisterBrokerResponse) -> None:
        request = AllocateProducerIdsRequest(self.broker_id, own.broker_epoch)

        async def ask() -> None:
            for _ in range(FLOOD_BURSTS * self._quota.burst // AT_ONCE):
                with contextlib.suppress(RequestError):
                    await client.allocate(request)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLOOD_SECONDS), asyncio.TaskGroup() as flood:
                for _ in range(AT_ONCE):
                    flood.create_task(ask())

    async def _lie(self, client: ControllerClient, bad: ControllerClient, own: RegisterBrokerResponse) -> None:
        """It holds an ID of somebody else's, which nobody can disprove; and then one that cannot be."""
        if own.founding_id is None:
            return
        mine = AllocateProducerIdsRequest(self.broker_id, own.broker_epoch)
        with contextlib.suppress(RequestError):
            await client.allocate(msgspec.structs.replace(mine, held=HeldIds(own.founding_id, 0)))
        for held in (HeldIds(own.founding_id, NEVER), HeldIds(uuid.uuid4(), NEVER)):
            with contextlib.suppress(RequestError):
                await bad.allocate(msgspec.structs.replace(mine, held=held))

    async def _pretend(self, client: ControllerClient, bad: ControllerClient) -> None:
        """Ask as every other broker."""
        for other in (await client.brokers()).brokers:
            if other.broker_id == self.broker_id:
                continue
            epochs = [0, other.broker_epoch - 1, NEVER, *([other.broker_epoch] if self._tls is not None else [])]
            for epoch in epochs:
                if epoch < 0:
                    continue
                with contextlib.suppress(RequestError):
                    await bad.allocate(AllocateProducerIdsRequest(other.broker_id, epoch))

    async def _send_malformed(self, leader: str, transport: RecordingTransport) -> None:
        for path, body in MALFORMED:
            with contextlib.suppress(OSError, ValueError):
                await transport.exchange("POST", leader, path, body, ATTEMPT_SECONDS)

    async def _stop_the_quorum(
        self, client: ControllerClient, bad: ControllerClient, own: RegisterBrokerResponse, dismissal: Dismissal
    ) -> None:
        """Say that it holds what was not handed out yet: it gets nothing, nor does anybody until that is dismissed."""
        if own.founding_id is None:
            return
        try:
            newest = await client.allocate(AllocateProducerIdsRequest(self.broker_id, own.broker_epoch))
        except RequestError:
            return
        above = newest.producer_id_start + newest.producer_id_len + EVIDENCE_ABOVE * newest.producer_id_len
        held = HeldIds(own.founding_id, above)
        try:
            await bad.allocate(AllocateProducerIdsRequest(self.broker_id, own.broker_epoch, held=held))
        except RequestError as refusal:
            if refusal.code is not ErrorCode.EVIDENCE_OPEN:
                return
        await dismissal(self.broker_id)
