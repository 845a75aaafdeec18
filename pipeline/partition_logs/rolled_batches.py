"""What is wrong with a rolled segment: against the record that names it, and what members still tell of its batches.

Pure: the columns of its headers against numbers. A segment has each offset from its first to its last once, so what is
missing between two batches is told once, and nothing more of those offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import from_blob
from pidkeeper.pipeline.formats.record_batch import MARKERS, Chunk, Problem
from pidkeeper.pipeline.segments.read import Batches

SEGMENTS: Final = "segments"
KNOWN: Final = pa.schema(
    [
        ("base_offset", pa.int64()),
        ("records", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("transactional", pa.bool_()),
        ("committed", pa.bool_()),
    ]
)
"""What members tell of a batch, null where they do not; of a marker whether it commits, null of a batch of data."""
ORDER: Final = "offset_order"
"""A problem that shows in the offsets, which are looked at here."""

Array = npt.NDArray[Any]


class Named(msgspec.Struct, frozen=True, array_like=True):
    """What the quorum says of a segment. Sizes are in bytes; known: a blob of KNOWN, empty for none."""

    segment: int
    base_offset: int
    end_offset: int
    size: int
    index_size: int
    max_timestamp: int
    known: bytes


class Fault(NamedTuple):
    """What is wrong, and where in the segment."""

    check: str
    position: int
    base_offset: int
    producer_id: int | None
    detail: str


class Columns(NamedTuple):
    """The headers of a segment, and of its control batches whether they commit: 1, 0, or -1 for none of these."""

    batches: Batches
    commits: Array

    @property
    def offsets(self) -> Array:
        """How many each batch takes."""
        return self.batches.last_offset - self.batches.base_offset + 1


def columns_of(chunk: Chunk) -> Columns | None:
    """Those of all batches of a segment, None where there is none."""
    if not len(chunk):
        return None
    batches = Batches(chunk)
    commits = np.full(len(chunk), -1, np.int8)
    for marker in chunk.markers:
        commits[marker.row] = marker.type if marker.type in MARKERS else -1
    return Columns(batches, commits)


def find_faults(named: Named, size: int, problems: Sequence[Problem], columns: Columns | None) -> Iterator[Fault]:
    """Of a segment of `size` bytes with these problems and batches."""
    if size != named.size:
        detail = f"the object has {size} bytes, and was committed with {named.size}"
        yield Fault(SEGMENTS, 0, named.base_offset, None, detail)
    for problem in problems:
        if problem.kind != ORDER:
            yield Fault(SEGMENTS, problem.position, named.base_offset, None, f"{problem.kind}: {problem.detail}")
    if columns is None:
        return
    yield from _uncovered(named, columns, [one.position for one in problems if one.kind != ORDER])
    yield from _counts(columns)
    yield from _latest(named, columns, whole=not problems)
    if named.known:
        yield from _unlike(from_blob(named.known), columns)


def _uncovered(named: Named, columns: Columns, problems: Sequence[int]) -> Iterator[Fault]:
    """Offsets that no batch has or two have. Where something cannot be read, that is told, and explains it."""
    batches = columns.batches
    due = np.concatenate([[named.base_offset], batches.last_offset + 1])
    starts = np.append(batches.base_offset, named.end_offset)
    # Behind the last batch there is no position: nothing else stands there.
    positions = np.append(batches.position, np.iinfo(np.int64).max)
    odd = np.searchsorted(np.array(problems, np.int64), positions)
    explained = np.diff(odd, prepend=0) > 0
    for at in np.flatnonzero((starts != due) & ~explained).tolist():
        offset, expected = int(starts[at]), int(due[at])
        what = f"a batch begins at offset {offset}" if at < len(batches.position) else f"it should reach up to {offset}"
        why = "records are missing" if offset > expected else "offsets are in it twice"
        place = int(batches.position[min(at, len(batches.position) - 1)])
        detail = f"{what}, and what stands before ends at {expected}: {why}"
        yield Fault(SEGMENTS, place, min(offset, expected), None, detail)


def _counts(columns: Columns) -> Iterator[Fault]:
    batches = columns.batches
    for at in np.flatnonzero(batches.record_count != columns.offsets).tolist():
        detail = f"a batch of {batches.record_count[at]} records takes {columns.offsets[at]} offsets"
        yield _fault(columns, at, detail)


def _latest(named: Named, columns: Columns, *, whole: bool) -> Iterator[Fault]:
    """Of a segment without a timestamp the record has a time of its own."""
    found = int(columns.batches.max_timestamp[~columns.batches.is_control].max(initial=-1))
    if whole and found >= 0 and found != named.max_timestamp:
        detail = f"its latest record is of {found} ms, and it was committed with {named.max_timestamp}"
        yield Fault(SEGMENTS, 0, named.base_offset, None, detail)


_COMPARED: Final = (
    ("records", "records"),
    ("producer_id", "producer"),
    ("producer_epoch", "epoch"),
    ("base_sequence", "sequence"),
    ("max_timestamp", "latest timestamp"),
    ("transactional", "transactional"),
    ("committed", "commit"),
)


def _unlike(known: Any, columns: Columns) -> Iterator[Fault]:
    """Batches that are something else than members tell."""
    batches = columns.batches
    offsets = known["base_offset"].to_numpy()
    order = np.argsort(batches.base_offset, kind="stable")
    at = order[np.minimum(np.searchsorted(batches.base_offset[order], offsets), len(order) - 1)]
    there = batches.base_offset[at] == offsets
    yield from _elsewhere(offsets[~there], columns)
    found = _compared(columns)
    wrong = {name: there & _differs(known[name], found[name][at]) for name, _ in _COMPARED}
    is_marker = known["committed"].is_valid().to_numpy(zero_copy_only=False)
    kind = there & (is_marker != batches.is_control[at])
    for row in np.flatnonzero(np.logical_or.reduce([kind, *wrong.values()])).tolist():
        if kind[row]:
            what = "a control batch" if batches.is_control[at[row]] else "no control batch"
            detail = f"it is {what}"
        else:
            named = [(name, word) for name, word in _COMPARED if wrong[name][row]]
            detail = "; ".join(f"{word} {_text(found[name][at[row]])}, not {known[name][row]}" for name, word in named)
        yield _fault(columns, int(at[row]), f"it has something else than the quorum let join there: {detail}")


def _elsewhere(offsets: Array, columns: Columns) -> Iterator[Fault]:
    """Where a batch should begin, and another one has the offset within it."""
    batches = columns.batches
    for offset in offsets.tolist():
        holds = np.flatnonzero((batches.base_offset < offset) & (batches.last_offset >= offset))
        if len(holds):
            yield _fault(columns, int(holds[0]), f"the quorum let a batch join at offset {offset}, which is within it")


def _compared(columns: Columns) -> dict[str, Array]:
    batches = columns.batches
    nobody = batches.producer_id < 0
    return {
        "records": columns.offsets,
        # Without an ID all three are -1, for some clients write a sequence then.
        **{
            name: np.where(nobody, -1, values.astype(np.int64))
            for name, values in (
                ("producer_id", batches.producer_id),
                ("producer_epoch", batches.epoch),
                ("base_sequence", batches.base_sequence),
            )
        },
        "max_timestamp": batches.max_timestamp,
        "transactional": batches.is_transactional,
        "committed": columns.commits,
    }


def _differs(known: Any, found: Array) -> Array:
    """What nobody tells is no difference."""
    given = known.is_valid().to_numpy(zero_copy_only=False)
    values = known.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    different: Array = given & (values != found.astype(np.int64))
    return different


def _text(value: Any) -> str:
    """Of flags, which are int8 where there is a third state."""
    return str(bool(value)) if isinstance(value, np.bool_ | np.int8) else str(value)


def _fault(columns: Columns, at: int, detail: str) -> Fault:
    batches = columns.batches
    producer = int(batches.producer_id[at])
    place = int(batches.position[at]), int(batches.base_offset[at])
    return Fault(SEGMENTS, *place, producer if producer >= 0 else None, detail)
