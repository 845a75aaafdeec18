"""What the interface of a controller counts beside what every service does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.controller.api.member_port import Member
from pidkeeper.service.broker_counts import BrokerCounts
from pidkeeper.service.event_streams import EventStreams
from pidkeeper.service.histogram import durations
from pidkeeper.service.pending import PendingRequests


class AllocationMetrics:
    """How long allocations took, which quotas refused how many requests, and how many allocations of which broker."""

    def __init__(self) -> None:
        self.duration = durations()
        self.throttled: Counter[str] = Counter()
        self.throttled_allocations = BrokerCounts()


class ControllerCollector(Collector):
    """Turns the counters and the member's own samples into metric families."""

    def __init__(
        self, metrics: AllocationMetrics, pending: PendingRequests, streams: EventStreams, member: Member
    ) -> None:
        self._metrics = metrics
        self._pending = pending
        self._streams = streams
        self._member = member

    def collect(self) -> Iterable[Metric]:
        """Every family, freshly made."""
        yield self._metrics.duration.family(
            "pidkeeper_allocation_duration_seconds", "Seconds from the admission of an allocation to its answer."
        )
        yield self._throttled()
        yield self._throttled_allocations()
        yield GaugeMetricFamily(
            "pidkeeper_api_pending_requests",
            "Requests that wait for their entry to be committed and applied.",
            value=len(self._pending),
        )
        yield from self._event_streams()
        yield from self._member.metric_families()

    def _event_streams(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("pidkeeper_event_streams", "Open streams of events.", value=len(self._streams))
        yield CounterMetricFamily(
            "pidkeeper_event_streams_cut", "Streams of events cut because they were read too slowly.", self._streams.cut
        )
        yield CounterMetricFamily(
            "pidkeeper_event_streams_refused",
            "Streams of events refused because too many were open.",
            self._streams.refused,
        )

    def _throttled_allocations(self) -> Metric:
        family = CounterMetricFamily(
            "pidkeeper_ids_allocation_throttled",
            'Allocations refused by the quota of the broker or of all brokers; "other": brokers behind the first 256.',
            labels=["broker"],
        )
        for broker, count in self._metrics.throttled_allocations.items():
            family.add_metric([broker], count)
        return family

    def _throttled(self) -> Metric:
        family = CounterMetricFamily("pidkeeper_throttled", "Requests refused by a quota, by quota.", labels=["quota"])
        for quota in ("broker", "cluster", "buckets", "pending"):
            family.add_metric([quota], self._metrics.throttled[quota])
        return family
