"""DuckDB as the kernels use it: one thread of a task, a bound on memory, and a directory to spill to."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import duckdb

TASK_MIB: Final = 256
"""Memory of a kernel's tables and sorts; beyond it they are on disk."""


@contextlib.contextmanager
def connect(memory_mib: int = TASK_MIB, threads: int = 1) -> Iterator[Any]:
    """A database of its own, gone at the end."""
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
        try:
            yield connection
        finally:
            connection.close()
