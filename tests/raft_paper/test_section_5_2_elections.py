"""Raft paper, section 5.2: leader election (with the pre-vote phase of the dissertation's section 9.6 before it)."""

from __future__ import annotations

import random

import pytest

from pidkeeper.controller.raft.core import RaftConfig, RaftCore, Role
from pidkeeper.controller.raft.messages import HardState, Heartbeat, PreVote, RequestVote, RequestVoteReply
from tests.support.raft_network import (
    NO_SNAPSHOT,
    Cluster,
    append,
    flush,
    make_candidate,
    make_core,
    make_leader,
    of,
    tick,
    tick_until,
)


def test_leader_broadcasts_heartbeats() -> None:
    """Leaders send periodic heartbeats to all followers."""
    core = make_core(1, heartbeat_ticks=5)
    make_leader(core)

    tick(core, 4)
    early = flush(core)
    tick(core, 1)

    assert of(Heartbeat, early) == []
    assert [message.to for message in of(Heartbeat, flush(core))] == [2, 3]


def test_follower_starts_election() -> None:
    """A follower that hears nothing over an election timeout asks, then stands in a new term."""
    core = make_core(1, term=1, election_ticks=10)

    tick(core, 10)
    early = flush(core)
    tick(core, 10)
    asked = flush(core)
    requests = of(RequestVote, make_candidate(core))

    assert early == []
    assert [(message.term, message.to) for message in of(PreVote, asked)] == [(2, 2), (2, 3)]
    assert [(message.term, message.to) for message in requests] == [(2, 2), (2, 3)]
    assert (core.term, core.vote, core.role) == (2, 1, Role.CANDIDATE)


def test_candidate_starts_new_election() -> None:
    """A candidate that neither wins nor loses times out and begins a new election in the next term."""
    core = make_core(1, term=1)
    make_candidate(core)

    tick_until(core, Role.PRE_CANDIDATE)
    requests = of(RequestVote, make_candidate(core))

    assert [message.term for message in requests] == [3, 3]
    assert core.term == 3


@pytest.mark.parametrize(
    ("size", "granted", "denied", "role"),
    [
        (1, 0, 0, Role.LEADER),
        (3, 1, 0, Role.LEADER),
        (3, 2, 0, Role.LEADER),
        (5, 2, 0, Role.LEADER),
        (5, 2, 2, Role.LEADER),
        (3, 0, 2, Role.FOLLOWER),
        (5, 1, 3, Role.FOLLOWER),
        (3, 0, 0, Role.CANDIDATE),
        (3, 0, 1, Role.CANDIDATE),
        (5, 1, 1, Role.CANDIDATE),
    ],
)
def test_leader_election_in_one_round_rpc(size: int, granted: int, denied: int, role: Role) -> None:
    """A candidate wins with the votes of a majority, loses when that is out of reach, and waits in between."""
    core = make_core(1, voters=tuple(range(1, size + 1)))
    make_candidate(core)

    for peer in range(2, 2 + granted + denied):
        core.step(RequestVoteReply(1, peer, 1, peer < 2 + granted, 0))

    assert (core.role, core.term) == (role, 1)


def test_a_vote_counts_once() -> None:
    """Each server votes for at most one candidate: a repeated reply is no second vote."""
    core = make_core(1, voters=(1, 2, 3, 4, 5))
    make_candidate(core)

    for _ in range(5):
        core.step(RequestVoteReply(1, 2, 1, True, 0))

    assert core.role is Role.CANDIDATE


@pytest.mark.parametrize(
    ("vote", "candidate", "granted"), [(None, 2, True), (None, 3, True), (2, 2, True), (3, 3, True), (2, 3, False)]
)
def test_follower_vote(vote: int | None, candidate: int, granted: bool) -> None:
    """Each server votes for at most one candidate in a term, first come, first served."""
    core = make_core(1, term=1, vote=vote)

    core.step(RequestVote(1, candidate, 1, 0, 0, False))

    assert [reply.granted for reply in of(RequestVoteReply, flush(core))] == [granted]
    assert core.vote == (candidate if granted else vote)


def test_vote_survives_a_restart() -> None:
    """The vote is on disk before the reply leaves, so a restart does not free it."""
    core = make_core(1, term=1)
    core.step(RequestVote(5, 2, 1, 0, 0, False))
    ready = core.ready()
    assert ready is not None
    assert (ready.messages, ready.hard_state) == ([], HardState(5, 2, 0, False))

    again = RaftCore(
        core.config,
        random.Random(1),
        hard_state=HardState(5, 2),
        snapshot=NO_SNAPSHOT,
        entries=[],
        leader_change_data=b"",
    )
    again.step(RequestVote(5, 3, 1, 0, 0, False))

    assert not of(RequestVoteReply, flush(again))[0].granted


@pytest.mark.parametrize("term", [1, 2])
def test_candidate_fallback(term: int) -> None:
    """A candidate that hears a leader of its term or a later one recognises it and returns to follower."""
    core = make_core(1)
    make_candidate(core)

    core.step(append(core, (0, 0), [], term=term))

    assert (core.role, core.leader_id, core.term) == (Role.FOLLOWER, 2, term)


def random_core(node_id: int, seed: int) -> RaftCore:
    config = RaftConfig(node_id=node_id, voters=(1, 2, 3), election_ticks=10)
    return RaftCore(
        config,
        random.Random(seed),
        hard_state=HardState(),
        snapshot=NO_SNAPSHOT,
        entries=[],
        leader_change_data=b"",
    )


def ticks_to_election(core: RaftCore) -> int:
    for count in range(1, 50):
        core.tick()
        if of(PreVote, flush(core)):
            return count
    raise AssertionError("no election")


@pytest.mark.parametrize("standing", [False, True])
def test_election_timeout_randomized(standing: bool) -> None:
    """Election timeouts are drawn at random from a fixed interval, anew for every election."""
    seen = set()
    core = random_core(1, 1)
    for _ in range(300):
        if not standing:
            core.step(append(core, (0, 0), [], term=core.term + 1))
            flush(core)
        seen.add(ticks_to_election(core))
    assert seen == set(range(10, 20))


def test_election_timeouts_nonconflict() -> None:
    """In most cases a single server times out first."""
    conflicts = 0
    for seed in range(500):
        waits = sorted(ticks_to_election(random_core(node_id, 10 * seed + node_id)) for node_id in (1, 2, 3))
        conflicts += waits[0] == waits[1]
    assert conflicts < 500 * 0.3


def test_election_safety_over_a_split_vote() -> None:
    """At most one leader per term: two candidates of one term split the votes, the next term has one leader."""
    cluster = Cluster()
    cluster.elect(3)
    term = cluster[3].term
    cluster.nodes[3].up = False
    for node_id in (1, 2):
        tick_until(cluster[node_id], Role.PRE_CANDIDATE)
    cluster.settle()
    assert [cluster[node_id].role for node_id in (1, 2)] == [Role.CANDIDATE, Role.CANDIDATE]
    assert [cluster[node_id].term for node_id in (1, 2)] == [term + 1, term + 1]

    cluster.tick(2 * 30)

    assert sorted(cluster[node_id].role.value for node_id in (1, 2)) == ["follower", "leader"]
    assert cluster[1].term == cluster[2].term > term + 1
