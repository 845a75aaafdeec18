"""The processes that write into one directory, and what those left that are gone.

Each writer holds a lock on a file of its own, named after its token, and all its temporary files are named after that
token too. So whoever opens the directory can tell a living writer's files from a dead one's:

    ~opening.lock       held while a writer comes in: only one looks for dead ones at a time
    ~<token>.lock       held by a writer as long as it lives
    ~<token>-<n>.tmp    what it has under way

No object's name has a tilde.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import uuid
from pathlib import PurePath
from typing import Final

from pidkeeper.broker_agent.data.store.port import StoreUnavailableError
from pidkeeper.disk.files import TEMPORARY_SUFFIX, Files

OPENING_SECONDS: Final = 10.0
"""Whoever comes in lists one directory; a hundred agents that start at once are through in a second or two."""
_POLL_SECONDS: Final = 0.01
_OPENING: Final = "~opening.lock"
_LOCK: Final = re.compile(r"~([0-9a-f]{32})\.lock")
_TEMPORARY: Final = re.compile(rf"~([0-9a-f]{{32}})-\d+{re.escape(TEMPORARY_SUFFIX)}")


class Writer:
    """One writer of `directory`, from now until `leave`; files of dead ones are removed.

    Blocks for up to OPENING_SECONDS. Raises OSError, and StoreUnavailableError if another one is that long in opening.
    """

    def __init__(self, files: Files, directory: PurePath) -> None:
        self._files = files
        self._directory = directory
        self._token = uuid.uuid4().hex
        self._numbers = itertools.count()
        opening = _wait_for_lock(files, directory / _OPENING)
        try:
            self._lock = files.lock(self._lock_path(self._token))
            self._remove_dead()
        finally:
            files.close(opening)

    def new_temporary(self) -> PurePath:
        """A name that no other call gives, for a file that is removed if this process dies."""
        return self._directory / f"~{self._token}-{next(self._numbers)}{TEMPORARY_SUFFIX}"

    def is_there(self) -> bool:
        """Whether the directory still is the one that was opened: another one in its place has no such lock."""
        return self._files.exists(self._lock_path(self._token))

    def leave(self) -> None:
        """Give the lock back."""
        _remove(self._files, self._lock_path(self._token))
        self._files.close(self._lock)

    def _lock_path(self, token: str) -> PurePath:
        return self._directory / f"~{token}.lock"

    def _remove_dead(self) -> None:
        names = self._files.listdir(self._directory)
        tokens = {match[1] for name in names if (match := _LOCK.fullmatch(name))}
        dead = {token for token in tokens - {self._token} if self._is_dead(token)}
        living = (tokens | {self._token}) - dead
        for name in names:
            match = _TEMPORARY.fullmatch(name)
            if match is not None and match[1] not in living:
                _remove(self._files, self._directory / name)
        # Last, for without its lock nobody else would be told apart from it.
        for token in dead:
            _remove(self._files, self._lock_path(token))

    def _is_dead(self, token: str) -> bool:
        try:
            self._files.close(self._files.lock(self._lock_path(token)))
        except BlockingIOError:
            return False
        return True


def _wait_for_lock(files: Files, path: PurePath) -> int:
    deadline = time.monotonic() + OPENING_SECONDS
    while True:
        try:
            return files.lock(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreUnavailableError(f"{path} was held by another process for {OPENING_SECONDS} s") from None
            time.sleep(_POLL_SECONDS)


def _remove(files: Files, path: PurePath) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.unlink(path)
