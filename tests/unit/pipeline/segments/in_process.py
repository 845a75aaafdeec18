"""The kernels of segments run one after the other in this process, and what comes of them in one database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import DIRECT
from pidkeeper.pipeline.segments.allocation import Allocated
from pidkeeper.pipeline.segments.conclude import ConcludeSettings, conclude
from pidkeeper.pipeline.segments.judge import JudgeSettings, judge_producers
from pidkeeper.pipeline.segments.plan import SegmentPlan, plan_segments
from pidkeeper.pipeline.segments.read import ReadSettings, read_segments
from pidkeeper.pipeline.segments.segment_files import list_segments
from pidkeeper.pipeline.segments.shares import conclude as conclude_shares
from pidkeeper.pipeline.segments.tables import EVIDENCE
from tests.unit.pipeline.segments.logs import Log, write

BUCKETS: Final = 3
FINDINGS: Final = """
create table findings (
    "check" varchar, severity varchar, subject varchar, first_id bigint, last_id bigint, broker_id integer,
    "offset" bigint, topic varchar, "partition" integer, timestamp_ms bigint, member varchar, file varchar,
    "position" bigint, detail varchar
)
"""


class Finding(NamedTuple):
    """A row of findings, in the order of its columns."""

    check: str
    severity: str
    subject: str
    first_id: int | None
    last_id: int | None
    broker_id: int | None
    offset: int | None
    topic: str | None
    partition: int | None
    timestamp_ms: int | None
    member: str | None
    file: str | None
    position: int | None
    detail: str


def runs(blocks: Iterable[tuple[int, int]]) -> Allocated | None:
    """The IDs of blocks, first and last ID of each, as settings have them."""
    merged: list[list[int]] = []
    for first, last in sorted(blocks):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(last, merged[-1][1])
        else:
            merged.append([first, last])
    if not merged:
        return None
    bounds = np.array(merged, np.int64)
    return Allocated(bounds[:, 0], bounds[:, 1])


def shuffled(plan: SegmentPlan, settings: JudgeSettings | None, buckets: int = BUCKETS) -> Iterator[tuple[str, Any]]:
    """The evidence of all tasks, and of all buckets if there are settings for them."""
    given: list[list[tuple[str, Any]]] = [[] for _ in range(buckets)]
    read = partial(read_segments, settings=ReadSettings(buckets))
    for bucket, name, rows in (each for task in plan.tasks for each in read(task)):
        assert bucket in range(DIRECT, buckets)
        if bucket == DIRECT:
            yield name, rows
        else:
            given[bucket].append((name, rows))
    if settings is not None:
        for bucket, blobs in enumerate(given):
            yield from judge_producers(bucket, iter(blobs[::-1]), settings)


@contextmanager
def evidence(plan: SegmentPlan, settings: JudgeSettings | None, buckets: int = BUCKETS) -> Iterator[Any]:
    """A database with the evidence, `files` and empty findings."""
    found: dict[str, list[Any]] = {name: [] for name in EVIDENCE}
    for name, rows in shuffled(plan, settings, buckets):
        assert rows.schema == EVIDENCE[name], f"{name}: {rows.schema}"
        assert rows.num_rows, f"{name} without a row"
        found[name].append(rows)
    with connect() as con:
        tables = {name: pa.Table.from_batches(rows, EVIDENCE[name]) for name, rows in found.items()}
        for name, table in (tables | {"files": plan.files}).items():
            con.register("given", table)
            con.execute(f"create table {name} as from given")
        con.execute(FINDINGS)
        yield con


def findings_of(con: Any) -> list[Finding]:
    return [Finding(*row) for row in con.execute("from findings order by all").fetchall()]


def audit(
    place: Path | tuple[Path, Sequence[Log]],
    blocks: Iterable[tuple[int, int, int]] = ((0, 999_999, 1),),
    *,
    shares: bool = False,
    policies: Mapping[str, str | None] | None = None,
    range_bytes: int = 1 << 26,
    settings: JudgeSettings | None = None,
    concluding: ConcludeSettings | None = None,
    buckets: int = BUCKETS,
) -> list[Finding]:
    """The findings in what lies at a place, or in logs that are written there. `blocks`: first ID, last ID, broker."""
    if not isinstance(place, Path):
        place, logs = place
        write(place, logs)
    blocks = list(blocks)
    plan = plan_segments(list_segments([str(place)]), policies, range_bytes=range_bytes)
    settings = settings or JudgeSettings(runs(block[:2] for block in blocks))
    with evidence(plan, settings, buckets) as con:
        conclude(con, concluding)
        if shares:
            con.execute("create table allocated_blocks (first_id bigint, last_id bigint, broker_id integer)")
            con.executemany("insert into allocated_blocks values (?, ?, ?)", blocks)
            conclude_shares(con)
        found = findings_of(con)
    assert all(row.detail and "?" not in row.detail and row.subject for row in found), found
    return found
