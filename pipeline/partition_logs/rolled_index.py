"""What is wrong with the index of a rolled segment, and what of it only shows beside the segments around.

An index has each aborted transaction that has something in its segment, with the markers of those that go on behind it.
Whoever reads committed records leaves out just these. So where two segments meet, the index before and the one behind
have the same transactions across.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.formats.sparse_index import NO_TIME, SparseIndex, decode_sparse_index
from pidkeeper.pipeline.partition_logs.rolled_batches import Columns, Fault, Named

SEGMENT_INDEX: Final = "segment_index"
CROSSINGS: Final = pa.schema(
    [
        ("segment", pa.int32()),
        ("kind", pa.string()),
        ("producer_id", pa.int64()),
        ("first_offset", pa.int64()),
        ("marker_offset", pa.int64()),
    ]
)
"""Of an index, aborted transactions that a segment has the middle of. `kind`: `enters` for one that began before the
segment, `leaves` for one that was aborted behind it. Of the segment itself: `open`, of whom it has data and no end; and
of those whose first marker in it aborts what the index says began in it, `begins`."""

Array = npt.NDArray[Any]


class Aborted(NamedTuple):
    """A transaction, as the index has it."""

    producer_id: int
    first_offset: int
    marker_offset: int


class _Ended(NamedTuple):
    """A control batch that aborts. `first`: of its producer's data since the one before; None for none of either."""

    producer_id: int
    marker_offset: int
    first: int | None
    before: bool
    commits: bool


def look_at_index(
    named: Named, size: int, data: bytes, columns: Columns | None
) -> tuple[list[Fault], list[tuple[Any, ...]]]:
    """Faults, and rows of CROSSINGS.

    size: of all of the index. columns: of a segment that is as it should be; it is compared with no other.
    """
    if size != named.index_size:
        return [_fault(named, f"the index has {size} bytes, and was committed with {named.index_size}")], []
    try:
        index = decode_sparse_index(data)
    except ValueError as error:
        return [_fault(named, str(error))], []
    faults = [_fault(named, detail) for detail in _own_faults(named, index)]
    if faults or columns is None:
        return faults, []
    aborted = [Aborted(*one) for one in zip(index.producer_ids, index.first_offsets, index.marker_offsets, strict=True)]
    ended, left = _transactions(columns)
    faults = [_fault(named, detail) for detail in _wrong_entries(index, columns)]
    faults += [_fault(named, detail) for detail in _wrong_aborted(named, aborted, ended, left)]
    return faults, _crossings(named, aborted, ended, left)


def _fault(named: Named, detail: str) -> Fault:
    return Fault(SEGMENT_INDEX, 0, named.base_offset, None, detail)


def _own_faults(named: Named, index: SparseIndex) -> Iterator[str]:
    """What the record and the index itself show."""
    of = index.base_offset, index.end_offset, index.size
    if of != (named.base_offset, named.end_offset, named.size):
        yield (
            f"it is of offsets {of[0]} to {of[1] - 1} in {of[2]} bytes, and its segment of {named.base_offset} to "
            f"{named.end_offset - 1} in {named.size}"
        )
    if index.positions[0] or index.offsets[0] != index.base_offset:
        yield f"its first entry is of offset {index.offsets[0]} at byte {index.positions[0]}"
    if not (_rises(index.offsets) and _rises(index.positions)):
        yield "its entries do not rise"


def _rises(column: list[int]) -> bool:
    return all(one < following for one, following in pairwise(column))


def _wrong_entries(index: SparseIndex, columns: Columns) -> Iterator[str]:
    """Entries that do not point at a batch of that offset, or have another time before it."""
    batches = columns.batches
    offsets, positions, latest = (
        np.array(column, np.int64) for column in (index.offsets, index.positions, index.latest)
    )
    at = np.minimum(np.searchsorted(batches.position, positions), len(batches.position) - 1)
    times = np.where(batches.is_control, NO_TIME, batches.max_timestamp)
    before = np.maximum.accumulate(np.concatenate([[NO_TIME], times]))[at]
    wrong = (batches.position[at] != positions) | (batches.base_offset[at] != offsets)
    for row in np.flatnonzero(wrong).tolist():
        yield f"an entry says that a batch of offset {offsets[row]} is at byte {positions[row]}, and there is none"
    for row in np.flatnonzero(~wrong & (latest != before)).tolist():
        yield f"an entry has {latest[row]} ms as the latest time before offset {offsets[row]}, not {before[row]} ms"


