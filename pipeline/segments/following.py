"""The rows of every producer in every log, with what their order shows; what few checks look at closely is marked.

Nearly all producers are spotless, and nothing of their rows but their number is looked at again. Where an earlier audit
found them so, new rows are followed on from where it ended, and the old ones are not read.
"""

from __future__ import annotations

from typing import Any, Final

_FOLLOWED: Final = """
create or replace temp table followed as
with placed as (
    select
        batches.*, parts.log_id, parts.partition_id, parts.sequenced, parts.first_part,
        coalesce(not is_control and base_sequence >= 0, false) as is_data
    from batches
    join (select *, min(part) over (partition by file_id) as first_part from parts) as parts using (part)
), seen as (
    select
        placed.*,
        coalesce(base_offset <= ended.reached, false) as behind,
        greatest(max(epoch) over before_it, ended.newest) as newest,
        coalesce(
            last_value(case when is_data then epoch end ignore nulls) over before_it, ended.latest_epoch
        ) as latest_epoch,
        coalesce(
            last_value(case when is_data then last_sequence end ignore nulls) over before_it, ended.latest_sequence
        ) as latest_sequence,
        coalesce(ended.first_epoch, first_value(epoch) over to_here) as first_epoch
    from placed
    left join ended using (producer_id, log_id)
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
    producer_id, log_id, partition_id, part, first_part, position, base_offset, epoch, base_sequence, last_sequence,
    is_control, is_transactional, opens, broker_clock, sequenced, is_data, timestamp_ms, seen_ms, missing, holes,
    behind,
    case when newest > epoch then newest end as fenced_by,
    coalesce(
        not behind
        and (newest is null or epoch >= newest)
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
    producer_id, epoch, first_part as part, log_id, partition_id,
    count(*) as batches,
    count(*) filter (where not is_control) as data_batches,
    min(timestamp_ms) filter (where not is_control) as data_ms,
    bool_or(not is_control and is_transactional) as inside,
    bool_or(not is_control and not is_transactional) as outside,
    min(timestamp_ms) filter (where fenced_by is null) as from_any,
    max(timestamp_ms) filter (where fenced_by is null and not is_control) as to_any,
    min(timestamp_ms) filter (where fenced_by is null and broker_clock) as from_broker,
    max(timestamp_ms) filter (where fenced_by is null and broker_clock and not is_control) as to_broker,
    max(base_offset) as reached,
    arg_max(last_sequence, base_offset) filter (where is_data) as last_sequence
from followed
group by all
"""

_ENDED: Final = """
create or replace temp table ended as
select
    producer_id, log_id,
    max(reached) as reached,
    min(epoch) as first_epoch,
    max(epoch) as newest,
    max(epoch) filter (where last_sequence is not null) as latest_epoch,
    arg_max(last_sequence, {{'epoch': epoch, 'reached': reached}}) filter (
        where last_sequence is not null
    ) as latest_sequence
from {}
group by all
"""

_NOTHING: Final = """
create or replace temp table ended (
    producer_id bigint, log_id integer, reached bigint, first_epoch smallint, newest smallint, latest_epoch smallint,
    latest_sequence integer
)
"""

_ADDED: Final = """
create or replace temp table producer_epochs as
with grown as (select distinct part from producer_epochs)
select
    producer_id, epoch, part, log_id, partition_id,
    sum(batches)::bigint as batches,
    sum(data_batches)::bigint as data_batches,
    min(data_ms) as data_ms,
    bool_or(inside) as inside,
    bool_or(outside) as outside,
    min(from_any) as from_any,
    max(to_any) as to_any,
    min(from_broker) as from_broker,
    max(to_broker) as to_broker,
    max(reached) as reached,
    arg_max(last_sequence, reached) filter (where last_sequence is not null) as last_sequence
from (from producer_epochs union all by name from {0} semi join grown using (part))
group by all
union all by name
from {0} anti join grown using (part)
"""


def follow(con: Any) -> None:
    """From `batches`, `parts` and `ended` three temporary tables.

    `followed`: every row with its log and partition, and `fenced_by`: the newest epoch of the producer before it in the
    log, if that is above its own; `behind`: whether it lies before what `ended` tells of. `regular`: whether it follows
    the rows of its producer before it in the log exactly as it must. Its epoch is not below theirs, and data begins at
    sequence 0 in an epoch above that of the data before, or behind that data's last sequence in the same epoch. The
    first data of the log may begin anywhere, unless an epoch began before it in the log.

    `suspects`: `producer_id` and `log_id` where a row does not, so that the sequences there have to be looked at. Where
    all rows of a producer in a log are regular, streams.py finds nothing. No epoch falls, so no row is fenced, and each
    line is of one epoch. By induction along a line every jump is 0, for each batch begins behind the one before: so it
    lies just above `top`, does not go back, and its gap is 0. The first batch of a line that began with an epoch begins
    at 0, a gap of 0. That of a line that began with a silence begins at 0 in a new epoch or goes on in the old one,
    again a gap of 0, or is the first of the log. A line that began with the log has no gap. Whatever is null makes a
    row irregular unless streams.py does not look at it.

    `producer_epochs`: one row for each epoch of each producer in each segment, which goes away with the segment; `part`
    is its first, as `first_part` of each row. `batches`, markers included; `data_batches`; `data_ms`, the earliest
    timestamp of data; `inside`, `outside`: whether it wrote data in transactions and outside of them; `reached`, the
    highest base offset, and `last_sequence`, of the data that reached farthest. Without fenced batches: `from_any`, the
    earliest timestamp, and `to_any`, the newest of data; `from_broker`, `to_broker`, the same by brokers' clocks.
    """
    con.execute(_FOLLOWED)
    con.execute(_SUSPECTS)
    con.execute(_EPOCHS)


def begin(con: Any) -> None:
    """The temporary table `ended`, for rows before which there are none."""
    con.execute(_NOTHING)


def end(con: Any, epochs: str) -> None:
    """The temporary table `ended`: from where each producer is followed in each log.

    epochs: a table as `producer_epochs`, of producers whose rows up to there were all regular. Then epochs ascend, and
    the last data is of the highest that has any.
    """
    con.execute(_ENDED.format(epochs))


def add(con: Any, epochs: str) -> None:
    """To `producer_epochs` those that another table of the kind has, of the same rows as `ended`."""
    con.execute(_ADDED.format(epochs))
