"""Who is not spotless: the producers of whom any check may have something to say."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.segments.sharing import weigh_epochs
from pidkeeper.pipeline.segments.transactions import find_begun

_DOUBTFUL: Final = """
create or replace temp table doubtful as
select producer_id from suspects
union
select producer_id from followed where behind or fenced_by is not null
union
select producer_id from begun
union
select producer_id from both_ways
union
select producer_id from late
"""


def find_doubtful(con: Any, slack_ms: int) -> None:
    """From the tables of `follow` the temporary table `doubtful`, by tables.KEPT, and those that checks begin with.

    Of all others, the checks find nothing, whatever rows there are before those that were followed: sequences and
    epochs go on as they must, all transactions have ended, and `producer_epochs` has the sums of all rows. IDs that
    nobody was given are not among them.
    """
    find_begun(con)
    weigh_epochs(con, slack_ms)
    con.execute(_DOUBTFUL)
