"""Members that come and go. Names like `confchange_v1_add_single` are the conformance scripts of etcd's rafttest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pidkeeper.controller.raft.core import InvariantViolation, NotLeader, ProposalRefused, RaftConfig, RaftCore, Role
from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.membership import Memberships, plain_record
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    HeartbeatReply,
    InstallSnapshot,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.protocol.records import VotersRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import (
    NOOP,
    Cluster,
    NoJitter,
    accepted,
    flush,
    make_candidate,
    make_core,
    make_leader,
    members,
    of,
    pre_vote_grant,
    replicating_leader,
    tick,
    tick_until,
)


def config_entry(term: int, index: int, record: VotersRecord) -> Entry:
    return Entry(term, index, encode_batch([record]))


def core_with(
    node_id: int,
    *records: VotersRecord,
    commit: int = 0,
    voters: tuple[int, ...] = (1, 2, 3),
    recovering: bool = False,
    tail: int = 0,
    directory_id: str | None = None,
) -> RaftCore:
    """A core of term 1 whose log holds `records`, then `tail` more entries."""
    entries = [config_entry(1, index, record) for index, record in enumerate(records, 1)]
    entries += [Entry(1, len(entries) + 1 + more, b"x") for more in range(tail)]
    return RaftCore(
        RaftConfig(node_id=node_id, voters=voters, learner=node_id not in voters, directory_id=directory_id),
        NoJitter(node_id),
        hard_state=HardState(1, None, commit, recovering),
        snapshot=SnapshotId(0, 0),
        entries=entries,
        leader_change_data=NOOP,
    )


def role(core: RaftCore) -> Role:
    """The role now: steps change it."""
    return core.role


def joined(cluster: Cluster, leader: int, learner: int) -> None:
    """Add a learner and let it catch up."""
    record = cluster[leader].membership.record
    voters = [member.id for member in record.members if member.voting]
    cluster[leader].change_members(members(*voters, learners=[learner]))
    cluster.settle()
    cluster.tick(12)


def test_confchange_v1_add_single() -> None:
    """A blank machine becomes a learner, catches up and recovers, and counts once it is a voter."""
    cluster = Cluster(voters=(1,), others=[2])
    leader = cluster.elect(1)
    leader.propose(b"before")
    joined(cluster, 1, 2)
    assert (set(leader.membership.voters), set(leader.membership.members)) == ({1}, {1, 2})
    assert set(cluster[2].membership.members) == {1, 2}
    assert not cluster[2].recovering
    leader.change_members(members(1, 2))
    cluster.settle()
    assert leader.commit == leader.last_index
    cluster.isolate(2)
    leader.propose(b"alone")
    cluster.settle()
    assert leader.commit == leader.last_index - 1, "half of the voters is no majority"


def test_a_change_is_in_force_when_it_is_appended_and_the_one_before_returns_when_it_is_truncated() -> None:
    core = make_core(1, term=1)
    entry = config_entry(1, 1, members(1, 2, 3, learners=[4]))
    core.step(AppendEntries(1, 2, 1, 0, 0, 0, [entry]))
    flush(core)
    assert (set(core.membership.members), core.commit) == ({1, 2, 3, 4}, 0)
    core.step(AppendEntries(2, 3, 1, 0, 0, 0, [Entry(2, 1, b"other")]))
    flush(core)
    assert set(core.membership.members) == {1, 2, 3}
    assert [member.id for member in core.contacts()] == [1, 2, 3]


def test_a_restarted_member_takes_its_configuration_from_snapshot_and_log() -> None:
    core = core_with(1, members(1, 2, 3, learners=[4]), members(1, 2, 3, 4))
    assert set(core.membership.voters) == {1, 2, 3, 4}
    again = RaftCore(
        RaftConfig(node_id=1, voters=(1, 2, 3)),
        NoJitter(1),
        hard_state=HardState(1, None, 7),
        snapshot=SnapshotId(7, 1),
        entries=[],
        leader_change_data=NOOP,
        voters=members(1, 4, 5),
    )
    assert set(again.membership.voters) == {1, 4, 5}


def test_a_configuration_below_the_snapshot_is_not_in_force_again() -> None:
    """Entries that the snapshot covers stay for slow followers; what they change is history."""
    core = RaftCore(
        RaftConfig(node_id=1, voters=(1, 2, 3)),
        NoJitter(1),
        hard_state=HardState(1, None, 3),
        snapshot=SnapshotId(3, 1),
        entries=[Entry(1, 1, b"x"), config_entry(1, 2, members(1, 2, 3, learners=[4])), Entry(1, 3, b"x")],
        leader_change_data=NOOP,
        voters=members(1, 2, 3, 4),
    )
    assert core.first_index == 1
    assert (set(core.membership.voters), core.membership.index) == ({1, 2, 3, 4}, 3)


def test_a_snapshot_brings_its_configuration() -> None:
    cluster = Cluster(others=[4])
    leader = cluster.elect(1)
    cluster.isolate(3)
    joined(cluster, 1, 4)
    for node_id in (1, 2, 4):
        cluster.nodes[node_id].take_snapshot()
    cluster.heal()
    cluster.tick(12)
    assert cluster[3].snapshot.index > 0
    assert set(cluster[3].membership.members) == {1, 2, 3, 4} == set(leader.membership.members)


def with_incoming_snapshot() -> RaftCore:
    """Member 3, whose driver is installing the snapshot at 5."""
    core = make_core(3, term=1)
    core.step(InstallSnapshot(1, 1, 3, SnapshotId(5, 1), 0, b"image", True))
    flush(core)
    return core


def test_a_candidate_that_a_snapshot_removes_stands_no_more() -> None:
    for record, expected in ((members(1, 2), Role.FOLLOWER), (members(1, 2, 3), Role.PRE_CANDIDATE)):
        core = with_incoming_snapshot()
        tick_until(core, Role.PRE_CANDIDATE)
        core.snapshot_installed(SnapshotId(5, 1), record)
        assert role(core) is expected
    learner = with_incoming_snapshot()
    learner.snapshot_installed(SnapshotId(5, 1), members(1, 2, learners=[3]))
    assert (role(learner), learner.leader_id) == (Role.FOLLOWER, 1), "a follower goes on following"


def test_the_members_in_an_installed_snapshot_are_asked_at_once() -> None:
    core = with_incoming_snapshot()
    version = core.memberships_version
    core.snapshot_installed(SnapshotId(5, 1), members(1, 2, 3, 4))
    assert core.memberships_version != version
    flush(core)
    tick_until(core, Role.PRE_CANDIDATE)
    assert [message.to for message in of(PreVote, flush(core))] == [1, 2, 4]


def test_a_quorum_of_one_removes_its_learner_by_its_own_write() -> None:
    core = replicating_leader(voters=(1,))
    core.change_members(members(1, learners=[2]))
    flush(core)
    core.change_members(members(1))
    assert set(core.progress) == {1, 2}
    flush(core)
    assert (core.commit, set(core.progress)) == (core.last_index, {1})


def test_confchange_v1_remove_leader() -> None:
    """Its entry needs a majority of the others; the leader does not count, and still leads until it is committed."""
    core = replicating_leader()
    core.change_members(members(2, 3))
    flush(core)
    index = core.last_index
    core.step(accepted(core, 2, index))
    assert (core.commit, role(core)) == (index - 1, Role.LEADER)
    core.propose(b"more")
    flush(core)
    core.step(accepted(core, 3, index))
    assert (core.commit, role(core), core.leader_id) == (index, Role.FOLLOWER, None)


def test_confchange_v1_remove_leader_stepdown() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.change_members(members(2, 3))
    cluster.settle()
    assert role(leader) is Role.FOLLOWER
    successors = [node_id for node_id in (2, 3) if role(cluster[node_id]) is Role.LEADER]
    assert len(successors) == 1, "the leader that leaves names a successor"
    assert cluster[successors[0]].serving
    cluster.sent.clear()
    cluster.tick(200)
    assert of(PreVote, cluster.sent) == []
    assert role(cluster[successors[0]]) is Role.LEADER


def test_the_leader_that_leaves_names_the_one_that_holds_most() -> None:
    core = replicating_leader(voters=(1, 2, 3, 4, 5))
    core.change_members(members(2, 3, 4, 5))
    flush(core)
    core.step(accepted(core, 3, core.last_index))
    core.step(accepted(core, 4, core.last_index))
    core.propose(b"more")
    flush(core)
    core.step(accepted(core, 4, core.last_index))
    core.step(accepted(core, 5, core.last_index - 1))
    assert (role(core), [message.to for message in of(TimeoutNow, flush(core))]) == (Role.FOLLOWER, [4])


def test_a_removed_follower_hears_that_it_is_and_does_not_campaign() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.change_members(members(1, 2))
    cluster.settle()
    assert set(cluster[3].membership.voters) == {1, 2}
    assert cluster[3].log.memberships.committed
    assert [member.id for member in leader.contacts()] == [1, 2]
    cluster.sent.clear()
    cluster.tick(200)
    assert role(cluster[3]) is Role.FOLLOWER
    assert of(PreVote, cluster.sent) == []
    assert not [message for message in cluster.sent if message.to == 3]


def test_a_removed_follower_hears_that_it_is_even_while_it_is_probed() -> None:
    """A new leader commits the removal that the one before began, with the first acknowledgements of the others."""
    core = core_with(1, members(1, 2, 3, 4), members(1, 2, 3), voters=(1, 2, 3, 4))
    make_leader(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    assert core.commit == core.last_index
    (farewell,) = [message for message in of(AppendEntries, flush(core)) if message.to == 4]
    assert farewell.leader_commit == core.last_index


def test_the_removed_one_of_two_may_still_be_needed() -> None:
    """Dissertation, section 4.2.2: until its removal is committed, only its log may be able to win."""
    core = core_with(1, members(2), voters=(1, 2))
    tick_until(core, Role.PRE_CANDIDATE)
    make_candidate(core)
    core.step(RequestVoteReply(core.term, 2, 1, True, 0))
    assert role(core) is Role.LEADER
    gone = core_with(1, members(2), voters=(1, 2), commit=1)
    tick(gone, 200)
    assert (role(gone), flush(gone)) == (Role.FOLLOWER, [])


def test_campaign_learner_must_vote() -> None:
    """It may be a voter without knowing it; whoever counts decides whether its vote does."""
    learner = core_with(4, members(1, 2, 3, learners=[4]))
    learner.step(RequestVote(2, 1, 4, 1, 1, False))
    assert [reply.granted for reply in of(RequestVoteReply, flush(learner))] == [True]
    stranger = core_with(4)
    stranger.step(RequestVote(2, 9, 4, 1, 1, False))
    assert [reply.granted for reply in of(RequestVoteReply, flush(stranger))] == [True]


def test_a_learner_does_not_campaign() -> None:
    learner = core_with(4, members(1, 2, 3, learners=[4]), commit=1)
    tick(learner, 200)
    learner.step(TimeoutNow(1, 2, 4))
    learner.link_lost(2)
    assert (role(learner), flush(learner)) == (Role.FOLLOWER, [])


def test_votes_of_learners_and_strangers_make_no_majority() -> None:
    core = core_with(1, members(1, 2, 3, learners=[4]))
    tick_until(core, Role.PRE_CANDIDATE)
    flush(core)
    core.step(pre_vote_grant(core, 4))
    core.step(pre_vote_grant(core, 9))
    assert role(core) is Role.PRE_CANDIDATE
    core.step(pre_vote_grant(core, 2))
    flush(core)
    core.step(RequestVoteReply(core.term, 4, 1, True, 0))
    core.step(RequestVoteReply(core.term, 9, 1, True, 0))
    assert role(core) is Role.CANDIDATE
    core.step(RequestVoteReply(core.term, 3, 1, True, 0))
    assert role(core) is Role.LEADER


def test_everybody_counts_by_the_voters_in_force() -> None:
    follower = core_with(1, members(1, 2, 3, learners=[4]), members(1, 2, 3, 4))
    assert follower.voters == {1, 2, 3, 4}
    leader = replicating_leader()
    leader.change_members(members(1, 2, 3, learners=[4]))
    assert leader.voters == {1, 2, 3}


def test_acknowledgements_of_learners_and_strangers_commit_nothing() -> None:
    core = core_with(1, members(1, 2, 3, learners=[4]), commit=1)
    make_leader(core)
    for sender in (4, 9):
        core.step(accepted(core, sender, core.last_index))
        core.step(HeartbeatReply(core.term, sender, 1, core.last_index))
    flush(core)
    assert core.commit == 1
    core.step(accepted(core, 3, core.last_index))
    assert core.commit == core.last_index


def test_a_learner_keeps_no_leader_in_office() -> None:
    core = core_with(1, members(1, 2, 3, learners=[4]), commit=1)
    make_leader(core)
    for _ in range(40):
        core.step(HeartbeatReply(core.term, 4, 1, 1))
        core.tick()
    assert role(core) is Role.FOLLOWER


def test_leadership_goes_to_voters_only() -> None:
    core = core_with(1, members(1, 2, 3, learners=[4]), commit=1)
    make_leader(core)
    with pytest.raises(ValueError, match=r"4 is not one of the other voters \[2, 3\]"):
        core.transfer_leadership(4)


def test_a_follower_obeys_a_leader_that_its_configuration_does_not_hold() -> None:
    core = make_core(1, term=1)
    core.step(AppendEntries(2, 9, 1, 0, 0, 0, [Entry(2, 1, b"x")]))
    assert (core.leader_id, core.last_index) == (9, 1)


@pytest.mark.parametrize(
    ("record", "error", "reason"),
    [
        (members(1, 2, 3), ValueError, r"one member, not \[\]"),
        (members(1, 2, 3, learners=[4, 5]), ValueError, r"one member, not \[4, 5\]"),
        (members(1), ValueError, r"one member, not \[2, 3\]"),
        (members(1, 2, 3, 4), ValueError, "member 4 must be a learner before"),
    ],
)
def test_a_change_concerns_one_member_and_voters_come_from_learners(
    record: VotersRecord, error: type[Exception], reason: str
) -> None:
    core = replicating_leader()
    last = core.last_index
    with pytest.raises(error, match=reason):
        core.change_members(record)
    assert (core.last_index, set(core.membership.voters)) == (last, {1, 2, 3})


def test_only_a_leader_that_has_committed_in_its_term_changes_anything() -> None:
    """Ongaro's bug of 2015: without this rule two leaders could commit with majorities that do not overlap."""
    with pytest.raises(NotLeader):
        make_core(1).change_members(members(1, 2))
    core = make_core(1, terms=[1], commit=1)
    make_leader(core)
    with pytest.raises(ProposalRefused, match="has not committed an entry of its own term"):
        core.change_members(members(1, 2))


