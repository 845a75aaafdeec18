"""How fast IDs go: `storm`, `quota` and `burn_down`, by the leaders' clocks."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.limits import Limits
from pidkeeper.pipeline.quorum.brokers import HOUR_MS, MINUTE_MS
from pidkeeper.pipeline.quorum.order import JUMPS
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

STORM_SQL: Final = f"""
insert into findings by name
with moments as (select broker_id, unnest(seam_ms) as ms from brokers),
over_seams as (
    select broker_id, ms, count(*) over (
        partition by broker_id order by ms range between {MINUTE_MS - 1} preceding and current row) as within
    from moments
),
peaks as (
    select broker_id, max({{'blocks': within, 'before': -ms}}) as peak from (
        select broker_id, within, ms from over_seams
        union all select broker_id, minute_blocks, minute_ms from brokers
    ) group by broker_id
),
totals as (
    select broker_id, sum(blocks)::bigint as blocks, min(first_id) as first_id, max(last_id) as last_id
    from brokers group by broker_id
),
beside as (
    select *, case when count(*) over () > 1 then (sum(blocks) over () - blocks) / (count(*) over () - 1) end as others
    from totals join peaks using (broker_id)
)
select 'storm' as "check", 'warning' as severity, format('broker {{}}', broker_id) as subject, first_id, last_id,
    broker_id, -peak.before as timestamp_ms,
    format('broker {{}} took {{}} blocks, {{}} of them within one minute{{}}; is it in a restart loop?', broker_id,
        blocks, peak.blocks, case when others is null then ''
        else printf('; the others took %.1f on average', others) end) as detail
from beside
where peak.blocks > $per_minute or (blocks >= $least and blocks > $ratio * others)
"""
"""Brokers above `storm_blocks_per_minute` in some minute, or `storm_ratio` times the mean of the others."""
QUOTA_SQL: Final = """
insert into findings by name
with carried as (
    select *, coalesce(sum(blocks) over before, 0) as taken from brokers
    window before as (partition by broker_id order by shard rows between unbounded preceding and 1 preceding)
),
lowest as (
    select *, min(taken + bucket_low) over before as low, max(to_ms) over before as reached_ms from carried
    window before as (partition by broker_id order by shard rows between unbounded preceding and 1 preceding)
),
used as (
    select broker_id, bucket_used as used, bucket_peak as block from brokers
    union all
    select broker_id, round(taken + bucket_high_level - low)::bigint, bucket_high from lowest
    where from_ms >= reached_ms - $skew
),
peaks as (
    select broker_id, max({'used': used, 'ms': block.timestamp_ms, 'first_id': block.first_id,
        'last_id': block.last_id}) as peak
    from used group by broker_id
)
select 'quota' as "check", 'warning' as severity, format('broker {}', broker_id) as subject, broker_id,
    peak.first_id as first_id, peak.last_id as last_id, peak.ms as timestamp_ms,
    format('broker {} had used {} of the burst of {} blocks of its quota, {} blocks a second: the members refuse it '
        || 'above', broker_id, peak.used, $burst, $rate) as detail
from peaks where peak.used >= $due
"""
"""Brokers that used up `quota_share` of the burst of `broker_allocations`; one finding each, at the peak. Over the seam
of two shards only where the clock went on, so that a time that is none makes no rate."""
CLOCK_SKEW_MS: Final = 1000
_DAY_MS: Final = 86_400_000
_DAY_HOURS: Final = _DAY_MS // HOUR_MS
_YEAR_DAYS: Final = 365.25
_MOST_SHOWN: Final = 9e18
"""A figure that surely is one of int64, whatever files say."""
_LAST_DATED_DAYS: Final = 365_250.0
"""A thousand years: farther dates say nothing, and those above the year 9999 have no form."""
BURN_DOWN_SQL: Final = f"""
insert into findings by name
with spans as (
    select first_ms, last_ms, ids::double as ids from shards
    union all
    select case when is_time(timestamp_ms) then timestamp_ms end as ms, ms, (last_id::hugeint - first_id + 1)::double
    from blocks_adrift
),
given as (
    select hour, ids from hours
    union all
    select timestamp_ms // {HOUR_MS}, (last_id::hugeint - first_id + 1)::double from blocks_adrift
    where is_time(timestamp_ms)
),
ends as (select max(last_ms) as newest, min(first_ms) as oldest, sum(ids) as ids from spans),
day as (
    select sum(g.ids) as ids from given g, ends where g.hour >= ends.newest // {HOUR_MS} - {_DAY_HOURS}
),
next as (
    select max(id) as id from (
        select max(top.last_id) + 1 as id from shards
        union all select max(last_id) + 1 from blocks_adrift
        union all select max(next_producer_id) from snapshots where not list_contains($foreign, member_id)
        union all select max(next_producer_id) from records
        where committed and record_type in {JUMPS} and not list_contains($foreign, member_id)
    )
),
rates as (
    select newest, next.id as next_id, {MAX_PRODUCER_ID} - next.id as left_over,
        case when newest > oldest then ends.ids * {_DAY_MS} / (newest - oldest) end as whole,
        case when newest > oldest then day.ids * {_DAY_MS} / least(newest - oldest, {_DAY_MS}) end as last_day
    from ends, day, next where newest is not null
),
dated as (select *, left_over / greatest(whole, last_day) as days from rates)
select 'burn_down' as "check", case when days <= $horizon then 'warning' else 'note' end as severity,
    format('{{:,}} IDs left', left_over) as subject, next_id as first_id, {MAX_PRODUCER_ID - 1} as last_id,
    newest as timestamp_ms, format('{{:,}} IDs are left; {{}}', left_over, case
        when days is null then 'all blocks are of one moment, so there is no rate'
        else format('{{:,}} a day go on the last day and {{:,}} over the whole span: none is left {{}}',
            least(round(last_day), {_MOST_SHOWN})::bigint, least(round(whole), {_MOST_SHOWN})::bigint,
            case when days <= {_LAST_DATED_DAYS}
                then 'on ' || coalesce(day_of(least(newest + days * {_DAY_MS}, {_MOST_SHOWN})::bigint), 'no day')
                else format('in {{:,}} years', least(round(days / {_YEAR_DAYS}), {_MOST_SHOWN})::bigint) end)
        end) as detail
from dated
"""
"""IDs left, how fast they go, and until when (KIP-730, "Motivation"): the rate is the higher one of the last day, in
whole hours, and of the whole span."""


def conclude(con: Any, limits: Limits, foreign: list[int]) -> None:
    """Findings of the three."""
    con.execute(
        STORM_SQL,
        {
            "per_minute": limits.storm_blocks_per_minute,
            "least": limits.storm_least_blocks,
            "ratio": limits.storm_ratio,
        },
    )
    due = limits.quota_share * limits.quota_burst
    told = {"burst": limits.quota_burst, "rate": f"{limits.quota_per_second:g}"}
    con.execute(QUOTA_SQL, told | {"due": due, "skew": CLOCK_SKEW_MS})
    con.execute(BURN_DOWN_SQL, {"horizon": limits.horizon_days, "foreign": foreign})
