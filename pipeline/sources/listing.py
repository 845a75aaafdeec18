"""What members of a quorum left: their files by folder, and whose they are."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.formats.problems import MALFORMED, UNREADABLE, Problem
from pidkeeper.pipeline.sources.files import FilePlace, file_names, find_files, join, open_file, parent

_META_NAME: Final = "meta.json"
_MAX_META_BYTES: Final = 64 * 1024


class Folder(NamedTuple):
    """A directory: root and path as in `pipeline.sources.files`."""

    root: str
    path: str

    def join(self, name: str) -> str:
        """The path of a file in it."""
        return join(self.path, name)

    def beside(self, name: str) -> Folder:
        """Another directory in the same parent."""
        return self._replace(path=join(parent(self.path), name))

    def open(self, name: str) -> BinaryIO:
        """A file in it. Raises OSError."""
        return open_file(self.root, self.join(name))

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
        return file_names(self.root, self.path)


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

    def names_now(self) -> list[str]:
        """The files in the folder by now; none if it is gone."""
        try:
            return self.folder.names()
        except FileNotFoundError:
            return []


def list_folders(options: Mapping[str, str], suffix: str) -> list[Listing]:
    """The files ending with `suffix` at the `path` or `paths` of the options, by folder; and every file named itself.

    Raises as `files_of`.
    """
    found: dict[Folder, set[str]] = {}
    for file in files_of(options, suffix):
        found.setdefault(Folder(file.root, parent(file.path)), set()).add(file.path.rpartition("/")[2])
    return [_listing(folder, sorted(names)) for folder, names in sorted(found.items())]


def files_of(options: Mapping[str, str], suffix: str) -> list[FilePlace]:
    """The files at the `path` or `paths` of a source's options; a pair of `paths` is a file that was found before.

    Raises ValueError without a path, FileNotFoundError if nothing is at one, OSError if one cannot be reached.
    """
    named = json.loads(options["paths"]) if options.get("paths") else []
    named += [options["path"]] if options.get("path") else []
    if not named:
        raise ValueError("name what to read: load(path), one or more files, directories or globs")
    found: list[FilePlace] = []
    for path in named:
        found += find_files(path, suffix) if isinstance(path, str) else [FilePlace(*path)]
    return found


def read_owner(folder: Folder) -> Owner | Problem | None:
    """The identity in `meta.json` beside or in `folder`; None without one, a Problem if it cannot be read."""
    for directory in (Folder(folder.root, parent(folder.path)), folder):
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