def test_one_change_at_a_time() -> None:
    core = replicating_leader()
    core.change_members(members(1, 2, 3, learners=[4]))
    with pytest.raises(ProposalRefused, match="is not committed yet"):
        core.change_members(members(1, 2, 3, learners=[4, 5]))
    core.step(accepted(core, 2, core.last_index))
    flush(core)
    assert core.change_members(members(1, 2, 3, learners=[4, 5])) == (core.term, core.last_index)


def test_no_change_during_a_transfer() -> None:
    core = replicating_leader()
    core.transfer_leadership(2)
    with pytest.raises(ProposalRefused, match="transferred to 2"):
        core.change_members(members(1, 2))


def learner_leader(**config: int) -> RaftCore:
    """A leader of 1, 2, 3 with learner 4, which has not been heard yet."""
    core = replicating_leader(**config)
    core.change_members(members(1, 2, 3, learners=[4]))
    flush(core)
    core.step(accepted(core, 2, core.last_index))
    core.step(accepted(core, 3, core.last_index))
    flush(core)
    return core


def test_a_learner_is_promoted_when_it_has_answered_recovered_and_caught_up() -> None:
    core = learner_leader(promotion_lag=2)
    wanted = members(1, 2, 3, 4)
    with pytest.raises(ProposalRefused, match="learner 4 does not answer"):
        core.change_members(wanted)
    core.step(accepted(core, 4, core.last_index, recovery=77))
    with pytest.raises(ProposalRefused, match="4 has not caught up yet"):
        core.change_members(wanted)
    core.step(accepted(core, 4, core.last_index))
    for _ in range(3):
        core.propose(b"x")
    with pytest.raises(ProposalRefused, match="4 is 3 entries behind, 2 may be left"):
        core.change_members(wanted)
    core.step(accepted(core, 4, core.last_index - 2))
    core.change_members(wanted)
    assert set(core.membership.voters) == {1, 2, 3, 4}


