"""Members that lost data: what their votes and acknowledgements count for until they have recovered."""

from __future__ import annotations

import random

import pytest

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
)
from tests.support.raft_network import (
    Cluster,
    Node,
    accepted,
    append,
    entries_of,
    flush,
    make_candidate,
    make_core,
    of,
    pre_vote_grant,
    rejected,
    replicating_leader,
    tick,
    tick_until,
)

NUMBER = 77


def test_a_blank_cluster_needs_all_its_voters() -> None:
    cluster = Cluster()
    cluster.nodes[3].up = False
    cluster.tick(200)
    assert {cluster[1].role, cluster[2].role} <= {Role.FOLLOWER, Role.PRE_CANDIDATE}
    assert (cluster[1].term, cluster[2].term) == (0, 0)

    cluster.nodes[3].restart()
    cluster.tick(200)

    assert sorted(cluster[node_id].role.value for node_id in (1, 2, 3)) == ["follower", "follower", "leader"]
    assert not any(cluster[node_id].recovering for node_id in (1, 2, 3))
    assert not any(cluster.nodes[node_id].disk.hard_state.recovering for node_id in (1, 2, 3))


def test_a_blank_cluster_starts_with_one_entry() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    assert (leader.last_index, leader.commit) == (1, 1)


def test_the_first_commit_of_a_blank_cluster_needs_all_its_voters_too() -> None:
    cluster = Cluster()
    cluster.drop = lambda message: isinstance(message, AppendEntries) and message.to == 3
    tick_until(cluster[1], Role.PRE_CANDIDATE)
    cluster.settle()
    assert (cluster[1].role, cluster[1].commit, cluster[1].recovering) == (Role.LEADER, 0, True)
    cluster.heal()
    cluster.tick(5)
    assert (cluster[1].commit, cluster[1].recovering) == (1, False)


def test_once_it_has_started_two_are_enough() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.nodes[3].up = False
    leader.propose(b"a")
    cluster.settle()
    assert leader.commit == 2


def test_a_blank_single_voter_recovers_by_itself() -> None:
    cluster = Cluster(voters=(1,))
    leader = cluster.elect(1)
    cluster.settle()
    leader.propose(b"a")
    cluster.settle()
    assert (leader.commit, leader.recovering) == (2, False)


def test_a_wiped_members_vote_does_not_elect() -> None:
    """3 holds less than was acknowledged; with the vote of 2, which forgot it, it would win and lose it."""
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose(b"acknowledged")
    cluster.settle()
    assert leader.commit == 2
    cluster.nodes[1].up = False
    cluster.nodes[2].wipe()
    cluster.heal()

    cluster.tick(500)

    assert {cluster[2].role, cluster[3].role} <= {Role.FOLLOWER, Role.PRE_CANDIDATE}
    cluster.nodes[1].restart()
    cluster.tick(200)
    leaders = [node for node in cluster.nodes.values() if node.core.role is Role.LEADER]
    assert [node.node_id for node in leaders] == [1]
    assert all(node.applied[1] == (2, 1, b"acknowledged") for node in cluster.nodes.values())


def test_weak_votes_count_in_a_unanimous_election_only() -> None:
    core = make_core(1, term=1)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(PreVoteReply(2, 2, 1, True, True))
    assert core.role is Role.PRE_CANDIDATE
    core.step(PreVoteReply(2, 3, 1, True, True))
    flush(core)
    assert core.role.value == "candidate"
    core.step(RequestVoteReply(2, 2, 1, True, NUMBER))
    assert core.role.value == "candidate"
    core.step(RequestVoteReply(2, 3, 1, True, NUMBER))
    assert core.role.value == "leader"


def test_what_an_earlier_life_was_told_is_no_pre_vote_for_the_next_one() -> None:
    """Its disk was lost when it led the term that it would now stand in again: it would have the same votes again."""
    life, peers = make_core(1), [make_core(2), make_core(3)]
    tick_until(life, Role.PRE_CANDIDATE)
    told = answers(life, peers)
    assert [reply.granted for reply in told] == [True, True]

    next_life = make_core(1, recovering=True)
    tick_until(next_life, Role.PRE_CANDIDATE)
    for reply in told:
        next_life.step(reply)
    assert next_life.role is Role.PRE_CANDIDATE

    for reply in answers(next_life, peers):
        next_life.step(reply)
    assert next_life.role.value == "candidate"


