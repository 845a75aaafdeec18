"""How many of the IDs that each broker was given ever wrote, in the segments that were given; retention removes others.

Blocks are many and IDs that wrote are few: each piece of the blocks is asked which of the IDs it has, and none is
sorted but by itself.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.protocol.ids import OWN

PIECE_BLOCKS: Final = 1 << 20
"""Of blocks in memory at once: 20 MiB."""

Longs = npt.NDArray[np.int64]

_WROTE: Final = "select producer_id from producer_ids order by producer_id"
_GIVEN: Final = "select first_id, last_id, broker_id::bigint as broker_id from allocated_blocks"
_SHARES: Final = """
insert into findings by name
with given as (
    select
        broker_id, count(*) as blocks, sum(last_id::hugeint - first_id + 1) as ids,
        min(first_id) as first_id, max(last_id) as last_id
    from allocated_blocks
    group by broker_id
)
select
    'id_burner' as check, 'note' as severity,
    case when broker_id = $own then 'the quorum''s own blocks, for transactions' else 'broker ' || broker_id end
        as subject,
    first_id, last_id, broker_id,
    format(
        '{} of {} IDs in {} blocks wrote, {} percent, in the segments that were given',
        used, ids::varchar, blocks, round(used * 100.0::double / ids, 2)
    ) as detail
from given
join wrote using (broker_id)
"""


def conclude(con: Any) -> None:
    """Insert a note for each broker of which an ID wrote into `findings`.

    Needs `producer_ids`, and `allocated_blocks`: `first_id`, `last_id` (inclusive) and `broker_id` of each block.
    """
    owners = _Owners(np.asarray(con.sql(_WROTE).fetchnumpy()["producer_id"], np.int64))
    for piece in con.sql(_GIVEN).to_arrow_reader(PIECE_BLOCKS):
        owners.look(*(column.to_numpy() for column in piece.columns))
    brokers, used = owners.counts()
    con.register("wrote", pa.table({"broker_id": brokers, "used": used}))
    con.execute(_SHARES, {"own": OWN})
    con.unregister("wrote")


class _Owners:
    """Whose each ID is: of blocks that overlap, that of the one that reaches farthest. ids: sorted."""

    def __init__(self, ids: Longs) -> None:
        self._ids = ids
        self._reach = np.full(len(ids), -1, np.int64)
        self._broker = np.zeros(len(ids), np.int64)

    def look(self, first: Longs, last: Longs, broker: Longs) -> None:
        """At some blocks more."""
        if not len(first):
            return
        if np.any(first[1:] < first[:-1]):
            order = np.argsort(first, kind="stable")
            first, last, broker = first[order], last[order], broker[order]
        reach = np.maximum.accumulate(last)
        farthest = np.maximum.accumulate(np.where(last >= reach, np.arange(len(last)), 0))
        within = slice(np.searchsorted(self._ids, first[0]), np.searchsorted(self._ids, reach[-1], side="right"))
        ids = self._ids[within]
        block = farthest[np.searchsorted(first, ids, side="right") - 1]
        found = (last[block] >= ids) & (last[block] > self._reach[within])
        self._reach[within] = np.where(found, last[block], self._reach[within])
        self._broker[within] = np.where(found, broker[block], self._broker[within])

    def counts(self) -> tuple[Longs, Longs]:
        """Brokers, and how many IDs of each there are."""
        return np.unique(self._broker[self._reach >= 0], return_counts=True)
