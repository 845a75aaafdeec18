"""The partition logs of a snapshot: each batch with its object, each marker, and whether they lie one behind another.

`snapshots.logs_image` has the layout. A snapshot has no producer of a batch but where the batch is among the last ones
that the log keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import evidence
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.quorum.partitions.groups import counted, kept_in
from pidkeeper.pipeline.quorum.partitions.packed import OBJECTS, Columns, columns, per_log, places_of
from pidkeeper.pipeline.quorum.partitions.rolled import Segment, saved_segments, shape_of, tail_starts
from pidkeeper.pipeline.quorum.partitions.tables import (
    COORDINATES,
    LOG_FAULTS,
    MARKERS,
    MAX_FAULTS,
    PLACES,
    ROLLS,
    VIEWS,
)
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.logs_image import LogsImage

_BATCHES: Final = {
    "base_offset": "<i8", "key": "<i8", "position": "<u4", "size": "<u4", "records": "<u4", "max_timestamp": "<i8"
}  # fmt: skip
_MARKERS: Final = {
    "base_offset": "<i8", "producer_id": "<i8", "producer_epoch": "<i2", "committed": "i1", "timestamp_ms": "<i8"
}  # fmt: skip
"""The columns by name, and what each number is stored as."""


class Copy(NamedTuple):
    """Whose copy it is: the numbers of the member, of the file and of the view."""

    member_id: int
    file_id: int
    view: int


def saved_logs(image: StateImage, copy: Copy) -> Iterator[Named]:
    """Evidence by `tables.TABLES`, of a snapshot that has partition logs. Raises ValueError for what cannot be read."""
    logs = image.logs
    if logs is None:
        return
    numbers = [log.number for log in logs.logs]
    batches = per_log(numbers, [log.columns for log in logs.logs], _BATCHES)
    markers = per_log(numbers, [log.markers for log in logs.logs], _MARKERS)
    objects, segments = columns(logs.objects, OBJECTS), saved_segments(logs)
    store_id = None if logs.store_id is None else str(logs.store_id)
    groups, offsets = counted(kept_in(image.groups))
    view = {"from_index": image.index, "to_index": image.index, "followed": False, "store_id": store_id}
    view |= {"groups": groups, "group_offsets": offsets}
    yield "views", _rows(VIEWS, copy, 1, **view)
    for name, lasts in (("rolls", logs.rolls), ("commits", logs.commits)):
        rows = [(*copy[:2], image.index, None, one.broker_id, one.broker_epoch, one.number) for one in lasts]
        yield from evidence(name, ROLLS, rows)
    yield from _places(logs, segments, image.index, copy)
    yield from _coordinates(logs, batches, objects, image.index, copy)
    if len(markers["log"]):
        count = len(markers["log"])
        yield (
            "markers",
            _rows(MARKERS, copy, count, **markers | {"committed": markers["committed"] != 0}, index=image.index),
        )
    starts = tail_starts(logs, segments)
    yield from _faults(logs, batches, markers, starts, image.index, copy)


def _places(logs: LogsImage, segments: Sequence[Segment], index: int, copy: Copy) -> Iterator[Named]:
    named = [(topic, number) for topic in logs.topics for number in topic.logs]
    if named:
        yield (
            "places",
            _rows(
                PLACES,
                copy,
                len(named),
                log=[number for _, number in named],
                topic=[topic.name for topic, _ in named],
                partition=[number - topic.first_log for topic, number in named],
                created_index=index,
            ),
        )
    yield from shape_of(logs, segments, (copy.member_id, copy.file_id, index, None), copy.view).rows()


def _coordinates(logs: LogsImage, batches: Columns, objects: Columns, index: int, copy: Copy) -> Iterator[Named]:
    count = len(batches["log"])
    if not count:
        return
    named = _named(logs, objects).take(places_of(objects["key"], batches["key"]))
    kept = {name: column for name, column in batches.items() if name != "key"}
    objects_of = {name: named[name] for name in named.column_names}
    yield (
        "coordinates",
        _rows(COORDINATES, copy, count, **kept, **objects_of, **_producers(logs, batches), index=index),
    )


def _named(logs: LogsImage, objects: Columns) -> Any:
    """The objects as a table, with the uuid of the founding; null where the snapshot does not have it."""
    foundings = pa.array([str(one) for one in logs.foundings], pa.string())
    number = objects["founding"]
    named = {name: objects[name] for name in ("broker_id", "broker_epoch", "number", "object_size")}
    return pa.table(named | {"founding": foundings.take(pa.array(number, mask=number >= len(foundings)))})


def _producers(logs: LogsImage, batches: Columns) -> dict[str, Any]:
    """Who wrote the batches that the logs keep of each producer, by the columns of COORDINATES; null for the others."""
    kept = {
        (row.log, base_offset): (row.producer_id, row.entry.producer_epoch, first)
        for row in logs.producers
        for first, _, base_offset in row.entry.batches
    }
    places = zip(batches["log"].tolist(), batches["base_offset"].tolist(), strict=True)
    found = [kept.get(place, (None, None, None)) for place in places]
    return dict(zip(("producer_id", "producer_epoch", "base_sequence"), zip(*found, strict=True), strict=True))


def _faults(
    logs: LogsImage, batches: Columns, markers: Columns, starts: dict[int, int], index: int, copy: Copy
) -> Iterator[Named]:
    """Batches and markers that do not lie one behind another from the tail's start to the log's end."""
    spans = np.concatenate(
        [
            np.stack([rows["log"], rows["base_offset"], rows.get("records", np.ones_like(rows["log"]))])
            for rows in (batches, markers, _ends(logs))
        ],
        axis=1,
    )
    log, offset, records = spans[:, np.lexsort((spans[2] == 0, spans[1], spans[0]))]
    first = np.ones(len(log), np.bool_)
    first[1:] = log[1:] != log[:-1]
    due = np.zeros_like(offset)
    due[1:] = offset[:-1] + records[:-1]
    due[first] = [starts[number] for number in log[first].tolist()]
    # A log may have lost the beginning of its first batch.
    cut = first & (offset < due) & (due < offset + records)
    wrong = np.flatnonzero((offset != due) & ~cut)[:MAX_FAULTS]
    if len(wrong):
        found = zip(offset[wrong].tolist(), due[wrong].tolist(), (records[wrong] == 0).tolist(), strict=True)
        yield (
            "log_faults",
            _rows(
                LOG_FAULTS,
                copy,
                len(wrong),
                check="log_offsets",
                log=log[wrong],
                base_offset=np.minimum(offset[wrong], due[wrong]),
                detail=[_detail(*one) for one in found],
                index=index,
            ),
        )


def _ends(logs: LogsImage) -> Columns:
    """Each log's end as a row without records, behind all others."""
    return {
        "log": np.array([log.number for log in logs.logs], np.int64),
        "base_offset": np.array([log.end for log in logs.logs], np.int64),
        "records": np.zeros(len(logs.logs), np.int64),
    }


def _detail(offset: int, due: int, is_end: bool) -> str:
    what = "the log ends at" if is_end else "a batch or a marker begins at"
    return f"{what} offset {offset}, and what stands before it ends at {due}: " + (
        "records were lost" if offset > due else "offsets were given twice"
    )


def _rows(schema: Any, copy: Copy, count: int, **columns: Any) -> Any:
    """A record batch; a single value is that of all rows, and what is not given is null."""
    given = copy._asdict() | columns
    arrays = []
    for field in schema:
        value = given.get(field.name)
        if value is None or isinstance(value, int | str | bool):
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
        else:
            column = value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value)
            arrays.append((column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