def test_a_late_word_of_the_member_that_had_the_id_before_does_not_promote() -> None:
    core = replicating_leader(voters=(1, 2, 3, 4))
    for record in (members(1, 2, 3), members(1, 2, 3, learners=[4])):
        late = accepted(core, 4, core.last_index)
        core.change_members(record)
        for peer in (2, 3):
            core.step(accepted(core, peer, core.last_index))
        flush(core)
    core.step(late)
    with pytest.raises(ProposalRefused, match="4 does not hold the configuration at index 3 yet"):
        core.change_members(members(1, 2, 3, 4))
    core.step(accepted(core, 4, core.last_index))
    core.change_members(members(1, 2, 3, 4))


def test_a_silent_learner_is_not_promoted() -> None:
    core = learner_leader()
    core.step(accepted(core, 4, core.last_index))
    for _ in range(30):
        core.tick()
        core.step(HeartbeatReply(core.term, 2, 1, core.last_index))
    with pytest.raises(ProposalRefused, match="learner 4 does not answer"):
        core.change_members(members(1, 2, 3, 4))


def test_a_change_after_which_nothing_could_be_committed_is_refused() -> None:
    core = replicating_leader()
    for _ in range(30):
        core.tick()
        core.step(HeartbeatReply(core.term, 2, 1, core.last_index))
    with pytest.raises(ProposalRefused, match=r"of the voters \[1, 3\] only \[1\] answer"):
        core.change_members(members(1, 3))
    core.step(accepted(core, 2, core.last_index, recovery=5))
    core.step(accepted(core, 3, core.last_index - 1))
    core.step(accepted(core, 3, core.last_index))
    with pytest.raises(ProposalRefused, match=r"members \[2\] lost data"):
        core.change_members(members(1, 2))
    core.change_members(members(1, 3))


