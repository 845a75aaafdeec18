"""Bugs in changes of the quorum's members."""

from __future__ import annotations

from typing import Final

from tests.mutants.planted import Edit, Planted, one

CHANGE: Final = "controller/raft/membership_change.py"
CORE: Final = "controller/raft/core.py"
ELECTIONS: Final = "controller/raft/elections.py"
LOG: Final = "controller/raft/log.py"
MACHINE: Final = "controller/state/machine.py"
MEMBERSHIP: Final = "controller/raft/membership.py"
REPLICATION: Final = "controller/raft/replication.py"
REQUESTS: Final = "controller/node/voter_changes.py"
_CORE_TEST: Final = ("tests/unit/controller/raft/test_membership.py",)
_REQUEST_TEST: Final = ("tests/unit/controller/node/test_voter_changes.py",)
_ADDS: Final = "add_voter"
_REMOVES: Final = "remove_voter"
_SLIP: Final = "an operator's slip, which the simulator's operators do not make"

_NO_LEARNER_FIRST: Final = Edit(MEMBERSHIP, "if before.index and not new.voters <= before.members:", "if False:")
_NO_OVERLAP: Final = Edit(MEMBERSHIP, "if before.index and len(before.voters ^ new.voters) > 1:", "if False:")
"""The guards R17 and R16 with the rule that they guard: a mistake in the rule alone stops the member, which is safe."""

