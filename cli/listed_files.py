"""Files of one entry a line, which services read again: read, and changed as a whole, by one command at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.disk.files import OsFiles, write_durably
from pidkeeper.service.settings import SettingsError

NEW_FILE_MODE = 0o640


class Listed(Protocol):
    """An entry."""

    @property
    def line(self) -> str:
        """As it stands in the file."""


Entry = TypeVar("Entry", bound=Listed)
Read = Callable[[str], list[Entry]]


def read_listed(file: Path, read: Read[Entry]) -> list[Entry]:
    """What is in a file. Raises CommandError."""
    try:
        return read(str(file))
    except SettingsError as error:
        raise CommandError(str(error)) from error


def change_listed(
    file: Path, read: Read[Entry], change: Callable[[list[Entry]], Sequence[Entry]], *, new: bool = False
) -> None:
    """Put what `change` makes of a file's entries in their place, with the comments first; owner and mode stay.

    `new`: there may be no file yet; only its owner and their group can read the one that is made. Raises CommandError.
    """
    files = OsFiles()
    try:
        lock = files.lock(file.with_name(f".{file.name}.lock"))
    except BlockingIOError as error:
        raise CommandError(f"{file} is being changed by another command: try again", ExitCode.REFUSED) from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    try:
        there = not new or file.exists()
        known = read_listed(file, read) if there else []
        comments = (
            [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")] if there else []
        )
        lines = [*comments, *(entry.line for entry in change(known))]
        _write(files, file, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        files.close(lock)


def _write(files: OsFiles, file: Path, text: str) -> None:
    before = file.stat() if file.exists() else None
    # What is written has another name first, under which nobody else may read it either.
    mask = os.umask(0o077)
    try:
        write_durably(files, file, text.encode())
    finally:
        os.umask(mask)
    if before is not None:
        os.chown(file, before.st_uid, before.st_gid)
        file.chmod(stat.S_IMODE(before.st_mode))
    else:
        file.chmod(NEW_FILE_MODE & ~mask)