# What a member says that lost data counts where everybody agrees. Everybody: of any configuration next to ours.


def vote_of(core: RaftCore, voter: int, recovery: int = 0) -> None:
    core.step(RequestVoteReply(core.term, voter, core.node_id, True, recovery))


def test_a_weak_vote_needs_the_one_that_is_being_removed_too() -> None:
    """1 and 2 committed what 3 lacks, 2 lost its disk, and 3 holds a removal of 1 that was never committed."""
    core = core_with(3, members(2, 3))
    make_candidate(core)
    vote_of(core, 2, recovery=5)
    assert role(core) is Role.CANDIDATE
    vote_of(core, 1)
    assert role(core) is Role.LEADER


def test_a_weak_vote_needs_the_learners_too() -> None:
    """Learner 1 may be a voter in a configuration that we lack, and have committed something there with 2."""
    core = core_with(3, members(2, 3, learners=[1]), commit=1, voters=(2, 3))
    make_candidate(core)
    vote_of(core, 2, recovery=5)
    assert role(core) is Role.CANDIDATE
    vote_of(core, 9)
    assert role(core) is Role.CANDIDATE, "the vote of a stranger stands for nobody's"
    core.step(RequestVoteReply(core.term, 1, 3, False, 0))
    assert role(core) is Role.FOLLOWER
    again = core_with(3, members(2, 3, learners=[1]), commit=1, voters=(2, 3))
    make_candidate(again)
    vote_of(again, 2)
    assert role(again) is Role.LEADER, "two strong votes are a majority, whatever the learner says"


