"""The parts of the data plane, put together around one store."""

from __future__ import annotations

from pidkeeper.broker_agent.backoff import Random
from pidkeeper.broker_agent.coordinator.directory import Directory
from pidkeeper.broker_agent.data.administration import Administrator
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.collecting import Collector
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.deleting import RecordDeleter
from pidkeeper.broker_agent.data.describing import Describer
from pidkeeper.broker_agent.data.discarding import Discarder
from pidkeeper.broker_agent.data.fetching import Fetcher
from pidkeeper.broker_agent.data.gathered import GatheredObject
from pidkeeper.broker_agent.data.gathering import Gatherer
from pidkeeper.broker_agent.data.joining import Joining
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.listing import OffsetLister
from pidkeeper.broker_agent.data.producing import Producer
from pidkeeper.broker_agent.data.ranged_reads import RangedReads
from pidkeeper.broker_agent.data.reading import BatchReader
from pidkeeper.broker_agent.data.recent import RecentObjects
from pidkeeper.broker_agent.data.record_finding import RecordFinder
from pidkeeper.broker_agent.data.roll_gathering import TailReader
from pidkeeper.broker_agent.data.roll_making import SegmentMaker
from pidkeeper.broker_agent.data.rolling import Roller
from pidkeeper.broker_agent.data.segment_indices import SegmentIndices
from pidkeeper.broker_agent.data.segment_reading import SegmentReader
from pidkeeper.broker_agent.data.segment_writing import SegmentWriter
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.counted import CountedStore
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.broker_agent.data.store_report import Reporter
from pidkeeper.broker_agent.data.sweeping import Sweeper
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.data.watching import Watcher
from pidkeeper.broker_agent.data.writing import ObjectWriter


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
        self.store = CountedStore(store)
        self.recent = RecentObjects(settings.recent_bytes)
        self.discarder = Discarder(self.store, rng)
        self.watcher = Watcher(calls, rng)
        self.topics = Topics(settings, calls, session)
        writer = ObjectWriter(self.store, calls, session, self.discarder, rng, self.counters)
        self.gatherer = Gatherer(settings, writer, self.counters, self._joined)
        self.producer = Producer(settings, session, self.topics, self.gatherer, self.counters)
        reads = RangedReads(self.store, self.counters)
        reader = BatchReader(reads, self.recent, self.counters)
        self.indices = SegmentIndices(reads, self.counters, settings.index_bytes)
        segments = SegmentReader(reads, self.indices)
        self.fetcher = Fetcher(settings, calls, session, self.topics, reader, segments, self.watcher, self.counters)
        self.lister = OffsetLister(calls, self.topics, RecordFinder(reader, segments))
        leaders = Leaders(directory)
        self.describer = Describer(self.topics, leaders)
        self.roller = Roller(
            calls,
            session,
            self.topics,
            leaders,
            SegmentMaker(TailReader(calls, reader), segments),
            SegmentWriter(self.store, calls, session, self.discarder, rng),
            self.counters,
            rng,
        )
        self._roll = settings.roll
        self.joining = Joining(self.topics)
        self.administrator = Administrator(settings, self.topics, session.broker_id)
        self.deleter = RecordDeleter(calls, self.topics)
        self.sweeper = Sweeper(self.store, calls, session, self.counters)
        sweep_seconds = settings.sweep_interval_ms / 1000
        self.collector = Collector(
            self.store, calls, session, directory, self.sweeper, rng, self.counters, sweep_seconds
        )
        self.reporter = Reporter(self.store, calls, session)
        self._collect = settings.collect

    def start(self) -> None:
        """Begin with what nobody asks for: to roll logs, and to delete what none needs."""
        if self._roll:
            self.roller.start()
        if self._collect:
            self.collector.start()

    async def stop(self) -> None:
        """End what is under way: nobody waits for it any more. The store stays open."""
        for cleaner in (self.collector, self.reporter):
            await cleaner.stop()
        parts = self.roller, self.producer, self.gatherer, self.watcher, self.topics, self.indices, self.discarder
        for part in parts:
            await part.stop()

    def _joined(self, item: GatheredObject) -> None:
        """An object's batches have joined their logs: those who wait here hear of it first, and have it in memory."""
        self.recent.add(item.path, item.pieces)
        self.watcher.moved(item.logs)
