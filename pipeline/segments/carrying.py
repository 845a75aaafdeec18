"""What the parts of a log before each of its parts leave behind: offsets missing, holes, the newest time.

Parts count what is missing between their own batches. What is missing between two parts counts in the later one, from
the highest offset of all before it, and nothing does before the first batch of the log. What no broker leaves is
counted more simply: files that overlap in their offsets, each as if it were alone; a batch of a negative offset at the
start of a part, as if it stood behind the part's seam.
"""

from __future__ import annotations

from typing import Any, Final

MOST: Final = 1 << 62
"""Offsets that are said to be missing at most: headers may say anything, and sums must not overflow."""

_CARRY: Final = """
create or replace temp table carried as
with seamed as (
    select
        part, file_id, log_id, partition_id, topic_id, member_id, sequenced, whole, missing, holes, newest_ms, clock_ms,
        case
            when first_base > max(reach) over before_it then first_base - max(reach) over before_it - 1
            else 0
        end as seam
    from parts
    window before_it as (partition by log_id order by part rows between unbounded preceding and 1 preceding)
)
select
    *,
    seam::hugeint + coalesce(sum(seam::hugeint + missing) over before_it, 0) as missing_before,
    coalesce(sum(holes) over before_it, 0)::bigint as holes_before,
    max(newest_ms) over before_it as seen_before
from seamed
window before_it as (partition by log_id order by part rows between unbounded preceding and 1 preceding)
"""

_ENDS: Final = """
create or replace temp table log_ends as
with logs as (
    select
        log_id,
        any_value(member_id) as member_id,
        least(max(missing_before + missing), $most)::bigint as end_missing,
        max(holes_before + holes) as end_holes,
        max(newest_ms) as newest_ms,
        max(clock_ms) as clock_ms
    from carried
    group by log_id
)
select
    log_id, end_missing, end_holes,
    greatest(newest_ms, max(clock_ms) over (partition by member_id)) as now_ms
from logs
"""


def carry(con: Any) -> None:
    """From the table `parts` the temporary tables `carried`, a row for each part, and `log_ends`, for each log.

    `seam`: offsets missing just before the part's first batch. `missing_before`, `holes_before`, `seen_before`: what
    its running figures have to be raised by, the seam included. `now_ms`: the newest time in a log, or of any clock of
    a broker on the same member.
    """
    con.execute(_CARRY)
    con.execute(_ENDS, {"most": MOST})
