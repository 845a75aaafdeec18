"""Rows of the tables that the checks of segments look at, and lawful logs of several producers made by chance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pidkeeper.pipeline import schemas
from pidkeeper.pipeline.checks.quorum.history import distinct_blocks
from pidkeeper.pipeline.checks.segments import SEGMENT_TABLES
from pidkeeper.pipeline.derived import Derivation, keep
from pidkeeper.pipeline.inputs import AuditInputs

START_MS: Final = 1_700_000_000_000
MAX_SEQUENCE: Final = (1 << 31) - 1
Row = dict[str, Any]


def table(spark: SparkSession, schema: StructType, rows: Iterable[Row]) -> DataFrame:
    """A table of the schema; columns that a row does not name are null."""
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def inputs(
    spark: SparkSession,
    batches: Iterable[Row] | DataFrame,
    blocks: Iterable[tuple[int, int, int]] = ((0, 999_999, 1),),
    problems: Iterable[Row] | DataFrame = (),
    records: Iterable[Row] = (),
) -> AuditInputs:
    """All tables; `blocks` are first ID, last ID and broker."""
    archived = {"member": "1", "file": "1/archive/0-9.arc"}
    found = [
        archived | {"position": 48 * n, "offset": n, "first_id": first, "last_id": last, "broker_id": broker}
        for n, (first, last, broker) in enumerate(blocks)
    ]
    return AuditInputs(
        archive_blocks=table(spark, schemas.ARCHIVE_BLOCKS, found),
        archive_files=table(spark, schemas.ARCHIVE_FILES, ()),
        snapshots=table(spark, schemas.ARCHIVE_SNAPSHOTS, ()),
        log_records=table(
            spark, schemas.LOG_RECORDS, [{"member": "1", "file": "1/wal/0.wal", "position": 0} | row for row in records]
        ),
        log_files=table(spark, schemas.LOG_FILES, ()),
        batches=batches if isinstance(batches, DataFrame) else table(spark, schemas.BATCHES, batches),
        problems=problems if isinstance(problems, DataFrame) else table(spark, schemas.PROBLEMS, problems),
    )


def kept(given: AuditInputs, *tables: Derivation) -> AuditInputs:
    """With the tables that checks share, or some, collected, so that no plan holds that of another table."""

    def save(name: str, frame: DataFrame) -> DataFrame:
        return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)

    return keep(given, tables or (distinct_blocks, *SEGMENT_TABLES), save)


@dataclass
class Log:
    """One partition as one member has it: batches are appended in one segment, a second apart."""

    topic: str = "orders"
    partition: int = 0
    member: str = "1"
    rows: list[Row] = field(default_factory=list)
    end: int = 0
    now_ms: int = START_MS
    broker_clock: bool = False
    damaged: list[int] = field(default_factory=list)
    """Bytes at which the source reports a batch with a bad CRC."""

    @property
    def file(self) -> str:
        return f"/kafka/{self.member}/{self.topic}-{self.partition}/{0:020}.log"

    def data(self, producer: int, epoch: int, sequence: int, count: int = 3, *, transactional: bool = False) -> Row:
        """Append a batch."""
        last = (sequence + count - 1) & MAX_SEQUENCE if sequence >= 0 else -1
        return self._append(producer, epoch, count, sequence, last, transactional)

    def marker(self, producer: int, epoch: int, kind: str = "commit") -> Row:
        """Append the end of a transaction."""
        return self._append(producer, epoch, 1, -1, -1, True, kind)

    def _append(
        self, producer: int, epoch: int, count: int, first: int, last: int, transactional: bool, kind: str | None = None
    ) -> Row:
        self.now_ms += 1000
        row = {
            "member": self.member,
            "file": self.file,
            "position": self.end * 100,
            "topic": self.topic,
            "partition": self.partition,
            "segment_base_offset": 0,
            "base_offset": self.end,
            "last_offset": self.end + count - 1,
            "timestamp_type": "LogAppendTime" if self.broker_clock else "CreateTime",
            "is_transactional": transactional,
            "is_control": kind is not None,
            "max_timestamp_ms": self.now_ms,
            "producer_id": producer,
            "producer_epoch": epoch,
            "base_sequence": first,
            "last_sequence": last,
            "record_count": count,
            "marker": kind,
        }
        self.rows.append(row)
        self.end += count
        return row

    def run(self, producer: int, epoch: int, sequences: Sequence[int], *, transactional: bool = False) -> Log:
        """Batches of three records at these sequences."""
        for sequence in sequences:
            self.data(producer, epoch, sequence, transactional=transactional)
        return self

    def close_up(self) -> None:
        """Give offsets and positions anew: what was taken out of `rows` was never there."""
        self.end = 0
        for row in self.rows:
            count = row["last_offset"] - row["base_offset"] + 1
            row |= {"base_offset": self.end, "last_offset": self.end + count - 1, "position": self.end * 100}
            self.end += count

    def problems(self) -> list[Row]:
        """Rows of the table problems."""
        bad = {"member": self.member, "file": self.file, "kind": "bad_crc", "detail": "a wrong CRC"}
        return [bad | {"position": position} for position in self.damaged]

    def moved(self, topic: str, more: int) -> Log:
        """The same log in another topic, unless it is one of the coordinators', with other producers."""
        other = Log(self.topic if self.topic.startswith("__") else topic, self.partition, self.member)
        other.damaged = self.damaged
        for row in self.rows:
            producer = row["producer_id"]
            named = {"topic": other.topic, "file": other.file, "producer_id": producer + more * (producer >= 0)}
            other.rows.append(row | named)
        return other

    def copy(self, member: str) -> Log:
        """The same log on another member."""
        other = Log(self.topic, self.partition, member, end=self.end, now_ms=self.now_ms)
        other.rows = [row | {"member": member, "file": other.file} for row in self.rows]
        return other


