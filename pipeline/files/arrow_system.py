"""File systems that pyarrow has built in: S3, Google's and Azure's, and HDFS by its native library."""

from __future__ import annotations

import contextlib
import io
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final

from pyarrow import fs, py_buffer

from pidkeeper.pipeline.files.system import Entry, temporary

_STORES: Final = ("s3", "gcs", "abfs")
"""A file is there when the stream is closed, and until then what was there before."""


class ArrowSystem:
    """`base` stands in front of each path.

    None of these can put a file only where none is: that they are asked for it and look before is all they can do.
    """

    def __init__(self, system: Any, base: str) -> None:
        self._system = system
        self._base = base.rstrip("/")

    def info(self, path: str) -> Entry:
        found = self._system.get_file_info(self._at(path))
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(path)
        return _entry(found, found.base_name)

    def entries(self, path: str) -> list[Entry]:
        return [_entry(found, found.base_name) for found in self._select(path, recursive=False)]

    def below(self, path: str) -> Iterator[Entry]:
        start = len(self._at(path).rstrip("/")) + 1
        return (_entry(found, found.path[start:]) for found in self._select(path, recursive=True) if found.is_file)

    def open(self, path: str) -> BinaryIO:
        file: BinaryIO = self._system.open_input_file(self._at(path))
        return file

    def put(self, path: str, file: BinaryIO, *, replace: bool) -> None:
        if not replace:
            self._require_absence(path)
        target = self._at(path)
        if self._system.type_name in _STORES:
            self._send(target, file)
            return
        unfinished = temporary(target)
        try:
            self._send(unfinished, file)
            if replace and self._system.type_name == "hdfs" and self._system.get_file_info(target).is_file:
                self._system.delete_file(target)  # its rename refuses to replace
            self._system.move(unfinished, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self._system.delete_file(unfinished)
            raise

    def make(self, path: str) -> None:
        self._system.create_dir(self._at(path), recursive=True)

    def delete(self, path: str) -> None:
        if self.info(path).folder:
            self._system.delete_dir(self._at(path))
        else:
            self._system.delete_file(self._at(path))

    def arrow(self, path: str) -> tuple[Any, str]:
        return self._system, self._at(path)

    def _at(self, path: str) -> str:
        return (self._base + path).rstrip("/") or "/"

    def _select(self, path: str, *, recursive: bool) -> list[Any]:
        found: list[Any] = self._system.get_file_info(fs.FileSelector(self._at(path), recursive=recursive))
        return found

    def _require_absence(self, path: str) -> None:
        try:
            self.info(path)
        except FileNotFoundError:
            return
        raise FileExistsError(path)

    def _send(self, path: str, file: BinaryIO) -> None:
        # Closing a stream completes the file, with whatever was written, and there is no other way to end one. So all
        # is written by one call, and on a thread, where no signal's exception comes before it.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._write, path, _content(file)).result()

    def _write(self, path: str, content: Any) -> None:
        with self._system.open_output_stream(path) as stream:
            stream.write(content)


def _content(file: BinaryIO) -> Any:
    """All bytes of a file, without a copy."""
    if isinstance(file, io.BytesIO):
        return py_buffer(file.getbuffer())
    size = file.seek(0, io.SEEK_END)
    return py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


def _entry(found: Any, name: str) -> Entry:
    if not found.is_file:
        return Entry(name, True)
    return Entry(name, False, found.size, f"{found.size}@{found.mtime_ns}")
