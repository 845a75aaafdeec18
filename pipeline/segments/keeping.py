"""What a bucket of producers has in the ledger: all their rows, and what was judged of each producer.

A producer with nothing new is not judged again, and one that was spotless is followed on from where it ended. Who was
doubtful, or is now, is judged from all rows there are. Rows that go away, as retention takes them from the start of a
log, leave the others of a spotless producer as they were: a segment goes as a whole, and with it what is known of it.
That does not hold for one that wrote in transactions, whose markers may go, nor if a segment goes from between others,
whose parts stay as `stirred`. Three things besides rows go into a judgement, and so:

- offsets missing, and damage, between two rows: what lies between them changed, and the parts around it are `stirred`;
- time, for open transactions: their producers are judged in every audit;
- what is allocated: an ID that was, and is not any more, is judged again for the place of its first batch.

Rows are sorted by producer in small groups, of which few are read for a few producers. Each audit adds a file, which
takes in those before it that have at most twice as many rows: there are never many, and none is written often.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import layout, write_parquet
from pidkeeper.pipeline.ledger import KeptFiles, kept_name
from pidkeeper.pipeline.segments.allocation import Allocated, are_unallocated
from pidkeeper.pipeline.segments.tables import BATCHES, KEPT, KEPT_FILES

ROWS: Final = "rows"
GROUP_ROWS: Final = 4096
GROUPS_AT_ONCE: Final = 64
"""Of rows in memory: 20 MiB."""
KEY: Final = pa.int64()

Array = npt.NDArray[Any]

_OF_SEGMENTS: Final = ("producer_epochs", "dated")
"""What is known of each segment by itself, and goes with it."""
_NOBODY: Final[Array] = np.zeros(0, np.int64)
_PLACED: Final = """
create or replace temp table {} as select given.*, log_id, partition_id from given join parts using (part)
"""
_ONCE_A_DAY: Final = """
create or replace temp table dated as
with grown as (select distinct part from spotless_days)
select distinct producer_id, part, day
from (from dated semi join grown using (part) union all by name from spotless_days)
union all by name
from dated anti join grown using (part)
"""
_NEW_ROWS: Final = "select batches.* replace (parts.key as part) from batches join parts using (part)"


class Keeping(msgspec.Struct, frozen=True):
    """place: the ledger. run: names what is written. buckets: what an earlier audit left of each.

    gone: keys of parts that are gone. stirred: of those whose rows have others between them now. Both sorted, int64.
    """

    place: Location
    run: str
    buckets: list[KeptFiles] = []
    gone: bytes = b""
    stirred: bytes = b""


class Kept:
    """Of one bucket, whose connection has `batches` and `parts`. Without `keeping` there is nothing, and nothing stays.

    `recall` leaves in `batches` the rows to be followed on from `known_epochs`. When the tables of `follow` are made of
    them, and `doubtful`, `reread` puts in their place all rows of those who are judged closely. When the tables of KEPT
    are made of these, `merge` completes them, and `store` writes them.
    """

    def __init__(self, con: Any, bucket: int, keeping: Keeping | None, allocated: Allocated | None) -> None:
        self._con = con
        self._bucket = bucket
        self._keeping = keeping
        self._allocated = allocated
        self._files: KeptFiles = dict(keeping.buckets[bucket]) if keeping and bucket < len(keeping.buckets) else {}
        self._rows_before = self._files.get(ROWS, [])
        self._known = {name: self._table(name) for name in KEPT}
        numbers = con.sql("select key, part from parts order by key").fetchnumpy()
        self._keys, self._numbers = np.asarray(numbers["key"]), np.asarray(numbers["part"])
        self._new = self._ids_of("batches")
        self._closely = _NOBODY
        self._changed = False

    def recall(self) -> None:
        """What is known of those whose rows are followed on; aside are rows of those who are not."""
        self._choose()
        if self._keeping is not None and len(self._new):
            self._files[ROWS] = self._write_rows(self._rows_before)
        self._con.register("closely", pa.table({"producer_id": self._closely}))
        self._con.execute("create temp table aside as from batches semi join closely using (producer_id)")
        if _among(self._new, self._closely).any():
            self._con.execute("delete from batches where producer_id in (from closely)")
        self._con.unregister("closely")
        self._known = {name: self._left(name, table) for name, table in self._known.items()}
        known = self._known["producer_epochs"]
        self._place("known_epochs", known.filter(pa.array(_among(_ids(known), self._new))))

    def _choose(self) -> None:
        """Who is judged closely, and whether anything has changed."""
        epochs = self._known["producer_epochs"]
        strangers = self._unallocated(_ids(epochs))
        stray = np.setdiff1d(strangers, _ids(self._known["unallocated"]))
        lost, stirred = self._losers()
        doubtful = np.concatenate([_ids(self._known["doubtful"]), self._unallocated(self._new), strangers])
        again = np.intersect1d(np.concatenate([self._new, lost]), doubtful)
        unmarked = np.intersect1d(lost, _ids(epochs.filter(epochs["inside"])))
        self._closely = np.unique(np.concatenate([again, unmarked, stirred, stray, _ids(self._known["unended"])]))
        self._changed = any(len(each) for each in (self._new, lost, stirred, stray))

    def reread(self) -> None:
        """All rows of those who are judged closely, and aside what is known of all others."""
        doubtful = self._ids_of("doubtful")
        self._closely = np.union1d(self._closely, doubtful)
        for name, spotless in (("producer_epochs", "spotless_epochs"), ("dated", "spotless_days")):
            self._con.execute(f"delete from {name} where producer_id in (from doubtful)")
            self._con.execute(f"alter table {name} rename to {spotless}")
        self._con.execute("insert into aside from batches semi join doubtful using (producer_id)")
        self._con.execute("drop table batches")
        self._con.execute("alter table aside rename to batches")
        for name, _ in self._rows_before if len(self._closely) else ():
            for piece in self._pieces(name, self._closely):
                self._insert("batches", self._numbered(piece).cast(BATCHES))

    def merge(self) -> None:
        """Complete the tables of KEPT by those who were not judged closely."""
        known = self._known["unallocated"]
        self._known["unallocated"] = known.filter(pa.array(are_unallocated(_ids(known), self._allocated)))
        followed = self._known.pop("producer_epochs")
        self._place("known_epochs", followed.filter(pa.array(~_among(_ids(followed), self._new))))
        for epochs in ("spotless_epochs", "known_epochs"):
            self._con.execute(f"insert into producer_epochs by name from {epochs}")
        for name, table in self._known.items():
            self._insert(name, self._numbered(self._left(name, table)))
        self._con.execute(_ONCE_A_DAY)

    def store(self) -> Iterator[Named]:
        """Write the tables, and say which files the bucket has now."""
        if self._keeping is None:
            return
        if self._changed:
            self._files = {name: files for name, files in self._files.items() if name == ROWS}
            for name, schema in KEPT.items():
                table = self._con.sql(f"from {name}").to_arrow_table().select(schema.names).cast(schema)
                if table.num_rows:
                    self._files[name] = [(self._write(name, self._keyed(table)), table.num_rows)]
        columns = [(name, file, rows) for name, files in self._files.items() for file, rows in files]
        found = [dict(zip(KEPT_FILES.names, (self._bucket, *each), strict=True)) for each in columns]
        if found:
            yield "kept_files", pa.RecordBatch.from_pylist(found, schema=KEPT_FILES)

    # Producers.

    def _ids_of(self, table: str) -> Array:
        """All of a table, sorted."""
        found = self._con.sql(f"select distinct producer_id from {table} order by producer_id").fetchnumpy()
        return np.asarray(found["producer_id"], np.int64)

    def _losers(self) -> tuple[Array, Array]:
        """Who has rows in parts that are gone, and in those that were stirred."""
        if self._keeping is None:
            return _NOBODY, _NOBODY
        epochs = self._known["producer_epochs"]
        ids, parts = _ids(epochs), epochs["part"].to_numpy()
        changed = (np.frombuffer(keys, np.int64) for keys in (self._keeping.gone, self._keeping.stirred))
        lost, stirred = (np.unique(ids[_among(parts, keys)]) for keys in changed)
        return lost, stirred

    def _unallocated(self, ids: Array) -> Array:
        return ids[are_unallocated(ids, self._allocated)]

    def _left(self, name: str, table: Any) -> Any:
        """What is known of those who are not judged closely."""
        if not len(self._closely) and self._keeping is not None and not self._keeping.gone:
            return table
        kept = ~_among(_ids(table), self._closely)
        if name in _OF_SEGMENTS:
            kept &= _among(table["part"].to_numpy(), self._keys)
        return table.filter(pa.array(kept))

    def _place(self, name: str, epochs: Any) -> None:
        """A table as `producer_epochs`."""
        self._con.register("given", self._numbered(epochs))
        self._con.execute(_PLACED.format(name))
        self._con.unregister("given")

    # Tables.

    def _table(self, name: str) -> Any:
        for file, _ in self._files.get(name, ()):
            with self._opened(file) as parquet:
                return parquet.read()
        return _with_keys(KEPT[name]).empty_table()

    def _write(self, name: str, table: Any) -> str:
        assert self._keeping is not None, "there is a ledger"
        file = kept_name(self._keeping.run, self._bucket, name)
        write_parquet(self._keeping.place / file, table)
        return file

    def _insert(self, name: str, table: Any) -> None:
        if table.num_rows:
            self._con.register("given", table)
            self._con.execute(f"insert into {name} by name from given")
            self._con.unregister("given")

    def _numbered(self, table: Any) -> Any:
        """Numbers of parts in place of their keys."""
        for name in _places(table):
            keys = table[name].to_numpy()
            assert _among(keys, self._keys).all(), "no judgement that is left rests on rows that are gone"
            at = np.searchsorted(self._keys, keys)
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(self._numbers[at]))
        return table

    def _keyed(self, table: Any) -> Any:
        if _places(table):
            keys = np.zeros(self._numbers.max(initial=-1) + 1, np.int64)
            keys[self._numbers] = self._keys
            for name in _places(table):
                values = pa.array(keys[table[name].to_numpy()])
                table = table.set_column(table.schema.get_field_index(name), name, values)
        return table

    # Rows.

    def _pieces(self, file: str, producers: Array | None) -> Iterator[Any]:
        """The rows of a file that are of these producers, or of all, and in no part that is gone."""
        with self._opened(file) as parquet:
            due = _groups(parquet, producers)
            for start in range(0, len(due), GROUPS_AT_ONCE):
                table = parquet.read_row_groups(due[start : start + GROUPS_AT_ONCE].tolist())
                kept = _among(table["part"].to_numpy(), self._keys)
                if producers is not None:
                    kept &= _among(_ids(table), producers)
                yield table.filter(pa.array(kept))

    def _write_rows(self, before: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """The rows of this audit, with those of some files; the files that there are then."""
        assert self._keeping is not None, "there is a ledger"
        ((count,),) = self._con.execute("select count(*) from batches").fetchall()
        left, query = list(before), _NEW_ROWS
        while left and left[-1][1] <= 2 * count:
            count += left.pop()[1]
        if len(left) < len(before):
            query = "from rows_to_keep"
            self._con.execute(f"create temp table rows_to_keep as {_NEW_ROWS}")
            for file, _ in before[len(left) :]:
                for piece in self._pieces(file, None):
                    self._insert("rows_to_keep", piece)
        name = kept_name(self._keeping.run, self._bucket, ROWS)
        sorted_rows = self._con.sql(f"{query} order by producer_id").to_arrow_reader(GROUP_ROWS * GROUPS_AT_ONCE)
        schema, count = _with_keys(BATCHES), 0
        with (
            (self._keeping.place / name).writing() as opened,
            pq.ParquetWriter(opened, schema, **layout(schema)) as writer,
        ):
            for batch in sorted_rows:
                count += batch.num_rows
                writer.write_table(pa.Table.from_batches([batch]).cast(schema), row_group_size=GROUP_ROWS)
        self._con.execute("drop table if exists rows_to_keep")
        return [*left, (name, count)]

    @contextlib.contextmanager
    def _opened(self, file: str) -> Iterator[Any]:
        assert self._keeping is not None, "there is a ledger"
        with (self._keeping.place / file).open() as opened:
            yield pq.ParquetFile(opened)


def _groups(parquet: Any, producers: Array | None) -> Array:
    """The row groups in which one of the producers may be, by the statistics of the first column, which is sorted."""
    count = parquet.metadata.num_row_groups
    if producers is None:
        return np.arange(count)
    found = [parquet.metadata.row_group(number).column(0).statistics for number in range(count)]
    least, most = (np.array([getattr(each, name) for each in found], np.int64) for name in ("min", "max"))
    return np.flatnonzero(np.searchsorted(producers, most, side="right") > np.searchsorted(producers, least))


def _with_keys(schema: Any) -> Any:
    return pa.schema([pa.field(field.name, KEY) if field.name in _places(schema) else field for field in schema])


def _places(table: Any) -> list[str]:
    """The columns that name parts."""
    names = table.names if isinstance(table, pa.Schema) else table.column_names
    return [name for name in names if name.rpartition("_")[2] == "part"]


def _ids(table: Any) -> Array:
    found: Array = table["producer_id"].to_numpy()
    return found


def _among(values: Array, chosen: Array) -> Array:
    """Which values are among the chosen, which are sorted."""
    at = np.searchsorted(chosen, values)
    found: Array = np.zeros(len(values), np.bool_)
    inside = at < len(chosen)
    found[inside] = chosen[at[inside]] == values[inside]
    return found
