"""The verdict: what came out, in figures, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from pidkeeper.pipeline.store import Place, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA_VERSION: Final = 1
"""Of `verdict.json` and of the tables: goes up when a name or a type changes."""
NAME: Final = "verdict.json"


class CheckCount(msgspec.Struct):
    """Findings of one check by severity."""

    violations: int = 0
    warnings: int = 0
    notes: int = 0


class BadFile(msgspec.Struct, frozen=True):
    """A file that could not be read, or not wholly. `kinds`: words of pipeline.formats.problems."""

    file: str
    kinds: str
    position: int | None
    detail: str


class Watermark(msgspec.Struct, frozen=True):
    """How far the audit saw: by member the log offset before which all is audited, by partition the last offset.

    `partitions`: how many there are; of more than a hundred the first hundred are named.
    """

    log_offsets: dict[str, int] = {}
    partition_offsets: dict[str, int] = {}
    partitions: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """The contents of `verdict.json`. Times are milliseconds since the epoch; null without anything.

    `files_read`: all files that count; `files_read_anew`: archive files and segments of them that no earlier run with
    this state had read. A malformed file is a warning: it is named, and does not make the verdict `violations`.
    """

    verdict: Literal["clean", "violations"]
    violations: int
    warnings: int
    notes: int
    checks: dict[str, CheckCount]
    files_read: int
    files_bad: int
    bad_files: list[BadFile]
    blocks: int
    ids: int
    batches: int
    brokers: int
    highest_id: int | None
    first_ms: int | None
    last_ms: int | None
    watermark: Watermark
    pidkeeper_version: str
    schema_version: int = SCHEMA_VERSION
    files_read_anew: int = 0
    wall_seconds: float = 0.0


def withdraw_verdict(out: Store) -> None:
    """Take away the verdict of an earlier run, before its tables are written over: without one they are unfinished.

    Raises OSError.
    """
    out.delete(NAME)


def write_verdict(out: Store, verdict: Verdict) -> None:
    """Write `verdict.json` into the output directory, whole or not at all. Raises OSError."""
    out.write(NAME, msgspec.json.format(msgspec.json.encode(verdict)) + b"\n")


def read_verdict(out: Place, spark: SparkSession | None = None) -> Verdict:
    """That of an earlier run; a URI needs the session. Raises OSError, msgspec.DecodeError."""
    return msgspec.json.decode(open_store(out, spark).read(NAME), type=Verdict)
