"""Who claims single IDs from one agent: over Kafka's wire at a steady pace, and over HTTP one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import msgspec

from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.cli.kafka_load import ClaimConnection, ClaimTally, connect
from pidkeeper.protocol.messages import InitProducerIdResponse
from pidkeeper.service.tls import Tls
from tests.chaos.load.actor import Actor, Addresses, Route, directly
from tests.chaos.load.journal import ActorJournal, clock
from tests.chaos.load.kinds import CLAIM

PACE_SECONDS: Final = 0.01
CONNECT_SECONDS: Final = 1.0
STALL_SECONDS: Final = 2.0
"""A connection on which a claim is unanswered for so long is given up: an agent answers at once, with an error if it
has no ID."""

HTTP_PACE_SECONDS: Final = 0.02


class Sent(NamedTuple):
    """How many claims went out together, and when."""

    at: int
    claims: int


class RecordedTally(ClaimTally):
    """Puts the IDs of one connection on disk, and the claims that got none into the journal."""

    def __init__(self, journal: ActorJournal, agent: int) -> None:
        super().__init__()
        self.sent: deque[Sent] = deque()
        self._journal = journal
        self._files = journal.claims(agent)
        self._agent = agent

    def take(self, answers: tuple[int, ...]) -> None:
        """Take error codes and ids in turn."""
        codes, ids = answers[::2], answers[1::2]
        if any(codes):
            for code in sorted({code for code in codes if code}):
                self.fail(codes.count(code), self.sent[0].at, f"error {code}")
            ids = tuple(claimed for code, claimed in zip(codes, ids, strict=True) if not code)
        if ids:
            self._files.take(array("q", ids))
        self._answered(len(codes))

    def fail(self, count: int, since: int, code: str, *, refused: bool = True) -> None:
        """`count` claims got no ID, the oldest of which was sent at `since`."""
        number = self._journal.invoke(CLAIM, agent=self._agent, count=count, since=since)
        (self._journal.refuse if refused else self._journal.unknown)(number, code)

    def _answered(self, count: int) -> None:
        while count:
            oldest = self.sent.popleft()
            if count < oldest.claims:
                self.sent.appendleft(Sent(oldest.at, oldest.claims - count))
                return
            count -= oldest.claims


class WireClaimer(Actor):
    """Claims `rate` IDs a second from one agent over one connection, which is opened again whenever it ends.

    `tls`: with the files of a producer, where the agent takes no plaintext.
    """

    def __init__(
        self, name: str, directory: Path, agent: int, kafka: Addresses, rate: float, *, tls: Tls | None = None
    ) -> None:
        super().__init__(name, directory)
        self._tls = tls
        self._agent = agent
        self._kafka = kafka
        self._each = max(1, round(rate * PACE_SECONDS))
        self._pause = self._each / rate

    async def act(self) -> None:
        attempt = 0
        while True:
            tally = RecordedTally(self.journal, self._agent)
            begun = clock()
            try:
                async with self._connected(tally) as connection:
                    attempt = 0
                    await self._claim(connection, tally)
            except OSError as error:
                tally.fail(1, begun, f"not connected: {type(error).__name__}: {error}")
            attempt += 1
            await self.back_off(attempt)

    @contextlib.asynccontextmanager
    async def _connected(self, tally: RecordedTally) -> AsyncIterator[ClaimConnection]:
        context = None if self._tls is None else self._tls.contexts.client
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await connect(self._kafka()[0], tally, context=context)
        try:
            yield connection
        finally:
            connection.close()

    async def _claim(self, connection: ClaimConnection, tally: RecordedTally) -> None:
        """Until the connection ends, or stalls; what is unanswered then is of unknown outcome."""
        while not connection.closed.done() and not _stalls(tally):
            if claims := connection.send(self._each):
                tally.sent.append(Sent(clock(), claims))
            await asyncio.wait([connection.closed], timeout=self._pause)
        # Not at the end of the load, when the task is cancelled: that nobody waits is no failure of the agent.
        if connection.outstanding:
            why = connection.failure or ("the connection ended" if connection.closed.done() else "no answer in time")
            tally.fail(connection.outstanding, tally.sent[0].at, why, refused=False)


def _stalls(tally: RecordedTally) -> bool:
    return bool(tally.sent) and clock() - tally.sent[0].at > STALL_SECONDS * 1e9


class HttpClaimer(Actor):
    """Claims one ID after the other from one agent over HTTP."""

    def __init__(
        self,
        name: str,
        directory: Path,
        agent: int,
        http: Addresses,
        *,
        route: Route = directly,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(name, directory)
        self._agent = agent
        self._http = http
        self._route = route
        self._tls = tls

    async def act(self) -> None:
        tally = RecordedTally(self.journal, self._agent)
        attempt = 0
        async with AiohttpTransport(tls=self._tls) as transport:
            while True:
                if await self._claim(transport, tally):
                    attempt = 0
                    await asyncio.sleep(HTTP_PACE_SECONDS)
                else:
                    attempt += 1
                    await self.back_off(attempt)

    async def _claim(self, transport: AiohttpTransport, tally: RecordedTally) -> bool:
        """Whether an ID came."""
        begun = clock()
        address = self._route(self._http()[0])
        try:
            status, content = await transport.exchange("POST", address, "/v1/init-producer-id", b"{}", STALL_SECONDS)
            if status != 200:
                tally.fail(1, begun, f"HTTP {status}: {content[:200]!r}")
                return False
            answer = msgspec.json.decode(content, type=InitProducerIdResponse)
        except aiohttp.ClientConnectorError as error:
            tally.fail(1, begun, f"not connected: {error}")
            return False
        except (OSError, ValueError) as error:
            tally.fail(1, begun, f"{type(error).__name__}: {error}", refused=False)
            return False
        tally.sent.append(Sent(begun, 1))
        tally.take((answer.error_code, answer.producer_id))
        return answer.error_code == 0
