"""One audit: load the tables, run the checks, write the tables, the verdict and the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pidkeeper.pipeline.checks import Checks, NamedChecks
from pidkeeper.pipeline.derived import Derivation, keep
from pidkeeper.pipeline.evidence import gather, judge
from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.identity import NAME, findings_of, foreign_members, known_of, without
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.pipeline.loading import Loader
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.progress import Progress
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.markup import write_report
from pidkeeper.pipeline.report.verdict import (
    BadFile,
    CheckCount,
    Verdict,
    Watermark,
    read_verdict,
    withdraw_verdict,
    write_verdict,
)
from pidkeeper.pipeline.small_tables import SMALL_ROWS, for_small_tables
from pidkeeper.pipeline.store import Place, Store, first_line, join_place, open_store
from pidkeeper.pipeline.stream_state import refuse_output
from pidkeeper.protocol.ids import OWN

STAGE_PREFIX: Final = ".stage-"
"""Of the directory in `out` that a run without a state works in, and removes."""
MAX_NAMED_BAD_FILES: Final = 100
"""So many are named in the verdict; the table `files` has all."""
MAX_NAMED_PARTITIONS: Final = 100
"""The same for the partitions in the verdict's watermark."""


class AuditOptions(msgspec.Struct, frozen=True):
    """`state`: a directory that stays, so that the next run reads only what is new. `fail`: a bad file ends the run.

    Both are where the executors can write: a directory that all of them see, or a URI of a Hadoop file system.
    """

    paths: AuditPaths
    out: Place
    state: Place | None = None
    fail: bool = False


class AuditError(RuntimeError):
    """The audit did not come to an end; the message says why."""


def run_audit(spark: SparkSession, options: AuditOptions, checks: Checks) -> Verdict:
    """Run everything and leave the outputs in `options.out`. Raises AuditError, LoadingError, StateError, OSError."""
    started = time.monotonic()
    out = open_store(options.out, spark)
    out.make()
    refuse_output(out)
    with (
        _stage(options, spark) as stage,
        Progress(spark.sparkContext).running() as progress,
        contextlib.ExitStack() as settings,
    ):
        loader = Loader(spark, stage.place, options.paths, fail=options.fail)
        progress.step("reading files")
        inputs = _load(loader)
        if _rows(inputs) <= SMALL_ROWS:
            settings.enter_context(for_small_tables(spark))
        tables_due, chosen = _chosen(checks, options.paths)
        with _failing("the members' identities could not be compared"):
            known = known_of(inputs) if options.paths.data else {}
            foreign = foreign_members(known)
        kin = {member.name for member in known.keys() - {one.member for one in foreign}}
        inputs = _keep(without(inputs, foreign), tables_due, stage, progress)
        named: NamedChecks = [(NAME, partial(findings_of, foreign=foreign)), *chosen] if options.paths.data else chosen
        found = _run_checks(spark, inputs, named, stage.location("current/findings"), progress)
        progress.step("writing tables")
        with _failing("the tables could not be written"):
            withdraw_verdict(out)
            tables.write(options.out, inputs, found, loader.segment_files)
            verdict = _verdict(spark, options, inputs, kin, [name for name, _ in named])
        verdict = msgspec.structs.replace(
            verdict,
            files_read_anew=loader.read_again,
            wall_seconds=round(time.monotonic() - started, 2),
        )
        progress.step("drawing the report")
        write_verdict(out, verdict)
        _draw(spark, out, verdict)
        loader.finish()
    return verdict


def draw_again(spark: SparkSession, out: Place) -> Verdict:
    """The report of an earlier run, from its tables and its verdict. Raises LoadingError, AuditError, OSError."""
    try:
        verdict = read_verdict(out, spark)
    except (OSError, msgspec.DecodeError) as error:
        raise LoadingError(f"there is no audit in {out} ({error}): run `pidkeeper audit run --out {out}`") from error
    _draw(spark, open_store(out, spark), verdict)
    return verdict


def _draw(spark: SparkSession, out: Store, verdict: Verdict) -> None:
    with _failing("the report could not be drawn"):
        write_report(spark, out, verdict)


