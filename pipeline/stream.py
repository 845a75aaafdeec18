"""Checks archive files as members write them: a micro-batch is the new blocks, checked beside those that it may touch.

The state directory keeps every block that was seen (`blocks`), the findings, and Spark's checkpoint. A batch that is
due again after a kill replaces what it left. Only what new blocks alone can break is checked here: overlaps, and IDs
that go back. The other checks need all tables: `pidkeeper audit run --state`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipeline import schemas
from pipeline.findings import FINDINGS, VIOLATION
from pipeline.inputs import AuditInputs
from pipeline.paths import ARCHIVE_SUFFIX, AuditPaths, LoadingError
from pipeline.sources.listing import list_folders

CHECKS: Final = ("overlap", "regress")
MAX_LINES: Final = 20
"""Findings of one batch that are printed; all are in the state."""
POLL_SECONDS: Final = 0.5
_SAME: Final = ("check", "subject", "first_id", "last_id", "offset")
"""What makes two findings one: blocks that overlap are found again whenever a new block touches them."""

Check = Callable[[AuditInputs], DataFrame]


class StreamOptions(msgspec.Struct, frozen=True):
    """`data`: as for an audit. `once`: end when all that is there is checked."""

    data: list[str]
    state: Path
    once: bool = False
    every_seconds: float = 10.0


def run_stream(
    spark: SparkSession, options: StreamOptions, checks: Mapping[str, Check], say: Callable[[str], None]
) -> int:
    """Check until an interrupt, or `once`; how many violations the state has by then. Raises LoadingError."""
    paths = AuditPaths(options.data).having(ARCHIVE_SUFFIX)
    try:
        list_folders({"paths": json.dumps(paths)}, ARCHIVE_SUFFIX)
    except (ValueError, FileNotFoundError) as error:
        raise LoadingError(str(error)) from error
    keeper = StreamKeeper(spark, options.state, [checks[name] for name in CHECKS if name in checks], say)
    stream: Any = spark.readStream.format("pidkeeper_archive").option("paths", json.dumps(paths)).load()
    writer = stream.writeStream.foreachBatch(keeper.take).option(
        "checkpointLocation", str(options.state / "checkpoint")
    )
    trigger = {"availableNow": True} if options.once else {"processingTime": f"{options.every_seconds} seconds"}
    query = writer.trigger(**trigger).start()
    try:
        while not query.awaitTermination(POLL_SECONDS):
            continue
    except KeyboardInterrupt:
        say("stopping")
    except PySparkException as error:
        raise LoadingError(f"the stream ended: {_first_line(error)}") from error
    finally:
        query.stop()
    return keeper.violations()


class StreamKeeper:
    """The kept state of a stream, and what is done with a batch."""

    def __init__(self, spark: SparkSession, state: Path, checks: list[Check], say: Callable[[str], None]) -> None:
        self._spark = spark
        self._blocks = state / "blocks"
        self._findings = state / "findings"
        self._checks = checks
        self._say = say
        self._blocks.mkdir(parents=True, exist_ok=True)
        self._findings.mkdir(parents=True, exist_ok=True)

    def take(self, batch: DataFrame, number: int) -> None:
        """Keep the blocks of a batch, and what is wrong with them beside the ones before."""
        mine = self._blocks / f"{number:09d}"
        batch.write.mode("overwrite").parquet(str(mine))
        new = self._read(schemas.ARCHIVE_BLOCKS, [mine])
        facts = new.agg(
            F.count("*"), F.min("first_id"), F.max("last_id"), F.min("offset"), F.max("timestamp_ms")
        ).first()
        assert facts is not None, "an aggregate without groups has one row"
        count, first_id, last_id, offset, _ = facts
        if count == 0:
            return
        before = self._read(schemas.ARCHIVE_BLOCKS, _earlier(self._blocks, number))
        # A block before the batch is only in question where its IDs or its offset are not below all of the batch's.
        touched = before.where((F.col("last_id") >= first_id) | (F.col("offset") >= offset))
        inputs = self._inputs(new.unionByName(touched))
        found = reduce(DataFrame.unionByName, [check(inputs).select(*FINDINGS.fieldNames()) for check in self._checks])
        known = self._read(FINDINGS, _earlier(self._findings, number)).select(*_SAME)
        same = reduce(
            lambda one, other: one & other, [F.col(f"f.{name}").eqNullSafe(F.col(f"k.{name}")) for name in _SAME]
        )
        fresh = found.alias("f").join(known.alias("k"), same, "left_anti")
        target = self._findings / f"{number:09d}"
        fresh.write.mode("overwrite").parquet(str(target))
        rows = self._read(FINDINGS, [target]).orderBy("check", "first_id").limit(MAX_LINES).collect()
        self._say(f"batch {number}: {count:,} blocks, IDs {first_id:,} to {last_id:,}: {len(rows) or 'no'} finding(s)")
        for row in rows:
            self._say(f"  {row.severity}: {row.check}: {row.subject}: {row.detail}")

    def violations(self) -> int:
        """In all batches."""
        return self._read(FINDINGS, sorted(self._findings.iterdir())).where(F.col("severity") == VIOLATION).count()

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

    def _read(self, schema: Any, folders: list[Path]) -> DataFrame:
        if not folders:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(str(folder) for folder in folders))


def _earlier(folder: Path, number: int) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if int(path.name) < number]


def _first_line(error: PySparkException) -> str:
    for line in str(error).splitlines():
        _, _, message = line.partition("Error: ")
        if message:
            return message
    return str(error).splitlines()[0]
