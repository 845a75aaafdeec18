"""What the interface counts. Plain integers on the request path; they become samples when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pidkeeper.controller.api.member_port import Member
from pidkeeper.controller.api.pending import PendingRequests

SUCCESS: Final = "success"

BUCKET_BOUNDS_US: Final = (250, 500, *(1000 * 2**power for power in range(14)))
"""Upper bounds of the duration buckets, microseconds: a quarter of a millisecond, about one commit with one caller, to
8.2 s, just below the request timeout."""


def build_version() -> str:
    """The version of the installed distribution; "unknown" when run from a source tree."""
    try:
        return version("pidkeeper")
    except PackageNotFoundError:
        return "unknown"


class DurationHistogram:
    """Counts durations. Recording is one binary search and two additions."""

    def __init__(self) -> None:
        self._bounds_ns = [bound * 1000 for bound in BUCKET_BOUNDS_US]
        self._counts = [0] * (len(BUCKET_BOUNDS_US) + 1)
        self._sum_ns = 0

    def observe(self, duration_ns: int) -> None:
        """Record one duration."""
        self._counts[bisect_left(self._bounds_ns, duration_ns)] += 1
        self._sum_ns += duration_ns

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """The samples, in seconds and cumulative, as the exposition format wants them."""
        bounds = [*(str(bound / 1_000_000) for bound in BUCKET_BOUNDS_US), "+Inf"]
        cumulative, buckets = 0, []
        for bound, count in zip(bounds, self._counts, strict=True):
            cumulative += count
            buckets.append((bound, float(cumulative)))
        return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=self._sum_ns / 1e9)


class ApiMetrics:
    """The counters of one interface. `outcomes[route]` counts by SUCCESS or the error's name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.allocation_duration = DurationHistogram()
        self.throttled: Counter[str] = Counter()
        self.loop_lag_ns = 0

    def route(self, name: str) -> Counter[str]:
        """The counter of outcomes of one route; its success is exposed from the start."""
        return self.outcomes.setdefault(name, Counter({SUCCESS: 0}))


class ApiCollector(Collector):
    """Turns the counters, the health checks and the member's own samples into metric families."""

    def __init__(self, metrics: ApiMetrics, pending: PendingRequests, member: Member) -> None:
        self._metrics = metrics
        self._pending = pending
        self._member = member

    def collect(self) -> Iterable[Metric]:
        """Every family, freshly made."""
        yield self._requests()
        yield self._metrics.allocation_duration.family(
            "pidkeeper_allocation_duration_seconds", "Time from admission of an allocation to its answer."
        )
        yield self._throttled()
        yield GaugeMetricFamily(
            "pidkeeper_api_pending_requests", "Requests that wait for their commit.", value=len(self._pending)
        )
        yield GaugeMetricFamily(
            "pidkeeper_event_loop_lag_seconds",
            "How late the event loop ran its last timer.",
            value=self._metrics.loop_lag_ns / 1e9,
        )
        yield self._health()
        info = GaugeMetricFamily("pidkeeper_build_info", "The version that runs; always 1.", labels=["version"])
        info.add_metric([build_version()], 1)
        yield info
        yield from self._member.metric_families()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "pidkeeper_api_requests", "Requests answered, by route and outcome.", labels=["route", "outcome"]
        )
        for route, outcomes in self._metrics.outcomes.items():
            for outcome, count in outcomes.items():
                family.add_metric([route, outcome], count)
        return family

    def _throttled(self) -> Metric:
        family = CounterMetricFamily(
            "pidkeeper_throttled", "Requests refused by a quota, by the quota that was used up.", labels=["quota"]
        )
        for quota in ("broker", "cluster", "buckets", "pending"):
            family.add_metric([quota], self._metrics.throttled[quota])
        return family

    def _health(self) -> Metric:
        family = GaugeMetricFamily(
            "pidkeeper_healthcheck", "Whether a health check holds (1) or not (0).", labels=["type", "name"]
        )
        for kind, checks in (("livez", self._member.liveness()), ("readyz", self._member.readiness())):
            for check in checks:
                family.add_metric([kind, check.name], float(check.ok))
        return family


def build_registry(metrics: ApiMetrics, pending: PendingRequests, member: Member) -> CollectorRegistry:
    """A registry with the interface's, the member's and the process's samples."""
    registry = CollectorRegistry()
    registry.register(ApiCollector(metrics, pending, member))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The samples as text, with its content type: OpenMetrics if the Accept header asks for it."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
