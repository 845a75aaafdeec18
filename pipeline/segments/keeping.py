"""What a bucket of producers has in the ledger: all their rows, and what was judged of each producer.

A producer that has a row more, or one less, is judged from all of its rows; of any other the judgement of before
counts again, for nothing else goes into it. Three things do besides rows, and so:

- offsets missing, and damage, between two rows: what lies between them changed, so `stirred` has the parts around it;
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
from pidkeeper.pipeline.ledger import KeptFiles, kept_name
from pidkeeper.pipeline.segments.allocation import Allocated, are_unallocated
from pidkeeper.pipeline.segments.tables import BATCHES, KEPT, KEPT_FILES

ROWS: Final = "rows"
GROUP_ROWS: Final = 4096
GROUPS_AT_ONCE: Final = 64
"""Of rows in memory: 20 MiB."""
KEY: Final = pa.int64()

Array = npt.NDArray[Any]

_NEW_ROWS: Final = "select batches.* replace (parts.key as part) from batches join parts using (part)"


class Keeping(msgspec.Struct, frozen=True):
    """place: the ledger. run: names what is written. buckets: what an earlier audit left of each.

    stirred: keys of parts that are gone, and of those whose rows have others between them now; sorted int64.
    """

    place: Location
    run: str
    buckets: list[KeptFiles] = []
    stirred: bytes = b""


class Kept:
    """Of one bucket, whose connection has `batches` and `parts`. Without `keeping` there is nothing, and nothing stays.

    First `recall`, then the tables of KEPT are made from `batches`, and completed by `merge`; then `store`.
    """

    def __init__(self, con: Any, bucket: int, keeping: Keeping | None) -> None:
        self._con = con
        self._bucket = bucket
        self._keeping = keeping
        self._files: KeptFiles = dict(keeping.buckets[bucket]) if keeping and bucket < len(keeping.buckets) else {}
        self._known: dict[str, Any] = {}
        numbers = con.sql("select key, part from parts order by key").fetchnumpy()
        self._keys, self._numbers = np.asarray(numbers["key"]), np.asarray(numbers["part"])
        self._changed = False

    def recall(self, allocated: Allocated | None) -> None:
        """To `batches` the old rows of all who are judged."""
        if self._keeping is None:
            return
        known = {name: self._table(name) for name in KEPT}
        new = np.asarray(
            self._con.sql("select distinct producer_id from batches").fetchnumpy()["producer_id"], np.int64
        )
        ids = _ids(known["ids"])
        stray = np.setdiff1d(ids[are_unallocated(ids, allocated)], _ids(known["unallocated"]))
        changed = np.concatenate([new, self._stirred(), stray])
        judged = np.unique(np.concatenate([changed, _ids(known["unended"])]))
        self._changed = len(changed) > 0
        self._known = {
            name: self._numbered(table.filter(pa.array(~_among(_ids(table), judged)))) for name, table in known.items()
        }
        before = self._files.get(ROWS, [])
        if len(new):
            self._files[ROWS] = self._write_rows(before)
        for name, _ in before:
            for piece in self._pieces(name, judged):
                self._insert("batches", self._numbered(piece).cast(BATCHES))

    def merge(self, allocated: Allocated | None) -> None:
        """Complete the tables of KEPT by those who were not judged."""
        for name, table in self._known.items():
            if name == "unallocated":
                table = table.filter(pa.array(are_unallocated(_ids(table), allocated)))  # noqa: PLW2901
            self._insert(name, table)

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

    # Tables.

    def _table(self, name: str) -> Any:
        for file, _ in self._files.get(name, ()):
            with self._opened(file) as parquet:
                return parquet.read()
        return _with_keys(KEPT[name]).empty_table()

    def _write(self, name: str, table: Any) -> str:
        assert self._keeping is not None, "there is a ledger"
        file = kept_name(self._keeping.run, self._bucket, name)
        with (self._keeping.place / file).writing() as opened:
            pq.write_table(table, opened, compression="lz4")
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

    def _stirred(self) -> Array:
        """Whose rows are in such parts."""
        assert self._keeping is not None, "there is a ledger"
        stirred = np.frombuffer(self._keeping.stirred, np.int64)
        found = [np.zeros(0, np.int64)]
        for file, _ in self._files.get(ROWS, ()) if len(stirred) else ():
            with self._opened(file) as parquet:
                table = parquet.read(["producer_id", "part"])
            found.append(np.unique(_ids(table)[_among(table["part"].to_numpy(), stirred)]))
        return np.concatenate(found)

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
            pq.ParquetWriter(opened, schema, compression="lz4", use_dictionary=False) as writer,
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