def _transactions(columns: Columns) -> tuple[list[_Ended], dict[int, int]]:
    """The control batches that abort, or that are the first of their producer; and who has data without an end.

    Of the latter the first offset of this data.
    """
    batches = columns.batches
    rows = np.flatnonzero(batches.is_transactional)
    rows = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    producers, control = batches.producer_id[rows], batches.is_control[rows]
    new, behind_data = _shifted(True, producers[1:] != producers[:-1], rows), _shifted(False, ~control[:-1], rows)
    # Data behind none of its producer, or behind a control batch, begins a transaction here.
    starts = ~control & (new | ~behind_data)
    begun = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), -1))
    ends_before = np.cumsum(control) - control
    first_of = np.maximum.accumulate(np.where(new, np.arange(len(rows)), -1))
    is_first = ends_before == ends_before[first_of]
    offsets = batches.base_offset[rows]
    ended = [
        _Ended(
            int(producers[at]),
            int(offsets[at]),
            int(offsets[begun[at]]) if behind_data[at] and not new[at] else None,
            not is_first[at],
            bool(columns.commits[rows[at]]),
        )
        for at in np.flatnonzero(control & ((columns.commits[rows] == 0) | is_first)).tolist()
    ]
    last = np.append(new[1:], True)[: len(rows)]  # of its producer
    left = {int(producers[at]): int(offsets[begun[at]]) for at in np.flatnonzero(last & ~control).tolist()}
    return ended, left


def _shifted(first: bool, others: Array, rows: Array) -> Array:
    """Flags of all rows from those of all but the first."""
    return np.append(first, others)[: len(rows)].astype(np.bool_)


def _wrong_aborted(named: Named, aborted: list[Aborted], ended: list[_Ended], left: dict[int, int]) -> Iterator[str]:
    here = {one.marker_offset: one for one in aborted if one.marker_offset < named.end_offset}
    if len({(one.producer_id, one.marker_offset) for one in aborted}) < len(aborted):
        yield "it has an aborted transaction twice"
    for marker in ended:
        if marker.commits:
            continue
        entry = here.pop(marker.marker_offset, None)
        if entry is None or entry.producer_id != marker.producer_id:
            yield f"it lacks the transaction of producer {marker.producer_id} aborted at offset {marker.marker_offset}"
        elif entry.first_offset != marker.first and (entry.first_offset >= named.base_offset or marker.before):
            yield _begins(entry, marker.first)
    for one in here.values():
        yield f"by it a transaction of producer {one.producer_id} was aborted at offset {one.marker_offset}: none was"
    for one in (one for one in aborted if one.marker_offset >= named.end_offset):
        # One that began in the segment has data there behind which nothing ends it.
        if one.first_offset >= named.base_offset and one.first_offset != left.get(one.producer_id):
            yield _begins(one, left.get(one.producer_id))


def _begins(entry: Aborted, first: int | None) -> str:
    return (
        f"by it the transaction of producer {entry.producer_id} aborted at offset {entry.marker_offset} began at "
        f"offset {entry.first_offset}, and here it has {'no batch' if first is None else f'its first batch at {first}'}"
    )


def _crossings(
    named: Named, aborted: list[Aborted], ended: list[_Ended], left: dict[int, int]
) -> list[tuple[Any, ...]]:
    number, entries = named.segment, {(one.producer_id, one.marker_offset): one.first_offset for one in aborted}
    rows: list[tuple[Any, ...]] = [(number, "enters", *one) for one in aborted if one.first_offset < named.base_offset]
    rows += [(number, "leaves", *one) for one in aborted if one.marker_offset >= named.end_offset]
    rows += [(number, "open", producer_id, first, None) for producer_id, first in left.items()]
    for one in ended:
        first = entries.get((one.producer_id, one.marker_offset))
        if not one.before and not one.commits and first is not None and first >= named.base_offset:
            rows.append((number, "begins", one.producer_id, first, one.marker_offset))
    return rows
