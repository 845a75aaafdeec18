"""Transactions that nobody ended.

As in Kafka a marker ends a transaction if its epoch is the same or newer: a coordinator that fences the producer, or
that knows KIP-890, ends it in the next epoch. A marker in any copy will do, a lagging replica may not have it yet.
Markers without a transaction are lawful.

The age is from the newest timestamp in the log up to the start of the transaction, to the newest one in the log or of
any broker clock (marker or LogAppendTime) of the same member. So a partition that is quiet on a member without markers
anywhere shows nothing, and where clients stamp records with the time of old events in a log without markers, the age is
too high.
"""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows, make_tables
from pidkeeper.pipeline.segments.carrying import MOST
from pidkeeper.pipeline.segments.tables import JUDGED

HANGING_MS: Final = 1_200_000
"""Kafka's default of `transaction.max.timeout.ms`, 15 minutes, and 5 minutes more: what brokers call late."""

_BEGUN: Final = """
create or replace temp table begun as
with ends as (
    select partition_id, producer_id, max(base_offset) as ended
    from followed
    where is_control and fenced_by is null
    group by all
), open as (
    select followed.*
    from followed
    left join ends using (partition_id, producer_id)
    where opens and fenced_by is null and base_offset > coalesce(ended, -1)
)
select
    producer_id, log_id,
    count(*) as batches,
    arg_min(
        {
            'part': part, 'position': position, 'timestamp_ms': timestamp_ms, 'epoch': epoch,
            'base_offset': base_offset, 'seen_ms': seen_ms, 'missing': missing, 'holes': holes
        },
        {'base_offset': base_offset, 'part': part, 'position': position}
    ) as start
from open
group by producer_id, log_id
"""

_OPEN: Final = """
create or replace temp table open_transactions as
with aged as (
    select
        begun.*,
        now_ms - greatest(start.seen_ms, seen_before) as age_ms,
        least(start.missing + missing_before, $most)::bigint = end_missing
            and start.holes + holes_before = end_holes as whole
    from begun
    join carried on carried.part = start.part
    join log_ends on log_ends.log_id = begun.log_id
)
select
    producer_id, start.epoch as epoch, batches, start.part as part, start.position as position,
    start.timestamp_ms as timestamp_ms, start.base_offset as base_offset, age_ms, whole
from aged
where age_ms > $timeout_ms
"""


def find_begun(con: Any) -> None:
    """The temporary table `begun`: the transactions of each producer in each log that nobody has ended."""
    con.execute(_BEGUN)


def find_open(con: Any, timeout_ms: int = HANGING_MS) -> None:
    """From `begun` the temporary tables `open_transactions`, those of a copy older than `timeout_ms`, and `unended`.

    The latter is by tables.KEPT; the former by tables.OPEN_TRANSACTIONS, with `part` as the place.
    """
    if not has_rows(con, "begun"):
        make_tables(con, {name: JUDGED[name] for name in ("unended", "open_transactions")}, anew=True)
        return
    con.execute("create or replace temp table unended as select distinct producer_id from begun")
    con.execute(_OPEN, {"timeout_ms": timeout_ms, "most": MOST})