def test_an_answer_of_a_build_that_does_not_name_the_recovery_counts() -> None:
    """Otherwise a quorum that lost the tails of all its logs could not elect anybody until all are upgraded."""
    core = make_core(1, recovering=True)
    tick_until(core, Role.PRE_CANDIDATE)
    for peer in (2, 3):
        core.step(PreVoteReply(1, peer, 1, True, False))
    assert core.role.value == "candidate"


def answers(core: RaftCore, peers: list[RaftCore]) -> list[PreVoteReply]:
    """What `peers` say to the pre-votes that `core` asks for."""
    for question in of(PreVote, flush(core)):
        next(peer for peer in peers if peer.node_id == question.to).step(question)
    return [reply for peer in peers for reply in of(PreVoteReply, flush(peer))]


def test_a_recovering_candidates_own_vote_is_weak_too() -> None:
    core = make_core(1, voters=(1, 2, 3, 4), recovering=True)
    tick_until(core, Role.PRE_CANDIDATE)
    for peer in (2, 3):
        core.step(pre_vote_grant(core, peer))
    assert core.role is Role.PRE_CANDIDATE
    core.step(pre_vote_grant(core, 4))
    assert core.role.value == "candidate"


def test_replies_of_a_recovering_member_say_so() -> None:
    core = make_core(1, recovering=True)
    core.step(append(core, (3, 1), [], term=1))
    core.step(append(core, (0, 0), [1], term=1))
    core.step(RequestVote(2, 3, 1, 5, 1, True))
    replies = flush(core)
    numbers = {reply.recovery for reply in of(RequestVoteReply, replies) + of(AppendEntriesReply, replies)}
    assert len(numbers) == 1
    assert numbers != {0}


def test_acknowledgements_of_a_recovering_member_do_not_commit() -> None:
    """It may have promised a later term to somebody else, and forgotten it."""
    core = replicating_leader()
    core.step(accepted(core, 2, 1, recovery=NUMBER))
    core.propose(b"a")
    core.step(accepted(core, 2, core.last_index, recovery=NUMBER))
    flush(core)
    assert core.commit == 1
    core.step(accepted(core, 3, core.last_index))
    assert core.commit == core.last_index


def test_a_late_acknowledgement_from_before_the_loss_counts_for_what_it_says() -> None:
    core = replicating_leader()
    core.propose(b"a")
    flush(core)
    core.step(rejected(core, 2, 2, 0, 0, recovery=NUMBER))
    assert (core.commit, core.progress[2].match) == (1, 0)
    core.step(accepted(core, 2, 2))
    assert (core.commit, core.progress[2].counted) == (2, 2)
    flush(core)
    core.step(rejected(core, 2, 3, 0, 0, recovery=NUMBER))
    assert (core.progress[2].match, core.progress[2].recovery) == (0, NUMBER)


def test_the_leader_appends_a_barrier_once_per_recovery() -> None:
    core = replicating_leader()
    for _ in range(3):
        core.step(rejected(core, 2, 1, 0, 0, recovery=NUMBER))
    assert (core.last_index, core.progress[2].barrier) == (2, 2)
    core.step(rejected(core, 2, 1, 0, 0, recovery=NUMBER + 1))
    assert (core.last_index, core.progress[2].barrier) == (3, 3)


def told(core: RaftCore) -> list[int]:
    tick(core, core.config.heartbeat_ticks)
    return [message.recovered for message in of(Heartbeat, flush(core)) if message.to == 2]


