"""Tables of DuckDB that are made without rows, and what is asked of them before a query is planned."""

from __future__ import annotations

import pyarrow as pa

from pidkeeper.pipeline.engine.duck import connect, has_rows, make_tables

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("number", pa.int16()),
        ("ids", pa.decimal128(38)),
        ("whole", pa.bool_()),
        ("times", pa.list_(pa.int64())),
        ("block", pa.struct([("offset", pa.int64()), ("broker id", pa.int32())])),
    ]
)


def test_a_table_without_rows_has_the_columns_that_rows_would_have_given_it() -> None:
    with connect() as con:
        make_tables(con, {"made": SCHEMA})
        con.register("rows", SCHEMA.empty_table())
        con.execute("create table given as from rows")
        made, given = (con.execute(f"describe {name}").fetchall() for name in ("made", "given"))
    assert made == given
    assert [column[0] for column in made] == SCHEMA.names


def test_a_table_that_is_there_stays_unless_it_is_to_be_made_anew() -> None:
    schemas = {"one": SCHEMA, "other": SCHEMA}
    with connect() as con:
        con.execute("create temp table one as select 7 as number")
        make_tables(con, {"other": SCHEMA})
        make_tables(con, {"other": SCHEMA})
        assert con.execute("select number from one").fetchall() == [(7,)]
        make_tables(con, schemas, anew=True)
        assert not has_rows(con, *schemas)


def test_whether_any_of_some_tables_has_a_row() -> None:
    with connect() as con:
        make_tables(con, {"one": SCHEMA, "other table": SCHEMA})
        assert not has_rows(con, "one", "other table")
        con.execute('insert into "other table" (number) values (null)')
        assert has_rows(con, "one", "other table")
        assert not has_rows(con, "one")
        con.execute('delete from "other table"')
        assert not has_rows(con, "other table")
