"""The folders of an object store in a directory: made with the first object in them, removed with the last."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from pidkeeper.broker_agent.data.store.port import StoreRefusedError
from pidkeeper.disk.files import Files

MAX_SETTLED: Final = 4096
"""Folders that are known to be durable: some 100 bytes each. Above, all are forgotten and synced once more."""


class Folders:
    """Those below `root`; `sync` makes durable which names one has. Several threads may use it.

    `is_there()`: whether `root` is the directory still that was opened.

    An object may be put into a folder while somebody removes that, for it was empty. Whoever puts one sees that by an
    error, makes the folder anew, and looks whether `generation` is still the same once the object's name is synced: if
    not, another thread may have made the folder, and not have synced it yet. This holds among processes as well, as
    long as each folder has one that puts into it: names of objects begin with those of a broker and its epoch.
    """

    def __init__(
        self, files: Files, root: PurePath, sync: Callable[[PurePath], None], is_there: Callable[[], bool]
    ) -> None:
        self._files = files
        self._root = root
        self._sync = sync
        self._is_there = is_there
        self._lock = threading.Lock()
        self._settled = {root}
        self.generation = object()

    def prepare(self, folder: PurePath) -> None:
        """Make the folder and those above it, durably.

        Raises StoreRefusedError if one of them cannot be a folder, or `root` is another directory than was opened, and
        FileNotFoundError if one was removed meanwhile.
        """
        with self._lock:
            if folder in self._settled:
                return
            generation = self.generation
        levels = self._levels(folder)
        for level in levels[1:]:
            self._make(level)
        # All of them, whoever made them: it may not have lived to sync. None goes while there is one below it.
        for level in levels[1:]:
            self._sync(level.parent)
        with self._lock:
            if self.generation is not generation:
                return
            if len(self._settled) >= MAX_SETTLED:
                self._settled = {self._root}
                self.generation = object()
            self._settled.add(folder)

    def forget(self, folder: PurePath) -> None:
        """It was removed."""
        with self._lock:
            self._settled.discard(folder)
            self.generation = object()

    def nearest(self, folder: PurePath) -> PurePath:
        """The folder if it is there and reached through no link, else the lowest one above it of which that is true."""
        found = self._root
        for level in self._levels(folder)[1:]:
            if not self._files.is_directory(level):
                break
            found = level
        return found

    def remove_empty(self, folder: PurePath) -> None:
        """Remove the folder if nothing is in it, and then likewise those above it. That need not be durable."""
        for level in reversed(self._levels(folder)[1:]):
            try:
                self._files.remove_directory(level)
            except FileNotFoundError:
                pass
            except OSError:
                return
            self.forget(level)

    def _levels(self, folder: PurePath) -> tuple[PurePath, ...]:
        """The folder and those above it, from the store's own directory on."""
        above = [parent for parent in folder.parents if parent.is_relative_to(self._root)]
        return (*reversed(above), folder)

    def _make(self, level: PurePath) -> None:
        if self._files.is_directory(level):
            return
        # Where a file system was taken away, its mount point is a directory too: what is put there is lost.
        if not self._is_there():
            raise StoreRefusedError(f"{self._root} is not the directory any more that was opened")
        with contextlib.suppress(FileExistsError):
            self._files.make_directory(level)
        if self._files.is_directory(level):
            return
        if self._files.exists(level):
            # A link to one is none either: what is written stays in the store.
            raise StoreRefusedError(f"{level} is no directory: move it away, or use another name")
        raise FileNotFoundError(level)
