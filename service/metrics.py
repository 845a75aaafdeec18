"""What every service counts. Plain integers on the request path; they become samples when somebody scrapes."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pidkeeper.service.build import build_version
from pidkeeper.service.histogram import Histogram, durations
from pidkeeper.service.probes import Checks
from pidkeeper.service.problems import DENIED
from pidkeeper.service.recent_maximum import RecentMaximum

SUCCESS: Final = "success"

EXPIRED: Final = "expired"
CUT_REASONS: Final = ("head", "answer", "memory", EXPIRED)
"""Why a server cuts a connection: its first head did not come, its answers were not read, all hold too many bytes, or
the certificate that it was made with has ended."""

LAG_WINDOW: Final = 300
"""Measurements of the event loop's lag in half a minute, so that each is shown for that long at least, and for no more
than about a minute: no scrape that comes every 30 s misses a spike, however many scrape."""


class RequestCounters:
    """`outcomes[route]` counts by SUCCESS or the error's name; `durations[route]`, of some routes, nanoseconds."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.durations: dict[str, Histogram] = {}

    def route(self, name: str) -> Counter[str]:
        """The counter of outcomes of one route; its success is exposed from the start."""
        return self.outcomes.setdefault(name, Counter({SUCCESS: 0}))

    def duration(self, name: str) -> Histogram:
        """The histogram of one route."""
        return self.durations.setdefault(name, durations())


class ServerCounters:
    """The server below the routes: its connections, open, refused, evicted, and cut by reason; handshakes of TLS that
    failed, by reason; requests of callers who may not ask, by status; how late its event loop ran a timer, in
    nanoseconds."""

    def __init__(self) -> None:
        self.handshake_failures: Counter[str] = Counter()
        self.requests_denied = Counter(dict.fromkeys(DENIED, 0))
        self.connections = 0
        self.connections_cut = Counter(dict.fromkeys(CUT_REASONS, 0))
        self.connections_refused = 0
        self.connections_evicted = 0
        self.loop_lag = RecentMaximum(LAG_WINDOW)


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
        yield self._durations()
        yield GaugeMetricFamily(
            "pidkeeper_event_loop_lag_seconds",
            "Longest delay of a timer of the event loop within the last 30 to 60 seconds; one runs ten times a second.",
            value=self._server.loop_lag.value / 1e9,
        )
        for prefix, what, counters in self._servers:
            yield from _connections(prefix, what, counters)
        yield self._health()
        info = GaugeMetricFamily(
            "pidkeeper_build_info",
            "Version of the running build, and of the Python that runs it; always 1.",
            labels=["version", "python_version"],
        )
        info.add_metric([build_version(), platform.python_version()], 1)
        yield info

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "pidkeeper_api_requests", "Requests answered, by route and outcome.", labels=["route", "outcome"]
        )
        for route, outcomes in self._counters.outcomes.items():
            for outcome, count in outcomes.items():
                family.add_metric([route, outcome], count)
        return family

    def _durations(self) -> Metric:
        family = HistogramMetricFamily(
            "pidkeeper_api_request_duration_seconds",
            "Seconds from a request to its answer, refusals included, of the routes that brokers and producers use.",
            labels=["route"],
        )
        for route, histogram in self._counters.durations.items():
            histogram.add_to(family, route)
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
        f"Open {what} connections closed for taking too long, holding too much, or an expired certificate.",
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
    denied = CounterMetricFamily(
        f"{prefix}_requests_denied",
        f"Requests on {what} connections refused because the caller has not shown that it may ask, by HTTP status.",
        labels=["code"],
    )
    for status, count in counters.requests_denied.items():
        denied.add_metric([str(status)], count)
    yield denied


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
