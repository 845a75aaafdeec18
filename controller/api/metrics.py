"""What the interface of a controller counts beside what every service does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.controller.api.member_port import Member
from pidkeeper.service.metrics import DurationHistogram
from pidkeeper.service.pending import PendingRequests


class AllocationMetrics:
    """How long allocations took, and which quotas refused how many requests."""

    def __init__(self) -> None:
        self.duration = DurationHistogram()
        self.throttled: Counter[str] = Counter()


class ControllerCollector(Collector):
    """Turns the counters and the member's own samples into metric families."""

    def __init__(self, metrics: AllocationMetrics, pending: PendingRequests, member: Member) -> None:
        self._metrics = metrics
        self._pending = pending
        self._member = member

    def collect(self) -> Iterable[Metric]:
        """Every family, freshly made."""
        yield self._metrics.duration.family(
            "pidkeeper_allocation_duration_seconds", "Seconds from the admission of an allocation to its answer."
        )
        yield self._throttled()
        yield GaugeMetricFamily(
            "pidkeeper_api_pending_requests",
            "Requests that wait for their entry to be committed and applied.",
            value=len(self._pending),
        )
        yield from self._member.metric_families()

    def _throttled(self) -> Metric:
        family = CounterMetricFamily("pidkeeper_throttled", "Requests refused by a quota, by quota.", labels=["quota"])
        for quota in ("broker", "cluster", "buckets", "pending"):
            family.add_metric([quota], self._metrics.throttled[quota])
        return family
