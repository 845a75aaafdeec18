"""A file system of fsspec for pyarrow."""

from __future__ import annotations

from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler, PyFileSystem


class _Handler(FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
    """Opens a file without asking whether it is one: fsspec takes every failure of that for absence."""

    def open_input_file(self, path: str) -> Any:
        return PythonFile(self.fs.open(path, "rb"), mode="r")


def arrow_system(system: Any) -> Any:
    """To read files whose paths are known. What opening or reading one raises comes out of pyarrow as it is."""
    return PyFileSystem(_Handler(system))
