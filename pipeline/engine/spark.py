"""Runs kernels as tasks of Spark, by its DataFrame interface alone.

A part is a row of one binary column, and so is a record batch that a kernel gives: Spark sends parts out, moves blobs
between the two halves of a shuffle, and brings evidence home. It never sees a row of a large table, so that nothing of
those goes through Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import from_blob, to_blob
from pidkeeper.pipeline.engine.duck import closed_after
from pidkeeper.pipeline.engine.engine import DIRECT, Keyed, Named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

MAX_TASKS: Final = 4096
"""Of one step: of more parts, a task has several."""
_BLOBS: Final = pa.schema([("bucket", pa.int32()), ("name", pa.string()), ("data", pa.binary())])
_BLOBS_DDL: Final = "bucket int, name string, data binary"
_PARTS: Final = pa.schema([("number", pa.int32()), ("part", pa.binary())])
BUCKETS_PER_TASK: Final = 4


class SparkEngine:
    """See `Engine`. A part is a `msgspec.Struct`; all of one call are of one type."""

    alone_bytes = 0

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, kernel: Callable[[T], Iterator[Named]], parts: Sequence[T]) -> Iterator[Named]:
        """The evidence of all parts."""
        if parts:
            sent = self._sent(parts)
            yield from _home(sent.mapInArrow(partial(_run_map, kernel, type(parts[0])), _BLOBS_DDL))

    def shuffle(
        self,
        read: Callable[[T], Iterator[Keyed]],
        judge: Callable[[int, Iterator[Named]], Iterator[Named]],
        parts: Sequence[T],
        buckets: int,
    ) -> Iterator[Named]:
        """As `Engine.shuffle`: one job of two stages."""
        if not parts:
            return
        blobs = self._sent(parts).mapInArrow(partial(_run_read, read, type(parts[0])), _BLOBS_DDL)
        tasks = max(1, min(MAX_TASKS, buckets // BUCKETS_PER_TASK))
        moved = blobs.repartition(tasks, "bucket").sortWithinPartitions("bucket")
        yield from _home(moved.mapInArrow(partial(_run_judge, judge), _BLOBS_DDL))

    def _sent(self, parts: Sequence[Any]) -> DataFrame:
        encoded = [msgspec.msgpack.encode(part) for part in parts]
        rows = pa.table([pa.array(range(len(parts)), pa.int32()), pa.array(encoded, pa.binary())], schema=_PARTS)
        frame = self._spark.createDataFrame(rows)
        return frame.coalesce(1) if len(parts) == 1 else frame.repartition(min(len(parts), MAX_TASKS))


def _run_map(kernel: Callable[[Any], Iterator[Named]], kind: type, batches: Iterable[Any]) -> Iterator[Any]:
    with closed_after():
        for part in _parts(kind, batches):
            for name, batch in kernel(part):
                yield _row(DIRECT, name, batch)


def _run_read(read: Callable[[Any], Iterator[Keyed]], kind: type, batches: Iterable[Any]) -> Iterator[Any]:
    with closed_after():
        for part in _parts(kind, batches):
            for bucket, name, batch in read(part):
                yield _row(bucket, name, batch)


def _run_judge(judge: Callable[[int, Iterator[Named]], Iterator[Named]], batches: Iterable[Any]) -> Iterator[Any]:
    rows = _Rows(batches)
    with closed_after():
        while (bucket := rows.bucket) is not None:
            found = rows.of(bucket)
            for name, batch in found if bucket == DIRECT else judge(bucket, found):
                yield _row(DIRECT, name, batch)
            for _ in found:  # what the kernel did not look at
                continue


class _Rows:
    """Blobs in the order of their buckets, one bucket after the other."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._rows = ((*key, data) for batch in batches for *key, data in zip(*batch.columns, strict=True))
        self._next: Any = next(self._rows, None)

    @property
    def bucket(self) -> int | None:
        """The one that comes now."""
        return None if self._next is None else int(self._next[0].as_py())

    def of(self, bucket: int) -> Iterator[Named]:
        while self.bucket == bucket:
            _, name, data = self._next
            self._next = next(self._rows, None)
            yield name.as_py(), from_blob(data.as_buffer())


def _parts(kind: type, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for value in batch.column("part"):
            yield msgspec.msgpack.decode(value.as_py(), type=kind)


def _row(bucket: int, name: str, batch: Any) -> Any:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "name": name, "data": to_blob(batch)}], schema=_BLOBS)


def _home(frame: DataFrame) -> Iterator[Named]:
    found = frame.toArrow()
    for name, data in zip(found.column("name"), found.column("data"), strict=True):
        yield name.as_py(), from_blob(data.as_buffer())
