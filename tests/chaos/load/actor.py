"""What all who ask the cluster have in common: a name, a journal, and that they go on whatever happens to it."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from pidkeeper.broker_agent.backoff import backoff_seconds
from tests.chaos.load.journal import ActorJournal

BACKOFF_BASE_SECONDS: Final = 0.02
BACKOFF_MAX_SECONDS: Final = 0.5
"""Back-off between connections to somebody who is away: service that is back is noticed within half a second."""

Addresses = Callable[[], tuple[str, ...]]
"""Where somebody can be reached right now: base URLs, or host:port of Kafka. Asked for before each connection."""

Route = Callable[[str], str]
"""The base URL to connect to, such as that of a link's proxy, in the place of one that a member was named by."""


def directly(base_url: str) -> str:
    """The route of those who are connected without a proxy between."""
    return base_url


class Actor(abc.ABC):
    """Asks the cluster until it is stopped, in a task of this process."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.journal = ActorJournal(directory, name)
        self.rng = random.Random(name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ask while the block runs. Raises at its end what ended the actor before, which no fault of a cluster may."""
        with self.journal:
            acting = asyncio.create_task(self.act(), name=self.name)
            try:
                yield
            finally:
                acting.cancel()
                await asyncio.wait([acting])
                if not acting.cancelled() and (error := acting.exception()) is not None:
                    raise error

    @abc.abstractmethod
    async def act(self) -> None:
        """Ask again and again, until cancelled."""

    async def back_off(self, attempt: int) -> None:
        """Wait before one asks again who did not answer `attempt` times, 1 at least."""
        await asyncio.sleep(backoff_seconds(attempt, self.rng, base=BACKOFF_BASE_SECONDS, maximum=BACKOFF_MAX_SECONDS))
