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
"""

_UNALLOCATED: Final = """
create or replace temp table unallocated as
with placed as (
    select
        producer_id, ids.batches,
        min({
            'partition_id': partition_id, 'base_offset': base_offset, 'part': part, 'position': position,
            'timestamp_ms': timestamp_ms
        }) as place
    from followed
    join ids using (producer_id)
    semi join strangers using (producer_id)
    where producer_id >= $known_from
    group by producer_id, ids.batches
)
select
    producer_id, batches, place.part as part, place.position as position,
    place.timestamp_ms as timestamp_ms, place.base_offset as base_offset
from placed
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


def find_ids(con: Any) -> None:
    """From `producer_epochs` the temporary table `ids`: who there is, with how many batches, and whether it wrote."""
    con.execute(_IDS)


def find_unallocated(con: Any, allocated: Allocated | None) -> None:
    """From `ids` the temporary table `unallocated`, by tables.KEPT. Without an allocation no ID is checked."""
    _with_strangers(con, allocated, _UNALLOCATED)


def count_ids(con: Any, allocated: Allocated | None) -> None:
    """From `ids` the temporary tables `unchecked_ids` and `producer_ids`, by the tables of these names.

    Without an allocation no ID is in `producer_ids`.
    """
    _with_strangers(con, allocated, _UNCHECKED)
    _with_strangers(con, allocated, _PRODUCER_IDS)


def _with_strangers(con: Any, allocated: Allocated | None, query: str) -> None:
    """With `strangers`: the IDs that were not allocated."""
    ids = con.execute("select producer_id from ids").fetchnumpy()["producer_id"]
    strangers = ids[~_is_in(np.asarray(ids, np.int64), allocated)]
    con.register("strangers", pa.table({"producer_id": pa.array(strangers, pa.int64())}))
    con.execute(query, {"known_from": _known_from(allocated)} if "$known_from" in query else None)
    con.unregister("strangers")


def are_unallocated(ids: Array, allocated: Allocated | None) -> Array:
    """Of which IDs `find_unallocated` says so, as booleans."""
    known_from = _known_from(allocated)
    checked = ids >= known_from if known_from is not None else np.zeros(len(ids), np.bool_)
    found: Array = checked & ~_is_in(ids, allocated)
    return found


def _known_from(allocated: Allocated | None) -> int | None:
    return int(allocated.first[0]) if allocated is not None and len(allocated.first) else None


def _is_in(ids: Array, allocated: Allocated | None) -> Array:
    if allocated is None or not len(allocated.first):
        return np.zeros(len(ids), np.bool_)
    run = np.searchsorted(allocated.first, ids, side="right") - 1
    found: Array = (run >= 0) & (allocated.last[np.maximum(run, 0)] >= ids)
    return found
