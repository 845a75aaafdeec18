"""The Spark data source "kafka_segment": headers of the record batches in Kafka's own log segments.

    spark.read.format("kafka_segment").load("/var/lib/kafka")

Options: `path` (or load(path)): segments, directories or globs; `table`: batches (the default), problems or files;
`on_bad_file`: report (the default) or fail, which ends the reading at the first row that `problems` would have;
`since`: a JSON object of byte positions by path, each the start of a batch: what stands before it is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.record_batch import (
    COMPRESSION_MASK,
    COMPRESSIONS,
    CONTROL,
    DELETE_HORIZON,
    FIELDS,
    MARKERS,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE,
    TIMESTAMP_TYPES,
    TRANSACTIONAL,
    Chunk,
)
from pidkeeper.pipeline.schemas import BATCHES_TABLES
from pidkeeper.pipeline.sources.listing import files_of
from pidkeeper.pipeline.sources.segment_files import SUFFIX, Part, SegmentFile, describe_segments, plan, read_part

POLICIES: Final = ("report", "fail")
_ARROW_TYPES: Final = {"b": pa.int8(), "h": pa.int16(), "i": pa.int32(), "I": pa.uint32(), "q": pa.int64()}


class BadFileError(RuntimeError):
    """A segment is bad, and `on_bad_file` says that this ends the reading."""


class KafkaSegmentSource(DataSource):
    """See the module. Raises ValueError for an option that is none."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._table = options.get("table", next(iter(BATCHES_TABLES)))
        self._policy = options.get("on_bad_file", POLICIES[0])
        if self._table not in BATCHES_TABLES:
            raise ValueError(f'there is no table "{self._table}": name one of {", ".join(BATCHES_TABLES)}')
        if self._policy not in POLICIES:
            raise ValueError(f'on_bad_file is {" or ".join(POLICIES)}, not "{self._policy}"')

    @classmethod
    def name(cls) -> str:
        """What follows `format`."""
        return "kafka_segment"

    def schema(self) -> StructType:
        """The one of the table; see pipeline.schemas."""
        return BATCHES_TABLES[self._table]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads one table of what is at the paths."""
        since = json.loads(self.options.get("since", "{}"))
        return KafkaSegmentReader(self.options, self._table, fail=self._policy == "fail", since=since)


class KafkaSegmentReader(DataSourceReader):
    """Goes to every task, so it knows paths and not files: those are in the tasks."""

    def __init__(self, options: Mapping[str, str], table: str, *, fail: bool, since: Mapping[str, int]) -> None:
        self._options = {name: options[name] for name in ("path", "paths") if name in options}
        self._since = since
        self._table = table
        self._fail = fail

    def partitions(self) -> list[InputPartition]:
        """One for each task: lists the segments and splits large ones. Raises as `files_of`."""
        tasks = plan(
            describe_segments(files_of(self._options, SUFFIX)), whole=self._table == "files", since=self._since
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of the table. Spark makes a partition without a value where there is none."""
        schema = to_arrow_schema(BATCHES_TABLES[self._table], timezone="UTC")
        for part in partition.value or []:
            for columns in self._columns(part):
                yield pa.RecordBatch.from_arrays([_cast(columns[field.name], field) for field in schema], schema=schema)

    def _columns(self, part: Part) -> Iterator[dict[str, Any]]:
        chunks = self._chunks(part)
        if self._table == "files":
            yield _file_columns(part.file, chunks)
            return
        for chunk in chunks:
            if self._table == "batches" and len(chunk):
                yield batch_columns(part.file, chunk)
            elif self._table == "problems" and chunk.problems:
                yield _problem_columns(part.file, chunk)

    def _chunks(self, part: Part) -> Iterator[Chunk]:
        for chunk in read_part(part):
            if self._fail and chunk.problems:
                first = chunk.problems[0]
                raise BadFileError(f"{part.file.path}, byte {first.position}: {first.kind}: {first.detail}")
            yield chunk


