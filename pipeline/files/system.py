"""What a file system has to do for an audit, whichever library knows it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol


class Entry(NamedTuple):
    """What stands in a directory. `stamp` is of the file's length and time; a folder has none, and no size.

    S3 has times in seconds: a file that is written again within one, to the same length, keeps its stamp.
    """

    name: str
    folder: bool
    size: int = 0
    stamp: str = ""


class System(Protocol):
    """A file system with paths of its own. All raise OSError, and FileNotFoundError where nothing is."""

    def info(self, path: str) -> Entry: ...

    def entries(self, path: str) -> list[Entry]:
        """What is in a directory, in any order."""
        ...

    def below(self, path: str) -> Iterator[Entry]:
        """All files at any depth below a directory, by their paths from there."""
        ...

    def open(self, path: str) -> BinaryIO: ...

    def put(self, path: str, file: BinaryIO, *, replace: bool) -> None:
        """All of `file`, a BytesIO or a file on disk at its start; nobody sees a part of it under its name.

        Raises FileExistsError if something is there that is not to be replaced.
        """
        ...

    def make(self, path: str) -> None:
        """A directory, with those above it."""
        ...

    def delete(self, path: str) -> None:
        """A file, or a directory with all that is in it."""
        ...

    def arrow(self, path: str) -> tuple[Any, str]:
        """The same as a FileSystem of pyarrow, and how that calls a path. Raises ImportError."""
        ...


def join(folder: str, name: str) -> str:
    """A path or a URI below another one."""
    return f"{folder.removesuffix('/')}/{name}"


def temporary(path: str) -> str:
    """Beside a file, hidden, and of no suffix that anybody looks for: where it is until it is whole."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.{secrets.token_hex(4)}"