MEMBERS: Final = (
    Planted(
        "promotion-without-catch-up",
        "a voter that was added can take part at once",
        "dissertation, section 4.2.1, left out: the quorum stands still while the new voter catches up",
        one(
            CHANGE,
            "        progress = self.progress[after.id]\n        if progress.recovery:\n",
            "        progress = self.progress[after.id]\n        if progress is not None:\n            return\n"
            "        if progress.recovery:\n",
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "voter-that-was-no-learner",
        "a voter was a learner in the configuration before",
        "etcd before 3.4 has no learners; R17 left out",
        (
            Edit(REQUESTS, "directory_id=found, voting=known is not None)", "directory_id=found, voting=True)"),
            Edit(CHANGE, "            self._check_promotion(after, before)\n", "            pass\n"),
            Edit(CHANGE, "        if voters != self._voters:\n            self._check_service(voters)\n", ""),
            _NO_LEARNER_FIRST,
        ),
        (*_CORE_TEST, *_REQUEST_TEST),
        needs=_ADDS,
    ),
    Planted(
        "promotion-by-an-acknowledgement-of-the-member-before",
        "a member without memory elects nobody",
        "seed 510003: the id came back with an empty disk, and what its predecessor had sent came after that",
        one(CHANGE, "        if progress.counted < added:\n", "        if False:\n"),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "learners-vote",
        "learners count in no majority",
        "dissertation, section 4.2.1, left out",
        one(
            MEMBERSHIP,
            "self.voters = frozenset(member.id for member in record.members if member.voting)",
            "self.voters = frozenset(member.id for member in record.members)",
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "learners-acknowledge",
        "committed means on a majority of the voters",
        "dissertation, section 4.2.1, half implemented",
        one(
            REPLICATION,
            "self._counting = [self.progress[voter] for voter in sorted(self._voters)]",
            "self._counting = [self.progress[member] for member in sorted(self._everybody)]",
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-before-an-entry-of-its-own-term-is-committed",
        "the majorities of two configurations in force overlap",
        "Ongaro, raft-dev, July 2015: bug in single-server membership changes",
        one(CHANGE, "        if self.log.commit < self._noop_index:\n", "        if False:\n"),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-before-the-one-before-is-committed",
        "the majorities of two configurations in force overlap",
        "dissertation, section 4.1, left out",
        (
            Edit(CHANGE, "        if not memberships.committed:\n", "        if False:\n"),
            Edit(LOG, "            if not self.memberships.committed:\n", "            if False:\n"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "two-voters-in-one-change",
        "the majorities of two configurations in force overlap",
        "dissertation, figure 4.3",
        (Edit(CHANGE, "        if len(changed) != 1:\n", "        if not changed:\n"), _NO_OVERLAP),
        _CORE_TEST,
        unseen="a request of an operator concerns one member, so nobody asks for two",
    ),
    Planted(
        "truncated-configuration-stays-in-force",
        "the configuration in force is the newest in the log",
        "dissertation, section 4.1: a server falls back to the previous configuration",
        one(LOG, "        self.memberships.truncate(index)\n", ""),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-force-when-committed",
        "the configuration in force is the newest in the log",
        "dissertation, section 4.1: a server uses the latest one in its log, committed or not",
        (
            Edit(MEMBERSHIP, "self.newest = history[-1]", "self.newest = history[0]"),
            Edit(MEMBERSHIP, "if self.newest.index >= index:", "if self._history[-1].index >= index:"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-the-snapshot-ignored-at-a-start",
        "a configuration outlives the log that it came in",
        "dissertation, section 5.1: a snapshot holds the latest configuration",
        one(CORE, "plain_record(config.voters), snapshot.index, voters)", "plain_record(config.voters))"),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-a-received-snapshot-ignored",
        "a configuration outlives the log that it came in",
        "dissertation, section 5.1: a snapshot holds the latest configuration",
        one(LOG, "self.memberships.restart(snapshot.index, voters)", "self.memberships.restart(snapshot.index, None)"),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-left-out-of-a-restored-state",
        "a configuration outlives the log that it came in",
        "KAFKA-13357: a record that the snapshot forgot",
        one(MACHINE, "        self.voters = image.voters\n", ""),
        ("tests/unit/controller/state/test_machine.py",),
        needs=_ADDS,
    ),
    Planted(
        "configured-voters-count-after-a-restart",
        "the configuration in force is the newest in the log",
        "a voters list in a file beats the log; KIP-853 replaces controller.quorum.voters for that",
        one(
            LOG,
            "        self._note_memberships(self.slice(max(snapshot.index, self._offset) + 1, self.last_index))\n",
            "",
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "removed-leader-leads-on",
        "who is no voter leads no more",
        "dissertation, section 4.2.2, step down left out",
        (
            Edit(CHANGE, "                self._leave()\n", "                pass\n"),
            Edit(
                CORE,
                "        if self.node_id not in self._voters and self.log.memberships.committed:\n",
                "        if False:\n",
            ),
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-leader-counts-itself",
        "committed means on a majority of the voters",
        "dissertation, section 4.2.2: a leader that removes itself does not count itself",
        one(
            REPLICATION,
            "self._counting = [self.progress[voter] for voter in sorted(self._voters)]",
            "self._counting = [self.progress[voter] for voter in sorted(self._voters | {self.node_id})]",
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-member-campaigns-for-ever",
        "who is no voter stands no more",
        "dissertation, section 4.2.3: disruptive servers",
        one(MEMBERSHIP, "return any(node_id in one.voters for one in self._history)", "return True"),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-member-is-not-told",
        "a removed member that can be reached learns of it",
        "dissertation, section 4.2.3: it does not receive the entry that removes it",
        one(
            REPLICATION,
            "            progress.probe_sent = False\n            self._send_append(peer, progress)\n        super()",
            "        super()",
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "weak-votes-need-the-voters-alone",
        "a member without memory elects nobody",
        "docs/decisions/0009: a learner here may be a voter in a configuration that this candidate lacks",
        (
            Edit(ELECTIONS, "others=len(self._everybody - self._voters),", "others=0,"),
            Edit(ELECTIONS, "other_grants=others.count(True),", "other_grants=0,"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "weak-acknowledgements-need-the-voters-alone",
        "committed means held by members with memory",
        "docs/decisions/0009, rule 2 over a change that may be rolled back",
        one(
            REPLICATION,
            "self._unanimous = [self.progress[member] for member in sorted(self._everybody)]",
            "self._unanimous = [self.progress[voter] for voter in sorted(self._voters)]",
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "weak-voices-need-the-newest-configuration-alone",
        "a member without memory elects nobody",
        "docs/decisions/0009: who is being removed may hold what the weak voice forgot",
        one(
            MEMBERSHIP,
            "self.everybody = frozenset().union(*(one.members for one in history))",
            "self.everybody = self.newest.members",
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "change-that-nobody-could-commit",
        "a change that its own majority cannot commit is not begun",
        "Consul, etcd before 3.4: a dead member added to a quorum of two stops it",
        one(CHANGE, "        if voters != self._voters:\n            self._check_service(voters)\n", ""),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-answered-at-propose",
        "an answer means committed",
        "etcd #14370, for a change of members",
        one(
            REQUESTS,
            "        return self._wait(term, index, response)\n",
            "        answer = self._wait(term, index, response)\n        answer.set_result(response)\n"
            "        return answer\n",
        ),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-answered-though-another-entry-took-its-place",
        "an answer means committed",
        "PySyncObj 0.3.17: answers by index alone",
        one(REQUESTS, "            if (entry.term, entry.index) != (term, index):\n", "            if False:\n"),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "answered-from-a-configuration-that-may-go",
        "an answer means committed",
        "a repeated request is answered by what may still be rolled back, or by a leader that was cut off",
        one(
            REQUESTS,
            "            return self._confirm(AddVoterResponse(wanted.id, voting=True))\n",
            "            answer = asyncio.get_running_loop().create_future()\n"
            "            answer.set_result(AddVoterResponse(wanted.id, voting=True))\n"
            "            return answer\n",
        ),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "directory-not-checked-when-a-member-is-added",
        "the machine that is added is the one that was meant",
        "KIP-853: a replaced disk is told by its directory id",
        one(
            REQUESTS,
            "        if wanted.directory_id not in {None, directory} and directory is not None:\n",
            "        if False:\n",
        ),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "member-under-an-id-that-is-taken",
        "the machine that is added is the one that was meant",
        "KIP-853: DUPLICATE_VOTER",
        one(REQUESTS, "    if (known.peer, known.http) != (wanted.peer, wanted.http):\n", "    if False:\n"),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "last-voter-removed",
        "somebody can always lead",
        "KIP-853: the voters are never empty",
        one(
            REQUESTS,
            "        if not any(member.voting for member in members.values()):\n",
            "        if False:\n",
        ),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "successor-votes-for-the-former-owner-of-its-id",
        "an acknowledged entry is on every later leader",
        "a voter's id given to an empty disk while somebody who was away still counts it",
        one(ELECTIONS, "return word and not self._learns, word", "return word, word"),
        _CORE_TEST,
    ),
    Planted(
        "successor-acknowledges-for-the-former-owner-of-its-id",
        "an acknowledged entry is on every later leader",
        "a voter's id given to an empty disk while somebody who was away still counts it",
        one("controller/raft/progress.py", "return 0 if self.estranged else self.match", "return self.match"),
        _CORE_TEST,
    ),
    Planted(
        "new-voter-counts-for-what-lies-before-its-promotion",
        "whatever a voter helped to commit stands behind the entry that made it one",
        "a learner that agrees with a candidate behind it",
        (
            Edit(
                REPLICATION,
                "least = max(self.log.commit + 1, self.log.memberships.newest.index)",
                "least = self.log.commit + 1",
            ),
            Edit(REPLICATION, "if index < self.log.memberships.newest.index:", "if index < 0:"),
        ),
        _CORE_TEST,
    ),
    Planted(
        "disk-that-went-back-believed-by-its-length",
        "members apply the same entries",
        "an old copy of a disk, as long as what was acknowledged: etcd compares the length alone",
        one(LOG, "        if held is not None and held != term:\n", "        if False:\n"),
        ("tests/unit/controller/raft/test_core_durability.py",),
    ),
)
