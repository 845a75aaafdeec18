"""The supply of IDs as a library: for brokers and proxies in Python that hand out producer IDs themselves (KIP-730).

async with ProducerIds(["http://controller-1:8080"], broker_id=7) as ids:
    producer_id = ids.claim()
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NoReturn, Self

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.controllers.kafka_transport import KafkaTransport
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.broker_agent.ids.supply import Supply
from pidkeeper.protocol.addresses import KAFKA, KAFKA_SSL, KafkaUrl
from pidkeeper.protocol.errors import RequestError
from pidkeeper.service.protection import UNPROTECTED, Protection, load_protection
from pidkeeper.service.refreshing import Refreshed, refreshing
from pidkeeper.service.settings import read_secret
from pidkeeper.service.tls_files import TlsFiles

HEARTBEAT_SECONDS: Final = 2.0
"""As agents; a quorum fences a broker that it has not heard for 9 s."""


class ProducerIds:
    """The producer IDs of one broker: registered with a quorum, and kept at hand ahead of demand.

    `controllers`: the addresses of all members, as http://host:port, https://, kafka://host:port or kafka+ssl://, all
    of one protocol. `broker_id`: no other process may use it at the same time; the newer one fences the older.
    `settings`: how many IDs are at hand. `token_file`: the bearer token of this broker. `tls`: certificate, key and CA;
    the certificate names the broker.

    Use as an asynchronous context manager, once, on one event loop. It begins when IDs are at hand, however long that
    takes; FatalAgentError is raised where the quorum does not let this broker in. At its end the registration is ended,
    and what was at hand is a gap. Raises SettingsError and ValueError for arguments that cannot be.
    """

    def __init__(
        self,
        controllers: Sequence[str],
        broker_id: int,
        *,
        settings: PrefetchSettings | None = None,
        token_file: str | None = None,
        tls: TlsFiles | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        own = ("broker", broker_id)
        self._protection = UNPROTECTED if tls is None else load_protection("optional", tls, own)
        self._token = None if token_file is None else _token(token_file)
        self._transport = _transport(controllers, self._token, self._protection)
        rng = random.SystemRandom()
        self._supply = Supply(
            broker_id,
            ControllerClient(tuple(controllers), self._transport, rng),
            settings or PrefetchSettings(),
            incarnation_id=str(uuid.uuid4()),
            rng=rng,
            kafka=None,
            heartbeat_seconds=heartbeat_seconds,
        )
        self._claim: Callable[[], int] = _not_begun
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(refreshing(*self._refresh()))
            await stack.enter_async_context(self._transport)
            stack.push_async_callback(self._supply.session.unregister)
            await stack.enter_async_context(self._running())
            self._stack = stack.pop_all()
        self._claim = self._supply.reserve.claim
        return self

    async def __aexit__(self, *_: object) -> None:
        self._claim = _not_begun
        await self._stack.aclose()

    def claim(self) -> int:
        """The next ID: no I/O, no lock, no await. Nobody else is ever given it.

        Raises RequestError: COORDINATOR_LOAD_IN_PROGRESS while none is at hand, which a Kafka client retries if it is
        told so; PRODUCER_IDS_EXHAUSTED when there will never be one. Raises FatalAgentError once the quorum has refused
        this broker for good: it must end then, as its operator has to act.
        """
        claimed = self._claim()
        if claimed == NO_ID:
            raise RequestError(self._supply.reserve.refusal, "no producer ID is at hand")
        return claimed

    @property
    def remaining(self) -> int:
        """IDs that are at hand right now."""
        return self._supply.reserve.remaining

    @property
    def broker_epoch(self) -> int | None:
        """That of the registration in force; None before the first."""
        return self._supply.session.broker_epoch

    @property
    def cluster_id(self) -> str | None:
        """That of the quorum; None before the first registration."""
        return self._supply.session.cluster_id

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Keep IDs at hand meanwhile; begins once some are."""
        looked = asyncio.Event()
        self._supply.prefetcher.on_round = lambda _seconds, _blocks: looked.set()
        running = asyncio.create_task(
            self._supply.run(), name=f"producer ids of broker {self._supply.session.broker_id}"
        )
        running.add_done_callback(lambda _: looked.set())
        try:
            while not running.done() and not self._supply.reserve.exhausted and self._supply.why_not_ready():
                await looked.wait()
                looked.clear()
            if running.done():
                running.result()
            running.add_done_callback(self._ended)
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _ended(self, running: asyncio.Task[None]) -> None:
        """From now on every claim is told why."""
        if not running.cancelled() and (error := running.exception()) is not None:
            self._claim = partial(_raise, error)

    def _refresh(self) -> list[Callable[[], None]]:
        return [self._protection.refresh, *([] if self._token is None else [self._token.refresh])]


def _transport(
    controllers: Sequence[str], token: Refreshed[str] | None, protection: Protection
) -> AiohttpTransport | KafkaTransport:
    """What carries requests to these addresses. Raises ValueError."""
    by_kafka = [url.startswith((KAFKA, KAFKA_SSL)) for url in controllers]
    if not controllers or any(by_kafka) != all(by_kafka):
        raise ValueError(f"controllers: addresses of one protocol are needed, not {list(controllers)}")
    if all(by_kafka):
        for url in controllers:
            KafkaUrl.parse(url, "controllers")
        return KafkaTransport(token=token, tls=protection.tls)
    if not all(url.startswith(("http://", "https://")) for url in controllers):
        raise ValueError(f"controllers: base URLs like http://127.0.0.1:8081 are needed, not {list(controllers)}")
    return AiohttpTransport(token=token, tls=protection.tls)


def _token(path: str) -> Refreshed[str]:
    return Refreshed("token_file", [path], lambda: read_secret(path, "token_file"))


def _not_begun() -> int:
    raise RuntimeError("IDs are claimed within `async with`")


def _raise(error: BaseException) -> NoReturn:
    raise error