def test_a_weak_acknowledgement_needs_the_one_that_is_being_removed_too() -> None:
    """1 may have the vote of 2 from before the loss, and lead a later term by it."""
    core = make_core(3)
    make_leader(core)
    for peer in (1, 2):
        core.step(accepted(core, peer, core.last_index))
    core.change_members(members(2, 3))
    flush(core)
    index = core.last_index
    core.step(accepted(core, 2, index, recovery=5))
    flush(core)
    core.step(accepted(core, 2, core.last_index, recovery=5))
    assert core.commit < index
    core.step(accepted(core, 1, core.last_index))
    assert core.commit == core.last_index


# The guards themselves, called the wrong way.


def led(core: RaftCore) -> Leadership:
    make_leader(core)
    assert core.leadership is not None
    return core.leadership


def second_change(core: RaftCore) -> None:
    leadership = led(core)
    leadership.append_configuration(encode_batch([members(1, 2, 3, learners=[4])]))
    leadership.append_configuration(encode_batch([members(1, 2, 3, learners=[5])]))


def lead_while_removed(core: RaftCore) -> None:
    led(core)._commitment.voters = frozenset({2, 3})
    core.tick()


def campaign_as_learner(core: RaftCore) -> None:
    core.log.memberships.restart(1, members(2, 3, learners=[1]))
    core._become_candidate(transfer=False)


