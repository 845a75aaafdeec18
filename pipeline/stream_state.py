"""Whose a stream's state directory is: one process's at a time, and of one set of paths."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pipeline.watermark import StateError
from snapshots.files import OsFiles

STREAM_VERSION: Final = 1
NAME: Final = "stream.json"
LOCK: Final = "lock"
BLOCKS: Final = "blocks"
FINDINGS: Final = "findings"
CHECKPOINT: Final = "checkpoint"
_SCHEME: Final = "://"
_ANOTHER: Final = "name another --state, or remove it to start anew"


class _StreamState(msgspec.Struct):
    data: list[str]
    version: int = STREAM_VERSION


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from a state directory, which is made if it is not there. Raises StateError, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    files = OsFiles()
    try:
        handle = files.lock(directory / LOCK)
    except BlockingIOError as error:
        raise StateError(
            f"{directory} is in use by another `pidkeeper audit`: stop that one, or name another --state"
        ) from error
    try:
        yield
    finally:
        files.close(handle)


def claim(directory: Path, data: list[str]) -> None:
    """Note that the state, which is made if it is not there, is of these paths.

    Further paths may come to those of before, as when a member is added. Without one of those of before, the state
    would tell of what nobody watches. Raises StateError for such paths, and for what is not a stream's state.
    """
    paths = [path if _SCHEME in path else str(Path(path).absolute()) for path in data]
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / NAME
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_StreamState)
    except FileNotFoundError:
        _check_that_it_is_new(directory)
    except (msgspec.DecodeError, OSError) as error:
        raise StateError(f"{file} cannot be read ({error}): {_ANOTHER}") from error
    else:
        if known.version != STREAM_VERSION:
            raise StateError(f"{file} is of version {known.version}, this build knows {STREAM_VERSION}: {_ANOTHER}")
        if missing := sorted(set(known.data) - set(paths)):
            raise StateError(f"{directory} is the state of a stream of other paths, as {missing[0]}: {_ANOTHER}")
        if not (directory / CHECKPOINT).is_dir() and any((directory / BLOCKS).glob("*")):
            raise StateError(f"{directory} has blocks, and its {CHECKPOINT} is gone: {_ANOTHER}")
    _write(file, _StreamState(paths))


def _check_that_it_is_new(directory: Path) -> None:
    there = sorted(path.name for path in directory.iterdir() if path.name in {BLOCKS, FINDINGS, CHECKPOINT})
    if there:
        raise StateError(f"{directory} has {', '.join(there)} and no {NAME}: it is not a stream's state; {_ANOTHER}")


def _write(file: Path, state: _StreamState) -> None:
    temporary = file.with_suffix(".new")
    with temporary.open("wb") as opened:
        opened.write(msgspec.json.encode(state))
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)
