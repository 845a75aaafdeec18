"""Clients that take a new producer ID for next to nothing, and distinct producers by day."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.segments.read import DAY_MS

WINDOW_MS: Final = 3_600_000
FEW_BATCHES: Final = 2
MANY_PRODUCERS: Final = 100
"""A hundred clients an hour in one topic of two batches at most: a producer made for each record."""

_FEW_BATCHES: Final = """
create or replace temp table few_batches as
with copies as (
    select
        producer_id, partition_id, log_id,
        min(part) as part, sum(data_batches) as batches, min(data_ms) as timestamp_ms
    from producer_epochs
    where data_batches > 0
    group by all
), most as (
    -- The copy of a partition that has most.
    select
        producer_id, partition_id,
        min(part) as part, max(batches) as batches, min(timestamp_ms) as timestamp_ms
    from copies
    group by all
), topics as (
    select distinct partition_id, topic_id from parts
)
select producer_id, min(part) as part, sum(batches)::bigint as batches, min(timestamp_ms) as timestamp_ms
from most
join topics using (partition_id)
group by producer_id, topic_id
having sum(most.batches) <= $few_batches and min(most.timestamp_ms) is not null
"""

_BURSTS: Final = """
create or replace temp table bursts as
select
    topic_id, timestamp_ms // $window_ms * $window_ms as timestamp_ms,
    count(*) as ids, min(producer_id) as first_id, max(producer_id) as last_id, sum(batches)::bigint as batches
from few_batches
join parts using (part)
group by topic_id, timestamp_ms // $window_ms * $window_ms
"""

_DATED: Final = """
create or replace temp table dated as
select distinct
    producer_id, first_part as part, case when timestamp_ms > 0 then timestamp_ms // $day_ms end as day
from followed
"""

_DAYS: Final = """
create or replace temp table producer_days as
select partition_id, day, count(distinct producer_id) as producers from dated join parts using (part) group by all
"""


def list_days(con: Any) -> None:
    """The temporary table `dated`, by tables.KEPT."""
    con.execute(_DATED, {"day_ms": DAY_MS})


def count_producers(con: Any, few_batches: int = FEW_BATCHES, window_ms: int = WINDOW_MS) -> None:
    """The temporary tables `bursts` and `producer_days`, by the tables of these names.

    Windows are of the clients' or brokers' timestamps, aligned to the epoch. few_batches: with so many at most in a
    topic a producer is one of a burst.
    """
    con.execute(_FEW_BATCHES, {"few_batches": few_batches})
    con.execute(_BURSTS, {"window_ms": window_ms})
    con.execute(_DAYS)
