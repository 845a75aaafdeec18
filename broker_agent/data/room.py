"""The parts of the data plane, put together around one store."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.data.administration import Administrator
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.describing import Describer
from pidkeeper.broker_agent.data.discarding import Discarder
from pidkeeper.broker_agent.data.fetching import Fetcher
from pidkeeper.broker_agent.data.gathered import GatheredObject
from pidkeeper.broker_agent.data.gathering import Gatherer
from pidkeeper.broker_agent.data.joining import Joining
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.listing import OffsetLister
from pidkeeper.broker_agent.data.producing import Producer
from pidkeeper.broker_agent.data.reading import BatchReader
from pidkeeper.broker_agent.data.recent import RecentObjects
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.identity import store_uuid
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreError
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.data.watching import Watcher
from pidkeeper.broker_agent.data.writing import ObjectWriter
from pidkeeper.service.process import UNUSABLE_SETTINGS, ServiceError

IDENTITY_SECONDS: Final = 30.0
"""For the store to say which one it is, at the start."""

_log = logging.getLogger(__name__)


class OpenStore:
    """A store, and which one it is."""

    def __init__(self, store: ObjectStore, store_id: uuid.UUID) -> None:
        self.store = store
        self.store_id = store_id


async def opened_store(settings: DataSettings) -> OpenStore:
    """The store that the settings name. Raises ServiceError, which says what is wrong."""
    try:
        store = await asyncio.to_thread(open_store, settings.store, settings.store_options)
    except ValueError as error:
        raise ServiceError(f"data.store: {error}", UNUSABLE_SETTINGS) from error
    except StoreError as error:
        raise ServiceError(f"data.store: {settings.store} cannot be opened: {error}") from error
    try:
        async with asyncio.timeout(IDENTITY_SECONDS):
            store_id = await store_uuid(store)
    except (StoreError, TimeoutError) as error:
        await store.close()
        why = str(error) or f"no answer within {IDENTITY_SECONDS:g} s"
        raise ServiceError(f"data.store: {settings.store} does not say which store it is: {why}") from error
    _log.info("records are kept in the store %s at %s", store_id, settings.store)
    return OpenStore(store, store_id)


class DataRoom:
    """What serves partitions. It belongs to one agent: `session` and `directory` are its own."""

    def __init__(
        self,
        settings: DataSettings,
        store: ObjectStore,
        calls: LogCalls,
        session: Registration,
        directory: Directory,
        rng: Random,
    ) -> None:
        self.counters = Counters()
        self.recent = RecentObjects(settings.recent_bytes)
        self.discarder = Discarder(store, rng)
        self.watcher = Watcher(calls, rng)
        self.topics = Topics(settings, calls, session)
        writer = ObjectWriter(store, calls, session, self.discarder, rng, self.counters)
        self.gatherer = Gatherer(settings, writer, self.counters, self._joined)
        self.producer = Producer(settings, self.topics, self.gatherer, self.counters)
        reader = BatchReader(store, self.recent, self.counters)
        self.fetcher = Fetcher(settings, calls, self.topics, reader, self.watcher, self.counters)
        self.lister = OffsetLister(calls, self.topics)
        self.describer = Describer(self.topics, Leaders(directory))
        self.joining = Joining(self.topics)
        self.administrator = Administrator(settings, self.topics, session.broker_id)

    async def stop(self) -> None:
        """End what is under way: nobody waits for it any more. The store stays open."""
        for part in (self.gatherer, self.watcher, self.topics, self.discarder):
            await part.stop()

    def _joined(self, item: GatheredObject) -> None:
        """An object's batches have joined their logs: those who wait here hear of it first, and have it in memory."""
        self.recent.add(item.path, item.pieces)
        self.watcher.moved(item.logs)
