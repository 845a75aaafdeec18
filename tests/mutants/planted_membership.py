"""Bugs in changes of the quorum's members."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, insert_before, replace
from tests.mutants.planted import Planted

NODE: Final = "controller/node"
RAFT: Final = "controller/raft"
_CORE_TEST: Final = ("tests/unit/controller/raft/test_membership.py",)
_NAMED_TEST: Final = ("tests/unit/controller/raft/test_naming_voters.py",)
_REQUEST_TEST: Final = ("tests/unit/controller/node/test_voter_changes.py",)
_ADDS: Final = "add_voter"
_REMOVES: Final = "remove_voter"
_SLIP: Final = "an operator's slip, which the simulator's operators do not make"

_NO_LEARNER_FIRST: Final = replace(RAFT, "Memberships.append", "_.index and not _", "False")
_NO_OVERLAP: Final = replace(RAFT, "Memberships.append", "_.index and len(_) > 1", "False")
"""The guards R17 and R16 with the rule that they guard: a mistake in the rule alone stops the member, which is safe."""

_NO_SERVICE: Final = delete(RAFT, "MembershipChange.check", "self._check_service(_)")

_FILE_TEST: Final = ("tests/unit/controller/node/test_durable_voters.py",)
_EDITS: Final = "files_edited"

MEMBERSHIP_BUGS: Final = (
    Planted(
        "voters-by-the-file-at-every-start",
        "durable voters alone count",
        "a lagging member of three, restarted with itself alone in its file, handed IDs out again",
        (
            replace(NODE, "founding_of", "founding is not None or _1", "_1"),
            delete(NODE, "founding_of", "_check_known(...)"),
        ),
        _FILE_TEST,
        needs=_EDITS,
    ),
    Planted(
        "any-difference-of-the-file-refused",
        "a file that is out of date is no outage",
        "an over-reaction: a roll in which the files change first",
        (replace(NODE, "check_file", "not named.keys() & set(_)", "named.keys() != set(members)"),),
        _FILE_TEST,
        needs=_EDITS,
    ),
    Planted(
        "file-of-another-quorum-accepted",
        "a member starts with a file of its own quorum",
        "the file of another cluster under the same cluster id",
        (replace(NODE, "check_file", "not named.keys() & set(_)", "False"),),
        _FILE_TEST,
        unseen="it changes nobody's voters, it only hides the slip",
    ),
    Planted(
        "no-key-asked-for-where-the-file-names-one-voter",
        "members with peers prove to each other who they are",
        "a file that was cut down to its own member",
        (replace(NODE, "check_file", "len(_) > 1 and _ and _", "False"),),
        _FILE_TEST,
        unseen="the simulated links know no keys",
    ),
    Planted(
        "known-voters-missing-from-the-file-of-an-old-directory",
        "durable voters alone count",
        "a directory of a build without foundings, started with a file that was cut down",
        (delete(NODE, "founding_of", "_check_known(...)"),),
        _FILE_TEST,
        unseen="a file that lacks such a member leaves it alone or with one that knows better",
    ),
    Planted(
        "alone-in-its-file-on-an-old-directory",
        "durable voters alone count",
        "a member that had led, started with a file that names it alone, under a build that kept no founding",
        (replace(NODE, "founding_of", "named_voters(settings).keys() == _", "False"),),
        _FILE_TEST,
    ),
    Planted(
        "lost-founding-made-anew-from-the-file",
        "durable voters alone count",
        "founding.json deleted by hand",
        (replace(NODE, "founding_of", "(recorded := _) is not None", "(recorded := None) is not None"),),
        _FILE_TEST,
        unseen="nobody deletes a founding that the log knows of in the simulation",
    ),
    Planted(
        "old-directory-waits-although-its-log-names-the-voters",
        "no roll is refused",
        "a quorum that was brought down to one voter by remove-voter, and then upgraded",
        (replace(NODE, "founding_of", "machine.voters is None and not any(_)", "True"),),
        _FILE_TEST,
        unseen="simulated quorums keep two voters or more",
    ),
    Planted(
        "learner-a-voter-as-soon-as-its-file-says-so",
        "an acknowledged entry is on every later leader",
        "`learner = true` deleted before the member was made a voter",
        (replace(NODE, "joins_as_learner", "not any(_)", "False"),),
        _FILE_TEST,
        unseen="it needs the id of a removed voter, and a member that was away, within one edited file's time",
    ),
    Planted(
        "earlier-owner-of-an-id-taken-for-oneself",
        "an acknowledged entry is on every later leader",
        "KIP-853: a replica is its id and its directory",
        (replace(NODE, "joins_as_learner", "one.directory_id == directory", "True"),),
        _FILE_TEST,
        unseen="it needs a removed voter's id given to an empty disk, and that one's log cut within its catch-up",
    ),
    Planted(
        "promotion-without-catch-up",
        "a voter that was added can take part at once",
        "dissertation, section 4.2.1, left out: the quorum stands still while the new voter catches up",
        (insert_before(RAFT, "_check_promotion", "if _1.recovery:", "if _1 is not None:\n    return"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "voter-that-was-no-learner",
        "a voter was a learner in the configuration before",
        "etcd before 3.4 has no learners; R17 left out",
        (
            replace(
                NODE,
                "VoterChanges.add",
                "msgspec.structs.replace(_1, directory_id=_2, voting=_)",
                "msgspec.structs.replace(_1, directory_id=_2, voting=True)",
            ),
            delete(RAFT, "MembershipChange.check", "self._check_promotion(...)"),
            _NO_SERVICE,
            _NO_LEARNER_FIRST,
        ),
        (*_CORE_TEST, *_REQUEST_TEST),
        needs=_ADDS,
    ),
    Planted(
        "promotion-by-an-acknowledgement-of-the-member-before",
        "a member without memory elects nobody",
        "seed 510003: the id came back with an empty disk, and what its predecessor had sent came after that",
        (replace(RAFT, "_check_promotion", "_.counted < _", "False"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "learners-vote",
        "learners count in no majority",
        "dissertation, section 4.2.1, left out",
        (replace(RAFT, "Membership.__init__", "frozenset(_1 for _2 in _3 if _)", "frozenset(_1 for _2 in _3)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "learners-acknowledge",
        "committed means on a majority of the voters",
        "dissertation, section 4.2.1, half implemented",
        (replace(RAFT, "count_by", "sorted(voters)", "sorted(everybody)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-before-an-entry-of-its-own-term-is-committed",
        "the majorities of two configurations in force overlap",
        "Ongaro, raft-dev, July 2015: bug in single-server membership changes",
        (replace(RAFT, "MembershipChange.check", "_ < _.noop_index", "False"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-before-the-one-before-is-committed",
        "the majorities of two configurations in force overlap",
        "dissertation, section 4.1, left out",
        (
            replace(RAFT, "MembershipChange.check", "not _.committed", "False"),
            replace(RAFT, "RaftLog.append", "not _.committed", "False"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "two-voters-in-one-change",
        "the majorities of two configurations in force overlap",
        "dissertation, figure 4.3",
        (
            replace(RAFT, "MembershipChange.check", "len(_1) != 1", "not _1"),
            _NO_OVERLAP,
        ),
        _CORE_TEST,
        unseen="a request of an operator concerns one member, so nobody asks for two",
    ),
    Planted(
        "truncated-configuration-stays-in-force",
        "the configuration in force is the newest in the log",
        "dissertation, section 4.1: a server falls back to the previous configuration",
        (delete(RAFT, "_truncate", "self.memberships.truncate(_)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-force-when-committed",
        "the configuration in force is the newest in the log",
        "dissertation, section 4.1: a server uses the latest one in its log, committed or not",
        (
            replace(RAFT, "_change", "_1[-1]", "_1[0]"),
            replace(RAFT, "truncate", "self.newest.index", "self.configurations[-1].index"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-the-snapshot-ignored-at-a-start",
        "a configuration outlives the log that it came in",
        "dissertation, section 5.1: a snapshot holds the latest configuration",
        (replace(RAFT, "RaftCore.__init__", "Memberships(_1, ...)", "Memberships(_1)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-in-a-received-snapshot-ignored",
        "a configuration outlives the log that it came in",
        "dissertation, section 5.1: a snapshot holds the latest configuration",
        (replace(RAFT, "restore", "self.memberships.restart(_1, _)", "self.memberships.restart(_1, None)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "configuration-left-out-of-a-restored-state",
        "a configuration outlives the log that it came in",
        "KAFKA-13357: a record that the snapshot forgot",
        (delete("controller/state", "StateMachine.restore", "self.voters = _"),),
        ("tests/unit/controller/state/test_machine.py",),
        needs=_ADDS,
    ),
    Planted(
        "configured-voters-count-after-a-restart",
        "the configuration in force is the newest in the log",
        "a voters list in a file beats the log; KIP-853 replaces controller.quorum.voters for that",
        (delete(RAFT, "RaftLog.__init__", "self._note_memberships(_)"),),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "removed-leader-leads-on",
        "who is no voter leads no more",
        "dissertation, section 4.2.2, step down left out",
        (
            replace(RAFT, "_follow_memberships", "leadership.is_removed", "False"),
            replace(RAFT, "Leadership.tick", "self.is_removed", "False"),
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-leader-counts-itself",
        "committed means on a majority of the voters",
        "dissertation, section 4.2.2: a leader that removes itself does not count itself",
        (
            insert_after(
                RAFT,
                "_track_members",
                "self._commitment.count_by(...)",
                "counting = sorted(self.voters | {self._node_id})\n"
                "self._commitment._counting = [self.progress[member] for member in counting]",
            ),
        ),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-member-campaigns-for-ever",
        "who is no voter stands no more",
        "dissertation, section 4.2.3: disruptive servers",
        (replace(RAFT, "may_campaign", "return _", "return True"),),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "removed-member-is-not-told",
        "a removed member that can be reached learns of it",
        "dissertation, section 4.2.3: it does not receive the entry that removes it",
        (delete(RAFT, "adopt_memberships", "_1.allow_probe()\nself._send_append(_, _1)"),),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "weak-votes-need-the-voters-alone",
        "a member without memory elects nobody",
        "docs/decisions/0009: a learner here may be a voter in a configuration that this candidate lacks",
        (
            replace(RAFT, "Ballot.count", "len(everybody - voters)", "0"),
            replace(RAFT, "Ballot.count", "others.count(True)", "0"),
        ),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "weak-acknowledgements-need-the-voters-alone",
        "committed means held by members with memory",
        "docs/decisions/0009, rule 2 over a change that may be rolled back",
        (replace(RAFT, "count_by", "sorted(everybody)", "sorted(voters)"),),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "weak-voices-need-the-newest-configuration-alone",
        "a member without memory elects nobody",
        "docs/decisions/0009: who is being removed may hold what the recovering member forgot",
        (replace(RAFT, "_change", "self.everybody = _", "self.everybody = self.newest.members"),),
        _CORE_TEST,
        needs=_REMOVES,
    ),
    Planted(
        "change-that-nobody-could-commit",
        "a change that its own majority cannot commit is not begun",
        "Consul, etcd before 3.4: a dead member added to a quorum of two stops it",
        (_NO_SERVICE,),
        _CORE_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-answered-at-propose",
        "an answer means committed",
        "etcd #14370, for a change of members",
        (
            insert_after(
                NODE, "VoterChanges._propose", "self._proposals.change_members(_, _)", "answer.set_result(response)"
            ),
        ),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "change-answered-though-another-entry-took-its-place",
        "an answer means committed",
        "PySyncObj 0.3.17: answers by index alone",
        (replace(NODE, "Proposals.applied", "(_.term, _.index) == _", "True"),),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "answered-from-a-configuration-that-may-go",
        "an answer means committed",
        "a repeated request is answered by what may still be rolled back, or by a leader that was cut off",
        (
            replace(
                NODE,
                "VoterChanges.add",
                "self._proposals.confirm([(_1, _2)])",
                "release(_1, _2)",
            ),
        ),
        _REQUEST_TEST,
        needs=_ADDS,
    ),
    Planted(
        "directory-not-checked-when-a-member-is-added",
        "the machine that is added is the one that was meant",
        "KIP-853: a replaced disk is told by its directory id",
        (replace(NODE, "VoterChanges.add", "_.directory_id not in _ and _", "False"),),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "member-under-an-id-that-is-taken",
        "the machine that is added is the one that was meant",
        "KIP-853: DUPLICATE_VOTER",
        (replace(NODE, "_check_same", "(_.peer, _.http) != _", "False"),),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "last-voter-removed",
        "somebody can always lead",
        "KIP-853: the voters are never empty",
        (replace(NODE, "VoterChanges.remove", "not any(_)", "False"),),
        _REQUEST_TEST,
        unseen=_SLIP,
    ),
    Planted(
        "successor-votes-for-the-former-owner-of-its-id",
        "an acknowledged entry is on every later leader",
        "a voter's id given to an empty disk while somebody who was away still counts it",
        (replace(RAFT, "Voter._agrees", "_1 and not hard.id_may_be_reused(_)", "_1"),),
        _CORE_TEST,
    ),
    Planted(
        "a-voter-that-its-file-calls-a-learner-speaks-for-nobody",
        "somebody can always lead",
        "this project: a tail torn while a learner was being promoted, and the disk of a voter lost (5020)",
        (
            replace(
                RAFT,
                "HardStateKeeper.id_may_be_reused",
                "votes or _1",
                "_1",
            ),
        ),
        _CORE_TEST,
    ),
    Planted(
        "a-voter-whose-removal-is-undecided-speaks-for-nobody",
        "somebody can always lead",
        "the simulator: two tails torn, a disk lost, a removal that its own subject holds (657810693923)",
        (replace(RAFT, "HardStateKeeper.id_may_be_reused", "memberships.configurations", "[memberships.newest]"),),
        _CORE_TEST,
    ),
    Planted(
        "former-owner-of-an-id-taken-for-its-successor",
        "an acknowledged entry is on every later leader",
        "a voter's id given to an empty disk, whose log knows the former owner as a voter",
        (
            replace(
                RAFT, "Membership.names_voter", "(node_id, directory_id, True)", "(node_id, one.directory_id, True)"
            ),
        ),
        _CORE_TEST,
    ),
    Planted(
        "successor-acknowledges-for-the-former-owner-of-its-id",
        "an acknowledged entry is on every later leader",
        "a voter's id given to an empty disk while somebody who was away still counts it",
        (replace(RAFT, "agreed", "0 if self.id_reused else _1", "_1"),),
        _CORE_TEST,
    ),
    Planted(
        "recovering-learner-that-is-ahead-holds-up-elections",
        "a majority that can talk elects a leader",
        "a learner that lost the tail of its log, but holds an entry that no voter does",
        (
            replace(RAFT, "Voter._agrees", "_1 and not votes", "_1 and not votes and not hard.recovering"),
            replace(RAFT, "Voter._agrees", "yes if votes else free", "yes if votes or hard.recovering else free"),
        ),
        _CORE_TEST,
    ),
    Planted(
        "learner-that-is-ahead-gives-no-vote-as-a-voter",
        "a majority that can talk elects a leader",
        "a promotion that stayed on one leader's disk, and the first entry of the next on the learner's (23342844170)",
        (replace(RAFT, "Voter._agrees", "since if _ else None", "None"),),
        _CORE_TEST,
    ),
    Planted(
        "learner-grants-whatever-the-candidate-lacks",
        "an acknowledged entry is on every later leader",
        "two removed voters whose ids came back as learners, and a member that was away meanwhile",
        (replace(RAFT, "Voter._agrees", "max(newest.index, _)", "log.first_index - 1"),),
        _CORE_TEST,
    ),
    Planted(
        "log-that-never-says-who-votes",
        "durable voters alone count",
        "Kafka before KIP-853: the voters are those of the file until they are changed",
        (delete(NODE, "_observe_version", "if _:\n    self._core.name_voters()"),),
        _NAMED_TEST,
    ),
    Planted(
        "voters-named-by-the-leader-of-the-upgrade-alone",
        "durable voters alone count",
        "a leader that died before anybody had its VotersRecord",
        (replace(RAFT, "_become_leader", "_1 if unnamed else _2", "_2"),),
        _NAMED_TEST,
    ),
    Planted(
        "addresses-frozen-by-the-log",
        "the file supplies addresses",
        "an over-reaction: a quorum of which no member ever changed, moved to other hosts",
        (replace(RAFT, "members_of", "one.directory_id is not None", "True"),),
        _NAMED_TEST,
        unseen="simulated members never move",
    ),
    Planted(
        "new-voter-counts-for-what-lies-before-its-promotion",
        "whatever a voter helped to commit stands behind the entry that made it one",
        "a learner that agrees with a candidate behind it",
        (
            replace(RAFT, "Commitment.advance", "max(_1, newest.index)", "_1"),
            replace(RAFT, "Commitment.commit_to", "_1 < log.memberships.newest.index", "_1 < 0"),
        ),
        _CORE_TEST,
    ),
    Planted(
        "disk-that-went-back-believed-by-its-length",
        "members apply the same entries",
        "an old copy of a disk, as long as what was acknowledged: etcd compares the length alone",
        (replace(RAFT, "check_held", "_ is not None and _", "False"),),
        ("tests/unit/controller/raft/test_core_durability.py",),
    ),
)
