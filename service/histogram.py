"""Histograms for the request path: plain integers, which become samples when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.samples import Exemplar

BUCKET_BOUNDS_US: Final = (250, 500, *(1000 * 2**power for power in range(14)))
"""Upper bounds of the duration buckets, microseconds: a quarter of a millisecond, about one commit with one caller, to
8.2 s, just below the request timeout."""

SHORT_BOUNDS_US: Final = (62, 125, *BUCKET_BOUNDS_US)
"""For what takes less than a commit: a sync of a fast disk, a round trip on the loopback."""


class Histogram:
    """Counts whole numbers by the first of the rising `bounds` that holds them.

    `scale`: how many of them are one of the unit in which they are shown. Recording is one binary search and two
    additions. Any thread may record, one at a time, and any other may look meanwhile.
    """

    __slots__ = ("_bounds", "_counts", "_scale", "_sum", "_traces")

    def __init__(self, bounds: Sequence[int], scale: int = 1) -> None:
        self._bounds = bounds
        self._scale = scale
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0
        # By bucket, the latest one with a trace: its id and what it took.
        self._traces: dict[int, tuple[str, int]] = {}

    def observe(self, value: int, trace_id: str | None = None) -> None:
        """Record one number, and the trace in which it was measured."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if trace_id is not None:
            self._traces[bucket] = trace_id, value

    @property
    def count(self) -> int:
        """Numbers recorded."""
        return sum(self._counts)

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """The samples without labels."""
        family = HistogramMetricFamily(name, documentation, labels=[])
        self.add_to(family)
        return family

    def add_to(self, family: HistogramMetricFamily, *labels: str) -> None:
        """Add the samples, cumulative and in the unit in which they are shown, as the exposition format wants them."""
        bounds = [*(str(bound / self._scale) for bound in self._bounds), "+Inf"]
        cumulative = 0
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for number, (bound, count) in enumerate(zip(bounds, self._counts.copy(), strict=True)):
            cumulative += count
            if (traced := self._traces.get(number)) is None:
                buckets.append((bound, float(cumulative)))
            else:
                trace_id, value = traced
                buckets.append((bound, float(cumulative), Exemplar({"trace_id": trace_id}, value / self._scale)))
        family.add_metric(labels, buckets, self._sum / self._scale)


def durations(bounds_us: Sequence[int] = BUCKET_BOUNDS_US) -> Histogram:
    """A histogram of nanoseconds that is shown in seconds."""
    return Histogram([bound * 1000 for bound in bounds_us], 1_000_000_000)