def count_by_old_voters(core: RaftCore) -> None:
    leadership = led(core)
    core.log.memberships.append(9, members(1, 2))
    leadership._commitment.advance()


def leap(core: RaftCore) -> None:
    core.log.memberships.append(2, members(1, 2, 3))
    core.log.memberships.append(3, members(1, 4, 5))


def swap(core: RaftCore) -> None:
    core.log.memberships.append(2, members(1, 2, 3, learners=[4]))
    core.log.memberships.append(3, members(1, 2, 4, learners=[3]))


def unlearned(core: RaftCore) -> None:
    core.log.memberships.append(2, members(1, 2, 3))
    core.log.memberships.append(3, members(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("R3", lambda core: core.log.memberships.truncate(0)),
        ("R15", second_change),
        ("R16", leap),
        ("R16", swap),
        ("R17", unlearned),
        ("R18", lead_while_removed),
        ("R19", campaign_as_learner),
        ("R20", count_by_old_voters),
    ],
)
def test_a_broken_rule_is_named(rule: str, wrong: Callable[[RaftCore], object]) -> None:
    core = make_core(1, terms=[1])
    with pytest.raises(InvariantViolation, match=f"^{rule}: "):
        wrong(core)


def test_the_history_reaches_from_the_newest_committed_configuration_to_the_newest() -> None:
    history = Memberships(plain_record([1, 2, 3]))
    history.append(5, members(1, 2, 3, learners=[4]))
    history.append(8, members(1, 2, 3, 4))
    history.append(9, members(1, 2, 4))
    assert (set(history.everybody), history.committed) == ({1, 2, 3, 4}, False)
    version = history.version
    history.commit_to(4)
    assert history.version == version, "an entry before the first change is no news"
    history.commit_to(8)
    assert set(history.everybody) == {1, 2, 3, 4}
    history.truncate(9)
    assert (history.newest.index, history.committed) == (8, True)
    history.append(10, members(1, 2, 4))
    history.commit_to(10)
    assert (set(history.everybody), set(history.newest.voters), history.committed) == ({1, 2, 4}, {1, 2, 4}, True)


# An id that came back with an empty disk does not stand for its former owner; a learner does not hold up the rest.


def test_an_empty_successor_does_not_vote_as_the_voter_who_had_its_id() -> None:
    """3 was down while 4 joined, 1 was removed and came back empty as a learner, and 2 lost its disk."""
    stale = core_with(3)
    make_candidate(stale)
    vote_of(stale, 2, recovery=5)
    successor = core_with(1, voters=(2, 3, 4), recovering=True)
    successor.step(RequestVote(stale.term, 3, 1, stale.last_index, 1, False))
    (reply,) = of(RequestVoteReply, flush(successor))
    assert (reply.granted, reply.consents) == (False, True)
    stale.step(reply)
    assert role(stale) is Role.FOLLOWER


def test_a_successor_whose_log_knows_it_as_a_learner_speaks_for_itself() -> None:
    """It is being made a voter, and lost the tail of its log; its file calls it a learner still."""
    torn = core_with(4, members(1, 2, 3, learners=[4]), recovering=True)
    for last, granted in ((1, True), (0, False)):
        torn.step(RequestVote(torn.term + 1, 1, 4, last, last, False))
        (reply,) = of(RequestVoteReply, flush(torn))
        assert reply.granted == granted, "a candidate whose log ends before the learner's is refused like any other"


