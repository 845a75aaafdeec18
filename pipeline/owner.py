"""Who owns or owned a producer ID: from the tables that an audit left, long after it. Needs no Spark and no Java.

They are read as Parquet, wherever inputs of an audit can be, with the ID as a filter on row groups; beside the answer
itself nothing is kept in memory but one batch of rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.ledger import RUNS, Commit, Ledger, LedgerError

BLOCK_COLUMNS: Final = {
    "first_id": "int64",
    "last_id": "int64",
    "offset": "int64",
    "broker_id": "int32",
    "broker_epoch": "int64",
    "timestamp_ms": "int64",
    "members": "int64",
}
"""Of the table `blocks`, with their types in Parquet."""
FINDING_COLUMNS: Final = {
    "check": "string",
    "severity": "string",
    "subject": "string",
    "first_id": "int64",
    "last_id": "int64",
    "broker_id": "int32",
    "offset": "int64",
    "topic": "string",
    "partition": "int32",
    "timestamp_ms": "int64",
    "member": "string",
    "file": "string",
    "position": "int64",
    "detail": "string",
}
"""The same of `findings`."""
MAX_FINDINGS: Final = 20
"""So many are told of one ID; the rest are counted."""
MAX_BLOCKS: Final = 100
"""The same for blocks. An ID should be in one; a hundred show how it went wrong."""

T = TypeVar("T")
IdPlace = Literal["owned", "owned_twice", "above", "below", "between", "no_blocks"]


class OwnerError(RuntimeError):
    """The tables cannot answer; the message says why and what to do."""


class Block(msgspec.Struct, frozen=True):
    """A row of the table `blocks`. `timestamp_ms`: when it was given. `members`: whose files have it."""

    first_id: int
    last_id: int
    offset: int | None
    broker_id: int
    broker_epoch: int
    timestamp_ms: int
    members: int

    @property
    def length(self) -> int:
        """How many IDs."""
        return self.last_id - self.first_id + 1


class Finding(msgspec.Struct, frozen=True):
    """A row of the table `findings`."""

    check: str
    severity: str
    subject: str
    first_id: int
    last_id: int
    broker_id: int | None
    offset: int | None
    topic: str | None
    partition: int | None
    timestamp_ms: int | None
    member: str | None
    file: str | None
    position: int | None
    detail: str


class Ownership(msgspec.Struct):
    """What an audit knows of one ID.

    `place`: in one block it is `owned`, in several `owned_twice`, which is a violation; or nobody has it, and it lies
    `above` or `below` all blocks, `between` two, or there are `no_blocks` at all. `blocks`: all that hold it, oldest
    first, of which the first MAX_BLOCKS are told. `block_below`, `block_above`: the neighbours of an ID that nobody
    has. `gap`: the finding of that check that names it. `findings`: of any check, those with the fewest IDs first;
    further ones are counted in `more_findings`. `members_audited`: how many there were to have the block.
    """

    producer_id: int
    place: IdPlace
    blocks: list[Block]
    more_blocks: int
    block_below: Block | None
    block_above: Block | None
    gap: Finding | None
    findings: list[Finding]
    more_findings: int
    members_audited: int


def find_owner(out: Location, producer_id: int) -> Ownership:
    """Ask the audit in `out`. Raises OwnerError; ImportError if pyarrow is not here."""
    audit = _audit(out)
    verdict, root = audit.commit.verdict, audit.place
    findings = sum(count.violations + count.warnings + count.notes for count in verdict.checks.values())
    run = root / RUNS / audit.commit.run
    files = [*(root / shard.blocks for shard in audit.commit.shards), run / "blocks_adrift.parquet"]
    blocks = _Table(audit, "blocks", files, BLOCK_COLUMNS, verdict.blocks)
    found = _Table(audit, "findings", [run / "findings.parquet"], FINDING_COLUMNS, findings)
    holding, more_blocks = _first(blocks.around(producer_id, Block), MAX_BLOCKS, _by_time)
    named, more_findings, gap = _findings(found, producer_id)
    below = above = None
    if holding:
        place: IdPlace = "owned" if len(holding) == 1 else "owned_twice"
    else:
        below, above = _neighbours(blocks, producer_id)
        place = _place(below, above)
    return Ownership(
        producer_id=producer_id,
        place=place,
        blocks=holding,
        more_blocks=more_blocks,
        block_below=below,
        block_above=above,
        gap=gap,
        findings=named,
        more_findings=more_findings,
        members_audited=len(verdict.watermark.log_offsets),
    )


class _Audit(NamedTuple):
    """The newest audit in an output directory. `again`: how to have it anew."""

    place: Location
    commit: Commit
    again: str


def _audit(out: Location) -> _Audit:
    again = f"run `pidkeeper audit run ... --out {out}`"
    try:
        ledger = Ledger(out)
        commit = ledger.newest()
    except (LedgerError, OSError) as error:
        raise OwnerError(f"the audit in {out} is out of reach: {_first_line(error)}") from error
    if commit is None:
        raise OwnerError(f"there is no audit in {out}, or none that came to its end: {again}")
    return _Audit(ledger.place, commit, again)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class _Table:
    """A table of an audit as a data set of Parquet files. Raises OwnerError if it is not what the verdict tells of."""

    def __init__(self, audit: _Audit, name: str, files: Sequence[Location], columns: dict[str, str], rows: int) -> None:
        self._name = name
        self._place = audit.place
        self._again = audit.again
        self._columns = list(columns)
        self._data: Any = None
        there = 0
        with _Explained(self):
            import pyarrow as pa
            import pyarrow.dataset as ds

            if files:
                found = [file.arrow() for file in files]
                paths = [path for _, path in found]
                self._data = ds.dataset(paths, format="parquet", filesystem=found[0][0])
                self._check_columns({column: pa.type_for_alias(kind) for column, kind in columns.items()})
                there = self._data.count_rows()
        if there != rows:
            raise self.error(f"it has {there:,} rows, and the audit tells of {rows:,}")

    def around(self, producer_id: int, shape: type[T]) -> Iterator[T]:
        """The rows whose IDs have this one among them."""
        import pyarrow.dataset as ds

        yield from self.rows((ds.field("first_id") <= producer_id) & (ds.field("last_id") >= producer_id), shape)

    def rows(self, condition: Any, shape: type[T]) -> Iterator[T]:
        """Those for which `condition` holds."""
        for batch in self.batches(self._columns, condition):
            try:
                yield from msgspec.convert(batch.to_pylist(), list[shape])  # type: ignore[valid-type]
            except msgspec.ValidationError as error:
                raise self.error(error) from error

    def batches(self, columns: list[str], condition: Any = None) -> Iterator[Any]:
        """The same as record batches."""
        if self._data is None:
            return
        with _Explained(self):
            yield from self._data.to_batches(columns=columns, filter=condition)

    def error(self, why: object) -> OwnerError:
        """Why this table cannot be used, and what to do."""
        return OwnerError(f"the table {self._name} in {self._place} cannot be used: {why}; {self._again}")

    def _check_columns(self, wanted: dict[str, Any]) -> None:
        there = {field.name: field.type for field in self._data.schema}
        wrong = [name for name, kind in wanted.items() if there.get(name) != kind]
        if wrong:
            raise self.error(f"no column {wrong[0]} of type {wanted[wrong[0]]}")


class _Explained:
    """What pyarrow throws at a damaged file, as an OwnerError."""

    def __init__(self, table: _Table) -> None:
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, pa.ArrowException | OSError):
            raise self._table.error(_first_line(error)) from error


def _by_time(block: Block) -> tuple[int, int]:
    return block.timestamp_ms, -1 if block.offset is None else block.offset


def _findings(table: _Table, producer_id: int) -> tuple[list[Finding], int, Finding | None]:
    """The findings that name the ID, how many more there are, and the narrowest one of `gap`."""
    gap: list[Finding] = []

    def named() -> Iterator[Finding]:
        for finding in table.around(producer_id, Finding):
            if finding.check == "gap":
                gap[:] = [min([*gap, finding], key=_by_span)]
            yield finding

    found, more = _first(named(), MAX_FINDINGS, _by_span)
    return found, more, gap[0] if gap else None


def _by_span(finding: Finding) -> tuple[int, str, int, str]:
    return finding.last_id - finding.first_id, finding.check, finding.first_id, finding.detail


def _first(rows: Iterator[T], limit: int, key: Callable[[T], Any]) -> tuple[list[T], int]:
    """The first rows in order of `key`, and how many others there are. Holds no more than `limit` at a time."""
    count = 0

    def counted() -> Iterator[T]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    first = heapq.nsmallest(limit, counted(), key=key)
    return first, count - len(first)


def _neighbours(table: _Table, producer_id: int) -> tuple[Block | None, Block | None]:
    """The block that ends nearest below an ID that nobody has, and the one that starts nearest above it."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    highest, lowest = -1, -1
    for batch in table.batches(["last_id"], ds.field("last_id") < producer_id):
        highest = max(highest, pc.max(batch.column(0)).as_py() if batch.num_rows else -1)
    for batch in table.batches(["first_id"], ds.field("first_id") > producer_id):
        if batch.num_rows:
            least = pc.min(batch.column(0)).as_py()
            lowest = least if lowest < 0 else min(lowest, least)
    below = _one(table, ds.field("last_id") == highest) if highest >= 0 else None
    above = _one(table, ds.field("first_id") == lowest) if lowest >= 0 else None
    return below, above


def _one(table: _Table, condition: Any) -> Block:
    found = min(table.rows(condition, Block), key=_by_time, default=None)
    assert found is not None, f"a block whose ID was just read is gone: {condition}"
    return found


def _place(below: Block | None, above: Block | None) -> IdPlace:
    if below is None:
        return "no_blocks" if above is None else "below"
    return "above" if above is None else "between"
