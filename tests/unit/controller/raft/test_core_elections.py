"""Pre-vote, check-quorum, leases, broken links."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.controller.raft.core import InvariantViolation, RaftConfig, RaftCore, Role
from pidkeeper.controller.raft.messages import (
    MAX_CHUNK_BYTES,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.protocol.log_position import MAX_NUMBER
from tests.support.raft_network import (
    Cluster,
    append,
    flush,
    make_candidate,
    make_core,
    make_leader,
    of,
    replicating_leader,
    tick,
    tick_until,
)


def test_single_voter_elects_itself_when_its_vote_is_durable() -> None:
    core = make_core(1, voters=(1,))
    tick_until(core, Role.CANDIDATE)
    ready = core.ready()
    assert ready is not None
    assert (core.role, ready.token) == (Role.CANDIDATE, 1)

    core.written(1)
    assert core.role.value == "leader"
    flush(core)
    core.propose(b"a")
    assert core.serving
    flush(core)

    assert (core.commit, core.applied) == (2, 2)


def test_strays_are_ignored() -> None:
    core = make_core(1)
    for stray in (
        Heartbeat(5, 2, 3, 0, 0),
        RequestVote(5, 1, 1, 0, 0, False),
    ):
        core.step(stray)
    assert (core.term, core.role, flush(core)) == (0, Role.FOLLOWER, [])


def test_a_pre_vote_changes_nobodys_term_or_vote() -> None:
    core = make_core(1, term=3)
    for peer in (2, 3, 2):
        core.step(PreVote(9, peer, 1, 0, 0))
    assert [(reply.term, reply.granted) for reply in of(PreVoteReply, flush(core))] == [(9, True)] * 3
    assert (core.term, core.vote, core.role) == (3, None, Role.FOLLOWER)


def test_a_pre_vote_of_a_passed_term_is_refused_with_ours() -> None:
    core = make_core(1, term=3)
    core.step(PreVote(3, 2, 1, 9, 9))
    core.step(PreVote(1, 3, 1, 9, 9))
    assert [(reply.term, reply.granted) for reply in of(PreVoteReply, flush(core))] == [(3, False)] * 2


def test_a_refusal_with_a_higher_term_makes_the_asker_step_down_to_it() -> None:
    core = make_core(1, term=3)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(PreVoteReply(7, 2, 1, False, False))
    assert (core.term, core.role) == (7, Role.FOLLOWER)


def test_votes_are_refused_while_a_leader_is_heard() -> None:
    core = make_core(1, term=3, election_ticks=10)
    core.step(Heartbeat(3, 2, 1, 0, 0))
    flush(core)
    tick(core, 9)
    core.step(PreVote(4, 3, 1, 0, 0))
    core.step(RequestVote(4, 3, 1, 0, 0, False))
    assert [(reply.term, reply.granted) for reply in of(PreVoteReply, flush(core))] == [(3, False)]
    assert (core.term, core.leader_id) == (3, 2)

    tick(core, 1)
    core.step(PreVote(4, 3, 1, 0, 0))
    core.step(RequestVote(4, 3, 1, 0, 0, False))

    replies = flush(core)
    assert [reply.granted for reply in of(PreVoteReply, replies)] == [True]
    assert [reply.granted for reply in of(RequestVoteReply, replies)] == [True]


def test_a_leader_refuses_votes_too() -> None:
    core = replicating_leader()
    core.step(PreVote(2, 3, 1, 9, 9))
    core.step(RequestVote(2, 3, 1, 9, 9, False))
    assert [reply.granted for reply in of(PreVoteReply, flush(core))] == [False]
    assert (core.term, core.role) == (1, Role.LEADER)


def test_an_election_by_transfer_is_granted_in_spite_of_a_live_leader() -> None:
    core = make_core(1, term=3)
    core.step(Heartbeat(3, 2, 1, 0, 0))
    core.step(RequestVote(4, 3, 1, 0, 0, True))
    assert [reply.granted for reply in of(RequestVoteReply, flush(core))] == [True]


def test_disruptive_follower_does_not_depose_the_leader() -> None:
    """A member that was cut off comes back: it has asked in vain, its term is the old one, and it follows again."""
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    cluster.tick(300)
    assert (cluster[3].term, cluster[3].role) == (1, Role.PRE_CANDIDATE)

    cluster.heal()
    cluster.tick(100)

    assert (leader.role, leader.term, cluster[3].leader_id) == (Role.LEADER, 1, 1)


def test_a_stale_log_cannot_win_a_pre_vote() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(3)
    cluster[1].propose(b"a")
    cluster.settle()
    cluster.heal()
    cluster.nodes[1].up = False

    cluster.tick(100, only=[3])
    assert cluster[3].role is not Role.LEADER
    cluster.tick(100)

    assert cluster[2].role is Role.LEADER
    assert [data for _, _, data in cluster.nodes[3].applied] == [b"", b"a", b""]


def test_node_with_smaller_term_can_complete_an_election() -> None:
    """A member with a lower term but the better log learns the term from the refusal, and wins the next time."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(3)
    cluster[1].propose(b"a")
    cluster.settle()
    cluster.nodes[1].up = False
    three = cluster.nodes[3]
    three.disk.hard_state = type(three.disk.hard_state)(term=5)
    three.restart()
    cluster.heal()

    cluster.tick(200)

    assert cluster[2].role is Role.LEADER
    assert cluster[2].term > 5


