"""Token buckets: how often one broker, and all brokers together, may ask.

A bucket is one number, the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371, virtual
scheduling). Times are integer nanoseconds of a monotonic clock and are given by the caller, so the arithmetic is exact:
in any span of t seconds a bucket grants at most `burst + per_second * t`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

NANOSECONDS: Final = 1_000_000_000

MAX_BUCKETS: Final = 32_768
"""Buckets that one throttle keeps. Only a bucket that is not full needs keeping, which lasts `burst / per_second` = 2 s
by default; in that time the shared bucket grants 10,000 + 2 x 5,000 requests, so at most 20,000 brokers can hold one.
With other limits the table may fill up: then a broker without a bucket is refused until the oldest one is full."""

MAX_RATE: Final = 1_000_000.0
"""Requests a second in a limit: an interval of 1 us keeps the rounding to whole nanoseconds below 0.1 %."""


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit: `per_second` requests on the long run, `burst` at once."""

    per_second: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)]
    burst: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]

    @property
    def interval_ns(self) -> int:
        """Nanoseconds in which one token comes back, rounded up: a limit is never exceeded by rounding."""
        return int(-(-NANOSECONDS // self.per_second))


class Refusal(msgspec.Struct, frozen=True):
    """No token: which `quota` is used up, and how many nanoseconds until the next token."""

    quota: Literal["broker", "cluster", "buckets"]
    wait_ns: int


class Throttle:
    """A bucket for each broker and one for all of them together. A request takes a token from both or from neither."""

    def __init__(self, broker: Rate, cluster: Rate) -> None:
        self._broker_interval = broker.interval_ns
        self._broker_capacity = broker.interval_ns * broker.burst
        self._cluster_interval = cluster.interval_ns
        self._cluster_capacity = cluster.interval_ns * cluster.burst
        self._cluster_full_at = 0
        self._full_at: dict[int, int] = {}

    def __len__(self) -> int:
        """Buckets held, at most MAX_BUCKETS."""
        return len(self._full_at)

    def admit(self, broker_id: int, now_ns: int) -> Refusal | None:
        """Take one token for the broker at `now_ns`, or say why there is none."""
        full_at = self._full_at.get(broker_id)
        if full_at is None and len(self._full_at) >= MAX_BUCKETS and (wait := self._evict_oldest(now_ns)) > 0:
            return Refusal("buckets", wait)
        full_at = max(full_at or 0, now_ns) + self._broker_interval
        if (wait := full_at - now_ns - self._broker_capacity) > 0:
            return Refusal("broker", wait)
        cluster_full_at = max(self._cluster_full_at, now_ns) + self._cluster_interval
        if (wait := cluster_full_at - now_ns - self._cluster_capacity) > 0:
            return Refusal("cluster", wait)
        self._cluster_full_at = cluster_full_at
        # Taken out and put back in, so that the dictionary's order is the order of last use.
        self._full_at.pop(broker_id, None)
        self._full_at[broker_id] = full_at
        return None

    def _evict_oldest(self, now_ns: int) -> int:
        """Drop the least recently used bucket if it is full; else give the nanoseconds until it is."""
        oldest = next(iter(self._full_at))
        wait = self._full_at[oldest] - now_ns
        if wait <= 0:
            del self._full_at[oldest]
        return wait
