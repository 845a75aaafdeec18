"""Where the files are: listing and opening, on this machine or on any file system that pyarrow knows.

A path without a scheme is local and needs no pyarrow.
"""

from __future__ import annotations

import fnmatch
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from pipeline.formats.problems import MALFORMED, UNREADABLE, Problem

_SCHEME: Final = "://"
_WILD: Final = "*?["
_META_NAME: Final = "meta.json"
_MAX_META_BYTES: Final = 64 * 1024


class Folder(NamedTuple):
    """A directory: `root` is a URI of its file system, empty for this machine's; `path` is within that."""

    root: str
    path: str

    def join(self, name: str) -> str:
        """The path of a file in it."""
        return str(PurePosixPath(self.path) / name)

    def beside(self, name: str) -> Folder:
        """Another directory in the same parent."""
        return self._replace(path=str(PurePosixPath(self.path).parent / name))

    def open(self, name: str) -> BinaryIO:
        """A file in it. Raises OSError."""
        if not self.root:
            return Path(self.join(name)).open("rb")
        file: BinaryIO = _file_system(self.root)[0].open_input_file(self.join(name))
        return file

    def read(self, name: str, limit: int) -> bytes:
        """Up to `limit` bytes of a file. Raises OSError."""
        with self.open(name) as file:
            return file.read(limit)

    def size(self, name: str) -> int:
        """Bytes of a file. Raises OSError."""
        with self.open(name) as file:
            return file.seek(0, os.SEEK_END)

    def names(self) -> list[str]:
        """The files in it, sorted. Raises FileNotFoundError if it is not there."""
        if not self.root:
            return sorted(entry.name for entry in os.scandir(self.path) if entry.is_file())
        return sorted(PurePosixPath(path).name for path in _remote_files(self.root, self.path, recursive=False))


class Owner(msgspec.Struct, frozen=True):
    """Whose data a folder holds, by `meta.json` of the data directory around it."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


class Listing(NamedTuple):
    """A folder with the names in it that were asked for; `member` and `owner` say whose it is."""

    folder: Folder
    names: list[str]
    member: str
    owner: Owner | None

    @property
    def cluster_id(self) -> str | None:
        """The cluster whose files these have to be, if it is known."""
        return None if self.owner is None else self.owner.cluster_id


def list_folders(options: Mapping[str, str], suffix: str) -> list[Listing]:
    """The files ending with `suffix` at the `path` or `paths` of the options, by folder; and every file named itself.

    Raises ValueError without a path, FileNotFoundError if nothing is at one.
    """
    found: dict[Folder, set[str]] = {}
    for path in _paths(options):
        root, files = _files_at(path, suffix)
        for file in files:
            pure = PurePosixPath(file)
            found.setdefault(Folder(root, str(pure.parent)), set()).add(pure.name)
    return [_listing(folder, sorted(names)) for folder, names in sorted(found.items())]


def read_owner(folder: Folder) -> Owner | Problem | None:
    """The identity in `meta.json` beside or in `folder`; None without one, a Problem if it cannot be read."""
    for directory in (Folder(folder.root, str(PurePosixPath(folder.path).parent)), folder):
        file = directory.join(_META_NAME)
        try:
            return msgspec.json.decode(directory.read(_META_NAME, _MAX_META_BYTES), type=Owner)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Problem(file, UNREADABLE, 0, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Problem(file, MALFORMED, 0, str(error))
    return None


def _listing(folder: Folder, names: list[str]) -> Listing:
    owner = read_owner(folder)
    known = owner if isinstance(owner, Owner) else None
    return Listing(folder, names, folder.path if known is None else str(known.node_id), known)


def _paths(options: Mapping[str, str]) -> list[str]:
    paths = json.loads(options["paths"]) if options.get("paths") else []
    paths += [options["path"]] if options.get("path") else []
    if not paths:
        raise ValueError("name what to read: load(path), one or more files, directories or globs")
    return [str(path) for path in paths]


def _files_at(path: str, suffix: str) -> tuple[str, list[str]]:
    if _SCHEME in path:
        return path, _remote_files_at(path, suffix)
    files: list[str] = []
    for match in _matches(path):
        if match.is_dir():
            files += [str(file) for file in sorted(match.rglob(f"*{suffix}")) if file.is_file()]
        elif match.name.endswith(suffix) or not _is_glob(path):
            files.append(str(match))
    return "", files


def _matches(path: str) -> list[Path]:
    exact = Path(path).absolute()
    if exact.exists():
        return [exact]
    if not _is_glob(path):
        raise FileNotFoundError(f"there is nothing at {path}")
    return sorted(Path(exact.anchor).glob(str(exact.relative_to(exact.anchor))))


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def _file_system(uri: str) -> tuple[Any, str]:
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(uri)
    return system, path


def _remote_files(root: str, path: str, *, recursive: bool) -> list[str]:
    from pyarrow import fs

    found = _file_system(root)[0].get_file_info(fs.FileSelector(path, recursive=recursive))
    return [info.path for info in found if info.is_file]


def _remote_files_at(uri: str, suffix: str) -> list[str]:
    wild = min((uri.index(sign) for sign in _WILD if sign in uri), default=-1)
    if wild < 0:
        system, path = _file_system(uri)
        if system.get_file_info(path).is_file:
            return [path]
        return sorted(file for file in _remote_files(uri, path, recursive=True) if file.endswith(suffix))
    base = uri[: uri.rindex("/", 0, wild)]
    _, path = _file_system(base)
    pattern = path + uri[len(base) :]
    files = [file for file in _remote_files(base, path, recursive=True) if file.endswith(suffix)]
    return sorted(file for file in files if fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(file, f"{pattern}/*"))
