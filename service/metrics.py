"""What every service counts. Plain integers on the request path; they become samples when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pidkeeper.service.probes import Checks

SUCCESS: Final = "success"

CUT_REASONS: Final = ("head", "answer", "memory")
"""Why a server cuts a connection: its first head did not come, its answers were not read, all hold too many bytes."""

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


class RequestCounters:
    """`outcomes[route]` counts by SUCCESS or the error's name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}

    def route(self, name: str) -> Counter[str]:
        """The counter of outcomes of one route; its success is exposed from the start."""
        return self.outcomes.setdefault(name, Counter({SUCCESS: 0}))


class ServerCounters:
    """The server below the routes: its connections, open, refused, evicted, and cut by reason; handshakes of TLS that
    failed, by reason; how late its event loop ran a timer."""

    def __init__(self) -> None:
        self.handshake_failures: Counter[str] = Counter()
        self.connections = 0
        self.connections_cut = Counter(dict.fromkeys(CUT_REASONS, 0))
        self.connections_refused = 0
        self.connections_evicted = 0
        self.loop_lag_ns = 0


class ServiceCollector(Collector):
    """Turns the counters and the health checks into metric families."""

    def __init__(
        self, requests: RequestCounters, server: ServerCounters, probes: ServerCounters, live: Checks, ready: Checks
    ) -> None:
        self._counters = requests
        self._server = server
        self._servers = (("pidkeeper_http", "HTTP", server), ("pidkeeper_probe", "probe", probes))
        self._probes = (("livez", live), ("readyz", ready))

    def collect(self) -> Iterable[Metric]:
        """Every family, freshly made."""
        yield self._requests()
        yield GaugeMetricFamily(
            "pidkeeper_event_loop_lag_seconds",
            "Delay of the last timer of the event loop.",
            value=self._server.loop_lag_ns / 1e9,
        )
        for prefix, what, counters in self._servers:
            yield from _connections(prefix, what, counters)
        yield self._health()
        info = GaugeMetricFamily("pidkeeper_build_info", "Version of the running build; always 1.", labels=["version"])
        info.add_metric([build_version()], 1)
        yield info

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "pidkeeper_api_requests", "Requests answered, by route and outcome.", labels=["route", "outcome"]
        )
        for route, outcomes in self._counters.outcomes.items():
            for outcome, count in outcomes.items():
                family.add_metric([route, outcome], count)
        return family

    def _health(self) -> Metric:
        family = GaugeMetricFamily(
            "pidkeeper_healthcheck", "1 if a health check passes, 0 if it fails.", labels=["type", "name"]
        )
        for kind, checks in self._probes:
            for check in checks():
                family.add_metric([kind, check.name], float(check.ok))
        return family


def _connections(prefix: str, what: str, counters: ServerCounters) -> Iterable[Metric]:
    yield GaugeMetricFamily(f"{prefix}_connections", f"Open {what} connections.", value=counters.connections)
    yield CounterMetricFamily(
        f"{prefix}_connections_refused",
        f"New {what} connections closed unread because the limit was reached, and all others were busy.",
        value=counters.connections_refused,
    )
    yield CounterMetricFamily(
        f"{prefix}_connections_evicted",
        f"Waiting {what} connections closed to make room for new ones.",
        value=counters.connections_evicted,
    )
    cut = CounterMetricFamily(
        f"{prefix}_connections_cut",
        f"Open {what} connections closed for taking too long or holding too much.",
        labels=["reason"],
    )
    for reason, count in counters.connections_cut.items():
        cut.add_metric([reason], count)
    yield cut
    failed = CounterMetricFamily(
        f"{prefix}_handshakes_failed", f"New {what} connections that came to no TLS.", labels=["reason"]
    )
    for reason, count in counters.handshake_failures.items():
        failed.add_metric([reason], count)
    yield failed


def build_registry(collectors: Sequence[Collector]) -> CollectorRegistry:
    """A registry with the given samples and the process's."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The samples as text, with its content type: OpenMetrics if the Accept header asks for it."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
