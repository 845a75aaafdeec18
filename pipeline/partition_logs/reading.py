"""What the store has of the batches that the history names, and in what it is something else.

Objects never change: what an earlier audit found in one whose length and time are the same is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from pidkeeper.pipeline.engine.duck import make_tables
from pidkeeper.pipeline.engine.engine import Engine, Named
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.partition_logs import rolled_reading
from pidkeeper.pipeline.partition_logs.objects import FOUND, OBJECTS, NamedObject, ObjectsTask, read_objects, share
from pidkeeper.pipeline.partition_logs.store import STORED
from pidkeeper.pipeline.quorum.loading import add

KNOWN: Final = FOUND.append(pa.field("stamp", pa.string()))
"""What an audit leaves for the next one."""
TABLES: Final = {"found_batches": FOUND, "objects_seen": OBJECTS, "stored": STORED, "known_batches": KNOWN}
IN_FLIGHT: Final = 16
"""Objects that an agent may have put and not committed yet. With more of them the store is newer than the files."""

SETTLED_SQL: Final = """
create temp table settled_objects as
select b.object, any_value(stored_size) as bytes
from log_batches b join stored s on s.object = b.object and s.stamp <> ''
left join known_batches k
    on (k.object, k.stamp, k.position, k.size) = (b.object, s.stamp, b.position, b.size)
group by b.object having count(*) = count(k.object)
"""
RECALLED_SQL: Final = f"""
insert into found_batches by name
select distinct {", ".join(FOUND.names)} from known_batches join stored using (object, stamp)
semi join settled_objects using (object);
insert into objects_seen by name select object, 'read' as state, bytes from settled_objects
"""
DUE_SQL: Final = """
select distinct object, position, size from log_batches
where object is not null and object not in (select object from settled_objects) order by all
"""
REMEMBERED_SQL: Final = f"""
select distinct {", ".join(KNOWN.names)} from found_batches join stored using (object)
semi join log_batches using (object, position, size)
"""
BEHIND_SQL: Final = f"""
create temp table stored_ahead as
with named as (
    select object, regexp_extract(object, '^(wal|segments)/([-0-9a-f]+)/(\\d+)/(\\d+)/(\\d+)(?:/|$)',
        ['folder', 'founding', 'broker_id', 'broker_epoch', 'number']) as name
    from stored
),
numbered as (
    select name.folder as folder, name.founding as founding, try_cast(name.broker_id as integer) as broker_id,
        try_cast(name.broker_epoch as bigint) as broker_epoch, max(try_cast(name.number as bigint)) as number
    from named where name.founding in (select founding from coordinates union select founding from rolled) group by all
),
committed as (
    select broker_id, broker_epoch, max(number) as number
    from (select broker_id, broker_epoch, number from coordinates union all
        select broker_id, broker_epoch, number from commits) group by all
),
last_rolls as (
    select broker_id, max({{'broker_epoch': broker_epoch, 'number': number}}) as last
    from (select broker_id, broker_epoch, number from rolls union all
        select broker_id, broker_epoch, number from rolled) group by all
),
told as (
    select greatest((select max("offset") + 1 from records), (select max(next_offset) from snapshots)) as next_offset
)
select (select not bool_or(followed) from partition_logs) or exists (
    from numbered n left join committed c using (broker_id, broker_epoch), told
    where n.broker_epoch >= told.next_offset or n.folder = 'wal' and n.number > coalesce(c.number, -1) + {IN_FLIGHT}
) or exists (
    from numbered n left join last_rolls r using (broker_id) where n.folder = 'segments'
        and coalesce({{'broker_epoch': n.broker_epoch, 'number': n.number}} > r.last, true)
) as ahead
"""
"""Whether the store may have lost objects by right since the files were written: they end with a snapshot, or the store
has objects of which they should tell. One segment is enough, for the objects of its batches are deleted then. A
broker's epoch is an offset of the quorum's log."""
MISSING_SQL: Final = """
create temp table missing_objects as
select object from (select object, state from objects_seen union all select object, state from segments_seen),
    stored_ahead where state = 'missing' and not ahead
"""
FAULTS_SQL: Final = """
create temp table object_faults as
select row_id, coalesce(damage, nullif(concat_ws('; ',
    case when found_records <> records then format('records {}, not {}', found_records, records) end,
    case when found_offsets <> records then format('offsets {}, not {}', found_offsets, records) end,
    case when found_latest <> max_timestamp
        then format('latest timestamp {}, not {}', found_latest, max_timestamp) end,
    case when found_transactional <> transactional
        then format('transactional {}, not {}', found_transactional, transactional) end,
    case when found_control then 'it is a control batch' end,
    case when (found_id, found_epoch, found_sequence) <> (producer.id, producer.epoch, producer.sequence)
        then format('producer {}, epoch {}, sequence {}, not {}, {}, {}', found_id, found_epoch, found_sequence,
            producer.id, producer.epoch, producer.sequence) end), '')) as fault
from log_batches join found_batches using (object, position, size)
"""


def make_reading(con: Any) -> None:
    """The tables of what was read, without rows."""
    make_tables(con, TABLES | rolled_reading.TABLES)


def read_store(con: Any, engine: Engine, store: Location, known: Any | None) -> None:
    """Into `found_batches` and `objects_seen`, what the objects of `log_batches` have. Needs `stored`.

    known: a table of KNOWN, what `remembered` gave an earlier audit.
    """
    if known is not None:
        add(con, [("known_batches", batch) for batch in known.cast(KNOWN).to_batches()])
    con.execute(SETTLED_SQL)
    con.execute(RECALLED_SQL)
    add(con, _read(con, engine, store))


def judge_store(con: Any) -> None:
    """The tables `object_faults`, by `row_id`, and `stored_ahead`."""
    con.execute(FAULTS_SQL)
    con.execute(BEHIND_SQL)


def remembered(con: Any) -> Any:
    """For the next audit."""
    return con.sql(REMEMBERED_SQL).to_arrow_table().cast(KNOWN)


def judge_missing(con: Any, missed: frozenset[str]) -> None:
    """The tables `missing_objects`, which should be in the store, and `lost_objects`, those of them in `missed`.

    missed: what was not there, and named, at an earlier look. Whatever is missing for the first time may have been
    deleted by right while the others were read.
    """
    con.execute(MISSING_SQL)
    con.register("missed", pa.table({"object": pa.array(sorted(missed), pa.string())}))
    con.execute("create temp table lost_objects as from missing_objects semi join missed using (object)")
    con.unregister("missed")


def missing_objects(con: Any) -> frozenset[str]:
    """The names of objects that should be in the store, and were not."""
    return frozenset(name for (name,) in con.sql("select object from missing_objects").fetchall())


def _read(con: Any, engine: Engine, store: Location) -> Iterator[Named]:
    tasks = [ObjectsTask(store, shared) for shared in share(_objects(con), lambda one: one.cost)]
    cost = sum(one.cost for task in tasks for one in task.objects)
    return (LocalEngine() if cost <= engine.alone_bytes else engine).map(read_objects, tasks)


def _objects(con: Any) -> Iterator[NamedObject]:
    rows = con.execute(DUE_SQL).fetchall()
    for name, batches in groupby(rows, key=itemgetter(0)):
        yield NamedObject(name, [(position, size) for _, position, size in batches])
