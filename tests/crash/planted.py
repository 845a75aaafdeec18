"""Mistakes to make in the storage code on purpose: each of them has to be found by the enumeration."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any, Final

import msgspec
import pytest

import pidkeeper.controller.storage.archive
import pidkeeper.controller.storage.owner_archive
import pidkeeper.controller.storage.wal
import pidkeeper.snapshots.catalog
from pidkeeper.controller.node import opening
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.snapshot_keeper import SnapshotKeeper
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.controller.storage.recovery import LogReader
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.snapshots.catalog import RawSnapshotWriter


class Mistake(msgspec.Struct, frozen=True):
    """Replacements in the function `name` of `owners`, and a history in which it matters, from operation `since` on."""

    owners: tuple[Any, ...]
    name: str
    replacements: tuple[tuple[str, str], ...]
    kind: str
    seed: int = 1
    since: int = 0

    def make(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Compile the function anew with the mistake in it."""
        function = inspect.unwrap(getattr(self.owners[0], self.name))
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.replacements:
            assert old in source, f"{self.name} has no {old!r} any more"
            source = source.replace(old, new)
        made: dict[str, Any] = {}
        code = compile("from __future__ import annotations\n" + source, f"<{self.name} with a mistake>", "exec")
        exec(code, sys.modules[function.__module__].__dict__, made)
        for owner in self.owners:
            monkeypatch.setattr(owner, self.name, made[self.name])


_SYNC_DIRECTORY: Final = "self._files.fsync_directory(self._path)"
_RESTART: Final = "wal.restart_at(chunk.snapshot, msgspec.structs.replace(wal.hard_state, commit=chunk.snapshot.index))"

_WITH_OWNERS: Final = (12, 8)
"""The seed of a history whose files of owners are merged early, and the operation where the first one is written."""

