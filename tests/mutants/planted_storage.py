"""Bugs in the log on disk, in snapshots, and in the order of the two."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import define_after, delete, insert_before, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
DISK: Final = "disk"
SNAPSHOTS: Final = "snapshots"
STORAGE: Final = "controller/storage"
_UNIT: Final = "tests/unit/controller/storage/"

STORAGE_BUGS: Final = (
    Planted(
        "append-without-sync",
        "acknowledged means durable",
        "raftos 0.2.6, defect G; PySyncObj 0.3.17 never syncs",
        (delete(STORAGE, "_write", "self._files.fdatasync(_)"),),
    ),
    Planted(
        "failed-sync-tried-again",
        "a failed sync is final",
        "fsyncgate (PostgreSQL 2018; ATC'20): the second sync returns success with the data gone",
        (
            replace(STORAGE, "_write", "self._files.fdatasync(_)", "self._sync_twice()"),
            define_after(
                STORAGE,
                "_write",
                "def _sync_twice(self) -> None:\n"
                "    try:\n"
                "        self._files.fdatasync(self._handle)\n"
                "    except OSError:\n"
                "        self._files.fdatasync(self._handle)",
            ),
        ),
        (_UNIT + "test_wal.py",),
    ),
    Planted(
        "segment-renamed-without-directory-sync",
        "a segment's name is durable before it is used",
        "etcd #6368",
        (delete(STORAGE, "_install", "self._files.fsync_directory(_)"),),
    ),
    Planted(
        "segment-renamed-before-its-sync",
        "a segment's head is durable before its name",
        "etcd #16596: no boot after torn first pages",
        (delete(STORAGE, "_install", "self._files.fdatasync(_)"),),
    ),
    Planted(
        "torn-tail-refused",
        "a crash in the middle of a write costs no manual repair",
        "etcd #14098: unbootable tail",
        (
            replace(
                STORAGE,
                "_judge",
                "self._truncate(_1, _, _, _2.reason)",
                "raise self.corrupt(_1.name, _2.offset, _2.reason)",
            ),
        ),
    ),
    Planted(
        "torn-tail-forgets-nothing",
        "a member that may have lost the tail says so",
        "etcd #14143; PAR (FAST'18)",
        (replace(STORAGE, "_resume", "msgspec.structs.replace(_1, recovering=True)", "msgspec.structs.replace(_1)"),),
        (_UNIT + "test_recovery.py", "tests/unit/controller/node/test_opening.py"),
    ),
    Planted(
        "torn-batch-accepted",
        "an append is there as a whole or not at all",
        "raftos 0.2.6, defect C: records without an end mark",
        (
            replace(
                STORAGE,
                "decode_batch",
                "_1 = _2(data, offset, end, chain)",
                "try:\n"
                "    _1 = _2(data, offset, end, chain)\n"
                "except BadBatch:\n"
                "    if not frames:\n"
                "        raise\n"
                "    return Batch(sequence, frames, end, chain)",
            ),
        ),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "entry-checksum-not-checked",
        "a flipped bit is noticed",
        "PySyncObj 0.3.17: no checksum; payload3 read back as payload2",
        (replace(STORAGE, "_decode_frame", "_ != _U32.pack(_)", "False"),),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "corrupt-middle-cut-off",
        "a log that lost what was durable is refused",
        "ZooKeeper and LogCabin in PAR (FAST'18)",
        (replace(STORAGE, "_judge", "frames.proof_of_later_write(...)", "None"),),
        (_UNIT + "test_recovery.py",),
    ),
    Planted(
        "snapshot-named-before-it-is-durable",
        "a snapshot is durable before its name",
        "PySyncObj 0.3.17: dump without sync, then the journal is cut",
        (delete(DISK, "write_durably", "_.fdatasync(_)"),),
    ),
    Planted(
        "received-snapshot-installed-before-it-is-durable",
        "a snapshot is durable before the log behind it goes",
        "PySyncObj 0.3.17, syncobj.py:1427",
        (
            delete(SNAPSHOTS, "install", "self._files.fdatasync(_)"),
            delete(SNAPSHOTS, "install", "self._files.fsync_directory(_)"),
        ),
        ("tests/unit/snapshots/test_catalog.py",),
    ),
    Planted(
        "compaction-before-the-snapshot",
        "a snapshot is durable before the log behind it goes",
        "PySyncObj 0.3.17: 28 of 60 kills lost entries",
        (replace(NODE, "SnapshotKeeper._take", "await _1\nself._compact(_2)", "self._compact(_2)\nawait _1"),),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "log-dropped-beyond-the-snapshot",
        "what no snapshot covers stays in the log",
        "Redpanda #2437: the log was evicted under the ID allocator",
        (replace(NODE, "_compact", "self._worker.wal.compact(_)", "self._worker.wal.compact(self._core.applied)"),),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "log-restarted-before-the-snapshot-is-whole",
        "a snapshot is durable before the log behind it goes",
        "Kafka KIP-630: the log is truncated after the snapshot is frozen",
        (
            insert_before(
                NODE,
                "_store",
                "_ = _.install()",
                "old = self._worker.wal.hard_state\n"
                "new = msgspec.structs.replace(old, commit=chunk.snapshot.index)\n"
                "self._worker.wal.restart_at(chunk.snapshot, new)",
            ),
        ),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
    ),
    Planted(
        "hard-state-not-carried-into-a-new-segment",
        "term and vote outlive the segment that they were written to",
        "etcd's cut() repeats the state in every file",
        (replace(STORAGE, "_roll", "[frames.hard_state_frame(_), _1]", "[_1]"),),
        (_UNIT + "test_wal.py",),
    ),
    Planted(
        "oldest-segment-removed-with-live-entries",
        "compaction keeps what it was told to keep",
        "etcd #17780: a crash in compaction moved the revision back",
        (
            replace(
                STORAGE,
                "compact",
                "self._segments[0].highest < _1",
                "self._segments[1].header.first_index <= _1 + 8",
            ),
        ),
        (_UNIT + "test_wal.py",),
    ),
)