@contextlib.contextmanager
def _stage(options: AuditOptions, spark: SparkSession) -> Iterator[Store]:
    """The state, else a folder in the output directory, where executors can write, until the end of the run."""
    stage = open_store(options.state or join_place(options.out, f"{STAGE_PREFIX}{secrets.token_hex(8)}"), spark)
    stage.make()
    try:
        yield stage
    finally:
        if options.state is None:
            # What ended the run is the news, and not that the folder could not be removed on top of it.
            with contextlib.suppress(OSError):
                stage.delete()


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """What Spark and Java throw becomes an AuditError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise AuditError(f"{what}: {first_line(error)}") from error


def _load(loader: Loader) -> AuditInputs:
    try:
        return loader.load()
    except (PySparkException, Py4JError) as error:
        raise _explained(error) from error


def _rows(inputs: AuditInputs) -> int:
    """Of the large tables; Parquet knows their number."""
    large = (inputs.archive_blocks, inputs.log_records, inputs.batches)
    return reduce(DataFrame.unionAll, [table.select(F.lit(1)) for table in large]).count()


def _keep(inputs: AuditInputs, due: Sequence[Derivation], stage: Store, progress: Progress) -> AuditInputs:
    """The inputs with the tables that checks share, as Parquet. Raises AuditError."""

    def save(name: str, frame: DataFrame) -> DataFrame:
        progress.step(name.replace("_", " "))
        path = stage.location(f"current/{name}")
        frame.write.mode("overwrite").parquet(path)
        return frame.sparkSession.read.schema(frame.schema).parquet(path)

    with _failing("the files could not be compared"):
        return keep(inputs, due, save)


def _explained(error: Exception) -> Exception:
    """A bad file that ends the run, without the trace of the worker that met it."""
    for line in str(error).splitlines():
        _, _, message = line.partition("BadFileError: ")
        if message:
            return LoadingError(f"{message} (--on-bad-file report goes on behind it)")
    return AuditError(f"the files could not be read: {first_line(error)}")


def _chosen(checks: Checks, paths: AuditPaths) -> tuple[Sequence[Derivation], NamedChecks]:
    of_quorum = (checks.quorum_tables, checks.quorum) if paths.data else ((), ())
    of_segments = (checks.segment_tables, checks.segments) if paths.segments else ((), ())
    return [*of_quorum[0], *of_segments[0]], [*of_quorum[1], *of_segments[1]]


def _run_checks(
    spark: SparkSession, inputs: AuditInputs, checks: NamedChecks, folder: str, progress: Progress
) -> DataFrame:
    """The findings of all checks, in a file, so that whoever asks does not run them again.

    They are one query: then Spark does once what several have in common.
    """
    if not checks:
        return spark.createDataFrame([], FINDINGS)
    progress.step(f"{len(checks)} checks")
    with _failing("the checks failed"):
        planned = [check(inputs).select(*FINDINGS.fieldNames()) for _, check in checks]
        reduce(DataFrame.unionByName, planned).write.mode("overwrite").parquet(folder)
    return spark.read.schema(FINDINGS).parquet(folder)


def _verdict(
    spark: SparkSession, options: AuditOptions, inputs: AuditInputs, members: set[str], ran: list[str]
) -> Verdict:
    out, paths = options.out, options.paths
    found = tables.read(spark, out, "findings").groupBy("check", "severity").count().collect()
    counts = {name: CheckCount() for name in ran}
    for row in found:
        setattr(counts.setdefault(row["check"], CheckCount()), f"{row['severity']}s", row["count"])
    files = tables.read(spark, out, "files")
    bad = F.coalesce(F.sum((F.col("problems") > 0).cast("int")), F.lit(0))
    counted = files.agg(F.count("*"), bad).first()
    blocks = tables.read(spark, out, "blocks")
    facts = blocks.agg(
        F.count("*"),
        F.coalesce(F.sum(F.col("last_id") - F.col("first_id") + 1), F.lit(0)),
        F.min("timestamp_ms"),
        F.max("timestamp_ms"),
        F.max("last_id"),
        F.countDistinct(F.when(F.col("broker_id") != OWN, F.col("broker_id"))),
    ).first()
    batches = (
        tables.read(spark, out, "batches_daily")
        .agg(F.coalesce(F.sum("batches"), F.lit(0)), F.min("first_timestamp_ms"), F.max("last_timestamp_ms"))
        .first()
    )
    assert counted is not None and facts is not None and batches is not None, "an aggregate without groups has one row"
    violations = sum(count.violations for count in counts.values())
    seen = gather(inputs, members, batches[0], quorum=bool(paths.data), segments=bool(paths.segments))
    coverage = judge(seen)
    named = files.where("problems > 0").orderBy("file").limit(MAX_NAMED_BAD_FILES).collect() if counted[1] else []
    return Verdict(
        verdict="violations" if violations else "incomplete" if coverage.unseen else "clean",
        violations=violations,
        warnings=sum(count.warnings for count in counts.values()),
        notes=sum(count.notes for count in counts.values()),
        checks=counts,
        files_read=counted[0],
        files_bad=counted[1],
        bad_files=[BadFile(row.file, row.kinds, row.first_position, row.detail) for row in named],
        blocks=facts[0],
        ids=facts[1],
        batches=batches[0],
        first_ms=_least(facts[2], batches[1]),
        last_ms=_most(facts[3], batches[2]),
        highest_id=facts[4],
        brokers=facts[5],
        watermark=_watermark(inputs),
        coverage=coverage,
        pidkeeper_version=importlib.metadata.version("pidkeeper"),
    )


def _watermark(inputs: AuditInputs) -> Watermark:
    archived = inputs.archive_files.groupBy("member").agg(F.max("to_offset").alias("reach"))
    committed = inputs.log_records.where("committed").groupBy("member").agg((F.max("offset") + 1).alias("reach"))
    members = archived.unionByName(committed).groupBy("member").agg(F.max("reach").alias("reach")).collect()
    partitions = (
        inputs.batches.groupBy("topic", "partition")
        .agg(F.max("last_offset").alias("last"))
        .orderBy("topic", "partition")
    )
    named = partitions.limit(MAX_NAMED_PARTITIONS).collect()
    return Watermark(
        log_offsets={row.member: row.reach for row in members if row.reach is not None},
        partition_offsets={f"{row.topic}-{row.partition}": row.last for row in named},
        partitions=partitions.count(),
    )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None and value >= 0), default=None)


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None and value >= 0), default=None)
