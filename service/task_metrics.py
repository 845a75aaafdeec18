"""How many tasks the event loop of a process has, for whoever suspects that some never end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class TaskCollector(Collector):
    """The tasks of the event loop that runs while it is asked."""

    def collect(self) -> Iterable[Metric]:
        """One gauge. Raises RuntimeError without a running event loop."""
        yield GaugeMetricFamily(
            "pidkeeper_event_loop_tasks", "Tasks of the event loop that are not done.", value=len(asyncio.all_tasks())
        )
