"""File systems that fsspec knows and pyarrow does not."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from fsspec import AbstractFileSystem

from pidkeeper.pipeline.files.system import Entry, join, temporary

_STORES: Final = {"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2"}
"""A file is there when all of it was sent, and these can send one only where none is."""
_STAMPS: Final = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "modified", "created")


class FsspecSystem:
    """`base` stands in front of each path.

    What fsspec has as `find`, `isfile` and `exists` takes every failure for absence, so none of it is used.
    """

    def __init__(self, system: Any, base: str) -> None:
        self._system = system
        self._base = base.rstrip("/")

    def info(self, path: str) -> Entry:
        return _entry(self._system.info(self._at(path)), path.rpartition("/")[2])

    def entries(self, path: str) -> list[Entry]:
        found = self._system.ls(self._at(path), detail=True)
        named = ((one["name"].rstrip("/").rpartition("/")[2], one) for one in found)
        return [_entry(one, name) for name, one in named if name]

    def below(self, path: str) -> Iterator[Entry]:
        for folder, entries in self._folders(path):
            start = join(folder, "")[len(join(path, "")) :]
            yield from (entry._replace(name=start + entry.name) for entry in entries if not entry.folder)

    def open(self, path: str) -> BinaryIO:
        if self.info(path).folder:
            raise IsADirectoryError(path)
        file: BinaryIO = self._system.open(self._at(path), "rb")
        return file

    def put(self, path: str, file: BinaryIO, *, replace: bool) -> None:
        target = self._at(path)
        protocol = self._system.protocol
        if not _STORES.isdisjoint([protocol] if isinstance(protocol, str) else protocol):
            self._system.pipe_file(target, file.read(), mode="overwrite" if replace else "create")
            return
        unfinished = temporary(target)
        self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
        try:
            with self._system.open(unfinished, "wb") as out:
                shutil.copyfileobj(file, out)
            self._rename(path, unfinished, target, replace=replace)
        except BaseException:
            with contextlib.suppress(Exception):
                self._system.rm_file(unfinished)
            raise

    def _rename(self, path: str, unfinished: str, target: str, *, replace: bool) -> None:
        """Not every rename replaces a file, and some do without being asked: whoever looks in between sees none."""
        try:
            self.info(path)
        except FileNotFoundError:
            pass
        else:
            if not replace:
                raise FileExistsError(path)
            self._system.rm_file(target)
        if type(self._system).mv is not AbstractFileSystem.mv:
            self._system.mv(unfinished, target)
            return
        # It has no rename, and what fsspec does instead takes signs in a name for wildcards.
        self._system.cp_file(unfinished, target)
        self._system.rm_file(unfinished)

    def make(self, path: str) -> None:
        self._system.makedirs(self._at(path), exist_ok=True)

    def delete(self, path: str) -> None:
        if not self.info(path).folder:
            self._system.rm_file(self._at(path))
            return
        # By `rm` signs in a name would be wildcards.
        for folder, entries in reversed(list(self._folders(path))):
            for entry in entries:
                if not entry.folder:
                    self._system.rm_file(self._at(join(folder, entry.name)))
            with contextlib.suppress(FileNotFoundError, NotImplementedError):  # object stores have none
                self._system.rmdir(self._at(folder))

    def arrow(self, path: str) -> tuple[Any, str]:
        from pidkeeper.pipeline.files.fsspec_arrow import arrow_system

        return arrow_system(self._system), self._at(path)

    def _folders(self, path: str) -> Iterator[tuple[str, list[Entry]]]:
        """A directory and those below it, each after the one that it is in."""
        folders = [path]
        while folders:
            folder = folders.pop()
            try:
                entries = self.entries(folder)
            except FileNotFoundError:
                if folder == path:
                    raise
                continue  # it went away meanwhile
            folders += [join(folder, entry.name) for entry in entries if entry.folder]
            yield folder, entries

    def _at(self, path: str) -> str:
        return self._base + path


def _entry(found: dict[str, Any], name: str) -> Entry:
    if found["type"] == "directory":
        return Entry(name, True)
    known = [found[key] for key in _STAMPS if found.get(key) is not None]
    told = known[0] if known else hashlib.sha256(repr(sorted(found.items(), key=repr)).encode()).hexdigest()
    told = told.timestamp() if isinstance(told, dt.datetime) else told
    return Entry(name, False, found["size"] or 0, f"{found['size']}@{told}")
