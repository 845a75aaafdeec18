"""The verdict: what came out, in figures, for programs."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from pidkeeper.pipeline.files.location import Location

SCHEMA_VERSION: Final = 3
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


class LogsCovered(msgspec.Struct, frozen=True):
    """What was covered of partition logs, of which the quorum has the order and a store the bytes.

    `batches`: those that some log has now, in so many `objects`. `objects_read`: by this audit or an earlier one into
    the same ledger; `objects_unreadable`: that are there and could not be read; `objects_gone`: that are not there,
    while the store is newer than the members' files. `batches_nowhere`: in objects whose names no file tells.

    `segments`: of the logs, which take the place of older batches; `segments_read`, `segments_unreadable`,
    `segments_gone`: as of objects, and so of their indices. `segment_batches`, control batches included, and
    `segment_bytes`: of what was read. `offsets_rolled`: that are in segments; `offsets_read`: in those that were read.
    `segments_unnamed`: in the store, and no log has them: until they are deleted.
    `groups`, `group_offsets`: consumer groups by the newest file, and their offsets, pending ones too.
    `stateless`: there are batches, and no file has the state that they are of.
    """

    store: str | None = None
    logs: int = 0
    batches: int = 0
    objects: int = 0
    objects_read: int = 0
    objects_unreadable: int = 0
    objects_gone: int = 0
    bytes_read: int = 0
    batches_nowhere: int = 0
    segments: int = 0
    segments_read: int = 0
    segments_unreadable: int = 0
    segments_gone: int = 0
    segment_batches: int = 0
    segment_bytes: int = 0
    offsets_rolled: int = 0
    offsets_read: int = 0
    segments_unnamed: int = 0
    groups: int = 0
    group_offsets: int = 0
    stateless: bool = False


class Coverage(msgspec.Struct, frozen=True):
    """What was covered.

    `members`: of the quorum, whose files were read. `voters`: how many the quorum has by the newest configuration in
    any file; null where none names any. Log offsets `from_offset` to before `to_offset`; null without any. `unseen`:
    what was not looked at, a sentence each. `logs`: null where no member tells of partition logs.
    """

    members: list[str] = []
    voters: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    unseen: list[str] = []
    logs: LogsCovered | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The contents of `verdict.json`. Times are milliseconds since the epoch; null without anything.

    `violations`: a check found one. `incomplete`: none did, but `coverage.unseen` says what was not looked at. `clean`:
    neither. `files_read`: all files that count; `files_read_anew`: archive files and segments of them that no earlier
    run with this state had read.
    """

    verdict: Literal["clean", "violations", "incomplete"]
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
    coverage: Coverage
    pidkeeper_version: str
    schema_version: int = SCHEMA_VERSION
    files_read_anew: int = 0
    wall_seconds: float = 0.0


def covered_text(coverage: Coverage) -> str:
    """For the eye: whose files, of how many, which log offsets, and what of partition logs."""
    if not coverage.members:
        return "no member of the quorum"
    names, word = ", ".join(coverage.members), "member" if len(coverage.members) == 1 else "members"
    of = "" if coverage.voters is None else f" of a quorum with {coverage.voters} voters"
    offsets = "no log offset"
    if coverage.from_offset is not None and coverage.to_offset is not None:
        offsets = f"log offsets {coverage.from_offset:,} to {coverage.to_offset - 1:,}"
    return f"{word} {names}{of}, {offsets}{'' if coverage.logs is None else _logs_text(coverage.logs)}"


def _logs_text(logs: LogsCovered) -> str:
    read = "no store" if logs.store is None else f"of which {_many(logs.objects_read, 'was', 'were')} read"
    batches, objects = _many(logs.batches, "batch", "batches"), _many(logs.objects, "object", "objects")
    text = f"; {batches} of partition logs in {objects}, {read}"
    if logs.segments:
        read = "no store" if logs.store is None else f"{logs.offsets_read:,} of {logs.offsets_rolled:,} offsets"
        batches = _many(logs.segment_batches, "batch", "batches")
        text += f"; {batches} in {logs.segments_read:,} of {_many(logs.segments, 'segment', 'segments')}, {read}"
    if logs.groups:
        groups, offsets = _many(logs.groups, "group", "groups"), _many(logs.group_offsets, "offset", "offsets")
        text += f"; {groups} with {offsets}"
    return text


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def write_verdict(place: Location, verdict: Verdict) -> None:
    """Write `verdict.json` into a directory, whole or not at all. Raises OSError."""
    (place / NAME).write(msgspec.json.format(msgspec.json.encode(verdict)) + b"\n")


def read_verdict(place: Location) -> Verdict:
    """That of an earlier run. Raises OSError, msgspec.DecodeError."""
    return msgspec.json.decode((place / NAME).read(), type=Verdict)
