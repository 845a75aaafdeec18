"""Clients that take a new producer ID for next to nothing, and distinct producers by day."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.segments.read import DAY_MS

WINDOW_MS: Final = 3_600_000
FEW_BATCHES: Final = 2
MANY_PRODUCERS: Final = 100
"""A hundred clients an hour in one topic of two batches at most: a producer made for each record."""

_BURSTS: Final = """
create or replace temp table bursts as
with copies as (
    select producer_id, partition_id, log_id, sum(data_batches) as batches, min(data_ms) as timestamp_ms
    from producer_epochs
    where data_batches > 0
    group by all
), most as (
    -- The copy of a partition that has most.
    select producer_id, partition_id, max(batches) as batches, min(timestamp_ms) as timestamp_ms
    from copies
    group by all
), topics as (
    select distinct partition_id, topic_id from parts
), by_topic as (
    select producer_id, topic_id, sum(batches)::bigint as batches, min(timestamp_ms) as timestamp_ms
    from most
    join topics using (partition_id)
    group by all
)
select
    topic_id, timestamp_ms // $window_ms * $window_ms as timestamp_ms,
    count(*) as ids, min(producer_id) as first_id, max(producer_id) as last_id, sum(batches)::bigint as batches
from by_topic
where batches <= $few_batches and timestamp_ms is not null
group by topic_id, timestamp_ms // $window_ms * $window_ms
"""

_DAYS: Final = """
create or replace temp table producer_days as
with stamped as (
    select distinct partition_id, producer_id, case when timestamp_ms > 0 then timestamp_ms // $day_ms end as day
    from followed
)
select partition_id, day, count(*) as producers from stamped group by all
"""


def count_bursts(con: Any, window_ms: int = WINDOW_MS, few_batches: int = FEW_BATCHES) -> None:
    """The temporary table `bursts`, by tables.BURSTS: of producers with `few_batches` at most in a topic.

    Windows are of the clients' or brokers' timestamps, aligned to the epoch.
    """
    con.execute(_BURSTS, {"window_ms": window_ms, "few_batches": few_batches})


def count_days(con: Any) -> None:
    """The temporary table `producer_days`, by tables.PRODUCER_DAYS."""
    con.execute(_DAYS, {"day_ms": DAY_MS})
