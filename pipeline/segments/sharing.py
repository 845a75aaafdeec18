"""Producer IDs that two clients use. One finding an id, by the strongest sign there is:

1. the same id writes both inside of transactions and outside of them; a client does one or the other all its life;
2. in one partition and epoch a stream begins at sequence 0 again (see streams.py);
3. an epoch is still written to in one partition long after a newer epoch of the same id began in another. In one and
   the same partition that is `fenced_epoch`.

The third sign compares times, so it needs the broker's clock: of markers, and of batches in topics with LogAppendTime.
Where only clients' timestamps show it, it is a note, because a timestamp may be that of the event recorded, and a
producer that reprocesses old events is then lawful.

What headers can not tell: two idempotent clients with the same id, both in epoch 0 and in different partitions, look
exactly like one client. That an id was given twice is seen for sure in the allocations alone.
"""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows, make_tables
from pidkeeper.pipeline.segments.tables import KEPT

EPOCH_SLACK_MS: Final = 900_000
"""How long a batch of an old epoch may be on its way: a producer gives up after `delivery.timeout.ms`, 2 minutes by
default; brokers' clocks may differ."""

_BOTH_WAYS: Final = """
create or replace temp table both_ways as
select producer_id from producer_epochs group by producer_id having bool_or(inside) and bool_or(outside)
"""

_LATE: Final = """
create or replace temp table late as
with epochs as (
    select
        producer_id, epoch, min(from_any) as from_any, min(from_broker) as from_broker,
        max(to_any) as to_any, max(to_broker) as to_broker
    from producer_epochs
    where from_any is not null
    group by producer_id, epoch
), overtaking as (
    select
        producer_id, epoch, to_any, to_broker,
        min(from_any) over above as from_any,
        min(from_broker) over above as from_broker,
        max(epoch) over above as newer
    from epochs
    window above as (
        partition by producer_id order by epoch desc rows between unbounded preceding and 1 preceding
    )
)
select
    producer_id, epoch, newer,
    coalesce(to_broker - from_broker > $slack_ms, false) as proven,
    case when proven then from_broker else from_any end as since_ms,
    case when proven then to_broker else to_any end as timestamp_ms
from overtaking
where to_broker - from_broker > $slack_ms or to_any - from_any > $slack_ms
"""

_MIXED: Final = """
create or replace temp table mixed as
with data as (
    select
        producer_id, is_transactional, base_offset, part, position,
        {'base_offset': base_offset, 'part': part, 'position': position, 'timestamp_ms': timestamp_ms} as place
    from followed
    semi join both_ways using (producer_id)
    where not is_control
), firsts as (
    select
        producer_id,
        arg_min(place, {'base_offset': base_offset, 'part': part, 'position': position})
            filter (where is_transactional) as inside,
        arg_min(place, {'base_offset': base_offset, 'part': part, 'position': position})
            filter (where not is_transactional) as outside
    from data
    group by producer_id
)
select
    producer_id,
    inside.part as inside_part, inside.position as inside_position,
    inside.base_offset as inside_offset, inside.timestamp_ms as inside_ms,
    outside.part as outside_part, outside.position as outside_position,
    outside.base_offset as outside_offset, outside.timestamp_ms as outside_ms
from firsts
"""

_OVERTAKEN: Final = """
create or replace temp table overtaken as
with met as (
    select
        producer_id, epoch, newer, proven, since_ms, timestamp_ms,
        {'base_offset': base_offset, 'part': part, 'position': position} as place
    from followed
    join late using (producer_id, epoch, timestamp_ms)
    where not is_control and fenced_by is null and (not proven or broker_clock)
), lasts as (
    select producer_id, epoch, newer, proven, since_ms, timestamp_ms, max(place) as place
    from met
    group by all
)
select
    producer_id, epoch, newer, proven, since_ms, place.part as part, place.position as position,
    timestamp_ms, place.base_offset as base_offset
from lasts
"""


def weigh_epochs(con: Any, slack_ms: int = EPOCH_SLACK_MS) -> None:
    """From `producer_epochs` the temporary tables `both_ways` and `late`: who shows the first and the third sign."""
    con.execute(_BOTH_WAYS)
    con.execute(_LATE, {"slack_ms": slack_ms})


def find_shared(con: Any) -> None:
    """From the tables of `weigh_epochs` the temporary tables `mixed` and `overtaken`, by tables.KEPT."""
    for source, name, query in (("both_ways", "mixed", _MIXED), ("late", "overtaken", _OVERTAKEN)):
        if has_rows(con, source):
            con.execute(query)
        else:
            make_tables(con, {name: KEPT[name]}, anew=True)
