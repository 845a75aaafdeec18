"""What the report draws, aggregated by DuckDB: however much was audited, a bounded number of rows is fetched.

`blocks` may be hundreds of millions of rows on disk: it is read twice and never sorted.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from duckdb import DuckDBPyConnection

from pidkeeper.pipeline.verdict import Verdict

MAX_BUCKETS: Final = 180
"""Intervals on a time axis: on a wide screen a bar of six pixels each."""
MAX_BROKERS: Final = 10
"""Brokers with a colour of their own: more cannot be told apart. The others are one."""
MAX_LIFETIMES: Final = 800
"""Bars of block lifetimes; of more blocks, those of one broker and interval share a bar."""
MAX_ANOMALIES: Final = 1000
"""Points of findings; those of one check and severity in one interval are one point."""
MAX_FINDINGS: Final = 300
"""Rows in the report's table; the table `findings` has all."""
MAX_BAD_FILES: Final = 200
OTHERS: Final = -2
"""Broker id of all brokers without a colour of their own."""
_STEPS_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_STEPS_MS: Final = (10, 20, 50, 100, 200, 500, *(1000 * seconds for seconds in _STEPS_SECONDS))
_DAY_MS: Final = 86_400_000

Row = dict[str, Any]
Span = tuple[int, int]
"""First and last millisecond since the epoch, inclusive."""

# Sums of IDs are HUGEINT all the way: a history that is wrong may hold a block of all 2^63 IDs, and hold it twice.
_SPAN: Final = (
    "select min(timestamp_ms) as first_ms, max(timestamp_ms) as last_ms from blocks where is_time(timestamp_ms)"
)
_CELLS: Final = """
create or replace temp table cells as
select broker_id, timestamp_ms // $step * $step as at_ms, sum(last_id::hugeint - first_id + 1) as ids,
       count(*) as blocks, min(first_id) as first_id, max(last_id) as last_id,
       min(timestamp_ms) as from_ms, max(timestamp_ms) as last_ms
from blocks where is_time(timestamp_ms) group by all
"""
"""What each broker was given in each interval."""
_BROKERS: Final = """
select broker_id, sum(ids) as ids, sum(blocks)::bigint as blocks
from cells group by broker_id order by ids desc, broker_id limit $most
"""
_ALLOCATIONS: Final = """
with shown as (
    select if(list_contains($own, broker_id), broker_id, $others) as broker_id, at_ms,
           sum(ids) as ids, sum(blocks)::bigint as blocks, max(last_id) as top, max(last_ms) as last
    from cells group by all
)
select broker_id, at_ms, ids, blocks, max(top) over (order by at_ms) as highest_id,
       max(last) over (partition by at_ms) as last_ms
from shown order by at_ms, broker_id
"""
_LIFETIMES: Final = """
with bars as ({bars})
select *, lead(from_ms) over (partition by broker_id order by from_ms, first_id) as next_ms,
       coalesce(next_ms, $end_ms) as to_ms
from bars order by broker_id, from_ms, first_id
"""
_EACH_BLOCK: Final = """
select broker_id, first_id, last_id, timestamp_ms as from_ms, 1 as blocks
from blocks where is_time(timestamp_ms) and list_contains($own, broker_id)
"""
_BARS: Final = """
select broker_id, min(first_id) as first_id, max(last_id) as last_id, min(from_ms) as from_ms,
       sum(blocks)::bigint as blocks
from cells where list_contains($own, broker_id) group by broker_id, at_ms // $step
"""
_TIMES_OF_FINDINGS: Final = """
select min(timestamp_ms) filter (is_time(timestamp_ms)) as first_ms,
       max(timestamp_ms) filter (is_time(timestamp_ms)) as last_ms,
       count(*) - count(*) filter (is_time(timestamp_ms)) as timeless
from findings
"""
_ANOMALIES: Final = """
select "check", severity, count(*) as findings, min(timestamp_ms) as first_ms,
       arg_min(subject, (timestamp_ms, subject)) as subject
from findings where is_time(timestamp_ms)
group by "check", severity, timestamp_ms // $step
order by array_position(['violation', 'warning', 'note'], severity), first_ms, "check" limit $most
"""
_FINDINGS: Final = """
select * from findings
order by array_position(['violation', 'warning', 'note'], severity), "check", timestamp_ms, first_id, file, "position",
         subject limit $most
"""
_BAD_FILES: Final = "select * from files where problems > 0 order by file limit $most"
_SOURCES: Final = """
select source, member, count(*) as files, sum(bytes) as bytes, sum("rows") as "rows",
       count(*) filter (problems > 0) as bad
from files group by source, member order by source, member limit $most
"""
_TOPICS: Final = """
select topic, count(distinct "partition") as partitions, sum(batches) as batches, sum(records) as records,
       min(first_timestamp_ms) as first_ms, max(last_timestamp_ms) as last_ms
from batches_daily group by topic order by batches desc, topic limit $most
"""