@dataclass
class _Producer:
    id: int
    transactional: bool
    new_epoch_each_time: bool
    epoch: int = 0
    next: dict[int, int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)


def lawful_logs(chance: random.Random, topic: str, first_id: int, steps: int = 40) -> list[Log]:
    """Logs of up to three partitions that three producers wrote: bumps, transactions, and sequences that wrap."""
    logs = [Log(topic, partition) for partition in range(chance.randint(1, 3))]
    producers = [_Producer(first_id + n, chance.random() < 0.6, chance.random() < 0.5) for n in range(3)]
    for producer in producers:
        start = chance.choice((0, 0, 17, MAX_SEQUENCE - chance.randint(0, 40)))
        producer.next = {log.partition: start for log in logs}
    for _ in range(steps):
        _step(chance, logs, chance.choice(producers))
    for producer in producers:
        _end(chance, logs, producer)
    return logs


def _step(chance: random.Random, logs: list[Log], producer: _Producer) -> None:
    for log in logs:
        log.now_ms = max(each.now_ms for each in logs)
    log = chance.choice(logs)
    action = chance.random()
    if action < 0.75:
        count, sequence = chance.randint(1, 6), producer.next[log.partition]
        log.data(producer.id, producer.epoch, sequence, count, transactional=producer.transactional)
        producer.next[log.partition] = (sequence + count) & MAX_SEQUENCE
        producer.written.add(log.partition)
    elif action < 0.9:
        _end(chance, logs, producer)
    elif not producer.transactional:
        _bump(producer)
    elif chance.random() < 0.3:
        log.marker(producer.id, producer.epoch)  # of a transaction that wrote nothing here
        producer.written.discard(log.partition)


def _end(chance: random.Random, logs: list[Log], producer: _Producer) -> None:
    if not producer.transactional:
        return
    fenced = chance.random() < 0.2
    if producer.new_epoch_each_time or fenced:
        _bump(producer)
    kind = "abort" if fenced else chance.choice(("commit", "abort"))
    for log in logs:
        if log.partition in producer.written:
            log.marker(producer.id, producer.epoch, kind)
    producer.written.clear()


def _bump(producer: _Producer) -> None:
    producer.epoch += 1
    producer.next = dict.fromkeys(producer.next, 0)


def compact(chance: random.Random, log: Log) -> None:
    """Take out batches of data, and the records of others."""
    for row in list(log.rows):
        if row["is_control"] or chance.random() > 0.3:
            continue
        if chance.random() < 0.5:
            row["record_count"] = 0
        else:
            log.rows.remove(row)
