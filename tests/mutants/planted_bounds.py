"""Bugs in what keeps the ID space, the table of transactional ids and the disk within their bounds; and over-reactions:
bounds that are met where there is room."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent"
API: Final = "controller/api"
NODE: Final = "controller/node"
RAFT: Final = "controller/raft"
STATE: Final = "controller/state"
_NOT_BURNT: Final = "one call does not burn the ID space"
_NOT_REFUSED: Final = "a lawful floor is accepted"
_END: Final = "the ID space ends with an error"

FLOOR_BUGS: Final = (
    Planted(
        "floor-decided-without-a-look",
        _NOT_BURNT,
        "a check at the door alone, passed before the state changed",
        (delete(STATE, "raise_floor", "check_floor(_, _, _, forced=_)"),),
    ),
    Planted(
        "force-counts-for-nothing",
        _NOT_REFUSED,
        "a bound without a way out",
        (replace(STATE, "check_floor", "not forced", "True"),),
    ),
    Planted(
        "force-lost-on-its-way",
        _NOT_REFUSED,
        "a field that is read, checked and not handed on",
        (replace(API, "Operations.raise_floor", "RaiseFloor(_1, forced=_)", "RaiseFloor(_1)"),),
    ),
    Planted(
        "floor-refused-at-the-bound",
        _NOT_REFUSED,
        "a bound that is off by one",
        (
            replace(
                STATE,
                "check_floor",
                "at_least - next_producer_id > MAX_FLOOR_JUMP",
                "at_least - next_producer_id >= MAX_FLOOR_JUMP",
            ),
        ),
    ),
    Planted(
        "high-floors-refused-altogether",
        _NOT_REFUSED,
        "a bound below the one that is meant",
        (replace(STATE, "check_floor", "at_least > MAX_PRODUCER_ID - block_size", "at_least > MAX_PRODUCER_ID // 2"),),
    ),
    Planted(
        "exhausted-and-come-again",
        _END,
        "14 for ever: every client library comes again",
        (replace(AGENT, "BlockReserve.refusal", "_ if self.exhausted else _1", "_1"),),
    ),
    Planted(
        "any-failure-taken-for-the-end",
        _END,
        "an error that no client survives, while a leader is elected",
        (replace(AGENT, "Prefetcher._handle_refusal", "_.code is ErrorCode.PRODUCER_IDS_EXHAUSTED", "True"),),
    ),
    Planted(
        "last-tenth-untold",
        "health tells of a bound in time",
        "told when nothing can be done any more",
        (replace(NODE, "shortages", "bound - used <= _", "used >= bound"),),
    ),
    Planted(
        "last-tenth-told-at-once",
        "health tells of what is so",
        "an alarm that always rings",
        (replace(NODE, "shortages", "bound - used <= _", "True"),),
    ),
)

_IDLE_ALONE: Final = "an id is forgotten only while it is idle"
_ROOM: Final = "idle transactional ids make room"

EXPIRY_BUGS: Final = (
    Planted(
        "forgetting-without-a-window",
        "requests of brokers find room beside the leader's own",
        "all that is due at once, however much that is",
        (replace(NODE, "TransactionDuties._forget_idle", "len(self._forgetting) < MAX_FORGETTING", "True"),),
    ),
    Planted(
        "a-window-at-each-look",
        _ROOM,
        "a bound on what is found, where one on what is under way was meant",
        (
            insert_after(
                NODE,
                "TransactionDuties._find_idle",
                "self._idle = _",
                "self._idle = deque(islice(self._idle, MAX_FORGETTING))",
            ),
        ),
    ),
    Planted(
        "used-ids-forgotten",
        _IDLE_ALONE,
        "the state of an id is looked at, and its age is not",
        (replace(NODE, "_is_idle", "_1 and _.update_ms < oldest", "_1"),),
    ),
    Planted(
        "one-look-is-enough",
        "an id that is in use stays, whatever a clock says",
        "Kafka's own rule: the age by the wall clock alone",
        (replace(NODE, "TransactionDuties._find_idle", "_.get(_1) is _2", "True"),),
    ),
    Planted(
        "ids-forgotten-in-the-midst-of-a-transaction",
        _IDLE_ALONE,
        "the age of an id is looked at, and its state is not",
        (
            replace(NODE, "_is_idle", "_ in IDLE and _2", "_2"),
            replace(STATE, "forget_transactional_id", "_.status not in IDLE", "False"),
            replace(
                STATE, "TransactionsState.replay", "_1 is not None and TransactionStatus.DEAD in _", "_1 is not None"
            ),
        ),
    ),
    Planted(
        "table-without-a-bound",
        "no more transactional ids are kept than fit into a snapshot",
        "a bound that nobody checks",
        (replace(STATE, "Draft._check_room", "new and _ >= MAX_TRANSACTIONAL_IDS", "False"),),
    ),
    Planted(
        "table-full-at-its-half",
        _ROOM,
        "a bound below the one that is meant",
        (replace(STATE, "Draft._check_room", "_1 >= MAX_TRANSACTIONAL_IDS", "_1 >= MAX_TRANSACTIONAL_IDS // 2"),),
    ),
)

_TOLD: Final = "a full disk is told before the member ends, and as long as it is full"
_WORKER: Final = ("tests/unit/controller/node/test_storage_worker.py",)
_WORKS_ON: Final = "a full disk costs nothing before the segment is full"

FULL_DISK_BUGS: Final = (
    Planted(
        "room-asked-for-at-every-tick",
        _TOLD,
        "a hundred attempts and lines in a second, on a disk that is full already",
        (delete(NODE, "StorageWorker._prepare_segment", "self._prepare_at = _"),),
    ),
    Planted(
        "full-disk-logged-at-every-attempt",
        _TOLD,
        "what lasts for hours, as a line in each second and more",
        (
            insert_before(
                NODE,
                "StorageWorker.prepare_segment",
                "if not self.wal.wants_next_segment:",
                "if self.no_room is not None:\n    logger.error(self.no_room)",
            ),
        ),
    ),
    Planted(
        "full-disk-not-in-readiness",
        _TOLD,
        "a condition that the member knows, and nobody else",
        (replace(NODE, "status.readiness", "member.writer.no_room", "None"),),
    ),
    Planted(
        "member-ends-at-the-first-refusal",
        _WORKS_ON,
        "any trouble of the disk taken for the last one",
        (
            insert_before(
                NODE, "StorageWorker._prepare_segment", "if self.no_room is None:", "self.events.fault(error)"
            ),
        ),
    ),
    Planted(
        "unready-for-ever",
        "a member is ready again by itself",
        "a flag that is set and never taken back",
        (delete(NODE, "StorageWorker._has_room", "self.no_room = None"),),
    ),
    Planted(
        "room-that-an-append-found-untold",
        "a member is ready again by itself",
        "this project: the flag was taken back only where the segment was made ahead",
        (delete(NODE, "StorageWorker.prepare_segment", "if not self.failed:"),),
        _WORKER,
    ),
    Planted(
        "refused-segment-asked-for-no-more",
        "a member is ready again by itself",
        "a failure that is taken for final",
        (replace(NODE, "StorageWorker._prepare_segment", "ROOM_CHECK_SECONDS", "1e9"),),
        _WORKER,
        unseen="within seconds an append fills the segment there, and finds the room by itself",
    ),
)

_LOG: Final = "the log is bounded in bytes"
_DUE: Final = "tests/unit/controller/node/test_snapshot_due.py"
_KEEPER: Final = "tests/unit/controller/node/test_snapshot_keeper.py"

LOG_BUGS: Final = (
    Planted(
        "snapshot-never-due-by-bytes",
        _LOG,
        "this project: 10,000 entries of a transaction with 9,000 partitions each",
        (replace(NODE, "SnapshotDue.now", "self._bytes >= _", "False"),),
        (_DUE, _KEEPER),
    ),
    Planted(
        "bytes-of-payloads-alone-counted",
        _LOG,
        "entries that are empty cost nothing",
        (replace(NODE, "SnapshotDue.applied", "ENTRY_BYTES + _1", "_1"),),
        (_DUE, _KEEPER),
    ),
    Planted(
        "bytes-counted-since-the-start",
        "a snapshot costs now and then",
        "an over-reaction: from the first bound on there is a snapshot with every entry",
        (replace(NODE, "SnapshotDue.begun", "self._entries = self._bytes = 0", "self._entries = 0"),),
        (_DUE,),
        unseen="snapshots that nobody needs cost time alone",
    ),
    Planted(
        "kept-behind-a-snapshot-by-payloads-alone",
        _LOG,
        "entries that are empty cost nothing",
        (replace(RAFT, "RaftLog.tail", "ENTRY_BYTES + _1", "_1"),),
        ("tests/unit/controller/raft/test_log.py",),
    ),
    Planted(
        "kept-behind-a-snapshot-whatever-it-takes",
        _LOG,
        "a number of entries, and each may have 256 KiB",
        (
            replace(
                NODE, "SnapshotKeeper._keep_from", "usual = core.tail(_1, _2, _)", "usual = core.tail(_1, _2, 2**62)"
            ),
            replace(
                NODE, "SnapshotKeeper._keep_from", "max(core.tail(_1, _2, _), _3)", "max(core.tail(_1, _2, 2**62), _3)"
            ),
        ),
        (_KEEPER,),
    ),
    Planted(
        "log-on-disk-never-cut",
        _LOG,
        "PySyncObj 0.3.17 without a full dump: the journal grows for ever",
        (delete(NODE, "SnapshotKeeper._compact", "self._worker.run(_)"),),
        (_KEEPER,),
    ),
    Planted(
        "partitions-without-a-bound",
        "what is kept of transactions fits into memory",
        "a bound on the number of ids, and each may have 9,000 partitions",
        (replace(STATE, "Draft._check_room", "_1 or (_ > 0 and _ > MAX_PARTITION_BYTES)", "_1"),),
        ("tests/unit/controller/state/test_transaction_decisions.py",),
        unseen="nobody in it has as many partitions as there may be",
    ),
)

BOUND_BUGS: Final = (*FLOOR_BUGS, *EXPIRY_BUGS, *FULL_DISK_BUGS, *LOG_BUGS)