@pytest.mark.parametrize(("named", "speaks"), [("mine", True), ("another", False), (None, False)])
def test_a_directory_that_its_log_names_as_a_voter_speaks_for_itself(named: str | None, speaks: bool) -> None:
    """The entry that made it one is not committed, it lost the tail of its log, and its file calls it a learner."""
    promoted = VotersRecord(
        tuple(replace(one, directory_id=named if one.id == 4 else None) for one in members(1, 2, 3, 4).members)
    )
    torn = core_with(4, members(1, 2, 3, learners=[4]), promoted, recovering=True, directory_id="mine")
    torn.step(RequestVote(torn.term + 1, 1, 4, torn.last_index, 1, False))
    (reply,) = of(RequestVoteReply, flush(torn))
    assert reply.granted is speaks


@pytest.mark.parametrize(("commit", "speaks"), [(2, True), (3, False)])
def test_a_voter_whose_removal_is_undecided_speaks_for_itself(commit: int, speaks: bool) -> None:
    """Who would remove it may need its vote, if others have lost data, too; its file calls it a learner still."""
    promoted = VotersRecord(
        tuple(replace(one, directory_id="mine" if one.id == 4 else None) for one in members(1, 2, 3, 4).members)
    )
    records = (members(1, 2, 3, learners=[4]), promoted, members(1, 2, 3))
    torn = core_with(4, *records, commit=commit, recovering=True, directory_id="mine")
    torn.step(RequestVote(torn.term + 1, 1, 4, torn.last_index, 1, False))
    (vote,) = of(RequestVoteReply, flush(torn))
    assert vote.granted is speaks
    torn.step(AppendEntries(torn.term, 1, 4, torn.last_index, 1, 0, [Entry(torn.term, torn.last_index + 1, NOOP)]))
    (taken,) = of(AppendEntriesReply, flush(torn))
    assert (taken.rejected, taken.learner) == (False, not speaks)


def test_who_agrees_as_a_learner_alone_waits_a_full_timeout_for_the_winner_too() -> None:
    """By its log it is the voter of that id, so it might stand itself."""
    successor = core_with(4, members(1, 2, 3, learners=[4]), members(1, 2, 3, 4), recovering=True)
    tick(successor, successor.config.election_ticks)
    successor.step(RequestVote(1, 3, 4, successor.last_index, 1, False))
    (reply,) = of(RequestVoteReply, flush(successor))
    assert (reply.granted, reply.consents) == (False, True)
    tick(successor, successor.config.election_ticks)
    assert successor.role is Role.FOLLOWER


def test_an_empty_successor_acknowledges_nothing_as_the_voter_who_had_its_id() -> None:
    core = make_core(3)
    make_leader(core)

    def acknowledge(*, learner: bool) -> None:
        for peer, recovery in ((2, 5), (1, 6)):
            answer = accepted(core, peer, core.last_index, recovery=recovery)
            core.step(replace(answer, learner=learner and peer == 1))
        flush(core)

    for _ in range(3):
        acknowledge(learner=True)
    assert core.commit == 0
    core.propose(b"x")
    flush(core)
    acknowledge(learner=False)
    assert core.commit == core.last_index


@pytest.mark.parametrize("recovering", [False, True])
def test_a_learner_that_is_ahead_holds_up_no_election(recovering: bool) -> None:
    """Voter 2 lost its disk, and learner 1 holds more than 3: nothing that was committed needs it."""
    candidate = core_with(3, members(2, 3, learners=[1]), commit=1, voters=(2, 3))
    ahead = core_with(1, members(2, 3, learners=[1]), commit=1, voters=(2, 3), recovering=recovering, tail=5)
    assert ahead.last_index > candidate.last_index
    make_candidate(candidate)
    vote_of(candidate, 2, recovery=5)
    ahead.step(RequestVote(candidate.term, 3, 1, candidate.last_index, 1, False))
    (reply,) = of(RequestVoteReply, flush(ahead))
    assert (reply.granted, reply.consents) == (True, True)
    rival = RequestVote(candidate.term, 2, 1, ahead.last_index, 1, False)
    ahead.step(rival)
    (second,) = of(RequestVoteReply, flush(ahead))
    assert (second.granted, second.consents) == (False, False), "it votes once in a term, as a learner too"
    candidate.step(reply)
    assert role(candidate) is Role.LEADER


