"""Producer IDs that nobody was given, and how many of those that brokers were given ever wrote."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


class Allocated(msgspec.Struct, frozen=True):
    """The IDs that were given, as runs from `first` to `last` inclusive: int64, sorted, none touches another."""

    first: Array
    last: Array


_IDS: Final = """
create or replace temp table ids as
select producer_id, sum(batches)::bigint as batches, sum(data_batches) > 0 as wrote
from producer_epochs
group by producer_id
order by producer_id
"""

_UNALLOCATED: Final = """
create or replace temp table unallocated as
with outside as (
    select * from ids join strangers using (producer_id) where producer_id >= $known_from
), placed as (
    select
        producer_id, outside.batches,
        min({
            'partition_id': followed.partition_id, 'base_offset': base_offset, 'part': part, 'position': position,
            'timestamp_ms': followed.timestamp_ms
        }) as place
    from followed
    join outside using (producer_id)
    group by producer_id, outside.batches
)
select
    producer_id, batches, place.partition_id as partition_id, file_id, place.position as position,
    place.timestamp_ms as timestamp_ms, place.base_offset as base_offset
from placed
join carried on carried.part = place.part
"""

_UNCHECKED: Final = """
create or replace temp table unchecked_ids as
select $known_from::bigint as known_from, count(*) as ids, min(producer_id) as first_id, max(producer_id) as last_id
from strangers
where producer_id < coalesce($known_from, producer_id + 1)
having count(*) > 0
"""

_PRODUCER_IDS: Final = """
create or replace temp table producer_ids as
select producer_id from ids anti join strangers using (producer_id) where wrote order by producer_id
"""


def find_unallocated(con: Any, allocated: Allocated | None) -> None:
    """The temporary tables `unallocated`, `unchecked_ids` and `producer_ids`, by the tables of these names.

    Without an allocation no ID is checked, and no ID is in `producer_ids`.
    """
    con.execute(_IDS)
    known_from = int(allocated.first[0]) if allocated is not None and len(allocated.first) else None
    ids = con.execute("select producer_id from ids order by producer_id").fetchnumpy()["producer_id"]
    strangers = ids[~_is_in(np.asarray(ids, np.int64), allocated)]
    con.register("strangers", pa.table({"producer_id": pa.array(strangers, pa.int64())}))
    for query in (_UNALLOCATED, _UNCHECKED):
        con.execute(query, {"known_from": known_from})
    con.execute(_PRODUCER_IDS)
    con.unregister("strangers")


def _is_in(ids: Array, allocated: Allocated | None) -> Array:
    if allocated is None or not len(allocated.first):
        return np.zeros(len(ids), np.bool_)
    run = np.searchsorted(allocated.first, ids, side="right") - 1
    found: Array = (run >= 0) & (allocated.last[np.maximum(run, 0)] >= ids)
    return found
