"""The rows of every producer in every log, with what their order shows; what few checks look at closely is marked.

Nearly all producers are spotless, and nothing of their rows but their number is looked at again.
"""

from __future__ import annotations

from typing import Any, Final

_FOLLOWED: Final = """
create or replace temp table followed as
with placed as (
    select
        batches.*, parts.log_id, parts.partition_id, parts.sequenced,
        coalesce(not is_control and base_sequence >= 0, false) as is_data
    from batches
    join parts using (part)
), seen as (
    select
        *,
        max(epoch) over before_it as newest,
        last_value(case when is_data then epoch end ignore nulls) over before_it as latest_epoch,
        last_value(case when is_data then last_sequence end ignore nulls) over before_it as latest_sequence,
        first_value(epoch) over to_here as first_epoch
    from placed
    window
        before_it as (
            partition by producer_id, log_id order by base_offset, part, position
            rows between unbounded preceding and 1 preceding
        ),
        to_here as (
            partition by producer_id, log_id order by base_offset, part, position
            rows between unbounded preceding and current row
        )
)
select
    producer_id, log_id, partition_id, part, position, base_offset, epoch, base_sequence, last_sequence,
    is_control, is_transactional, opens, broker_clock, sequenced, is_data, timestamp_ms, seen_ms, missing, holes,
    case when newest > epoch then newest end as fenced_by,
    coalesce(
        (newest is null or epoch >= newest)
        and (
            not is_data
            or case
                when epoch > newest then base_sequence = 0
                when latest_epoch is null then base_sequence = 0 or epoch = first_epoch
                when latest_epoch = epoch then base_sequence = (latest_sequence::bigint + 1) & 2147483647
                else base_sequence = 0
            end
        ),
        false
    ) as regular
from seen
"""

_SUSPECTS: Final = """
create or replace temp table suspects as
select producer_id, log_id from followed group by all having bool_or(sequenced and not regular)
"""

_EPOCHS: Final = """
create or replace temp table producer_epochs as
select
    producer_id, epoch, log_id, partition_id,
    min(part) as part,
    count(*) as batches,
    count(*) filter (where not is_control) as data_batches,
    min(timestamp_ms) filter (where not is_control) as data_ms,
    bool_or(not is_control and is_transactional) as inside,
    bool_or(not is_control and not is_transactional) as outside,
    min(timestamp_ms) filter (where fenced_by is null) as from_any,
    max(timestamp_ms) filter (where fenced_by is null and not is_control) as to_any,
    min(timestamp_ms) filter (where fenced_by is null and broker_clock) as from_broker,
    max(timestamp_ms) filter (where fenced_by is null and broker_clock and not is_control) as to_broker
from followed
group by all
"""


def follow(con: Any) -> None:
    """From `batches` and `parts` three temporary tables.

    `followed`: every row with its log and partition, and `fenced_by`: the newest epoch of the producer before it in the
    log, if that is above its own. `regular`: whether it follows the rows of its producer before it in the log exactly
    as it must. Its epoch is not below theirs, and data begins at sequence 0 in an epoch above that of the data before,
    or behind that data's last sequence in the same epoch. The first data of the log may begin anywhere, unless an epoch
    began before it in the log.

    `suspects`: `producer_id` and `log_id` where a row does not, so that the sequences there have to be looked at. Where
    all rows of a producer in a log are regular, streams.py finds nothing. No epoch falls, so no row is fenced, and each
    line is of one epoch. By induction along a line every jump is 0, for each batch begins behind the one before: so it
    lies just above `top`, does not go back, and its gap is 0. The first batch of a line that began with an epoch begins
    at 0, a gap of 0. That of a line that began with a silence begins at 0 in a new epoch or goes on in the old one,
    again a gap of 0, or is the first of the log. A line that began with the log has no gap. Whatever is null makes a
    row irregular unless streams.py does not look at it.

    `producer_epochs`: one row for each epoch of each producer in each log. `part`, the first; `batches`,
    markers included; `data_batches`;
    `data_ms`, the earliest timestamp of data; `inside`, `outside`: whether it wrote data in transactions and outside of
    them. Without fenced batches: `from_any`, the earliest timestamp, and `to_any`, the newest of data; `from_broker`,
    `to_broker`, the same by brokers' clocks.
    """
    con.execute(_FOLLOWED)
    con.execute(_SUSPECTS)
    con.execute(_EPOCHS)
