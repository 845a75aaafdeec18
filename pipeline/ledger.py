"""The memory of audits: what was audited, by whom that is believed, and what came out; in the output directory itself.

    commits/00000001.json   one for each audit, in order, never written again; the newest says what counts
    blocks/                 the blocks of each shard, as Parquet
    producers/              rows and judgements of Kafka's producers, as Parquet, in buckets
    runs/00000001-…/        what one audit left: verdict, report, findings and the other tables, evidence

A commit is the whole of an audit: a run that dies leaves files that no commit names, and nothing else. Of two that end
at the same time one gets the number, and the other is refused. The blocks of a shard that was judged again replace
those of before, and so do the files of a bucket; of all else nothing is ever removed.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import read_parquet, write_parquet
from pidkeeper.pipeline.verdict import Verdict

VERSION: Final = 1
COMMITS: Final = "commits"
BLOCKS: Final = "blocks"
PRODUCERS: Final = "producers"
RUNS: Final = "runs"
EVIDENCE_PREFIX: Final = "evidence-"
"""Of the tables of a run that later runs need not make again."""
_COMMIT_NAME: Final = re.compile(r"(\d{8})\.json")
_WRITTEN_NAME: Final = re.compile(r"\.?(\d{8})-[0-9a-f]{8}-\d{6,}(?:-\w+)?\.parquet")
"""See `Run.blocks_name` and `kept_name`; with a dot in front it is not whole."""


class LedgerError(RuntimeError):
    """The ledger cannot be used; the message says what to do."""


class KnownMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a quorum that has a number for good: its name, and the cluster, which is empty if none is known."""

    member_id: int
    name: str
    cluster_id: str


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a member that has a number for good."""

    file_id: int
    source: str
    member_id: int
    path: str


class Registry:
    """Gives numbers to members and files: to those that an earlier audit knew the same ones again."""

    def __init__(self, members: Iterable[KnownMember] = (), files: Iterable[KnownFile] = ()) -> None:
        self._members = {(one.name, one.cluster_id): one for one in members}
        self._files = {(one.member_id, one.path): one for one in files}
        self.next_file = max((one.file_id for one in self._files.values()), default=-1) + 1

    @property
    def members(self) -> list[KnownMember]:
        """All that ever were."""
        return list(self._members.values())

    @property
    def files(self) -> list[KnownFile]:
        """All that ever were."""
        return list(self._files.values())

    def member(self, name: str, cluster_id: str) -> int:
        """The number of a member."""
        new = KnownMember(len(self._members), name, cluster_id)
        return self._members.setdefault((name, cluster_id), new).member_id

    def file(self, source: str, member_id: int, path: str) -> int:
        """The number of a file."""
        known = self._files.setdefault((member_id, path), KnownFile(self.next_file, source, member_id, path))
        self.next_file = max(self.next_file, known.file_id + 1)
        return known.file_id


class KnownShard(msgspec.Struct, frozen=True, array_like=True):
    """A range of log offsets that was judged. `inputs`: a sum of all that it was judged from. `run`: by which audit.

    `blocks`: the name of its Parquet file, relative to the ledger.
    """

    number: int
    from_offset: int
    to_offset: int
    inputs: str
    run: str
    blocks: str


KeptFiles = dict[str, list[tuple[str, int]]]
"""By what is in them the files of a bucket of producers, relative to the ledger, and how many rows each has."""


class KnownSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment of Kafka that was read. `number`: another one whenever it was read from its beginning.

    stamp: empty if it is to be read in any case. whole: whether nothing compacted its topic. starts: of its parts.
    """

    number: int
    root: str
    path: str
    member: str
    size: int
    stamp: str
    whole: bool
    starts: list[int]


class KnownSegments(msgspec.Struct, frozen=True):
    """All that is known of Kafka's segments. `run`: which audit left the evidence of their files.

    segments: in the order of their logs. next_number: for one that has none. version: of what is kept of them.
    """

    run: str
    next_number: int
    segments: list[KnownSegment]
    buckets: list[KeptFiles]
    version: int


class Commit(msgspec.Struct):
    """What counts after an audit. `held`: by member, the log offsets that its files had, from, to before.

    `cluster`: whose, None if no file said so.
    """

    number: int
    run: str
    at_ms: int
    verdict: Verdict
    members: list[KnownMember] = []
    files: list[KnownFile] = []
    shards: list[KnownShard] = []
    held: dict[str, list[tuple[int, int]]] = {}
    cluster: str | None = None
    segments: KnownSegments | None = None
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int


