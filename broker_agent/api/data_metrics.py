"""What an agent that keeps partition logs counts besides. Read when scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.broker_agent.data.codes import code_name
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.session.session import Session

PREFIX: Final = "pidkeeper_agent_data_"


class DataCollector(Collector):
    """Reads the counters, budgets and caches of `room` at the time of the scrape."""

    def __init__(self, room: DataRoom, session: Session, store: StoreSeeker) -> None:
        self._room = room
        self._session = session
        self._store = store

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        counters = self._room.counters
        yield counters.put_durations.family(
            PREFIX + "put_duration_seconds", "Seconds until an object was stored, with all tries."
        )
        yield counters.commit_durations.family(
            PREFIX + "commit_duration_seconds", "Seconds until the quorum answered to an object, with all tries."
        )

    def _counters(self) -> Iterator[Metric]:
        counters = self._room.counters
        for name, text, value in (
            ("produce_requests", "Produce requests.", counters.produce_requests),
            ("batches_received", "Record batches that clients sent and that are in order.", counters.batches_in),
            ("received_bytes", "Bytes of record batches that clients sent and that are in order.", counters.bytes_in),
            ("objects_put", "Objects stored.", counters.objects_put),
            ("objects_given_up", "Objects whose requests were refused, or ran out of time.", counters.objects_given_up),
            ("objects_left", "Objects without use that were not deleted: they are garbage.", self._room.discarder.left),
            ("objects_deleted", "Objects deleted because no log needs them any more.", counters.objects_deleted),
            (
                "garbage_misnamed",
                "Objects that the quorum wanted deleted under names that no agent gives, at each try.",
                counters.garbage_misnamed,
            ),
            ("orphans_deleted", "Objects deleted that nobody could commit any more.", counters.orphans_deleted),
            ("fetch_requests", "Fetch requests.", counters.fetch_requests),
            ("sent_bytes", "Bytes of record batches in answers to Fetch.", counters.bytes_out),
            ("store_reads", "Ranges of objects read from the store.", counters.store_reads),
            (
                "damaged_reads",
                "Ranges read whose object is missing, or is not what the quorum says.",
                counters.damaged_reads,
            ),
            ("segments_rolled", "Segments made of tails that logs read from.", counters.rolls),
            ("rolled_bytes", "Bytes of segments that logs read from.", counters.rolled_bytes),
            ("rolls_refused", "Segments that the quorum or the store did not take.", counters.rolls_refused),
            ("rolls_damaged", "Looks at logs that have a damaged or missing batch.", counters.rolls_damaged),
            (
                "duties_failed",
                "Rolls, collections and sweeps that ended as nobody foresaw; the agent's log says how.",
                counters.duties_failed,
            ),
            ("index_loads", "Indices of segments read from the store.", counters.index_loads),
            ("index_hits", "Indices of segments that this agent still had in memory.", counters.index_hits),
            ("memory_reads", "Record batches that this agent still had in memory.", counters.recent_reads),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value=value)
        refused = CounterMetricFamily(
            PREFIX + "batches_refused", "Record batches refused, by this agent or by the quorum.", labels=["code"]
        )
        for code, count in counters.refused_batches.items():
            refused.add_metric([code_name(code)], count)
        yield refused
        errors = CounterMetricFamily(
            PREFIX + "store_errors", "Calls of the store that failed, by operation.", labels=["operation"]
        )
        for operation, count in self._room.store.errors.items():
            errors.add_metric([operation], count)
        yield errors

    def _gauges(self) -> Iterator[Metric]:
        room = self._room
        pending, fetching = room.gatherer.room, room.fetcher.bytes
        for name, text, value in (
            ("pending_bytes", "Bytes of record batches that wait for their commit.", pending.held),
            ("produce_waiting", "Produce requests that wait for room for their batches.", pending.waiting),
            ("fetching_bytes", "Bytes of record batches in answers under way.", fetching.held),
            ("fetch_waiting", "Fetch requests that wait for room for their answers.", fetching.waiting),
            ("recent_bytes", "Bytes of this agent's newest objects that are kept in memory.", room.recent.bytes),
            ("index_bytes", "Bytes of indices of segments that are kept in memory.", room.indices.bytes),
            ("objects_to_delete", "Objects without use that wait to be deleted.", room.discarder.waiting),
            ("put_age_seconds", "How long the oldest put is under way.", room.store.put_age_seconds),
            (
                "unknown_names",
                "Names in the store that no agent gives, when this agent last looked at all of it.",
                room.counters.unknown_names,
            ),
            ("watch_calls", "Calls to the leader that wait until a log goes on.", room.watcher.calls_under_way),
            (
                "store_known",
                "1 while the quorum knows this agent's store; it takes no records before.",
                int(self._session.store_known),
            ),
            (
                "store_up",
                "1 while the store answers; it is asked when a call of it has failed, and until it answers.",
                int(self._store.up),
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
        age = GaugeMetricFamily(
            PREFIX + "sweep_age_seconds", "Seconds since this agent last looked at all of the store, if it ever did."
        )
        if (seconds := room.sweeper.age()) is not None:
            age.add_metric([], seconds)
        yield age
