"""Small write-ahead logs in memory, for the tests of the storage package."""

from __future__ import annotations

import uuid
from pathlib import PurePath

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.directory import DirectoryMeta
from pidkeeper.controller.storage.recovery import RecoveredLog
from pidkeeper.controller.storage.wal import WriteAheadLog
from tests.support.memory_files import MemoryFiles

WAL = PurePath("/data/wal")
META = DirectoryMeta(1, "cluster-a", 1, uuid.UUID(int=0xA11CE))
SMALL = 1024


def new_disk() -> MemoryFiles:
    """A disk with an empty log directory."""
    files = MemoryFiles()
    files.make_directory(WAL)
    return files


def open_log(files: MemoryFiles, segment_bytes: int = SMALL) -> tuple[WriteAheadLog, RecoveredLog]:
    """Open the log on this disk."""
    return WriteAheadLog.open(files, WAL, META, segment_bytes=segment_bytes)


def entries(first: int, last: int, term: int = 1, size: int = 20) -> list[Entry]:
    """Entries `first` to `last`; the data differs by index and term."""
    return [Entry(term, index, f"{term}/{index}/".encode().ljust(size, b"x")) for index in range(first, last + 1)]


def hard_state(term: int = 1, commit: int = 0, *, recovering: bool = False) -> HardState:
    """A hard state with a vote for member 2."""
    return HardState(term=term, vote=2, commit=commit, recovering=recovering)


def segments(files: MemoryFiles) -> list[str]:
    """The segments on this disk."""
    return [name for name in files.listdir(WAL) if name.endswith(".wal")]
