"""Why a member stood and what came of it, and why it lost its leaders: nothing is decided by it, operators are told."""

from __future__ import annotations

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.election_tally import ElectionCause, ElectionOutcome, LossCause
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.protocol.records import VotersRecord
from tests.support.raft_network import (
    Cluster,
    accepted,
    flush,
    make_candidate,
    make_core,
    make_leader,
    members,
    replicating_leader,
    tick,
    tick_until,
)

TIMEOUT = 10


def elections(core: RaftCore) -> dict[tuple[str, str], int]:
    return {(cause.value, outcome.value): count for (cause, outcome), count in core.tally.elections.items()}


def losses(core: RaftCore) -> dict[str, int]:
    return {cause.value: count for cause, count in core.tally.losses.items()}


def follower(node_id: int = 1) -> RaftCore:
    """A member that follows leader 2 in term 1."""
    core = make_core(node_id, election_ticks=TIMEOUT)
    core.step(Heartbeat(1, 2, node_id, 0, 0))
    flush(core)
    assert core.leader_id == 2
    return core


# Elections.


def test_the_first_election_of_a_process_has_the_start_as_its_cause() -> None:
    core = make_core(1)
    make_leader(core)
    assert elections(core) == {("started", "won"): 1}
    assert losses(core) == {}
    assert core.tally.last_election == (ElectionCause.STARTED, ElectionOutcome.WON)
    assert not core.tally.under_way
    assert core.tally.won_by == (1, 2)


def test_a_leader_that_falls_silent_is_the_cause() -> None:
    core = follower()
    make_leader(core)
    assert elections(core) == {("leader_silent", "won"): 1}
    assert losses(core) == {"silent": 1}
    assert core.tally.last_loss is LossCause.SILENT


def test_a_leader_whose_connection_breaks_is_the_cause_though_a_turn_is_waited_for() -> None:
    core = follower(3)
    core.link_lost(2)
    assert (core.role, losses(core)) == (Role.FOLLOWER, {"disconnected": 1})
    make_leader(core)
    assert elections(core) == {("leader_disconnected", "won"): 1}
    assert losses(core) == {"disconnected": 1}


def test_the_leaders_order_to_stand_is_the_cause() -> None:
    core = follower()
    core.step(TimeoutNow(1, 2, 1))
    flush(core)
    core.step(RequestVoteReply(core.term, 3, 1, True, 0))
    assert elections(core) == {("transfer", "won"): 1}
    assert losses(core) == {"transfer": 1}


def test_an_election_behind_one_that_failed_has_no_leader_as_its_cause() -> None:
    core = follower()
    make_candidate(core)
    for peer in (2, 3):
        core.step(RequestVoteReply(core.term, peer, 1, False, 0))
    assert elections(core) == {("leader_silent", "lost"): 1}
    make_leader(core)
    assert elections(core) == {("leader_silent", "lost"): 1, ("no_leader", "won"): 1}
    assert losses(core) == {"silent": 1}


def test_a_round_of_pre_votes_that_is_refused_is_told_from_a_lost_election() -> None:
    core = follower()
    tick_until(core, Role.PRE_CANDIDATE)
    flush(core)
    for peer in (2, 3):
        core.step(PreVoteReply(core.term, peer, 1, False, False))
    assert core.role is Role.FOLLOWER
    assert elections(core) == {("leader_silent", "pre_vote_failed"): 1}


def test_a_round_of_pre_votes_that_nobody_answers_fails_when_the_next_begins() -> None:
    core = make_core(1, election_ticks=TIMEOUT)
    tick(core, 10 * TIMEOUT)
    assert core.role is Role.PRE_CANDIDATE
    assert core.tally.under_way
    assert set(elections(core)) == {("started", "pre_vote_failed"), ("no_leader", "pre_vote_failed")}
    assert sum(elections(core).values()) == core.tally.begun - 1


def test_an_election_that_too_few_answer_times_out() -> None:
    core = follower()
    make_candidate(core)
    tick_until(core, Role.PRE_CANDIDATE)
    assert elections(core) == {("leader_silent", "timed_out"): 1}


def test_an_election_is_superseded_by_another_leader() -> None:
    for message in (AppendEntries(2, 3, 1, 0, 0, 0, []), RequestVote(3, 3, 1, 9, 2, False)):
        core = follower()
        make_candidate(core)
        assert core.term == 2
        core.step(message)
        assert elections(core) == {("leader_silent", "superseded"): 1}
        assert losses(core) == {"silent": 1}


def test_who_may_not_stand_begins_no_election() -> None:
    core = make_core(4, voters=(1, 2, 3), learner=True, election_ticks=TIMEOUT)
    tick(core, 5 * TIMEOUT)
    assert (core.tally.begun, elections(core)) == (0, {})


# Losses.


def test_a_leader_that_hears_no_majority_says_so() -> None:
    core = replicating_leader(election_ticks=TIMEOUT)
    tick(core, TIMEOUT + 1)
    assert core.role is Role.FOLLOWER
    assert losses(core) == {"no_quorum": 1}


def test_a_leader_is_deposed_by_a_higher_term() -> None:
    core = replicating_leader()
    core.step(HeartbeatReply(5, 2, 1, 0))
    assert losses(core) == {"higher_term": 1}


def test_a_leader_that_hands_over_says_so_and_so_does_its_successor() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster[1].transfer_leadership(2)
    cluster.settle()
    assert losses(cluster[1]) == {"transfer": 1}
    assert losses(cluster[2]) == {"transfer": 1}
    assert losses(cluster[3]) == {"superseded": 1}
    assert elections(cluster[2]) == {("transfer", "won"): 1}


def test_a_transfer_that_was_given_up_is_no_cause() -> None:
    core = replicating_leader(election_ticks=TIMEOUT)
    core.transfer_leadership(2)
    for _ in range(TIMEOUT):
        core.tick()
        for peer in (2, 3):
            core.step(HeartbeatReply(core.term, peer, 1, core.last_index))
    assert core.transferring is None
    core.step(HeartbeatReply(5, 2, 1, 0))
    assert losses(core) == {"higher_term": 1}


def test_a_leader_whose_disk_stalls_says_so() -> None:
    core = replicating_leader(election_ticks=TIMEOUT)
    _, index = core.propose(b"x")
    core.ready()
    for peer in (2, 3):
        core.step(accepted(core, peer, index))
    for _ in range(TIMEOUT + 2):
        core.tick()
        for peer in (2, 3):
            core.step(HeartbeatReply(core.term, peer, 1, index))
    assert core.transferring == 2
    core.step(RequestVote(core.term + 1, 2, 1, index, core.term, True))
    assert losses(core) == {"stalled_disk": 1}


def test_a_leader_that_is_removed_says_so() -> None:
    core = replicating_leader()
    removal: VotersRecord = members(2, 3)
    core.change_members(removal)
    flush(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    assert core.role is Role.FOLLOWER
    assert losses(core) == {"removed": 1}


def test_a_follower_that_learns_of_a_newer_term_says_so() -> None:
    core = follower()
    core.step(Heartbeat(2, 3, 1, 0, 0))
    assert core.leader_id == 3
    assert losses(core) == {"superseded": 1}
