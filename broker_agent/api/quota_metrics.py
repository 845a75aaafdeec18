"""What quotas of the Kafka listener came to. Read when scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.broker_agent.kafka.quotas.meter import Throttled


class QuotaCollector(Collector):
    """By the kind of quota alone: principals would be labels without a bound."""

    def __init__(self, throttled: Throttled) -> None:
        self._throttled = throttled

    def collect(self) -> Iterator[Metric]:
        """Two families."""
        answers = CounterMetricFamily(
            "pidkeeper_agent_quota_throttled",
            "Requests whose Kafka client was told to wait, and was not read from meanwhile, by the quota.",
            labels=["quota"],
        )
        seconds = CounterMetricFamily(
            "pidkeeper_agent_quota_throttled_seconds", "For how long that was, in sum, by the quota.", labels=["quota"]
        )
        for kind, count in self._throttled.answers.items():
            answers.add_metric([kind], count)
            seconds.add_metric([kind], self._throttled.ms[kind] / 1000)
        yield answers
        yield seconds