@pytest.mark.parametrize("recovering", [False, True])
def test_a_voter_that_is_ahead_agrees_with_nobody_who_takes_it_for_a_learner(recovering: bool) -> None:
    """What it acknowledged as a voter may be committed, and the candidate lacks the entry that made it one."""
    records = (members(2, 3, learners=[1]), members(1, 2, 3))
    voter = core_with(1, *records, commit=1, voters=(2, 3), recovering=recovering)
    voter.step(RequestVote(2, 3, 1, 1, 1, False))
    (reply,) = of(RequestVoteReply, flush(voter))
    assert (reply.granted, reply.consents) == (False, False)


def test_what_lies_before_a_configuration_is_committed_with_it() -> None:
    """A new voter that holds an entry, but not the one that made it a voter, helps to commit neither."""
    core = replicating_leader()
    core.change_members(members(1, 2, 3, learners=[4]))
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    core.step(accepted(core, 4, core.last_index))
    flush(core)
    _, before = core.propose(b"x")
    core.change_members(members(1, 2, 3, 4))
    flush(core)
    for peer in (2, 4):
        core.step(accepted(core, peer, before))
    assert core.commit < before
    for peer in (2, 4):
        core.step(accepted(core, peer, core.last_index))
    assert core.commit == core.last_index


def test_a_learner_that_is_ahead_agrees_before_the_vote_too() -> None:
    ahead = core_with(1, members(2, 3, learners=[1]), commit=1, voters=(2, 3), tail=5)
    ahead.step(PreVote(ahead.term + 1, 3, 1, 1, 1))
    (reply,) = of(PreVoteReply, flush(ahead))
    assert (reply.term, reply.granted, reply.consents) == (ahead.term + 1, True, True)


def test_a_learner_that_is_ahead_votes_for_who_would_have_it_vote() -> None:
    """4 alone holds the entry that makes 1 a voter; the first entry of the leader after it reached 1 alone."""
    candidate = core_with(4, members(2, 3, 4, learners=[1]), members(1, 2, 3, 4), commit=1, voters=(2, 3, 4))
    ahead = core_with(1, members(2, 3, 4, learners=[1]), commit=1, voters=(2, 3, 4))
    ahead.step(AppendEntries(2, 3, 1, 1, 1, 1, [Entry(2, 2, NOOP)]))
    flush(ahead)
    tick(ahead, 2 * ahead.config.election_ticks)
    candidate.step(AppendEntries(2, 3, 4, 1, 1, 1, []))
    make_candidate(candidate)
    candidate.step(RequestVoteReply(candidate.term, 2, 4, True, 0))
    assert role(candidate) is Role.CANDIDATE, "two of four are no majority"
    ahead.step(RequestVote(candidate.term, 4, 1, candidate.last_index, 1, False))
    (reply,) = of(RequestVoteReply, flush(ahead))
    candidate.step(reply)
    assert role(candidate) is Role.LEADER


def test_learners_that_were_voters_do_not_vote_for_who_has_not_heard_of_their_removal() -> None:
    """5 was away while 1 and 2 were removed by the others, and came back as learners with empty disks."""
    away = core_with(5, members(1, 2, 3, 4, 5), commit=1, voters=(1, 2, 3, 4, 5))
    changes = (members(2, 3, 4, 5), members(3, 4, 5), members(3, 4, 5, learners=[1]), members(3, 4, 5, learners=[1, 2]))
    make_candidate(away)
    for learner in (1, 2):
        back = core_with(learner, members(1, 2, 3, 4, 5), *changes, commit=5, voters=(3, 4, 5))
        back.step(RequestVote(away.term, 5, learner, away.last_index, 1, False))
        (reply,) = of(RequestVoteReply, flush(back))
        away.step(reply)
        assert not reply.granted
    assert role(away) is not Role.LEADER


def test_nothing_before_the_newest_configuration_is_committed_by_counting() -> None:
    core = replicating_leader()
    core.change_members(members(1, 2, 3, learners=[4]))
    assert core.leadership is not None
    with pytest.raises(InvariantViolation, match=r"^R20: 1 lies before 2"):
        core.leadership._commitment.commit_to(1)
