"""The file system of this machine: a file is there under its name when it is on disk, and not before."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from pidkeeper.pipeline.files.system import Entry, temporary

_NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}


class LocalSystem:
    """Paths are absolute. Needs no library."""

    def info(self, path: str) -> Entry:
        return _entry(path.rpartition("/")[2], Path(path).stat())

    def entries(self, path: str) -> list[Entry]:
        found = _scan(path, may_be_gone=False)
        return [entry for one in found if (entry := _scanned(one, one.name)) is not None]

    def below(self, path: str) -> Iterator[Entry]:
        """Links to files are followed, those to directories are not: they may lead back."""
        folders = [""]
        while folders:
            above = folders.pop()
            for found in _scan(f"{path}/{above}", may_be_gone=above != ""):
                if found.is_dir(follow_symlinks=False):
                    folders.append(f"{above}{found.name}/")
                elif (entry := _scanned(found, above + found.name)) is not None and not entry.folder:
                    yield entry

    def open(self, path: str) -> BinaryIO:
        return Path(path).open("rb")

    def put(self, path: str, file: BinaryIO, *, replace: bool) -> None:
        with writing(path, replace=replace) as target:
            shutil.copyfileobj(file, target)

    def make(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def delete(self, path: str) -> None:
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink()

    def arrow(self, path: str) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), path


@contextlib.contextmanager
def writing(path: str, *, replace: bool) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole and on disk, and not at all if the block fails."""
    unfinished = Path(temporary(path))
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            unfinished.replace(path)
        else:
            _name(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync(unfinished.parent)


def _name(unfinished: Path, path: str) -> None:
    """Raises FileExistsError. Of several processes one gets the name."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # As on FAT. Who comes in between is overwritten.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        unfinished.replace(path)
    else:
        unfinished.unlink()


def _sync(folder: Path) -> None:
    """A name is durable once its directory is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _scanned(found: os.DirEntry[str], name: str) -> Entry | None:
    """None for what went away meanwhile, leads nowhere, or is neither a file nor a directory."""
    try:
        known = found.stat()
    except FileNotFoundError:
        return None
    return _entry(name, known) if stat.S_ISDIR(known.st_mode) or stat.S_ISREG(known.st_mode) else None


def _scan(folder: str, *, may_be_gone: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        if may_be_gone:
            return []
        raise


def _entry(name: str, found: os.stat_result) -> Entry:
    if stat.S_ISDIR(found.st_mode):
        return Entry(name, True)
    return Entry(name, False, found.st_size, f"{found.st_size}@{found.st_mtime_ns}")