def test_the_leader_ends_a_recovery_when_the_barrier_is_there_and_committed() -> None:
    core = replicating_leader()
    core.step(rejected(core, 2, 1, 0, 0, recovery=NUMBER))
    flush(core)
    core.step(accepted(core, 2, 1, recovery=NUMBER))
    assert told(core) == [0]
    core.step(accepted(core, 2, 2, recovery=NUMBER))
    assert (told(core), core.commit) == ([0], 1), "not committed: 3 has not confirmed this leader since"
    core.step(accepted(core, 3, 2))
    assert [message.recovered for message in of(Heartbeat, flush(core))] == [NUMBER], "at once"
    assert told(core) == [NUMBER]
    core.step(accepted(core, 2, 2))
    assert told(core) == [0]
    core.propose(b"a")
    flush(core)
    core.step(accepted(core, 2, 3))
    assert core.commit == 3, "it counts again"


def test_a_member_recovers_when_it_is_told_so_by_its_number() -> None:
    core = make_core(1, term=1, recovering=True)
    core.step(append(core, (0, 0), [1, 1], term=1, commit=2))
    (reply,) = of(AppendEntriesReply, flush(core))
    assert core.recovering, "an entry of the leader's term is committed, but that is not enough"
    core.step(Heartbeat(1, 2, 1, 2, reply.recovery + 1))
    core.step(Heartbeat(1, 2, 1, 2, 0))
    assert core.recovering

    core.step(Heartbeat(1, 2, 1, 2, reply.recovery))

    assert (core.recovering, core.vote) == (False, 2)
    core.step(append(core, (2, 1), [], term=1))
    ready = core.ready()
    assert ready is not None
    assert ready.hard_state is not None
    assert (ready.hard_state.recovering, of(AppendEntriesReply, ready.messages)) == (False, [])
    assert ready.token is not None
    core.written(ready.token)
    assert [reply.recovery for reply in of(AppendEntriesReply, flush(core))] == [0]


def test_a_recovering_member_believes_a_heartbeat_only_about_what_was_sent_since() -> None:
    """The leader counts on entries that are gone; those at their place may be another leader's."""
    core = make_core(1, terms=[1, 1, 1], recovering=True)
    core.step(Heartbeat(2, 2, 1, 3, 0))
    assert core.commit == 0
    core.step(append(core, (1, 1), [2], term=2, commit=1))
    core.step(Heartbeat(2, 2, 1, 5, 0))
    assert core.commit == 2


def test_a_commit_index_past_a_lost_tail_is_no_fault_while_recovering() -> None:
    core = make_core(1, terms=[1, 1], commit=5, recovering=True)
    assert (core.commit, core.last_index) == (2, 2)


def test_a_wiped_follower_under_the_same_leader_catches_up() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    for _ in range(5):
        leader.propose(b"a")
    cluster.settle()
    cluster.nodes[2].wipe()
    assert leader.progress[2].match == 6

    cluster.tick(20)

    assert (leader.role, leader.term) == (Role.LEADER, 1)
    assert cluster.nodes[2].applied == cluster.nodes[1].applied
    assert (cluster[2].recovering, leader.progress[2].counted) == (False, leader.last_index)
    cluster.nodes[3].up = False
    leader.propose(b"b")
    cluster.settle()
    assert leader.commit == leader.last_index


def test_a_wiped_follower_is_served_by_snapshot() -> None:
    cluster = Cluster(chunk_bytes=10)
    leader = cluster.elect(1)
    for _ in range(5):
        leader.propose(b"a")
    cluster.settle()
    cluster.nodes[1].take_snapshot()
    cluster.nodes[2].wipe()
    leader.link_lost(2)
    leader.link_up(2)

    cluster.tick(20)

    assert cluster.nodes[2].applied == cluster.nodes[1].applied
    assert (cluster[2].recovering, cluster[2].snapshot.index) == (False, 6)


def test_a_leader_and_a_wiped_member_do_not_go_on_alone() -> None:
    """While 3 is away nobody can say whether it and 2, before its loss, have elected another leader."""
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.nodes[3].up = False
    cluster.nodes[2].wipe()
    cluster.tick(20)
    leader.propose(b"a")
    cluster.tick(20)
    assert (leader.commit, cluster[2].recovering) == (1, True)

    cluster.nodes[3].restart()
    cluster.tick(20)

    assert (leader.commit, cluster[2].recovering) == (leader.last_index, False)


