"""Bugs in votes, replication, commit and recovery."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

CORE: Final = "controller/raft/core.py"
ELECTIONS: Final = "controller/raft/elections.py"
LOG: Final = "controller/raft/log.py"
MEMBER: Final = "controller/raft/member.py"
QUORUM: Final = "controller/raft/quorum.py"
REPLICATION: Final = "controller/raft/replication.py"
TRANSFER: Final = "controller/raft/snapshot_transfer.py"
_UNIT: Final = "tests/unit/controller/raft/"
_COSTS_TIME: Final = "it costs time under faults, and the simulator asks for progress only once they have ended"

CONSENSUS: Final = (
    Planted(
        "vote-forgotten-at-restart",
        "one vote per term",
        "raftos 0.2.6, defect B(a)",
        one(MEMBER, "self.vote = hard_state.vote", "self.vote = None"),
    ),
    Planted(
        "vote-never-written",
        "one vote per term",
        "PySyncObj before 0.3.16: the vote is volatile",
        one(CORE, "HardState(self.term, self.vote, self.log.commit,", "HardState(self.term, None, self.log.commit,"),
    ),
    Planted(
        "vote-cleared-at-every-fall-to-follower",
        "one vote per term",
        "raftos 0.2.6, defect B(b)",
        one(
            MEMBER,
            "        self.role = FOLLOWER\n        self.leader_id = leader\n",
            "        self.role = FOLLOWER\n        self.vote = None\n        self.leader_id = leader\n",
        ),
    ),
    Planted(
        "vote-for-anyone-without-a-leader",
        "one vote per term",
        "raftos 0.2.6, defect B: the vote is not matched with the candidate",
        (
            Edit(
                ELECTIONS,
                "free = self.vote == message.sender or (self.vote is None and self.leader_id is None)",
                "free = self.leader_id is None",
            ),
            Edit(
                ELECTIONS,
                "            self._set_vote(message.sender)\n            self._reset_timer()",
                "            self.vote = message.sender\n            self._hard_changed()\n"
                "            self._reset_timer()",
            ),
        ),
        ("tests/raft_paper/test_section_5_2_elections.py",),
    ),
    Planted(
        "stale-vote-reply-counted",
        "votes count in their own term",
        "raftos 0.2.6, defect B(c)",
        one(
            CORE,
            "        if kind is PreVote:\n            return True\n        peer",
            "        if kind is PreVote or kind is RequestVoteReply:\n            return True\n        peer",
        ),
        (_UNIT + "test_core_elections.py",),
    ),
    Planted(
        "stale-append-reply-counted",
        "acknowledgements count in their own term",
        "PySyncObj 0.3.17: the acknowledgement carries no term",
        one(
            CORE,
            "        if kind is PreVote:\n            return True\n        peer",
            "        if kind is PreVote or kind is AppendEntriesReply:\n            return True\n        peer",
        ),
        ("tests/raft_paper/test_section_5_1_terms.py",),
    ),
    Planted(
        "repeated-vote-counted-twice",
        "one vote per voter",
        "raftos 0.2.6, state.py:331",
        (
            Edit(
                ELECTIONS,
                "self.node_id in self._votes and message.sender not in self._votes:",
                "self.node_id in self._votes:",
            ),
            Edit(
                ELECTIONS,
                'raise InvariantViolation("R10", f"a second vote of {voter} in term {self.term}")',
                "voter = -len(self._votes) - 1",
            ),
            Edit(
                ELECTIONS,
                "            if voter != self.node_id and recovery:\n",
                "            if voter != self.node_id and recovery and voter > 0:\n",
            ),
        ),
        (_UNIT + "test_invariants.py", "tests/raft_paper/test_section_5_2_elections.py"),
    ),
    Planted(
        "no-election-restriction",
        "a leader holds every committed entry",
        "Raft paper, section 5.4.1, left out",
        one(LOG, "return (last_term, last_index) >= (self.last_term, self.last_index)", "return True"),
    ),
    Planted(
        "logs-compared-by-length-alone",
        "a leader holds every committed entry",
        "Raft paper, section 5.4.1, half implemented",
        one(
            LOG,
            "return (last_term, last_index) >= (self.last_term, self.last_index)",
            "return last_index >= self.last_index",
        ),
        ("tests/raft_paper/test_section_5_4_safety.py",),
    ),
    Planted(
        "vote-requests-before-own-vote-is-durable",
        "no promise before its write",
        "raftos 0.2.6, defect G; hashicorp/raft persists first",
        one(ELECTIONS, "self._parked.append(RequestVote(", "self._outbox.append(RequestVote("),
    ),
    Planted(
        "replies-before-the-write",
        "no promise before its write",
        "etcd #14370, on a follower",
        one(MEMBER, "if index <= self.log.stable and self._hard_durable:", "if index >= 0:"),
    ),
    Planted(
        "leader-counts-itself-before-its-write",
        "committed means durable on a majority",
        "etcd #14370: acknowledged before the fsync",
        one(
            REPLICATION,
            "        self.progress[self.node_id].next = index + 1\n",
            "        own = self.progress[self.node_id]\n        own.next = index + 1\n"
            "        own.match = own.counted = index\n",
        ),
    ),
    Planted(
        "late-write-covers-what-was-overwritten",
        "acknowledged means durable",
        "the ABA race of asynchronous log writes (etcd-io/raft, TestAppendABARace)",
        one(
            LOG,
            "        self.stable, self.submitted = min(self.stable, keep), min(self.submitted, keep)\n"
            "        self._writes = deque(min(end, keep) for end in self._writes)",
            "        self.stable, self.submitted = min(self.stable, keep), min(self.submitted, keep)",
        ),
        (_UNIT + "test_core_durability.py", _UNIT + "test_log.py"),
    ),
    Planted(
        "commit-by-a-minority",
        "committed means on a majority",
        "raftos 0.2.6, defect J",
        one(QUORUM, "return sorted(indexes)[(len(indexes) - 1) // 2]", "return sorted(indexes)[len(indexes) // 2 + 1]"),
    ),
    Planted(
        "elected-by-a-minority",
        "one leader per term",
        "raftos 0.2.6, defect J",
        one(QUORUM, "return voters // 2 + 1", "return voters // 2"),
    ),
    Planted(
        "old-term-committed-by-counting",
        "committed entries stay",
        "Raft paper, figure 8",
        (
            Edit(
                REPLICATION,
                "if index >= least and self.log.term(index) == self.term:",
                "if index > self.log.commit:",
            ),
            Edit(REPLICATION, "if self.log.term(index) != self.term:", "if False:"),
        ),
        (_UNIT + "test_invariants.py", "tests/raft_paper/test_section_5_4_safety.py"),
    ),
    Planted(
        "truncation-without-conflict",
        "acknowledged entries stay",
        "raftos 0.2.6, defect E; PySyncObj deletes and appends anew",
        one(LOG, "            new = self._first_new(entries)\n", "            new = 0\n"),
        (_UNIT + "test_log.py",),
    ),
    Planted(
        "commit-clamped-to-the-logs-end",
        "only what the leader verified is committed",
        "raftos at c51e144, defect I",
        one(
            REPLICATION,
            "commit = min(message.leader_commit, last)",
            "commit = min(message.leader_commit, log.last_index)",
        ),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "heartbeat-commit-not-clamped",
        "only what the leader verified is committed",
        "etcd-io/raft clamps it to match",
        (
            Edit(REPLICATION, "commit = min(progress.match, self.log.commit)", "commit = self.log.commit"),
            Edit(
                REPLICATION,
                "        commit = message.leader_commit\n",
                "        commit = min(message.leader_commit, self.log.last_index)\n",
            ),
        ),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "conflict-acknowledged",
        "logs match",
        "Raft paper, section 5.3, the comparison of terms left out",
        one(
            LOG,
            "            if new == len(entries):\n                return last\n",
            "            if new == len(entries) or self.term(entries[new].index) is not None:\n"
            "                return last\n",
        ),
    ),
    Planted(
        "applied-before-committed",
        "only committed entries are applied",
        "raftos 0.2.6, state.py:45",
        (
            Edit(LOG, "high = min(self.commit, self.stable, ", "high = min(self.stable, "),
            Edit(
                LOG,
                "if not self.applied <= index <= self.delivered or index > self.commit:",
                "if not self.applied <= index <= self.delivered:",
            ),
            Edit(CORE, "log.delivered < log.commit else []", "log.delivered < log.stable else []"),
        ),
    ),
    Planted(
        "no-empty-entry-of-a-new-leader",
        "an idle leader commits what it inherited",
        "raftos 0.2.6, state.py:147, and defect D",
        one(
            ELECTIONS,
            "self._noop_index = self._append(self._leader_change_data)",
            "self._noop_index = self.log.last_index",
        ),
    ),
    Planted(
        "wiped-disk-is-a-full-voter",
        "a member without memory elects nobody",
        "Redpanda's analysis of unsynced Raft; etcd #14143",
        one(
            "controller/storage/wal.py",
            "self._hard_state = HardState(recovering=True)",
            "self._hard_state = HardState()",
        ),
    ),
    Planted(
        "recovering-votes-count-in-full",
        "a member without memory elects nobody",
        "docs/decisions/0005, rule 1, left out",
        one(
            QUORUM,
            "if grants >= majority(voters) or (grants + weak_grants == voters and other_grants == others):",
            "if grants + weak_grants >= majority(voters):",
        ),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "recovering-acknowledgements-count-in-full",
        "committed means held by members with memory",
        "docs/decisions/0005, rule 2, left out",
        one(REPLICATION, "if message.recovery == 0 and index > progress.counted:", "if index > progress.counted:"),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "recovery-ends-at-the-first-heartbeat",
        "a member recovers when it holds all that it ever acknowledged",
        "docs/decisions/0005, the barrier left out",
        one(
            REPLICATION,
            "return progress.recovery != 0 and min(progress.match, self.log.commit) >= progress.barrier",
            "return progress.recovery != 0",
        ),
        (_UNIT + "test_core_recovery.py",),
    ),
    Planted(
        "pre-vote-granted-while-the-leader-lives",
        "a member that was cut off deposes nobody",
        "dissertation, section 9.6; KIP-996",
        one(
            ELECTIONS,
            "free = message.term > self.term and not self._hears_leader()",
            "free = message.term > self.term",
        ),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "votes-not-refused-while-the-leader-lives",
        "a member that was cut off deposes nobody",
        "dissertation, section 4.2.3",
        one(
            CORE, "if isinstance(message, RequestVote) and not message.transfer and self._hears_leader():", "if False:"
        ),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "no-check-quorum",
        "a leader that is cut off steps down",
        "PySyncObj 0.3.17: believes for 30 s; KAFKA-15489",
        one(ELECTIONS, "        if heard < self.majority:", "        if heard < 0:"),
        (_UNIT + "test_core_elections.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "transfer-without-catching-up",
        "a handover costs no failed election",
        "dissertation, section 3.10, step 2 left out",
        one(
            REPLICATION,
            "if target is not None and self.progress[target].match == self.log.last_index:",
            "if target is not None:",
        ),
        (_UNIT + "test_core_transfer.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "proposals-taken-during-a-transfer",
        "a handover ends",
        "dissertation, section 3.10, step 1 left out",
        one(
            CORE,
            "        if self.transferring is not None:\n            raise ProposalRefused(",
            "        if False:\n            raise ProposalRefused(",
        ),
        (_UNIT + "test_core_transfer.py",),
        unseen=_COSTS_TIME,
    ),
    Planted(
        "probe-never-repeated",
        "a lost message costs one heartbeat",
        "raftos 0.2.6, awaited futures overwritten; a stuck probe in etcd-io/raft",
        one(
            REPLICATION,
            "        progress.heard = self._now\n        progress.probe_sent = False\n",
            "        progress.heard = self._now\n",
        ),
        (_UNIT + "test_core_replication.py",),
    ),
    Planted(
        "snapshot-chunk-out-of-order-accepted",
        "a received snapshot is the sent one",
        "KRaft checks the position of FetchSnapshot",
        (
            Edit(TRANSFER, "if message.offset == self._incoming_offset:", "if message.offset >= 0:"),
            Edit(
                "snapshots/catalog.py",
                "        if offset != self.next_offset:\n            return self.next_offset\n",
                "        offset = self.next_offset\n",
            ),
        ),
        (_UNIT + "test_core_snapshots.py", "tests/unit/snapshots/test_catalog.py"),
    ),
    Planted(
        "older-snapshot-installed",
        "the state never goes back",
        "KAFKA-13968: snapshots off by their bounds",
        (
            Edit(TRANSFER, "if meta.index <= self.log.commit:", "if meta.index < 0:"),
            Edit(TRANSFER, "if self._installing is None and self.log.matches(meta.index, meta.term):", "if False:"),
        ),
        (_UNIT + "test_core_snapshots.py",),
    ),
    Planted(
        "applied-while-a-snapshot-is-installed",
        "the state never goes back",
        "Redpanda #2437: the log moved under the state machine",
        one(
            CORE,
            "log.deliver() if self._installing is None and log.delivered < log.commit else []",
            "log.deliver() if log.delivered < log.commit else []",
        ),
        (_UNIT + "test_core_snapshots.py",),
    ),
)
