"""Bugs in what a quorum does about disks that hang or are slow."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, insert_before, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
RAFT: Final = "controller/raft"
_CORE: Final = "tests/unit/controller/raft/test_core_slow_disk.py"
_PACE: Final = "tests/unit/controller/raft/test_disk_pace.py"
_TOLD: Final = "a disk that hangs is told"
_STATUS: Final = "tests/unit/controller/node/test_status.py"
_CHUNKS: Final = "tests/unit/controller/node/test_chunk_reader.py"
_DRIVER: Final = "tests/unit/controller/node/test_driver.py"
_READS: Final = "a read that hangs costs nobody but its peer"
_COSTS_TIME: Final = (
    "it costs an election more, and the simulator counts them only while disks are slow and all else is well"
)

SLOW_DISK_BUGS: Final = (
    Planted(
        "a-leader-whose-disk-hangs-leads-on",
        "one slow disk does not stop allocation",
        "asynchronous log writes: heartbeats need no disk, so nobody misses the leader (etcd-io/etcd #7617)",
        (replace(RAFT, "Leadership.tick", "faster and _", "False"),),
        (_CORE,),
    ),
    Planted(
        "handover-although-nobody-has-the-entry",
        "equally slow disks change no leader",
        "a time limit on the own disk alone",
        (
            replace(RAFT, "DurabilityLag.tick", "_.index <= log.commit", "True"),
            replace(RAFT, "DurabilityLag.tick", "_.counted >= _", "True"),
            replace(RAFT, "_can_lead_at_once", "_.match == _", "True"),
        ),
        (_CORE,),
    ),
    Planted(
        "handover-before-twice-the-others-time",
        "equally slow disks change no leader",
        "a limit that knows nothing of the other disks",
        (replace(RAFT, "DurabilityLag.tick", "2 * _ + self._allowance", "self._allowance"),),
        (_CORE,),
        unseen="the others' acknowledgements come after the own write in the simulator, where the disks are equal",
    ),
    Planted(
        "handover-after-a-hiccup",
        "a hiccup changes no leader",
        "a limit without an allowance",
        (replace(RAFT, "DurabilityLag.tick", "2 * _1 + self._allowance", "2 * _1"),),
        (_CORE,),
    ),
    Planted(
        "all-entries-timed-from-the-oldest",
        "equally slow disks change no leader",
        "a mark that is never taken down",
        (delete(RAFT, "DurabilityLag.tick", "while self._not_durable and _:"),),
        (_CORE,),
    ),
    Planted(
        "handover-to-a-learner",
        "a voter leads",
        "a member is taken for a voter",
        (replace(RAFT, "_yield_to", "[peer for peer in faster if _]", "list(faster)"),),
        (_CORE,),
    ),
    Planted(
        "handover-while-the-others-lag",
        "slow disks change no leader again and again",
        "one stall of the own disk beside what the others did in that moment alone",
        (replace(RAFT, "DurabilityLag.tick", "self._lagged.get(_, _) <= _", "True"),),
        (_CORE,),
        unseen="where all disks stall now and then, more elections than one are no violation",
    ),
    Planted(
        "handover-to-a-minority",
        "a handover can succeed",
        "one voter that is faster taken for enough",
        (replace(RAFT, "_yield_to", "_1 and _ >= majority(_)", "_1"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "handover-to-a-member-that-lost-its-data",
        "a handover can succeed",
        "docs/decisions/0005: its vote counts only if all agree",
        (replace(RAFT, "_can_lead_at_once", "not progress.recovery and _1 and _2", "_1 and _2"),),
        (_CORE,),
        unseen="no disk is lost in the simulator while another one hangs and all else is well",
    ),
    Planted(
        "handover-to-a-silent-member",
        "a handover can succeed",
        "the most caught-up voter by what it said long ago",
        (replace(RAFT, "_can_lead_at_once", "_1 and _2 and self.is_heard(_)", "_1 and _2"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "always-the-same-successor",
        "a handover that fails is tried with another voter",
        "the first of a list",
        (replace(RAFT, "_yield_to", "next(_, _1)", "_1"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "takeover-while-the-own-write-stalls",
        "a slow disk does not come to lead",
        "TimeoutNow obeyed whatever the disk does",
        (replace(RAFT, "_on_timeout_now", "_1 and _2 and not self.disk.stalled", "_1 and _2"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "candidacy-while-the-own-write-stalls",
        "a slow disk does not come to lead",
        "a term and a vote that wait behind the write that stalls",
        (replace(RAFT, "_become_pre_candidate", "_1 or self.disk.stalled", "_1"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "a-slow-disk-does-not-wait-longer",
        "a slow disk does not come to lead",
        "the election timeout of everybody",
        (replace(RAFT, "RaftCore.tick", "_ if self.disk.slow else 0", "0"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "a-slow-disk-takes-its-turn",
        "a slow disk does not come to lead",
        "the turns of decision 0007, whatever the disk does",
        (replace(RAFT, "RaftCore.link_lost", "_1 and not self.disk.slow", "_1"),),
        (_CORE,),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "a-stall-is-never-forgotten",
        "a disk that is sound again is as good as any",
        "a mark for life",
        (replace(RAFT, "DiskPace.tick", "self._calm + 1", "0"),),
        (_CORE, _PACE),
    ),
    Planted(
        "a-leader-whose-disk-stalls-resigns",
        "equally slow disks change no leader",
        "an over-reaction: whoever is slow goes, whether anybody else is faster or not",
        (
            replace(
                RAFT, "RaftCore.tick", "not self.leadership.tick()", "not self.leadership.tick() or self.disk.stalled"
            ),
        ),
        (_CORE,),
    ),
    Planted(
        "a-slow-member-never-stands-again",
        "all slow disks still elect a leader",
        "an over-reaction: a vice that is held against a member for life",
        (
            replace(RAFT, "_become_pre_candidate", "_1 or self.disk.stalled", "_1 or self.disk.slow"),
            delete(RAFT, "DiskPace.tick", "self._calm = _"),
            insert_after(RAFT, "DiskPace.tick", "self._write = _", "self._calm = 0 if self.stalled else self._calm"),
        ),
        (_CORE, _PACE),
    ),
    Planted(
        "nobody-with-a-slow-disk-stands",
        "all slow disks still elect a leader",
        "an over-reaction: a rule for one slow disk among sound ones, and all are slow",
        (replace(RAFT, "_become_pre_candidate", "_1 or self.disk.stalled", "_1 or self.disk.slow"),),
        (_CORE,),
        unseen="no leader is lost in it while all disks are slow and all else is well",
    ),
    Planted(
        "the-disk-is-not-watched",
        _TOLD,
        "a watch that nobody winds up",
        (delete(NODE, "ClusterMember._tick", "self.disk_watch.tick()"),),
        (_STATUS,),
    ),
    Planted(
        "slow-disk-not-in-readiness",
        _TOLD,
        "a condition that the member knows, and nobody else",
        (replace(NODE, "status.readiness", "_1.disk_watch.trouble()", "None"),),
        (_STATUS,),
    ),
    Planted(
        "slow-disk-of-a-leader-not-in-health",
        _TOLD,
        "a leader that is ready since it has to be, so that nothing is said at all",
        (replace(NODE, "status._judge", "_1.disk_watch.trouble()", "None"),),
        (_STATUS,),
        unseen="a leader that can hand over does not lead any more by the time it has to tell",
    ),
    Planted(
        "nobody-ready-where-all-disks-are-slow",
        _TOLD,
        "an over-reaction: a load balancer that is left with nobody",
        (replace(NODE, "status.readiness", "leads or _1", "_1", occurrence=1),),
        (_STATUS,),
        unseen="nobody in it asks whether a leader is ready while its disk is slow",
    ),
    Planted(
        "chunk-read-on-the-event-loop",
        _READS,
        "this project before the chunk thread: the driver reads what it is asked to send",
        (replace(NODE, "ChunkReader.read", "self._queue(_1)", "self._ended(_1, self._read(_1))"),),
        (_CHUNKS,),
    ),
    Planted(
        "chunk-read-on-the-storage-thread",
        "a read does not wait for a write that stalls, nor a write for a read",
        "one thread for all that has to do with the disk",
        (
            insert_after(
                NODE,
                "ClusterMember.__init__",
                "self.chunk_reader = _",
                """
                reader, worker = self.chunk_reader, self.writer
                reader._queue = lambda request: request is None or worker.run(
                    lambda: worker.report(reader._ended, request, reader._read(request))
                )
                """,
            ),
        ),
        (_CHUNKS, _DRIVER),
        unseen="it costs time alone, and only while the leader that sends a snapshot cannot hand over",
    ),
    Planted(
        "chunk-of-a-leader-that-was",
        "a part of a snapshot is sent only by who still leads in the term of its request",
        "an answer of another thread, taken as if no time had passed",
        (replace(NODE, "Driver._send_chunk", "_.role is not Role.LEADER or _ != _", "False"),),
        (_DRIVER,),
    ),
    Planted(
        "chunk-in-the-term-of-another-leader",
        "a term has one leader",
        "the same, with the term read when the message is made",
        (
            replace(NODE, "Driver._send_chunk", "_.role is not Role.LEADER or _ != _", "False"),
            replace(NODE, "Driver._send_chunk", "request.term", "core.term"),
        ),
        (_DRIVER,),
    ),
    Planted(
        "each-heartbeat-adds-a-read",
        "one read of each peer is under way",
        "a queue without a bound, behind a disk that hangs",
        (replace(NODE, "ChunkReader.read", "request.to not in self._under_way", "True"),),
        (_CHUNKS,),
    ),
    Planted(
        "a-failed-read-is-the-last-of-its-peer",
        "a member that lags catches up",
        "a mark that only success takes away",
        (
            delete(NODE, "ChunkReader._ended", "del self._under_way[_]"),
            insert_before(
                NODE, "ChunkReader._ended", "self.events.chunk_read(_, *_)", "del self._under_way[request.to]"
            ),
        ),
        (_CHUNKS,),
    ),
    Planted(
        "a-disk-that-cannot-be-read-is-a-warning",
        "a member whose disk fails stops",
        "one handler for all errors of a transfer",
        (replace(NODE, "ChunkReader._ended", "SnapshotError | FileNotFoundError", "Exception"),),
        (_CHUNKS, _DRIVER),
        unseen="a disk that is to fail in a read is read first by the process that starts after the order",
    ),
    Planted(
        "a-stop-waits-for-the-read",
        "a signal is obeyed while a disk hangs",
        "every thread joined at the end",
        (
            insert_after(
                NODE,
                "ClusterMember.stop",
                "self.chunk_reader.stop()",
                "await asyncio.to_thread(self.chunk_reader._thread.join)",
            ),
        ),
        (_CHUNKS,),
        unseen="its members have no threads",
    ),
    Planted(
        "a-read-that-hangs-is-not-told",
        _TOLD,
        "health that knows of writes alone",
        (replace(NODE, "status._judge", "member.chunk_reader.trouble()", "None"),),
        (_CHUNKS,),
        unseen="nobody in it asks for the health of a leader that sends a snapshot from a disk that hangs",
    ),
    Planted(
        "stop-without-a-deadline",
        "a signal is obeyed while a disk hangs",
        "this project before decision 0022: threads are waited for without a bound",
        (delete("service", "_until_ended", "deadline.start()"),),
        ("tests/unit/service/test_process.py",),
        unseen="its members are no processes",
    ),
    Planted(
        "a-fault-leaves-no-deadline",
        "a fault ends the process",
        "the interpreter waits for threads after the event loop is closed",
        (replace("service", "run_service", "return FAILED", "deadline.cancel()\nreturn FAILED"),),
        ("tests/unit/service/test_process.py",),
        unseen="its members are no processes",
    ),
)