MISTAKES: Final = {
    "append-without-sync": Mistake(
        (WriteAheadLog,), "_write", (("self._files.fdatasync(self._handle)", "pass"),), "append"
    ),
    "segment-name-not-synced": Mistake((WriteAheadLog,), "_install", ((_SYNC_DIRECTORY, "pass"),), "append"),
    "segment-renamed-before-its-sync": Mistake(
        (WriteAheadLog,),
        "_install",
        (
            ("self._files.fdatasync(handle)", "pass"),
            (_SYNC_DIRECTORY, f"{_SYNC_DIRECTORY}; self._files.fdatasync(handle)"),
        ),
        "append",
    ),
    "segments-removed-without-sync": Mistake(
        (WriteAheadLog,), "_remove_oldest", ((_SYNC_DIRECTORY, "pass"),), "snapshot"
    ),
    "torn-end-refused": Mistake(
        (LogReader,),
        "_judge",
        (("self._truncate(header", "raise self.corrupt(header.name, bad.offset, bad.reason)  # ("),),
        "append",
    ),
    "torn-end-not-marked": Mistake(
        (WriteAheadLog,), "_resume", (("hard_state, recovering=True", "hard_state, recovering=False"),), "append"
    ),
    "written-on-behind-what-is-only-in-memory": Mistake(
        (WriteAheadLog,),
        "_copy_tail",
        (
            (
                "handle = allocate(self._files, temporary, size)",
                "self._handle = self._files.open(self._path / old.name)",
            ),
            ("self._install(handle, temporary, header, content + batch)", "self._seed = header.seed"),
            (
                "if extra:\n        self._advance",
                "if extra:\n        self._files.pwrite(self._handle, batch, newest.end)\n        self._advance",
            ),
        ),
        "reopen",
    ),
    "names-not-synced-at-start": Mistake(
        (pidkeeper.snapshots.catalog, pidkeeper.controller.storage.archive, pidkeeper.controller.storage.wal),
        "remove_temporary",
        (("files.fsync_directory(directory)", "pass"),),
        "killed",
        seed=7,
    ),
    "file-name-not-synced": Mistake(
        (pidkeeper.snapshots.catalog, pidkeeper.controller.storage.archive),
        "write_durably",
        (("files.fsync_directory(path.parent)", "pass"),),
        "snapshot",
    ),
    "file-renamed-before-its-sync": Mistake(
        (pidkeeper.snapshots.catalog, pidkeeper.controller.storage.archive),
        "write_durably",
        (("files.fdatasync(handle)", "pass"),),
        "snapshot",
    ),
    "log-compacted-before-the-snapshot": Mistake(
        (SnapshotKeeper,),
        "_take",
        (
            ("await asyncio.to_thread(self._save, state)", "self._worker.wal.compact(state.index)"),
            ("self._compact(state)", "await asyncio.to_thread(self._save, state); self._compact(state)"),
        ),
        "snapshot",
    ),
    "snapshot-before-the-archive": Mistake(
        (SnapshotKeeper,),
        "_take",
        (
            ("await self._ledger.archive(state.next_offset)", "await asyncio.to_thread(self._save, state)"),
            (
                "state)\n        await asyncio.to_thread(self._save, state)",
                "state)\n        await self._ledger.archive(state.next_offset)",
            ),
        ),
        "snapshot",
    ),
    "row-left-out-of-the-archive": Mistake(
        (Ledger,),
        "archive",
        (("self._position(next_offset)]", "max(0, self._position(next_offset) - 1)]"),),
        "snapshot",
    ),
    "archive-files-removed-before-the-merged-one-is-there": Mistake(
        (AllocationArchive,),
        "_merge",
        (
            ("write_durably(", "write = lambda: write_durably("),
            (_SYNC_DIRECTORY, f"{_SYNC_DIRECTORY}; write()"),
        ),
        "snapshot",
    ),
    "owners-renamed-before-their-sync": Mistake(
        (pidkeeper.controller.storage.owner_archive,),
        "write_durably",
        (("files.fdatasync(handle)", "pass"),),
        "owners",
        *_WITH_OWNERS,
    ),
    "name-of-merged-owners-not-synced": Mistake(
        (pidkeeper.controller.storage.owner_archive,),
        "write_durably",
        (("files.fsync_directory(path.parent)", "pass"),),
        "owners",
        *_WITH_OWNERS,
    ),
    "owner-files-removed-before-the-merged-one-is-there": Mistake(
        (OwnerArchive,),
        "_merge",
        (
            ("write_durably(", "write = lambda: write_durably("),
            (_SYNC_DIRECTORY, f"{_SYNC_DIRECTORY}; write()"),
        ),
        "owners",
        *_WITH_OWNERS,
    ),
    "names-of-merged-owners-left-where-they-were": Mistake(
        (OwnerArchive,), "_moved", (("moved(rows, by)", "rows"),), "owners", *_WITH_OWNERS
    ),
    "owners-behind-the-snapshot": Mistake(
        (SnapshotKeeper,),
        "_take",
        (
            (
                "await self._ledger.archive(state.next_offset)",
                (
                    "owners, self._ledger._recent_owners = self._ledger._recent_owners, []; "
                    "await self._ledger.archive(state.next_offset); self._ledger._recent_owners = owners"
                ),
            ),
            (
                "self._save, state)",
                (
                    "self._save, state); "
                    "await asyncio.to_thread(self._ledger._owners.append, owners, 0, state.next_offset)"
                ),
            ),
        ),
        "owners",
        *_WITH_OWNERS,
    ),
    "owner-left-out-of-the-archive": Mistake(
        (Ledger,),
        "archive",
        (("self._owner_position(next_offset)]", "max(0, self._owner_position(next_offset) - 1)]"),),
        "owners",
        *_WITH_OWNERS,
    ),
    "received-snapshot-not-synced": Mistake(
        (RawSnapshotWriter,), "install", (("self._files.fdatasync(self._handle)", "pass"),), "install"
    ),
    "received-snapshot-name-not-synced": Mistake(
        (RawSnapshotWriter,), "install", ((_SYNC_DIRECTORY, "pass"),), "install"
    ),
    "log-restarted-before-the-received-snapshot": Mistake(
        (SnapshotKeeper,),
        "_store",
        (
            (_RESTART, "pass"),
            ("image = receiver.install()", f"wal = self._worker.wal; {_RESTART}; image = receiver.install()"),
        ),
        "install",
    ),
    "conflicting-log-kept-behind-a-received-snapshot": Mistake(
        (opening,), "_reaches", (("log.entries[position].term == snapshot.term", "True"),), "install"
    ),
}

DAMAGE_MISTAKES: Final = {
    "torn-end-not-marked": msgspec.structs.replace(MISTAKES["torn-end-not-marked"], kind="append"),
    "log-that-ends-before-the-snapshot-not-marked": Mistake(
        (opening,),
        "_reconciled",
        (("recovering=True", "recovering=state.recovering"),),
        "snapshot",
    ),
    "archive-not-verified-at-open": Mistake(
        (AllocationArchive,),
        "_verify",
        (
            (
                "header, rows = split_archive(self._files.read_bytes(self._path / name))",
                (
                    "data = self._files.read_bytes(self._path / name)\n"
                    "        header, rows = decode_header(data), data[HEADER_BYTES:]"
                ),
            ),
        ),
        "snapshot",
    ),
    "owners-not-verified-at-open": Mistake(
        (pidkeeper.controller.storage.owner_archive,),
        "split_owners",
        ((" or checksum != header.checksum", ""),),
        "owners",
    ),
    "segments-not-tied-to-each-other": Mistake(
        (LogReader,),
        "_finish",
        (("if (self.sequence, self.chain) !=", "if False and (self.sequence, self.chain) !="),),
        "append",
    ),
}
"""Those that only damage of what was synced can show."""