def register(spark: Any) -> None:
    """Make the source known to a session under its name."""
    spark.dataSource.register(KafkaSegmentSource)


def _cast(values: Any, field: pa.Field) -> pa.Array:
    return values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)


def _where(file: SegmentFile, count: int, *, described: bool = True) -> dict[str, Any]:
    columns: dict[str, Any] = {"member": file.member, "file": file.path}
    if described:
        columns |= {"topic": file.topic, "partition": file.partition, "segment_base_offset": file.base_offset}
    return {name: pa.nulls(count) if value is None else pa.repeat(value, count) for name, value in columns.items()}


def batch_columns(file: SegmentFile, chunk: Chunk) -> dict[str, Any]:
    """The columns of `schemas.BATCHES`: the fields of the headers as they are, and what follows from them."""
    count = len(chunk)
    fields = {
        name: pa.Array.from_buffers(_ARROW_TYPES[code], count, [None, pa.py_buffer(chunk.column(name))])
        for name, (_, code) in FIELDS.items()
    }
    bits = fields["attributes"].cast(pa.int64())
    deltas, sequences = fields["last_offset_delta"].cast(pa.int64()), fields["base_sequence"].cast(pa.int64())
    wrapped = pc.bit_wise_and(pc.add(sequences, deltas), MAX_SEQUENCE)
    markers, epochs = _markers(chunk)
    return fields | {
        **_where(file, count),
        "position": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(chunk.positions)]),
        "last_offset": pc.add(fields["base_offset"], deltas),
        "compression": pa.array(COMPRESSIONS).take(pc.bit_wise_and(bits, COMPRESSION_MASK)),
        "timestamp_type": pa.array(TIMESTAMP_TYPES).take(_flag(bits, TIMESTAMP_TYPE).cast(pa.int64())),
        "is_transactional": _flag(bits, TRANSACTIONAL),
        "is_control": _flag(bits, CONTROL),
        "has_delete_horizon": _flag(bits, DELETE_HORIZON),
        "base_timestamp_ms": fields["base_timestamp"],
        "max_timestamp_ms": fields["max_timestamp"],
        "last_sequence": pc.if_else(pc.less(sequences, 0), -1, wrapped),
        "marker": markers,
        "coordinator_epoch": epochs,
    }


def _flag(bits: pa.Array, mask: int) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(bits, mask), 0)


def _markers(chunk: Chunk) -> tuple[list[str | None], list[int | None]]:
    kinds: list[str | None] = [None] * len(chunk)
    epochs: list[int | None] = [None] * len(chunk)
    for marker in chunk.markers:
        kinds[marker.row] = MARKERS.get(marker.type)
        epochs[marker.row] = marker.coordinator_epoch
    return kinds, epochs


def _problem_columns(file: SegmentFile, chunk: Chunk) -> dict[str, Any]:
    problems = chunk.problems
    return {
        **_where(file, len(problems), described=False),
        "kind": [each.kind for each in problems],
        "position": [each.position for each in problems],
        "index": [None] * len(problems),
        "detail": [each.detail for each in problems],
    }


def _file_columns(file: SegmentFile, chunks: Iterator[Chunk]) -> dict[str, Any]:
    batches = records = problems = 0
    first = last = latest = None
    for chunk in chunks:
        batches += len(chunk)
        problems += len(chunk.problems)
        if len(chunk):
            offsets = chunk.column("base_offset")
            records += sum(chunk.column("record_count"))
            first = offsets[0] if first is None else first
            last = offsets[-1] + chunk.column("last_offset_delta")[-1]
            stamp = max(chunk.column("max_timestamp"))
            latest = stamp if latest is None else max(latest, stamp)
    return _where(file, 1) | {
        "bytes": [file.size],
        "batches": [batches],
        "records": [records],
        "first_offset": [first],
        "last_offset": [last],
        "max_timestamp_ms": [latest],
        "problems": [problems],
    }
