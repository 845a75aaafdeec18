"""DuckDB as the kernels use it: one thread of a task, a bound on memory, and a directory to spill to."""

from __future__ import annotations

import contextlib
import functools
import itertools
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb

TASK_MIB: Final = 256
"""Memory of a kernel's tables and sorts; beyond it they are on disk."""
LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: files may have any number, and beyond it differences could overflow."""
_MACROS: Final = f"""
create macro is_time(ms) as coalesce(ms between 0 and {LATEST_MS}, false);
create macro day_of(ms) as case when is_time(ms) then strftime(epoch_ms(ms), '%Y-%m-%d') end;
"""


_NUMBERS: Final = itertools.count()
_instances: dict[tuple[int, int], Any] = {}
"""By memory and threads. One takes longer to start than most kernels need it for, so they last."""


@contextlib.contextmanager
def connect(memory_mib: int = TASK_MIB, threads: int = 1) -> Iterator[Any]:
    """A database of its own, gone at the end. Those with the same bounds that are open at once share the memory.

    It knows whether a number of milliseconds `is_time`, since the epoch, and the `day_of` it; null if it is none.
    """
    name = f"audit_{next(_NUMBERS)}"
    if (memory_mib, threads) not in _instances:
        _instances[memory_mib, threads] = _start(memory_mib, threads)
    connection = _instances[memory_mib, threads].cursor()
    try:
        connection.execute(f"attach ':memory:' as {name}; use {name}; {_MACROS}")
        yield connection
    finally:
        connection.execute(f"use memory; detach {name}")
        connection.close()


def make_tables(con: Any, schemas: Mapping[str, Any], *, anew: bool = False) -> None:
    """Tables by name that have no rows, with the columns that DuckDB would give them for rows of an Arrow schema.

    One that is there stays as it is. anew: temporary ones, in the place of those that are there.
    """
    making = "create or replace temp table" if anew else "create table if not exists"
    # As one text: small audits make more tables than they have rows for.
    con.execute("".join(f'{making} "{name}" ({_columns(schema)});' for name, schema in schemas.items()))


def has_rows(con: Any, *tables: str) -> bool:
    """Whether any of the tables has a row. To ask costs a small part of what it takes to plan a query over them."""
    return any(con.execute(f'select 1 from "{name}" limit 1').fetchall() for name in tables)


@functools.cache
def _columns(schema: Any) -> str:
    with connect() as con:
        con.register("rows", schema.empty_table())
        return ", ".join(f'"{name}" {kind}' for name, kind, *_ in con.execute("describe rows").fetchall())


@contextlib.contextmanager
def closed_after() -> Iterator[None]:
    """What stays from one database for the next, directories too, goes with the block: the process may be killed.

    Without it, that goes at the process's own end.
    """
    try:
        yield
    finally:
        _close()


def _close() -> None:
    while _instances:
        _instances.popitem()[1].close()


def _start(memory_mib: int, threads: int) -> Any:
    config: dict[str, Any] = {
        "threads": threads,
        "memory_limit": f"{memory_mib}MiB",
        "temp_directory": str(Path(tempfile.gettempdir()) / f"pidkeeper-audit-{secrets.token_hex(8)}"),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    return duckdb.connect(":memory:", config=config)