class Ledger:
    """One of a directory. Every method may raise OSError."""

    def __init__(self, place: Location) -> None:
        self.place = place

    def newest(self) -> Commit | None:
        """What counts; None if nothing was ever audited here. Raises LedgerError if it cannot be read."""
        names = [name for name in (self.place / COMMITS).names() if _COMMIT_NAME.fullmatch(name)]
        return self.commit(int(max(names)[:8])) if names else None

    def commit(self, number: int) -> Commit:
        """That of an audit. Raises LedgerError."""
        path = self.place / COMMITS / _name(number)
        try:
            data = path.read()
            found = msgspec.json.decode(data, type=_Version).version
            if found == VERSION:
                return msgspec.json.decode(data, type=Commit)
        except (OSError, msgspec.DecodeError) as error:
            raise LedgerError(
                f"{path} cannot be read ({error}): bring it back, or name another --out and audit everything again"
            ) from error
        raise LedgerError(f"{path} is of version {found}, this build knows {VERSION}: name another --out")

    def begin(self, last: Commit | None) -> Run:
        """A run behind `last`."""
        return Run(self, 1 if last is None else last.number + 1)


class Run:
    """One audit on its way. What it writes counts from `finish` on."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self.number = number
        self.name = f"{number:08d}-{secrets.token_hex(4)}"
        self.place = ledger.place / RUNS / self.name

    def blocks_name(self, shard: int) -> str:
        """Of the file for the blocks of a shard, relative to the ledger."""
        return f"{BLOCKS}/{self.name}-{shard:06d}.parquet"

    def write_table(self, name: str, table: Any) -> None:
        """One of the tables of the run."""
        write_parquet(self.place / f"{name}.parquet", table)

    def discard(self) -> None:
        """Remove what was written to be kept, for it will not count. Where nothing may be deleted, it stays."""
        with contextlib.suppress(OSError):
            for folder in (BLOCKS, PRODUCERS):
                for name in (self._ledger.place / folder).names():
                    if name.startswith(f"{self.name}-"):
                        (self._ledger.place / folder / name).delete()

    def finish(self, commit: Commit) -> None:
        """Let it count. Raises LedgerError if another one has ended meanwhile."""
        try:
            (self._ledger.place / COMMITS / _name(commit.number)).create(msgspec.json.encode(commit))
        except FileExistsError as error:
            raise LedgerError(
                f"another audit has finished in {self._ledger.place} meanwhile: run this one again"
            ) from error
        self._sweep(commit)

    def _sweep(self, commit: Commit) -> None:
        """Remove what earlier runs wrote that no shard and no bucket has any more.

        Those of this number stay until the next one: another run that has it may be about to end, and will be refused.
        Where nothing may be deleted, they stay; the commit names what counts.
        """
        buckets = [] if commit.segments is None else commit.segments.buckets
        kept = {shard.blocks for shard in commit.shards}
        kept |= {file for bucket in buckets for files in bucket.values() for file, _ in files}
        with contextlib.suppress(OSError):
            for folder in (BLOCKS, PRODUCERS):
                for name in (self._ledger.place / folder).names():
                    written = _WRITTEN_NAME.match(name)
                    if written is not None and int(written[1]) < commit.number and f"{folder}/{name}" not in kept:
                        (self._ledger.place / folder / name).delete()


def evidence_of(ledger: Ledger, shards: Iterable[KnownShard], schemas: dict[str, Any]) -> Iterator[Named]:
    """What earlier runs found in these shards."""

    by_run: dict[str, list[int]] = {}
    for shard in shards:
        by_run.setdefault(shard.run, []).append(shard.number)
    for run, numbers in by_run.items():
        place = ledger.place / RUNS / run
        there = set(place.names())
        for name, schema in schemas.items():
            if f"{EVIDENCE_PREFIX}{name}.parquet" in there:
                table = read_parquet(place / f"{EVIDENCE_PREFIX}{name}.parquet").cast(schema)
                wanted = table.filter(pc.is_in(table["shard"], pa.array(numbers, pa.int32())))
                yield from ((name, batch) for batch in wanted.to_batches())


def kept_name(run: str, bucket: int, name: str) -> str:
    """Of a file of a bucket, relative to the ledger. `name`: what is in it."""
    return f"{PRODUCERS}/{run}-{bucket:06d}-{name}.parquet"


def _name(number: int) -> str:
    return f"{number:08d}.json"