def test_a_stale_leader_cannot_commit_with_a_member_that_forgot_its_successor() -> None:
    """1 is cut off while 2 and 3 go on in term 2; then 2 loses its disk, and 1 reaches it before 3 does."""
    cluster = Cluster()
    old = cluster.elect(1)
    cluster.isolate(1)
    tick_until(cluster[3], Role.PRE_CANDIDATE)
    tick(cluster[2], 30)
    cluster.settle()
    assert cluster[3].role is Role.LEADER
    cluster[3].propose(b"new")
    cluster.settle()
    assert (old.role, cluster[3].commit) == (Role.LEADER, 3)
    cluster.nodes[2].wipe()
    cluster.isolate(3)

    old.propose(b"old")
    cluster.tick(25, only=[1])
    assert (cluster[2].term, cluster[2].last_index, old.commit) == (1, old.last_index, 1)
    assert cluster[2].recovering
    cluster.heal()
    cluster.tick(200)

    assert {tuple(node.applied[:3]) for node in cluster.nodes.values()} == {((1, 1, b""), (2, 2, b""), (3, 2, b"new"))}


def test_a_wiped_member_that_has_caught_up_in_part_may_not_vote_yet() -> None:
    """It holds entries of the leader's term that are committed, but not all that it once acknowledged."""
    cluster = Cluster(max_append_bytes=1)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for _ in range(8):
        leader.propose(b"acknowledged")
    cluster.settle()
    assert leader.commit == 9
    cluster.nodes[2].wipe()
    cluster.drop = lambda message: (
        3 in (message.sender, message.to)
        or (isinstance(message, AppendEntries) and message.entries != [] and message.prev_log_index >= 4)
    )
    cluster.tick(10)
    assert (cluster[2].last_index, cluster[2].commit, cluster[2].term_at(4)) == (4, 4, 1)
    assert cluster[2].recovering
    cluster.nodes[1].up = False
    cluster.heal()

    cluster.tick(300)

    assert Role.LEADER not in {cluster[2].role, cluster[3].role}


def test_a_heartbeat_reply_reveals_a_lost_log() -> None:
    core = replicating_leader()
    core.step(HeartbeatReply(1, 2, 1, 0))
    assert [message.to for message in of(AppendEntries, flush(core))] == [2]
    core.step(HeartbeatReply(1, 3, 1, 1))
    assert of(AppendEntries, flush(core)) == []


def test_a_member_that_loses_its_disk_again_draws_another_number() -> None:
    """What its leader said about the first recovery is not taken for the second, although the term is the same."""
    node = Node(2, random.Random(1), (1, 2, 3))
    numbers: set[int] = set()
    for _ in range(10):
        node.wipe()
        node.core.step(append(node.core, (1, 1), [], term=1, leader=1))
        (reply,) = of(AppendEntriesReply, flush(node.core))
        for earlier in numbers:
            node.core.step(Heartbeat(1, 1, 2, 0, earlier))
        assert node.core.recovering
        numbers.add(reply.recovery)
    assert len(numbers) == 10


def test_an_acknowledgement_of_an_earlier_recovery_does_not_end_the_present_one() -> None:
    core = replicating_leader()
    core.step(rejected(core, 2, 1, 0, 0, recovery=NUMBER))
    core.step(accepted(core, 3, 2))
    core.step(rejected(core, 2, 2, 0, 0, recovery=NUMBER + 1))
    core.step(accepted(core, 3, 3))
    flush(core)
    core.step(accepted(core, 2, 3, recovery=NUMBER))
    assert told(core) == [0]


def test_a_recovering_follower_that_was_told_everything_still_votes_once_per_term() -> None:
    core = make_core(1, term=1, recovering=True)
    core.step(append(core, (0, 0), [1], term=1))
    (reply,) = of(AppendEntriesReply, flush(core))
    core.step(Heartbeat(1, 2, 1, 0, reply.recovery))
    core.link_lost(2)
    flush(core)
    core.step(append(core, (1, 1), [], term=1))
    core.link_lost(2)
    core.step(RequestVote(1, 3, 1, 5, 1, False))
    assert [answer.granted for answer in of(RequestVoteReply, flush(core))] == [False]


