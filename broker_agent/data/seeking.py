"""Finding the store, however long that takes, and seeing whether it still is there.

Nothing else waits for it: an agent registers, and hands out IDs, while its store is away. What no waiting heals ends
the process: settings that name no store, and another store than the one that was there before.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.awaited import AwaitedStore
from pidkeeper.broker_agent.data.store.identity import store_uuid
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreError
from pidkeeper.service.process import UNUSABLE_SETTINGS, ServiceError

IDENTITY_SECONDS: Final = 30.0
"""For the store to say which one it is."""

START_SECONDS: Final = 2.0
"""How long the start waits for the store: a bucket answers in a tenth of it, and then the first registration tells it.
Whoever waits for IDs waits no longer than that."""

RETRY_BASE_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 5.0
"""Back-off while the store is away: two requests each time, and so long may records be late when it is back."""

_log = logging.getLogger(__name__)


class StoreSeeker:
    """Seeks the store of `settings`. `store` is what the data plane uses, from the first moment on.

    `on_found(store_id)` is called once. `admitted()`: whether the quorum took that one for the cluster's; nothing else
    is written or read before. `up`: whether it answered when it was asked last; it is asked when a call has failed.
    """

    def __init__(
        self,
        settings: DataSettings,
        rng: Random,
        *,
        on_found: Callable[[uuid.UUID], None],
        admitted: Callable[[], bool],
        retry_seconds: float = RETRY_BASE_SECONDS,
    ) -> None:
        self.store = AwaitedStore(admitted, self._doubt)
        self.up = False
        self._settings = settings
        self._rng = rng
        self._on_found = on_found
        self._retry_seconds = retry_seconds
        self._opened: ObjectStore | None = None
        self._store_id: uuid.UUID | None = None
        self._why_down = "it was not found yet"
        self._doubted = asyncio.Event()
        self._found = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, fail: Callable[[BaseException], None], seconds: float = START_SECONDS) -> None:
        """Begin; returns once the store is found, after `seconds` at the latest. Raises ServiceError, with which
        `fail` is called if it comes later."""
        self._task = task = asyncio.get_running_loop().create_task(self._run())
        found = asyncio.get_running_loop().create_task(self._found.wait())
        await asyncio.wait((task, found), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        found.cancel()
        if task.done():
            task.result()

        def ended(done: asyncio.Task[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                fail(error)

        task.add_done_callback(ended)

    async def close(self) -> None:
        """Seek no more, and close the store if it was opened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._opened is not None:
            await self._opened.close()

    def why_down(self) -> str:
        """What the store did when it was asked last, in words; empty while it is up."""
        return "" if self.up else f"the store {self._settings.store}: {self._why_down}"

    def _doubt(self, error: StoreError) -> None:
        """A call has failed: the store is asked again, by itself."""
        if self.up:
            _log.warning("the store %s is away, trying again: %s", self._settings.store, error)
        self.up, self._why_down = False, str(error)
        self._doubted.set()

    async def _run(self) -> None:
        while True:
            self._doubted.clear()
            await self._ask_until_it_answers()
            # What fails though the store knows its name is asked about no faster than that.
            await asyncio.sleep(self._retry_seconds)
            await self._doubted.wait()

    async def _ask_until_it_answers(self) -> None:
        attempt = 0
        while True:
            try:
                found = await self._ask()
            except StoreError as error:
                self._complain(str(error))
            except TimeoutError:
                self._complain(f"no answer within {IDENTITY_SECONDS:g} s")
            else:
                self._answered(found)
                return
            attempt += 1
            await asyncio.sleep(
                backoff_seconds(attempt, self._rng, base=self._retry_seconds, maximum=RETRY_MAX_SECONDS)
            )

    async def _ask(self) -> uuid.UUID:
        """Which store it is. Raises StoreError, TimeoutError, and ServiceError for settings that name none."""
        if self._opened is None:
            try:
                self._opened = await asyncio.to_thread(open_store, self._settings.store, self._settings.store_options)
            except ValueError as error:
                raise ServiceError(f"data.store: {error}", UNUSABLE_SETTINGS) from error
        async with asyncio.timeout(IDENTITY_SECONDS):
            return await store_uuid(self._opened)

    def _complain(self, why: str) -> None:
        if why != self._why_down:
            # Each try would say it again.
            _log.error("the store %s does not say which one it is, trying again: %s", self._settings.store, why)
        self.up, self._why_down = False, why

    def _answered(self, store_id: uuid.UUID) -> None:
        self.up = True
        if self._store_id is None:
            assert self._opened is not None, "asked"
            self._store_id = store_id
            self.store.found(self._opened)
            _log.info("records are kept in the store %s at %s", store_id, self._settings.store)
            self._on_found(store_id)
            self._found.set()
        elif store_id != self._store_id:
            raise ServiceError(
                f"data.store: {self._settings.store} was the store {self._store_id} and is {store_id} now: bring the "
                "cluster's store back, or correct the setting"
            )
        elif self._why_down:
            _log.info("the store %s answers again", self._settings.store)
        self._why_down = ""
