"""What is in doubt among all rows of a share of the producers.

Rows go blob by blob into a database that spills to disk, so a bucket may be larger than memory. What comes back is
small: faults, and sums of what has none. What an earlier audit judged is added: see keeping.py. Figures that go over
parts are carried on here, for every bucket has a row of each part; so a topic in which compaction left gaps everywhere
sends nothing to the driver.

Rows are gone over twice. First each producer is followed on from where it was spotless before. Who is in doubt then, or
was, is judged by all checks, from all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.engine.duck import TASK_MIB, connect, has_rows, make_tables
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.segments.allocation import Allocated, count_ids, find_ids, find_unallocated
from pidkeeper.pipeline.segments.burning import FEW_BATCHES, WINDOW_MS, count_producers, list_days
from pidkeeper.pipeline.segments.carrying import carry
from pidkeeper.pipeline.segments.doubts import find_doubtful
from pidkeeper.pipeline.segments.fencing import find_fenced
from pidkeeper.pipeline.segments.following import add, begin, end, follow
from pidkeeper.pipeline.segments.keeping import Keeping, Kept
from pidkeeper.pipeline.segments.sharing import EPOCH_SLACK_MS, find_shared
from pidkeeper.pipeline.segments.streams import PRODUCER_ID_EXPIRATION_MS, find_faults
from pidkeeper.pipeline.segments.tables import BATCHES, EVIDENCE, JUDGED, PARTS
from pidkeeper.pipeline.segments.transactions import HANGING_MS, find_open

MAX_ROWS: Final = 10_000
"""Rows of each kind of doubt that a bucket gives, the first by partition and offset. What is left is counted."""


class JudgeSettings(msgspec.Struct, frozen=True):
    """What is judged by. Milliseconds, and MiB for the database; `allocated` is None if no block is known.

    keeping: the ledger, None without one.
    """

    allocated: Allocated | None = None
    expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    hanging_ms: int = HANGING_MS
    slack_ms: int = EPOCH_SLACK_MS
    window_ms: int = WINDOW_MS
    few_batches: int = FEW_BATCHES
    max_rows: int = MAX_ROWS
    memory_mib: int = TASK_MIB
    keeping: Keeping | None = None


_BOUNDED: Final = {
    "faults": ("fault", "severity", "severity = 'note', severity = 'warning', partition_id, base_offset"),
    "fenced": ("'fenced_epoch'", "'violation'", "partition_id, base_offset"),
    "open_transactions": ("'hanging_transaction'", "'warning'", "age_ms desc, partition_id, base_offset"),
    "mixed": ("'shared_producer'", "'violation'", "producer_id"),
    "overtaken": (
        "'shared_producer'",
        "case when proven then 'violation' else 'note' end",
        "not proven, partition_id, base_offset",
    ),
    "unallocated": ("'unallocated'", "'violation'", "producer_id"),
}
"""Of the evidence with a row for each doubt: check, severity, and in which order the rows are kept."""
_SUMS: Final = ("unchecked_ids", "bursts", "producer_days", "producer_ids")


_PLACED: Final = """
create or replace temp view placed as select doubts.*, partition_id, file_id from {} as doubts join parts using (part)
"""
_PLACED_TWICE: Final = """
create or replace temp view placed as
select doubts.*, inside.file_id as inside_file, outside.file_id as outside_file
from {} as doubts
join parts as inside on inside.part = inside_part
join parts as outside on outside.part = outside_part
"""


def judge_producers(bucket: int, rows: Iterator[Named], settings: JudgeSettings) -> Iterator[Named]:
    """Kernel: the evidence of a bucket of `read_segments`."""
    with connect(settings.memory_mib) as con:
        load(con, rows)
        kept = Kept(con, bucket, settings.keeping, settings.allocated)
        kept.recall()
        _follow_on(con, settings)
        kept.reread()
        _judge(con, settings)
        kept.merge()
        yield from _found(con, settings)
        yield from kept.store()


def load(con: Any, rows: Iterator[Named]) -> None:
    """The tables `batches` and `parts` of a bucket, and the figures of the parts carried on over their logs."""
    for name, schema in (("batches", BATCHES), ("parts", PARTS)):
        con.register("given", schema.empty_table())
        con.execute(f"create temp table {name} as from given")
    for name, batch in rows:
        con.register("given", pa.Table.from_batches([batch]))
        con.execute(f"insert into {name} from given")
    con.unregister("given")
    carry(con)


def _follow_on(con: Any, settings: JudgeSettings) -> None:
    """The tables of `follow`, of new rows behind `known_epochs`, and who is `doubtful`."""
    if not has_rows(con, "batches"):
        make_tables(con, JUDGED, anew=True)
        return
    if has_rows(con, "known_epochs"):
        end(con, "known_epochs")
        follow(con)
        add(con, "known_epochs")
    else:
        begin(con)
        follow(con)
    list_days(con)
    find_doubtful(con, settings.slack_ms)


def _judge(con: Any, settings: JudgeSettings) -> None:
    """The tables of KEPT, of those of whom `batches` has all rows."""
    if not has_rows(con, "batches"):
        make_tables(con, JUDGED, anew=True)
        return
    begin(con)
    follow(con)
    con.execute("drop table batches")
    list_days(con)
    find_faults(con, settings.expiration_ms)
    find_doubtful(con, settings.slack_ms)
    find_open(con, settings.hanging_ms)
    find_fenced(con)
    find_shared(con)
    find_ids(con)
    find_unallocated(con, settings.allocated)


def _found(con: Any, settings: JudgeSettings) -> Iterator[Named]:
    find_ids(con)
    count_ids(con, settings.allocated)
    count_producers(con, settings.few_batches, settings.window_ms)
    for name, (check, severity, order) in _BOUNDED.items():
        count = _count(con, name)
        if count:
            con.execute((_PLACED_TWICE if name == "mixed" else _PLACED).format(name))
            yield from _evidence(con, name, f"from placed order by {order} limit {settings.max_rows}")
        if count > settings.max_rows:
            left = f"from placed order by {order} offset {settings.max_rows}"
            counted = f"select {check} as check, {severity} as severity, count(*) as rows from ({left}) group by all"
            yield from _evidence(con, "left_out", counted)
    for name in _SUMS:
        if _count(con, name):
            yield from _evidence(con, name, f"from {name}")


def _count(con: Any, name: str) -> int:
    ((count,),) = con.execute(f"select count(*) from {name}").fetchall()
    return int(count)


def _evidence(con: Any, name: str, query: str) -> Iterator[Named]:
    table = con.sql(query).to_arrow_table()
    for batch in table.select(EVIDENCE[name].names).cast(EVIDENCE[name]).to_batches():
        yield name, batch
