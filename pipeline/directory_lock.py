"""A directory that an audit writes to is one process's at a time, be it the output, a state or both."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from pidkeeper.pipeline.store import Place, local_directory
from pidkeeper.snapshots.files import OsFiles

LOCK: Final = "lock"


class InUseError(RuntimeError):
    """Another process has the directory; the message says what to do."""


@contextlib.contextmanager
def locked(place: Place, option: str) -> Iterator[None]:
    """Keep other processes from a directory, which is made if it is not there, until this one leaves or ends.

    `option` is the one that names it. Raises InUseError, OSError. A directory on another file system is not locked:
    Hadoop's have no locks that end with their process.
    """
    directory = local_directory(place)
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    files = OsFiles()
    try:
        handle = files.lock(directory / LOCK)
    except BlockingIOError as error:
        raise InUseError(
            f"{directory} is in use: another `pidkeeper audit` writes there; stop it or wait until it ends, or name "
            f"another {option}"
        ) from error
    except OSError as error:
        raise OSError(f"{directory} cannot be locked ({error}): name as {option} one where locks work") from error
    try:
        yield
    finally:
        files.close(handle)


def same_directory(one: Place, other: Place) -> bool:
    """Whether both are one directory of this machine, by whatever links and spelling. None needs to be there."""
    directories = [local_directory(place) for place in (one, other)]
    real = [os.path.realpath(directory) for directory in directories if directory is not None]
    return len(real) == 2 and real[0] == real[1]
