"""Bugs in votes, replication, commit and recovery."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, insert_before, replace
from tests.mutants.planted import Planted

RAFT: Final = "controller/raft"
_UNIT: Final = "tests/unit/controller/raft/"
_SCENARIO: Final = "tests/scenarios/test_scenarios.py::test_scenario[{}]"
_COSTS_TIME: Final = "it costs time under faults, and the simulator asks for progress only once they have ended"

CONSENSUS_BUGS: Final = (
    Planted(
        "any-term-believed",
        "no message ends the cluster for good",
        "a faulty member that knows the key, or a stranger where there is none",
        (
            replace(RAFT, "TermJumps.bears", "jump <= _ or _", "True"),
            replace(RAFT, "TermJumps.take", "jump <= _", "True"),
        ),
        (f"{_UNIT}test_term_jumps.py",),
        needs="term_forged",
    ),
    Planted(
        "any-term-of-a-leader-believed",
        "no message ends the cluster for good",
        "one of eleven kinds of message is judged elsewhere, and forgotten there",
        (
            replace(
                RAFT,
                "RaftCore._settle_term",
                "not self._term_jumps.bears(_1, _2)",
                "kind not in _FROM_LEADER and not self._term_jumps.bears(_1, _2)",
            ),
        ),
        (f"{_UNIT}test_term_jumps.py",),
        needs="term_forged",
    ),
    Planted(
        "any-term-of-an-acknowledgement-believed",
        "no message ends the cluster for good",
        "as above",
        (
            replace(
                RAFT,
                "RaftCore._settle_term",
                "not self._term_jumps.bears(_1, _2)",
                "kind is not AppendEntriesReply and not self._term_jumps.bears(_1, _2)",
            ),
        ),
        (f"{_UNIT}test_term_jumps.py",),
        needs="term_forged",
    ),
    Planted(
        "jumps-of-the-term-not-limited",
        "no member can use the terms up",
        "as above, with many messages instead of one",
        (replace(RAFT, "TermJumps.take", "jump <= _", "True"),),
        (f"{_UNIT}test_term_jumps.py",),
        unseen="the terms would last for longer than any seed",
    ),
    Planted(
        "no-jump-of-the-term-taken",
        "a member that was away joins as ever",
        "an over-reaction: whoever missed many elections stays out for good",
        (replace(RAFT, "TermJumps._go", "last is not None and _", "True"),),
        (f"{_UNIT}test_term_jumps.py",),
        needs="term_forged",
    ),
    Planted(
        "members-too-many-terms-apart-never-meet",
        "no refusal is an outage",
        "the term of a peer that is too far ahead is not even approached by a member without a leader",
        (replace(RAFT, "RaftCore._settle_term", "self._term_jumps.step(_)", "False"),),
        (f"{_UNIT}test_term_jumps.py",),
        needs="term_forged",
    ),
    Planted(
        "vote-forgotten-at-restart",
        "one vote per term",
        "raftos 0.2.6, defect B(a)",
        (replace(RAFT, "HardStateKeeper.__init__", "durable.vote", "None"),),
    ),
    Planted(
        "vote-never-written",
        "one vote per term",
        "PySyncObj before 0.3.16: the vote is volatile",
        (replace(RAFT, "HardStateKeeper.value", "self.vote", "None"),),
    ),
    Planted(
        "vote-cleared-at-every-fall-to-follower",
        "one vote per term",
        "raftos 0.2.6, defect B(b)",
        (insert_before(RAFT, "_become_follower", "self.role = _", "self._hard.vote = None"),),
    ),
    Planted(
        "vote-for-anyone-without-a-leader",
        "one vote per term",
        "raftos 0.2.6, defect B: the vote is not matched with the candidate",
        (
            replace(RAFT, "answer_vote_request", "hard.vote == _ or _", "not knows_leader"),
            replace(RAFT, "answer_vote_request", "hard.vote_for(_1)", "hard.vote = _1\nhard.version += 1"),
        ),
        ("tests/raft_paper/test_section_5_2_elections.py",),
    ),
    Planted(
        "stale-vote-reply-counted",
        "votes count in their own term",
        "raftos 0.2.6, defect B(c)",
        (replace(RAFT, "_answer_stale", "_1 is PreVote", "_1 is PreVote or _1 is RequestVoteReply"),),
        (_UNIT + "test_core_elections.py",),
    ),
    Planted(
        "stale-append-reply-counted",
        "acknowledgements count in their own term",
        "PySyncObj 0.3.17: the acknowledgement carries no term",
        (replace(RAFT, "_answer_stale", "_1 is PreVote", "_1 is PreVote or _1 is AppendEntriesReply"),),
        ("tests/raft_paper/test_section_5_1_terms.py",),
    ),
    Planted(
        "repeated-vote-counted-twice",
        "one vote per voter",
        "raftos 0.2.6, state.py:331",
        (
            replace(RAFT, "Ballot.on_vote_reply", "_1 or message.sender in self._votes", "_1"),
            replace(RAFT, "Ballot.count", "if _1 in self._votes:", "repeated = _1 in self._votes"),
            insert_after(RAFT, "Ballot.count", "cast = _", "cast += [(granted, recovery)] * repeated"),
        ),
        (_UNIT + "test_invariants.py", "tests/raft_paper/test_section_5_2_elections.py"),
    ),
    Planted(
        "no-election-restriction",
        "a leader holds every committed entry",
        "Raft paper, section 5.4.1, left out",
        (replace(RAFT, "is_up_to_date", "return _", "return True"),),
    ),
    Planted(
        "logs-compared-by-length-alone",
        "a leader holds every committed entry",
        "Raft paper, section 5.4.1, half implemented",
        (replace(RAFT, "is_up_to_date", "(_, _1) >= (_, _2)", "_1 >= _2"),),
        ("tests/raft_paper/test_section_5_4_safety.py",),
    ),
    Planted(
        "vote-requests-before-own-vote-is-durable",
        "no promise before its write",
        "raftos 0.2.6, defect G; hashicorp/raft persists first",
        (replace(RAFT, "ask_votes", "self._outbox.send_when_durable(_1, _)", "self._outbox.send(_1)"),),
    ),
    Planted(
        "replies-before-the-write",
        "no promise before its write",
        "etcd #14370, on a follower",
        (replace(RAFT, "send_when_durable", "_1 <= self._log.stable and _", "_1 >= 0"),),
    ),
    Planted(
        "leader-counts-itself-before-its-write",
        "committed means durable on a majority",
        "etcd #14370: acknowledged before the fsync",
        (insert_after(RAFT, "append_own", "self.next = _1 + 1", "self.match = self.counted = _1"),),
    ),
    Planted(
        "late-write-covers-what-was-overwritten",
        "acknowledged means durable",
        "the ABA race of asynchronous log writes (etcd-io/raft, TestAppendABARace)",
        (delete(RAFT, "_truncate", "self._writes = _"),),
        (_UNIT + "test_core_durability.py", _UNIT + "test_log.py"),
    ),
    Planted(
        "commit-by-a-minority",
        "committed means on a majority",
        "raftos 0.2.6, defect J",
        (replace(RAFT, "majority_index", "(len(_1) - 1) // 2", "len(_1) // 2 + 1"),),
    ),
    Planted(
        "elected-by-a-minority",
        "one leader per term",
        "raftos 0.2.6, defect J",
        (replace(RAFT, "majority", "_1 // 2 + 1", "_1 // 2"),),
    ),
    Planted(
        "old-term-committed-by-counting",
        "committed entries stay",
        "Raft paper, figure 8",
        (
            replace(RAFT, "Commitment.advance", "_1 and log.term(_) == _", "_1"),
            replace(RAFT, "Commitment.commit_to", "log.term(_) != _", "False"),
        ),
        (_UNIT + "test_invariants.py", "tests/raft_paper/test_section_5_4_safety.py"),
    ),
    Planted(
        "truncation-without-conflict",
        "acknowledged entries stay",
        "raftos 0.2.6, defect E; PySyncObj deletes and appends anew",
        (replace(RAFT, "maybe_append", "self._first_new(_)", "0"),),
        (_UNIT + "test_log.py",),
    ),
    Planted(
        "commit-clamped-to-the-logs-end",
        "only what the leader verified is committed",
        "raftos at c51e144, defect I",
        (replace(RAFT, "Following.append", "min(_1, _)", "min(_1, log.last_index)"),),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "heartbeat-commit-not-clamped",
        "only what the leader verified is committed",
        "etcd-io/raft clamps it to match",
        (
            replace(RAFT, "send_heartbeat", "min(_.match, _1)", "_1"),
            replace(RAFT, "Following.heartbeat", "message.leader_commit", "min(message.leader_commit, log.last_index)"),
        ),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "heartbeat-reply-counted-as-an-acknowledgement",
        "only what the leader verified is committed",
        "Raft paper, figure 2: the end of a log is not what is known to be replicated there, matchIndex",
        (
            insert_after(
                RAFT,
                "Leadership.on_heartbeat_reply",
                "_1.hear_heartbeat_reply(_)",
                "index = min(message.last_log_index, self._log.last_index)\n"
                "_1.acknowledge(index)\n"
                "_1.count(max(index, _1.counted))\n"
                "self._maybe_commit(index)",
            ),
        ),
        (_SCENARIO.format("heartbeat_reply_acknowledges_nothing"),),
    ),
    Planted(
        "conflict-acknowledged",
        "logs match",
        "Raft paper, section 5.3, the comparison of terms left out",
        (replace(RAFT, "maybe_append", "_1 == len(_2)", "_1 == len(_2) or self.term(_2[_1].index) is not None"),),
    ),
    Planted(
        "applied-before-committed",
        "only committed entries are applied",
        "raftos 0.2.6, state.py:45",
        (
            replace(RAFT, "deliver", "min(self.commit, _1, _2)", "min(_1, _2)"),
            replace(RAFT, "RaftLog.applied_to", "_1 or _ > self.commit", "_1"),
            replace(RAFT, "ready", "_1.delivered < _1.commit", "_1.delivered < _1.stable"),
        ),
    ),
    Planted(
        "no-empty-entry-of-a-new-leader",
        "an idle leader commits what it inherited",
        "raftos 0.2.6, state.py:147, and defect D",
        (replace(RAFT, "Leadership.begin", "self._append(_)", "self._log.last_index"),),
    ),
    Planted(
        "wiped-disk-is-a-full-voter",
        "a member without memory elects nobody",
        "Redpanda's analysis of unsynced Raft; etcd #14143",
        (replace("controller/storage", "WriteAheadLog.__init__", "HardState(recovering=True)", "HardState()"),),
    ),
    Planted(
        "recovering-votes-count-in-full",
        "a member without memory elects nobody",
        "docs/decisions/0005, rule 1, left out",
        (replace(RAFT, "vote_result", "grants >= majority(_1) or _", "grants + weak_grants >= majority(_1)"),),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "recovering-acknowledgements-count-in-full",
        "committed means held by members with memory",
        "docs/decisions/0005, rule 2, left out",
        (replace(RAFT, "Leadership.on_append_reply", "message.recovery == 0 and _1", "_1"),),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "recovery-ends-at-the-first-heartbeat",
        "a member recovers when it holds all that it ever acknowledged",
        "docs/decisions/0005, the barrier left out",
        (replace(RAFT, "may_end_recovery", "_1.recovery != 0 and _", "_1.recovery != 0"),),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "recovery-number-used-again-within-a-term",
        "a member recovers when it holds all that it ever acknowledged",
        "docs/decisions/0005: a late message about one recovery is taken for one about the next",
        (replace(RAFT, "HardStateKeeper.__init__", "rng.randrange(...)", "1"),),
        (
            _SCENARIO.format("disk_lost_twice_in_one_term"),
            _SCENARIO.format("acknowledgement_of_an_earlier_recovery"),
            _UNIT + "test_core_recovery.py",
        ),
    ),
    Planted(
        "pre-vote-of-an-earlier-life-counted",
        "one leader per term",
        "docs/decisions/0005: whoever led the term and lost its disk would be elected in it again",
        (replace(RAFT, "Ballot.on_pre_vote_reply", "message.asked_in is None or _", "True"),),
        (_UNIT + "test_core_recovery.py",),
        unseen="it takes answers of a majority that are all late at once",
    ),
    Planted(
        "pre-vote-of-an-earlier-build-not-counted",
        "an upgrade is no outage",
        "an over-reaction: members that recover elect nobody while one of them does not name the recovery",
        (replace(RAFT, "Ballot.on_pre_vote_reply", "message.asked_in is None or _1", "_1"),),
        (_UNIT + "test_core_recovery.py",),
        unseen="its builds differ in what they read from the log, and not in what they tell each other",
    ),
    Planted(
        "log-dropped-under-a-transfer",
        "a member that is sent a snapshot catches up",
        "dissertation, section 5.1: what a slow follower will need is kept for it",
        (replace("controller/node", "SnapshotKeeper._keep_from", "max(_, min(_, _))", "usual"),),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "log-kept-for-whoever-is-not-heard",
        "the log is bounded",
        "an over-reaction: a member that is away keeps the log of all others long",
        (replace(RAFT, "Leadership.needed_from", "_1.heard > since", "True"),),
        ("tests/unit/controller/node/test_snapshot_keeper.py",),
        unseen="both bounds hold",
    ),
    Planted(
        "match-kept-over-a-recovery",
        "committed means held by members with memory",
        "docs/decisions/0005: what a member held before it lost its disk is no match after that",
        (replace(RAFT, "Progress.forget_match", "self.match = 0", "pass"),),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "pre-vote-granted-while-the-leader-lives",
        "a member that was cut off deposes nobody",
        "dissertation, section 9.6; KIP-996",
        (replace(RAFT, "answer_pre_vote", "_1 and not hears_leader", "_1"),),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "votes-not-refused-while-the-leader-lives",
        "a member that was cut off deposes nobody",
        "dissertation, section 4.2.3",
        (replace(RAFT, "_settle_term", "... and self._hears_leader()", "False"),),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "no-check-quorum",
        "a leader that is cut off steps down",
        "PySyncObj 0.3.17: believes for 30 s; KAFKA-15489",
        (replace(RAFT, "_hears_quorum", "_1 >= majority(_)", "_1 >= 0"),),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "transfer-without-catching-up",
        "a handover costs no failed election",
        "dissertation, section 3.10, step 2 left out",
        (replace(RAFT, "_hand_over_if_caught_up", "_1 is not None and _", "_1 is not None"),),
        (_UNIT + "test_core_transfer.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "proposals-taken-during-a-transfer",
        "a handover ends",
        "dissertation, section 3.10, step 1 left out",
        (replace(RAFT, "Leadership.propose", "self._transfer is not None", "False"),),
        (_UNIT + "test_core_transfer.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "probe-never-repeated",
        "a lost message costs one heartbeat",
        "raftos 0.2.6, awaited futures overwritten; a stuck probe in etcd-io/raft",
        (delete(RAFT, "hear_heartbeat_reply", "self.probe_sent = False"),),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "snapshot-chunk-out-of-order-accepted",
        "a received snapshot is the sent one",
        "KRaft checks the position of FetchSnapshot",
        (
            replace(RAFT, "IncomingSnapshot.take", "_.offset != _", "False"),
            replace("snapshots", "add", "if _1 != self.next_offset:", "_1 = self.next_offset"),
        ),
        (_UNIT + "test_core_snapshots.py", "tests/unit/snapshots/test_catalog.py"),
    ),
    Planted(
        "older-snapshot-installed",
        "the state never goes back",
        "KAFKA-13968: snapshots off by their bounds",
        (
            replace(RAFT, "take_snapshot", "_.index <= log.commit", "False"),
            replace(RAFT, "take_snapshot", "installing is None and _", "False"),
        ),
        (_UNIT + "test_core_snapshots.py",),
    ),
    Planted(
        "applied-while-a-snapshot-is-installed",
        "the state never goes back",
        "Redpanda #2437: the log moved under the state machine",
        (replace(RAFT, "RaftCore.ready", "_1 and receiver.installing is None", "_1"),),
        (_UNIT + "test_core_snapshots.py",),
    ),
)
