"""Checks archive files as members write them: a micro-batch is the new blocks, checked beside those that it may touch.

The state directory keeps every block that was seen (`blocks`), the findings, and Spark's checkpoint. A batch that is
due again after a kill replaces what it left. Only what new blocks alone can break is checked here: overlaps, and IDs
that go back. The other checks need all tables: `pidkeeper audit run --state`.

When it is asked to stop it lets the batch at work end first, and waits until Spark has noted that: else the batch would
be due again, and what is said of it said twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pidkeeper.pipeline import schemas
from pidkeeper.pipeline.checks.quorum.order import order_faults
from pidkeeper.pipeline.derived import keep
from pidkeeper.pipeline.findings import FINDINGS, VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.pipeline.interrupts import Interrupts
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, AuditPaths, LoadingError
from pidkeeper.pipeline.sources.listing import list_folders
from pidkeeper.pipeline.store import Place, Store, first_line, open_store
from pidkeeper.pipeline.stream_state import BLOCKS, CHECKPOINT, FOUND, claim

CHECKS: Final = ("overlap", "regress")
MAX_LINES: Final = 20
"""Folders that are named at the start, and findings of one batch; all of those are in the state."""
POLL_SECONDS: Final = 0.5
BATCH_SECONDS: Final = 60.0
"""So long the batch at work has to end when the stream is asked to stop; service managers wait for 90 seconds. A batch
that is cut is due again."""
_SAME: Final = ("check", "subject", "first_id", "last_id", "offset")
"""What makes two findings one: blocks that overlap are found again whenever a new block touches them."""

Check = Callable[[AuditInputs], DataFrame]


class StreamOptions(msgspec.Struct, frozen=True):
    """`data`: as for an audit. `once`: end when all that is there is checked."""

    data: list[str]
    state: Place
    once: bool = False
    every_seconds: float = 10.0


def watched(options: StreamOptions) -> str:
    """What a stream of these options watches now, for the eye. Raises LoadingError if there is nothing at a path."""
    try:
        listings = list_folders({"paths": json.dumps(_paths(options))}, ARCHIVE_SUFFIX)
    except (ValueError, OSError) as error:
        raise LoadingError(str(error)) from error
    often = "once" if options.once else f"every {options.every_seconds:g} s, until Ctrl-C"
    shown = [f"  {one.folder.path}: {_many(len(one.names), 'archive file')}, member {one.member}" for one in listings]
    if not shown:
        shown = [f"  {path}: no archive files yet" for path in options.data]
    rest = [f"  and {len(shown) - MAX_LINES:,} more"] if len(shown) > MAX_LINES else []
    return "\n".join([f"watching {often}:", *shown[:MAX_LINES], *rest])


def run_stream(
    spark: SparkSession,
    options: StreamOptions,
    checks: Mapping[str, Check],
    say: Callable[[str], None],
    interrupts: Interrupts | None = None,
) -> int:
    """Check until it is interrupted, or `once`; how many violations the state has by then.

    Raises LoadingError, StateError. The caller holds the state (`pipeline.directory_lock.locked`).
    """
    interrupts = interrupts or Interrupts()
    watched(options)
    state = open_store(options.state, spark)
    claim(state, options.data)
    keeper = StreamKeeper(spark, state, [checks[name] for name in CHECKS if name in checks], say)
    stream: Any = spark.readStream.format("pidkeeper_archive").option("paths", json.dumps(_paths(options))).load()
    writer = stream.writeStream.foreachBatch(keeper.take).option("checkpointLocation", state.location(CHECKPOINT))
    trigger = {"availableNow": True} if options.once else {"processingTime": f"{options.every_seconds} seconds"}
    try:
        query = writer.trigger(**trigger).start()
    except (PySparkException, Py4JError) as error:
        raise LoadingError(f"the stream did not start: {first_line(error)}") from error
    try:
        while not interrupts.asked and not query.awaitTermination(POLL_SECONDS):
            continue
        _let_end(keeper, interrupts, say)
    except PySparkException as error:
        raise LoadingError(f"the stream ended: {_first_line(error)}") from error
    finally:
        query.stop()
    violations = keeper.violations()
    new = _many(keeper.copies, "new copy", "new copies")
    say(f"{'stopped' if interrupts.asked else 'done'}: {new} of blocks; {_many(violations, 'violation')} in all")
    return violations


def _paths(options: StreamOptions) -> list[str]:
    return AuditPaths(options.data).having(ARCHIVE_SUFFIX)


def _let_end(keeper: StreamKeeper, interrupts: Interrupts, say: Callable[[str], None]) -> None:
    """Wait until Spark has noted that the last batch is done, but not for ever."""
    if keeper.at_work():
        say(f"stopping when batch {keeper.taken} is done; once more to stop now")
    deadline = time.monotonic() + BATCH_SECONDS
    while keeper.at_work() and not interrupts.insisted and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


class StreamKeeper:
    """The kept state of a stream, and what is done with a batch."""

    def __init__(self, spark: SparkSession, state: Store, checks: list[Check], say: Callable[[str], None]) -> None:
        self._spark = spark
        self._state = state
        self._checks = checks
        self._say = say
        self.taken: int | None = None
        """The number of the last batch, whether it is done or not."""
        self.copies = 0
        """Rows of all batches so far; each member has its copy of a block."""

    def at_work(self) -> bool:
        """Whether Spark has yet to note that the last batch is done."""
        return self.taken is not None and not self._state.exists(f"{CHECKPOINT}/commits/{self.taken}")

    def take(self, batch: DataFrame, number: int) -> None:
        """Keep the blocks of a batch, and what is wrong with them beside the ones before."""
        self.taken = number
        mine = f"{BLOCKS}/{number:09d}"
        batch.write.mode("overwrite").parquet(self._state.location(mine))
        new = self._read(schemas.ARCHIVE_BLOCKS, [mine])
        facts = new.agg(
            F.count("*"), F.min("first_id"), F.max("last_id"), F.min("offset"), F.count_distinct("member")
        ).first()
        assert facts is not None, "an aggregate without groups has one row"
        count, first_id, last_id, offset, members = facts
        if count == 0:
            return
        before = self._read(schemas.ARCHIVE_BLOCKS, self._batches(BLOCKS, number))
        # A block before the batch is only in question where its IDs or its offset are not below all of the batch's.
        touched = before.where((F.col("last_id") >= first_id) | (F.col("offset") >= offset))
        # Both checks look at it, so it is computed once; it holds what is out of order, which is next to nothing.
        inputs = keep(self._inputs(new.unionByName(touched)), (order_faults,), lambda _, table: table.persist())
        found = reduce(DataFrame.unionByName, [check(inputs).select(*FINDINGS.fieldNames()) for check in self._checks])
        known = self._read(FINDINGS, self._batches(FOUND, number)).select(*_SAME)
        same = reduce(
            lambda one, other: one & other, [F.col(f"f.{name}").eqNullSafe(F.col(f"k.{name}")) for name in _SAME]
        )
        fresh = found.alias("f").join(known.alias("k"), same, "left_anti")
        target = f"{FOUND}/{number:09d}"
        fresh.write.mode("overwrite").parquet(self._state.location(target))
        inputs.kept[order_faults.__name__].unpersist()
        copies = f"{_many(count, 'copy', 'copies')} of blocks from {_many(members, 'member')}"
        self._tell(f"batch {number}: {copies}, IDs {first_id} to {last_id}", target)
        self.copies += count

    def _tell(self, batch: str, folder: str) -> None:
        findings = self._read(FINDINGS, [folder])
        shown = findings.orderBy("check", "first_id").limit(MAX_LINES).collect()
        count = findings.count() if len(shown) == MAX_LINES else len(shown)
        self._say(f"{batch}: {_many(count, 'new finding')}")
        for row in shown:
            self._say(f"  {row.severity}: {row.check}: {row.subject}: {row.detail}")
        if count > MAX_LINES:
            self._say(f"  and {count - MAX_LINES:,} more: all are in {self._state.location(folder)}")

    def violations(self) -> int:
        """In all batches."""
        return self._read(FINDINGS, self._batches(FOUND)).where(F.col("severity") == VIOLATION).count()

    def _inputs(self, blocks: DataFrame) -> AuditInputs:
        return AuditInputs(
            archive_blocks=blocks,
            archive_files=self._read(schemas.ARCHIVE_FILES, []),
            snapshots=self._read(schemas.ARCHIVE_SNAPSHOTS, []),
            log_records=self._read(schemas.LOG_RECORDS, []),
            log_files=self._read(schemas.LOG_FILES, []),
            batches=self._read(schemas.BATCHES, []),
            problems=self._read(schemas.PROBLEMS, []),
        )

    def _batches(self, table: str, before: int | None = None) -> list[str]:
        """The folders of all batches, or of those with a lower number."""
        return [f"{table}/{name}" for name in self._state.names(table) if before is None or int(name) < before]

    def _read(self, schema: Any, folders: list[str]) -> DataFrame:
        if not folders:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(self._state.location(folder) for folder in folders))


def _many(count: int, one: str, several: str | None = None) -> str:
    """`no findings`, `1 finding`, `1,000 findings`."""
    noun = one if count == 1 else several or f"{one}s"
    return f"{count:,} {noun}" if count else f"no {noun}"


def _first_line(error: PySparkException) -> str:
    for line in str(error).splitlines():
        _, _, message = line.partition("Error: ")
        if message:
            return message
    return first_line(error)
