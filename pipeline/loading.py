"""The tables that the checks look at, read once from the files and kept as Parquet in a stage directory.

A stage directory that stays is a state (`pipeline.watermark`): then archive files and Kafka segments that are known are
not read again. The write-ahead logs and the snapshots are read every time: what a later frame replaces or commits is
not in the file that grew alone, and members keep only a few megabytes of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, SUFFIXES, AuditPaths, LoadingError
from pidkeeper.pipeline.schemas import (
    ARCHIVE_BLOCKS,
    ARCHIVE_FILES,
    ARCHIVE_SNAPSHOTS,
    BATCHES,
    LOG_FILES,
    LOG_RECORDS,
    PROBLEMS,
)
from pidkeeper.pipeline.sources.files import FilePlace, parent
from pidkeeper.pipeline.sources.listing import Folder, list_folders
from pidkeeper.pipeline.sources.segment_files import SegmentFile, list_segments
from pidkeeper.pipeline.store import Place, open_store
from pidkeeper.pipeline.watermark import (
    Changes,
    LastBatch,
    Manifest,
    advance,
    archive_stamps,
    changes,
    load_manifest,
    save_manifest,
    segment_stamps,
    still_there,
)

_ARCHIVE: Final = "archive_blocks"
_BATCHES: Final = "batches"
_LAST_COLUMNS: Final = ("position", "base_offset", "crc")

Paths = Sequence[str | FilePlace]
"""For the option `paths` of a source: what a user named, or files that were found there."""


class Loader:
    """Fills a stage directory. `fail`: a bad file ends the run. Nothing counts before `finish`."""

    def __init__(self, spark: SparkSession, stage: Place, paths: AuditPaths, *, fail: bool = False) -> None:
        self._spark = spark
        self._store = open_store(stage, spark)
        self._paths = paths
        self._policy = "fail" if fail else "report"
        self._manifest: Manifest = load_manifest(self._store)
        self._generation = self._manifest.generation + 1
        self.segment_files: list[SegmentFile] = []
        self.read_again = 0
        """Files that were read, of those whose reading a state can save."""

    def load(self) -> AuditInputs:
        """Read what is new. Raises LoadingError if a path cannot be listed, StateError for a bad state."""
        self._discard_leftovers()
        data = {suffix: self._paths.having(suffix) for suffix in SUFFIXES}
        archive = data[ARCHIVE_SUFFIX] + data[SNAPSHOT_SUFFIX]
        try:
            blocks, archive_problems = self._archives(data[ARCHIVE_SUFFIX])
            batches, segment_problems = self._segments()
        except OSError as error:
            raise LoadingError(str(error)) from error
        snapshot_files = _files_named(data[SNAPSHOT_SUFFIX], SNAPSHOT_SUFFIX)
        problems = [
            archive_problems,
            segment_problems,
            self._fresh("snapshot_problems", "pidkeeper_archive", "problems", snapshot_files, PROBLEMS),
            self._fresh("log_problems", "pidkeeper_log", "problems", data[LOG_SUFFIX], PROBLEMS),
        ]
        return AuditInputs(
            archive_blocks=blocks,
            archive_files=self._fresh(
                "archive_files", "pidkeeper_archive", "files", data[ARCHIVE_SUFFIX], ARCHIVE_FILES
            ),
            snapshots=self._fresh("snapshots", "pidkeeper_archive", "snapshots", archive, ARCHIVE_SNAPSHOTS),
            log_records=self._fresh("log_records", "pidkeeper_log", "records", data[LOG_SUFFIX], LOG_RECORDS),
            log_files=self._fresh("log_files", "pidkeeper_log", "files", data[LOG_SUFFIX], LOG_FILES),
            batches=batches,
            problems=reduce(DataFrame.unionByName, problems).distinct(),
        )

    def finish(self) -> None:
        """Let what was read count from the next run on."""
        self._manifest.generation = self._generation
        save_manifest(self._store, self._manifest)

    def _discard_leftovers(self) -> None:
        """What a run that died wrote for the generation that is due now."""
        for table in (_ARCHIVE, _BATCHES):
            self._store.delete(self._name(table, self._generation))

    def _name(self, table: str, generation: int) -> str:
        return f"{table}/{generation:06d}"

    def _folder(self, table: str) -> str:
        """What Spark writes to."""
        return self._store.location(self._name(table, self._generation))

    def _archives(self, paths: list[str]) -> tuple[DataFrame, DataFrame]:
        listings = list_folders({"paths": json.dumps(paths)}, ARCHIVE_SUFFIX) if paths else []
        stamps = archive_stamps(listings)
        where = {one.folder.join(name): _place(one.folder, name) for one in listings for name in one.names}
        found = changes(self._manifest.files.get(_ARCHIVE, {}), stamps)
        fresh = [where[path] for path in found.read]
        if fresh:
            self._append(_ARCHIVE, self._read("pidkeeper_archive", "blocks", fresh, ARCHIVE_BLOCKS))
        read = {parent(path) for path in found.read}
        metas = [one.folder.beside("meta.json").path for one in listings if one.folder.path in read]
        known = self._problems_before(_ARCHIVE, [*found.read, *found.void, *metas])
        problems = known.unionByName(self._read("pidkeeper_archive", "problems", fresh, PROBLEMS))
        return self._noted(_ARCHIVE, stamps, found, ARCHIVE_BLOCKS), self._problems_now(_ARCHIVE, problems.distinct())

    def _segments(self) -> tuple[DataFrame, DataFrame]:
        self.segment_files = list_segments(self._paths.segments) if self._paths.segments else []
        stamps = segment_stamps(self.segment_files)
        files = {file.path: file for file in self.segment_files}
        before = self._manifest.files.get(_BATCHES, {})
        grown = self._grown([files[path] for path in changes(before, stamps).read if path in before], before, stamps)
        found = changes(before, stamps, grown)
        since = {path: last.position for path, last in grown.items()}
        fresh: Paths = [FilePlace(files[path].root, path) for path in found.read]
        options = {"since": json.dumps(since)}
        if fresh:
            rows = self._read("kafka_segment", "batches", fresh, BATCHES, **options)
            self._append(_BATCHES, _behind(rows, since, self._spark))
        known = self._problems_before(_BATCHES, [path for path in found.read if path not in since] + found.void)
        kept = _before(known, since, self._spark)
        problems = kept.unionByName(self._read("kafka_segment", "problems", fresh, PROBLEMS, **options))
        return self._noted(_BATCHES, stamps, found, BATCHES), self._problems_now(_BATCHES, problems)

    def _grown(
        self, files: Sequence[SegmentFile], before: dict[str, str], stamps: dict[str, str]
    ) -> dict[str, LastBatch]:
        """The known segments that were only added to, each with the last batch that the state has."""
        same_member = [file for file in files if _meta(before[file.path]) == _meta(stamps[file.path])]
        if not same_member:
            return {}
        rows = self._kept(_BATCHES, BATCHES)
        wanted = self._spark.createDataFrame([(file.path,) for file in same_member], "file string")
        newest = F.max(F.struct(*_LAST_COLUMNS)).alias("last")
        last = rows.join(F.broadcast(wanted), "file", "left_semi").groupBy("file").agg(newest).collect()
        found = {row.file: LastBatch(*(row.last[name] for name in _LAST_COLUMNS)) for row in last}
        return {
            file.path: found[file.path]
            for file in same_member
            if file.path in found and still_there(file, found[file.path])
        }

    # Tables of the stage.

    def _noted(self, table: str, stamps: dict[str, str], found: Changes, schema: StructType) -> DataFrame:
        self.read_again += len(found.read)
        advance(self._manifest, table, stamps, found)
        return self._kept(table, schema, self._generation)

    def _kept(self, table: str, schema: StructType, until: int | None = None) -> DataFrame:
        """The rows of all runs up to `until`, without those that are void."""
        last = self._manifest.generation if until is None else until
        stale = self._manifest.stale.get(table, {})
        there = set(self._store.names(table))
        names = {number: self._name(table, number) for number in range(1, last + 1) if f"{number:06d}" in there}
        frames = [(number, self._stored(name, schema)) for number, name in names.items()]
        if not frames:
            return self._empty(schema)
        if not stale:
            return reduce(DataFrame.unionByName, [frame for _, frame in frames])
        numbered = reduce(DataFrame.unionByName, [frame.withColumn("_g", F.lit(number)) for number, frame in frames])
        void = self._spark.createDataFrame(list(stale.items()), "file string, _from int")
        joined = numbered.join(F.broadcast(void), "file", "left")
        return joined.where(F.col("_from").isNull() | (F.col("_g") >= F.col("_from"))).select(*schema.fieldNames())

    def _append(self, table: str, rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(self._folder(table))

    def _stored(self, name: str, schema: StructType) -> DataFrame:
        return self._spark.read.schema(schema).parquet(self._store.location(name))

    def _problems_before(self, table: str, changed: list[str]) -> DataFrame:
        name = self._name(f"{table}_problems", self._generation - 1)
        if not self._store.exists(name):
            return self._empty(PROBLEMS)
        gone = self._spark.createDataFrame([(file,) for file in changed], "file string")
        return self._stored(name, PROBLEMS).join(F.broadcast(gone), "file", "left_anti")

    def _problems_now(self, table: str, problems: DataFrame) -> DataFrame:
        name = self._name(f"{table}_problems", self._generation)
        problems.select(*PROBLEMS.fieldNames()).write.mode("overwrite").parquet(self._store.location(name))
        return self._stored(name, PROBLEMS)

    def _fresh(self, name: str, source: str, table: str, paths: Paths, schema: StructType) -> DataFrame:
        """A table that every run reads whole."""
        if not paths:
            return self._empty(schema)
        current = f"current/{name}"
        self._read(source, table, paths, schema).write.mode("overwrite").parquet(self._store.location(current))
        return self._stored(current, schema)

    def _read(self, source: str, table: str, paths: Paths, schema: StructType, **options: str) -> DataFrame:
        if not paths:
            return self._empty(schema)
        reader = self._spark.read.format(source).option("table", table).option("on_bad_file", self._policy)
        return reader.options(**options).option("paths", json.dumps(paths)).load()

    def _empty(self, schema: StructType) -> DataFrame:
        return self._spark.createDataFrame([], schema)


def _seen(rows: DataFrame, since: dict[str, int], spark: SparkSession) -> tuple[DataFrame, Column]:
    """Rows with the column `_since`: where the last batch stands that the state has of a file; null if all is new.

    That batch is read again, so that the next one is judged beside it.
    """
    positions = spark.createDataFrame(list(since.items()), "file string, _since long")
    return rows.join(F.broadcast(positions), "file", "left"), F.col("_since").isNull()


def _behind(rows: DataFrame, since: dict[str, int], spark: SparkSession) -> DataFrame:
    """The rows that the state does not have yet."""
    joined, new = _seen(rows, since, spark)
    return joined.where(new | (F.col("position") > F.col("_since"))).select(*rows.columns)


def _before(problems: DataFrame, since: dict[str, int], spark: SparkSession) -> DataFrame:
    """The problems in front of that batch; what is wrong with it and behind it is read again."""
    joined, new = _seen(problems, since, spark)
    return joined.where(new | (F.col("position") < F.col("_since"))).select(*problems.columns)


def _meta(stamp: str) -> str:
    return stamp.rpartition(";")[2]


def _place(folder: Folder, name: str) -> FilePlace:
    return FilePlace(folder.root, folder.join(name))


def _files_named(paths: list[str], suffix: str) -> list[FilePlace]:
    if not paths:
        return []
    listings = list_folders({"paths": json.dumps(paths)}, suffix)
    return [_place(one.folder, name) for one in listings for name in one.names]
