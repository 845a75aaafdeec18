"""DuckDB as the kernels use it: one thread of a task, a bound on memory, and a directory to spill to."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
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


@contextlib.contextmanager
def connect(memory_mib: int = TASK_MIB, threads: int = 1) -> Iterator[Any]:
    """A database of its own, gone at the end.

    It knows whether a number of milliseconds `is_time`, since the epoch, and the `day_of` it; null if it is none.
    """
    with tempfile.TemporaryDirectory(prefix="pidkeeper-audit-") as spill:
        config: dict[str, Any] = {
            "threads": threads,
            "memory_limit": f"{memory_mib}MiB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        connection = duckdb.connect(":memory:", config=config)
        connection.execute(_MACROS)
        try:
            yield connection
        finally:
            connection.close()