def test_pre_vote_with_split_vote_recovers() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].up = False
    for node_id in (2, 3):
        tick_until(cluster[node_id], Role.PRE_CANDIDATE)
    cluster.settle()
    assert {cluster[2].role, cluster[3].role} == {Role.CANDIDATE}
    cluster.tick(100)
    assert {cluster[2].role, cluster[3].role} == {Role.LEADER, Role.FOLLOWER}


def test_free_a_stuck_candidate() -> None:
    """A candidate with a higher term refuses the leader's messages; its answer makes the leader catch up in term."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(3)
    make_candidate(cluster[3])
    assert cluster[3].term == 2

    cluster.heal()
    cluster.tick(200)

    roles = sorted(cluster[node_id].role.value for node_id in (1, 2, 3))
    assert roles == ["follower", "follower", "leader"]
    assert cluster[1].term == cluster[2].term == cluster[3].term > 2


def test_a_leader_without_a_majority_steps_down() -> None:
    core = replicating_leader(election_ticks=10)
    tick(core, 9)
    core.step(HeartbeatReply(1, 2, 1, 1))
    tick(core, 10)
    assert core.role is Role.LEADER
    tick(core, 1)
    assert (core.role, core.leader_id, core.term) == (Role.FOLLOWER, None, 1)


@pytest.mark.parametrize("kind", ["heartbeat", "append", "rejection"])
def test_any_reply_counts_as_a_sign_of_life(kind: str) -> None:
    core = replicating_leader(election_ticks=10)
    for _ in range(5):
        tick(core, 8)
        if kind == "heartbeat":
            core.step(HeartbeatReply(1, 3, 1, 1))
        else:
            core.step(AppendEntriesReply(1, 3, 1, kind == "rejection", 1, 1, 0, 0, 0))
    assert core.role is Role.LEADER
    assert (core.silent_ticks(2), core.silent_ticks(3)) == (40, 0)


def test_two_leaders_in_one_term_stop_the_member() -> None:
    core = make_core(1, term=1)
    core.step(Heartbeat(1, 2, 1, 0, 0))
    with pytest.raises(InvariantViolation, match=r"^R14:"):
        core.step(Heartbeat(1, 3, 1, 0, 0))
    leader = replicating_leader()
    with pytest.raises(InvariantViolation, match=r"^R14:"):
        leader.step(append(leader, (0, 0), [], term=1))


def test_the_last_term_stops_the_member_before_it_is_kept() -> None:
    core = make_core(1, term=MAX_NUMBER - 2)
    with pytest.raises(InvariantViolation, match=r"^R1: after term \d+ comes 9223372036854775807, and none is left"):
        core.step(Heartbeat(MAX_NUMBER, 2, 1, 0, 0))
    assert (core.term, core.ready()) == (MAX_NUMBER - 2, None)
    core.step(Heartbeat(MAX_NUMBER - 1, 2, 1, 0, 0))
    flush(core)
    tick_until(core, Role.PRE_CANDIDATE)
    assert {message.term for message in of(PreVote, flush(core))} == {MAX_NUMBER}


def test_old_pre_votes_do_not_count_for_a_candidate() -> None:
    core = make_core(1, voters=(1, 2, 3, 4, 5))
    make_candidate(core)
    for peer in (4, 5):
        core.step(PreVoteReply(1, peer, 1, True, False))
        core.step(PreVoteReply(2, peer, 1, True, False))
    assert core.role is Role.CANDIDATE


def test_votes_of_an_earlier_term_do_not_count() -> None:
    """A late grant, as well as a late refusal, of the term before."""
    core = make_core(1, voters=(1, 2, 3))
    make_candidate(core)
    tick_until(core, Role.PRE_CANDIDATE)
    make_candidate(core)
    core.step(RequestVoteReply(1, 2, 1, True, 0))
    for peer in (2, 3):
        core.step(RequestVoteReply(1, peer, 1, False, 0))
    assert (core.term, core.role) == (2, Role.CANDIDATE)


def test_a_late_vote_does_not_count_as_a_pre_vote() -> None:
    """It was given in the election of our term, which has failed; whether we would win the next is another question."""
    core = make_core(1)
    make_candidate(core)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(RequestVoteReply(1, 2, 1, True, 0))
    assert (core.term, core.role) == (1, Role.PRE_CANDIDATE)


def test_a_lost_link_to_the_leader_starts_a_pre_vote_at_once() -> None:
    core = make_core(1, term=1)
    core.step(Heartbeat(1, 2, 1, 0, 0))
    flush(core)

    core.link_lost(3)
    assert core.role is Role.FOLLOWER
    core.link_lost(2)

    assert core.leader_id is None
    assert [message.to for message in of(PreVote, flush(core))] == [2, 3]


@pytest.mark.parametrize(("node_id", "jitter", "wait"), [(1, 0, 0), (1, 1, 1), (3, 0, 4), (3, 1, 5)])
def test_followers_try_in_turn_after_a_lost_link(node_id: int, jitter: int, wait: int) -> None:
    core = make_core(node_id, term=1, link_lost_ticks=4)
    core.step(Heartbeat(1, 2, node_id, 0, 0))
    core._timer._rng = type("Fixed", (), {"randrange": lambda _, start, stop: start + jitter})()
    tick(core, 3)

    core.link_lost(2)
    assert core.leader_id is None
    if wait:
        tick(core, wait - 1)
        assert core.role is Role.FOLLOWER
        tick(core, 1)

    assert core.role is Role.PRE_CANDIDATE


def test_survivors_elect_as_soon_as_both_lost_the_leader() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.nodes[1].up = False

    cluster[2].link_lost(1)
    cluster.settle()
    assert (cluster[2].role, cluster[2].term) == (Role.PRE_CANDIDATE, 1), "3 still hears the leader, so it refuses"
    cluster[3].link_lost(1)
    cluster.tick(4)

    assert (cluster[3].role, cluster[3].term, cluster[2].leader_id) == (Role.LEADER, 2, 3)


def test_a_follower_finds_its_leader_again_after_a_lost_link() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster[2].link_lost(1)
    cluster.settle()
    cluster.tick(10)
    assert (cluster[2].leader_id, cluster[2].role, cluster[1].role, cluster[1].term) == (
        1,
        Role.FOLLOWER,
        Role.LEADER,
        1,
    )


def test_a_forgotten_leader_is_no_reason_to_refuse_a_vote_but_a_stale_log_is() -> None:
    core = make_core(1, terms=[1, 1])
    core.step(Heartbeat(1, 2, 1, 0, 0))
    core.link_lost(2)
    flush(core)
    core.step(PreVote(2, 3, 1, 1, 1))
    core.step(PreVote(2, 3, 1, 2, 1))
    assert [reply.granted for reply in of(PreVoteReply, flush(core))] == [False, True]


def test_timeout_now_of_a_passed_term_is_ignored() -> None:
    core = make_core(1, term=3)
    core.step(TimeoutNow(2, 2, 1))
    assert (core.role, core.term, flush(core)) == (Role.FOLLOWER, 3, [])


def test_a_new_leader_starts_with_an_entry_of_its_term() -> None:
    core = make_core(1, terms=[1, 1], term=4)
    make_leader(core)
    assert (core.last_index, core.term_at(3), core.serving) == (3, 5, False)


def role_after(core: RaftCore, ticks: int) -> Role:
    tick(core, ticks)
    return core.role


def test_the_jitter_of_a_lost_link_is_a_tick_at_most() -> None:
    core = make_core(3, term=1, link_lost_ticks=4)
    core.step(Heartbeat(1, 2, 3, 0, 0))
    core._timer._rng = type("Highest", (), {"randrange": lambda _, start, stop: stop - 1})()
    core.link_lost(2)
    assert [role_after(core, 4), role_after(core, 1)] == [Role.FOLLOWER, Role.PRE_CANDIDATE]


def test_a_vote_request_is_not_even_answered_while_a_leader_is_heard() -> None:
    core = make_core(1, term=1)
    core.step(Heartbeat(1, 2, 1, 0, 0))
    flush(core)
    core.step(RequestVote(5, 3, 1, 9, 4, False))
    assert (flush(core), core.term, core.leader_id) == ([], 1, 2)


def test_a_deposed_leader_learns_the_term_and_nothing_else() -> None:
    core = make_core(1, terms=[1, 3], term=4)
    for message in (append(core, (1, 1), [2], term=2), Heartbeat(2, 2, 1, 0, 0)):
        core.step(message)
        assert flush(core) == [AppendEntriesReply(4, 1, 2, True, 0, 0, 0, 0, 0)]


def test_a_candidate_waits_a_full_timeout_for_its_votes() -> None:
    core = make_core(1)
    tick_until(core, Role.PRE_CANDIDATE)
    tick(core, 20)
    for peer in (2, 3):
        core.step(PreVoteReply(1, peer, 1, True, False))
    requests = of(RequestVote, flush(core))
    assert [request.transfer for request in requests] == [False, False]
    whole = core.config.election_ticks
    assert [role_after(core, whole), role_after(core, 1)] == [Role.CANDIDATE, Role.PRE_CANDIDATE]


def test_a_new_leader_knows_itself() -> None:
    core = make_core(1, terms=[1, 1])
    make_candidate(core)
    core.step(RequestVoteReply(2, 2, 1, True, 0))
    assert (core.role, core.leader_id) == (Role.LEADER, 1)
    own = core.progress[1]
    assert (own.match, own.counted, own.next) == (2, 2, core.last_index + 1)


def test_refused_pre_votes_of_a_majority_end_the_attempt() -> None:
    core = make_core(1, term=3)
    tick_until(core, Role.PRE_CANDIDATE)
    for peer in (2, 3):
        core.step(PreVoteReply(3, peer, 1, False, False))
    assert (core.role, core.term) == (Role.FOLLOWER, 3)


def test_who_gives_a_vote_waits_a_full_timeout_for_the_winner() -> None:
    core = make_core(1, term=2)
    tick(core, core.config.election_ticks)
    core.step(RequestVote(2, 3, 1, 0, 0, False))
    assert [reply.granted for reply in of(RequestVoteReply, flush(core))] == [True]
    tick(core, core.config.election_ticks)
    assert core.role is Role.FOLLOWER


def test_a_leader_of_five_needs_two_signs_of_life() -> None:
    core = replicating_leader(voters=(1, 2, 3, 4, 5))
    for _ in range(core.config.election_ticks + 2):
        core.step(HeartbeatReply(1, 2, 1, 1))
        core.tick()
    assert core.role is Role.FOLLOWER


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heartbeat_ticks": 0}, "0 < heartbeat 0 < election 30 is required"),
        ({"heartbeat_ticks": 30}, "0 < heartbeat 30 < election 30 is required"),
        ({"heartbeat_ticks": 7, "election_ticks": 7}, "0 < heartbeat 7 < election 7 is required"),
        ({"link_lost_ticks": -1}, "ticks"),
        ({"chunk_bytes": 0}, "chunk_bytes 0 is not in 1"),
        ({"chunk_bytes": MAX_CHUNK_BYTES + 1}, "chunk_bytes 65537 is not in 1"),
        ({"max_inflight_messages": 0}, "must be at least 1"),
        ({"max_inflight_bytes": 0}, "must be at least 1"),
        ({"max_append_bytes": 0}, "must be at least 1"),
        ({"voters": (1, 1, 2)}, "every id once"),
        ({"voters": ()}, "one at least"),
    ],
)
def test_a_config_that_cannot_work_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RaftConfig(**{"node_id": 1, "voters": (1, 2, 3), **wrong})


def test_a_config_at_its_bounds_is_taken() -> None:
    config = RaftConfig(
        node_id=1,
        voters=(1,),
        heartbeat_ticks=1,
        election_ticks=2,
        link_lost_ticks=0,
        chunk_bytes=MAX_CHUNK_BYTES,
        max_inflight_messages=1,
        max_inflight_bytes=1,
        max_append_bytes=1,
    )
    assert config.heartbeat_ticks == 1
    assert RaftConfig(node_id=1, voters=(1,), chunk_bytes=1).chunk_bytes == 1


def test_who_steps_down_forgets_the_followers_and_waits_a_full_timeout() -> None:
    core = replicating_leader()
    core.step(PreVoteReply(3, 2, 1, False, False))
    assert (core.role, core.progress) == (Role.FOLLOWER, {})
    tick(core, core.config.election_ticks)
    core.step(PreVoteReply(4, 2, 1, False, False))
    tick(core, core.config.election_ticks)
    assert (core.role, core.term) == (Role.FOLLOWER, 4)