class Drawn(msgspec.Struct):
    """All that the report shows. Rows are dictionaries by column.

    `seen_ms`: the time of the verdict and of the findings. `bar_ms`: a bar of `lifetimes` stands for the blocks of a
    broker in so many milliseconds; 0: for one block. `curve`: a row an interval, with the highest ID given out by its
    end. `timeless`: findings that have no time.
    """

    seen_ms: Span
    bucket_ms: int
    allocations: list[Row]
    lifetimes: list[Row]
    bar_ms: int
    curve: list[Row]
    anomalies: list[Row]
    timeless: int
    findings: list[Row]
    bad_files: list[Row]
    sources: list[Row]
    partitions: list[Row]


def draw_from(con: DuckDBPyConnection, verdict: Verdict) -> Drawn:
    """From `blocks`, `findings`, `files` and `batches_daily`, each a table or a view with the columns of TABLES."""
    # Kafka's segments may reach back years before the first block: each axis has its own steps.
    given_ms = _span(*((row["first_ms"], row["last_ms"]) for row in _rows(con, _SPAN)))
    bucket = step_ms(given_ms, MAX_BUCKETS)
    con.execute(_CELLS, {"step": bucket})
    own = _rows(con, _BROKERS, most=MAX_BROKERS)
    brokers = [row["broker_id"] for row in own]
    cells = _rows(con, _ALLOCATIONS, own=brokers, others=OTHERS)
    bar, lifetimes = _lifetimes(con, own, bucket, given_ms[1])
    times = _rows(con, _TIMES_OF_FINDINGS)[0]
    seen_ms = _span((verdict.first_ms, verdict.last_ms), (times["first_ms"], times["last_ms"]))
    return Drawn(
        seen_ms=seen_ms,
        bucket_ms=bucket,
        allocations=cells,
        lifetimes=lifetimes,
        bar_ms=bar,
        curve=list({cell["at_ms"]: cell for cell in cells}.values()),
        anomalies=_rows(con, _ANOMALIES, step=step_ms(seen_ms, MAX_BUCKETS), most=MAX_ANOMALIES),
        timeless=times["timeless"],
        findings=_rows(con, _FINDINGS, most=MAX_FINDINGS),
        bad_files=_rows(con, _BAD_FILES, most=MAX_BAD_FILES),
        sources=_rows(con, _SOURCES, most=MAX_BAD_FILES),
        partitions=_rows(con, _TOPICS, most=MAX_BAD_FILES),
    )


def _lifetimes(con: DuckDBPyConnection, own: list[Row], bucket: int, end_ms: int) -> tuple[int, list[Row]]:
    """How long a bar is, 0 for one block, and the bars."""
    brokers = [row["broker_id"] for row in own]
    if sum(row["blocks"] for row in own) <= MAX_LIFETIMES:
        return 0, _rows(con, _LIFETIMES.format(bars=_EACH_BLOCK), own=brokers, end_ms=end_ms)
    bar = bucket * math.ceil(MAX_BUCKETS / (MAX_LIFETIMES // len(own)))
    return bar, _rows(con, _LIFETIMES.format(bars=_BARS), own=brokers, step=bar, end_ms=end_ms)


def step_ms(span: Span, most: int) -> int:
    """The least step of which `span` touches at most `most`: a round one up to a day, then whole days."""
    least = (span[1] - span[0] + 1) / (most - 1)
    return next((step for step in _STEPS_MS if step >= least), math.ceil(least / _DAY_MS) * _DAY_MS)


def _span(*spans: tuple[int | None, int | None]) -> Span:
    known = [(first, last) for first, last in spans if first is not None and last is not None]
    return min((first for first, _ in known), default=0), max((last for _, last in known), default=0)


def _rows(con: DuckDBPyConnection, query: str, **values: Any) -> list[Row]:
    done = con.execute(query, values)
    names = [column[0] for column in done.description or ()]
    return [dict(zip(names, row, strict=True)) for row in done.fetchall()]