def test_a_candidate_that_recovers_asks_everybody() -> None:
    core = make_core(1, recovering=True)
    assert len(of(RequestVote, make_candidate(core))) == 2
    core.step(RequestVoteReply(1, 2, 1, True, NUMBER))
    assert core.role is Role.CANDIDATE
    core.step(RequestVoteReply(1, 3, 1, False, 0))
    assert core.role.value == "follower"
    assert core.log.slice(1, 1) == entries_of([])


def test_a_recovering_leader_does_not_count_itself() -> None:
    core = make_core(1, terms=[1], recovering=True)
    make_candidate(core)
    for peer in (2, 3):
        core.step(RequestVoteReply(core.term, peer, 1, True, 0))
    assert (core.role, core.progress[1].counted) == (Role.LEADER, 0)
    flush(core)
    core.step(accepted(core, 2, core.last_index))
    flush(core)
    assert (core.commit, core.recovering, core.progress[1].counted) == (0, True, 0)
    core.step(accepted(core, 3, core.last_index))
    flush(core)
    assert (core.commit, core.recovering) == (core.last_index, False)


def test_a_recovering_leader_knows_what_its_own_log_holds() -> None:
    """From the beginning of its term, and before its own first entry is durable."""
    core = make_core(1, terms=[1], recovering=True)
    make_candidate(core)
    for peer in (2, 3):
        core.step(RequestVoteReply(core.term, peer, 1, True, 0))
    assert (core.progress[1].match, core.last_index) == (1, 2)


def test_a_voter_that_recovers_does_so_with_the_new_leaders_first_entry() -> None:
    core = make_core(1, terms=[1], heartbeat_ticks=5)
    make_candidate(core)
    core.step(RequestVoteReply(2, 2, 1, True, NUMBER))
    core.step(RequestVoteReply(2, 3, 1, True, 0))
    flush(core)
    tick(core, 5)
    assert [beat.recovered for beat in of(Heartbeat, flush(core)) if beat.to == 2] == [0]
    core.step(accepted(core, 2, 2, recovery=NUMBER))
    core.step(accepted(core, 3, 2))
    flush(core)
    tick(core, 5)
    assert [beat.recovered for beat in of(Heartbeat, flush(core)) if beat.to == 2] == [NUMBER]


def test_a_recovering_follower_has_verified_nothing_of_a_new_leaders_log() -> None:
    core = make_core(1, terms=[1, 1], recovering=True)
    core.step(Heartbeat(2, 2, 1, 2, 0))
    assert of(HeartbeatReply, flush(core)) == [HeartbeatReply(2, 1, 2, 0)]
    assert core.commit == 0


def test_the_end_of_a_recovery_is_told_as_soon_as_it_is_known() -> None:
    core = make_core(1, terms=[1])
    make_candidate(core)
    core.step(RequestVoteReply(2, 2, 1, True, NUMBER))
    core.step(RequestVoteReply(2, 3, 1, True, 0))
    core.step(accepted(core, 3, 2))
    flush(core)
    assert core.commit == 2
    core.step(accepted(core, 2, 2, recovery=NUMBER))
    assert [beat.recovered for beat in of(Heartbeat, flush(core)) if beat.to == 2] == [NUMBER]


def test_the_barrier_goes_to_everybody_at_once_and_once() -> None:
    core = replicating_leader()
    core.step(accepted(core, 2, 1, recovery=NUMBER))
    sent = of(AppendEntries, flush(core))
    assert sorted((message.to, len(message.entries)) for message in sent) == [(2, 1), (3, 1)]


@pytest.mark.parametrize("index", [1, 2])
def test_a_refusal_while_recovering_voids_the_match(index: int) -> None:
    core = replicating_leader()
    core.propose(b"a")
    core.step(accepted(core, 2, 2, recovery=NUMBER))
    flush(core)
    assert core.progress[2].match == 2
    core.step(rejected(core, 2, index, 0, 0, recovery=NUMBER))
    assert core.progress[2].match == 0
    assert [message.prev_log_index for message in of(AppendEntries, flush(core)) if message.to == 2] == [0]
