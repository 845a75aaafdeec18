"""Bugs in the log on disk, in snapshots, and in the order of the two."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

WAL: Final = "controller/storage/wal.py"
RECOVERY: Final = "controller/storage/recovery.py"
FRAMES: Final = "controller/storage/frames.py"
KEEPER: Final = "controller/node/snapshot_keeper.py"
CATALOG: Final = "snapshots/catalog.py"
FILES: Final = "snapshots/files.py"
_UNIT: Final = "tests/unit/controller/storage/"

STORAGE: Final = (
    Planted(
        "append-without-sync",
        "acknowledged means durable",
        "raftos 0.2.6, defect G; PySyncObj 0.3.17 never syncs",
        one(
            WAL,
            "            self._files.pwrite(self._handle, data, self._position)\n"
            "            self._files.fdatasync(self._handle)\n",
            "            self._files.pwrite(self._handle, data, self._position)\n",
        ),
    ),
    Planted(
        "failed-sync-tried-again",
        "a failed sync is final",
        "fsyncgate (PostgreSQL 2018; ATC'20): the second sync returns success with the data gone",
        one(
            WAL,
            "            self._files.fdatasync(self._handle)\n        except OSError as error:\n"
            "            raise self._fail(error) from error\n        self._advance(len(data), chain)",
            "            self._sync_twice()\n        except OSError as error:\n"
            "            raise self._fail(error) from error\n        self._advance(len(data), chain)\n\n"
            "    def _sync_twice(self) -> None:\n"
            "        try:\n            self._files.fdatasync(self._handle)\n"
            "        except OSError:\n            self._files.fdatasync(self._handle)",
        ),
        (_UNIT + "test_wal.py",),
    ),
    Planted(
        "segment-renamed-without-directory-sync",
        "a segment's name is durable before it is used",
        "etcd #6368",
        one(
            WAL,
            "        self._files.rename(temporary, self._path / header.name)\n"
            "        self._files.fsync_directory(self._path)\n",
            "        self._files.rename(temporary, self._path / header.name)\n",
        ),
    ),
    Planted(
        "segment-renamed-before-its-sync",
        "a segment's head is durable before its name",
        "etcd #16596: no boot after torn first pages",
        one(
            WAL,
            "        self._files.pwrite(handle, content, 0)\n        self._files.fdatasync(handle)\n",
            "        self._files.pwrite(handle, content, 0)\n",
        ),
    ),
    Planted(
        "torn-tail-refused",
        "a crash in the middle of a write costs no manual repair",
        "etcd #14098: unbootable tail",
        one(
            RECOVERY,
            "        self._truncate(header, data, position, bad.reason)",
            "        raise self.corrupt(header.name, bad.offset, bad.reason)",
        ),
    ),
    Planted(
        "torn-tail-forgets-nothing",
        "a member that may have lost the tail says so",
        "etcd #14143; PAR (FAST'18)",
        one(
            WAL,
            "found.hard_state = msgspec.structs.replace(found.hard_state, recovering=True)",
            "found.hard_state = msgspec.structs.replace(found.hard_state)",
        ),
        (_UNIT + "test_recovery.py", "tests/unit/controller/node/test_opening.py"),
    ),
    Planted(
        "torn-batch-accepted",
        "an append is there as a whole or not at all",
        "raftos 0.2.6, defect C: records without an end mark",
        one(
            FRAMES,
            "        frame, following, chain = _decode_frame(data, offset, end, chain)\n",
            "        try:\n            frame, following, chain = _decode_frame(data, offset, end, chain)\n"
            "        except BadBatch:\n            if not frames:\n                raise\n"
            "            return Batch(sequence, frames, end, chain)\n",
        ),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "entry-checksum-not-checked",
        "a flipped bit is noticed",
        "PySyncObj 0.3.17: no checksum; payload3 read back as payload2",
        one(FRAMES, "if data[checksum_at : checksum_at + 4] != _U32.pack(chain):", "if False:"),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "corrupt-middle-cut-off",
        "a log that lost what was durable is refused",
        "ZooKeeper and LogCabin in PAR (FAST'18)",
        (
            Edit(
                RECOVERY,
                "        later = frames.proof_of_later_write(data, position, bad, header.seed)\n",
                "        later = None\n",
            ),
        ),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "snapshot-named-before-it-is-durable",
        "a snapshot is durable before its name",
        "PySyncObj 0.3.17: dump without sync, then the journal is cut",
        one(
            FILES,
            "        files.pwrite(handle, data, 0)\n        files.fdatasync(handle)\n",
            "        files.pwrite(handle, data, 0)\n",
        ),
    ),
    Planted(
        "received-snapshot-installed-before-it-is-durable",
        "a snapshot is durable before the log behind it goes",
        "PySyncObj 0.3.17, syncobj.py:1427",
        (
            Edit(CATALOG, "        self._files.fdatasync(self._handle)\n", ""),
            Edit(
                CATALOG,
                "        self._files.rename(self._temporary, self._path / self.snapshot.name)\n"
                "        self._files.fsync_directory(self._path)\n",
                "        self._files.rename(self._temporary, self._path / self.snapshot.name)\n",
            ),
        ),
        ("tests/unit/snapshots/test_catalog.py",),
    ),
    Planted(
        "compaction-before-the-snapshot",
        "a snapshot is durable before the log behind it goes",
        "PySyncObj 0.3.17: 28 of 60 kills lost entries",
        one(
            KEEPER,
            "            await asyncio.to_thread(self._save, image)\n            self._compact(image)\n",
            "            self._compact(image)\n            await asyncio.to_thread(self._save, image)\n",
        ),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "log-dropped-beyond-the-snapshot",
        "what no snapshot covers stays in the log",
        "Redpanda #2437: the log was evicted under the ID allocator",
        one(KEEPER, "self._worker.wal.compact(keep_from)", "self._worker.wal.compact(self._core.applied)"),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "log-restarted-before-the-snapshot-is-whole",
        "a snapshot is durable before the log behind it goes",
        "Kafka KIP-630: the log is truncated after the snapshot is frozen",
        one(
            KEEPER,
            "            self._receiver = None\n            image = receiver.install()\n",
            "            self._receiver = None\n            old = self._worker.wal.hard_state\n"
            "            new = msgspec.structs.replace(old, commit=chunk.meta.index)\n"
            "            self._worker.wal.restart_at(chunk.meta, new)\n            image = receiver.install()\n",
        ),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "hard-state-not-carried-into-a-new-segment",
        "term and vote outlive the segment that they were written to",
        "etcd's cut() repeats the state in every file",
        one(WAL, "        head = [frames.hard_state_frame(hard_state), marker]\n", "        head = [marker]\n"),
        (_UNIT + "test_wal.py",),
    ),
    Planted(
        "oldest-segment-removed-with-live-entries",
        "compaction keeps what it was told to keep",
        "etcd #17780: a crash in compaction moved the revision back",
        one(WAL, "self._segments[0].highest < keep_from:", "self._segments[1].header.first_index <= keep_from + 8:"),
        (_UNIT + "test_wal.py",),
    ),
)
