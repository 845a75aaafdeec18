"""Handing over leadership (dissertation, section 3.10)."""

from __future__ import annotations

from functools import partial

import pytest

from pidkeeper.controller.raft.config import MISSED_HEARTBEATS
from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, RaftCore, Role
from pidkeeper.controller.raft.leadership import NEARLY_CAUGHT_UP
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    HeartbeatReply,
    Message,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from tests.support.raft_network import (
    Cluster,
    accepted,
    append,
    flush,
    make_core,
    make_leader,
    of,
    replicating_leader,
    tick,
)


def test_to_an_up_to_date_member_at_once() -> None:
    core = replicating_leader()
    core.transfer_leadership(3)
    assert of(TimeoutNow, flush(core)) == [TimeoutNow(1, 1, 3)]
    assert core.transferring == 3


def test_the_target_wins_without_a_timeout_and_without_a_pre_vote() -> None:
    cluster = Cluster()
    cluster.elect(1)

    cluster[1].transfer_leadership(2)
    cluster.settle()

    assert (cluster[2].role, cluster[2].term, cluster[1].role) == (Role.LEADER, 2, Role.FOLLOWER)
    assert {message.transfer for message in of(RequestVote, cluster.sent) if message.term == 2} == {True}
    assert cluster[1].transferring is None


def test_and_back() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster[1].transfer_leadership(2)
    cluster.settle()
    cluster[2].transfer_leadership(1)
    cluster.settle()
    assert (cluster[1].role, cluster[1].term) == (Role.LEADER, 3)


def test_to_a_slow_follower_waits_until_it_has_everything() -> None:
    core = replicating_leader()
    core.propose(b"a")
    core.step(accepted(core, 2, 2))
    flush(core)
    core.transfer_leadership(3)
    assert of(TimeoutNow, flush(core)) == []

    core.step(accepted(core, 3, 2))

    assert of(TimeoutNow, flush(core)) == [TimeoutNow(1, 1, 3)]


def test_to_a_follower_that_was_cut_off() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose(b"a")
    cluster.settle()
    cluster.heal()
    leader.transfer_leadership(3)
    cluster.tick(10)
    assert cluster[3].role is Role.LEADER


def test_after_a_snapshot() -> None:
    cluster = Cluster(chunk_bytes=10)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose(b"a")
    cluster.settle()
    cluster.nodes[1].take_snapshot()
    cluster.heal()
    leader.transfer_leadership(3)
    cluster.tick(10)
    assert (cluster[3].role, cluster.nodes[3].applied[1]) == (Role.LEADER, (2, 1, b"a"))


def chosen(core: RaftCore) -> int | None:
    """To whom a leader hands over if nobody is named."""
    core.transfer_leadership()
    return core.transferring


def test_of_those_that_keep_up_the_lowest_id_is_chosen() -> None:
    core = replicating_leader()
    for _ in range(NEARLY_CAUGHT_UP):
        core.propose(b"a")
    core.step(accepted(core, 3, core.last_index))
    assert chosen(core) == 2


def test_a_voter_that_falls_behind_is_passed_over() -> None:
    core = replicating_leader()
    for _ in range(NEARLY_CAUGHT_UP + 1):
        core.propose(b"a")
    core.step(accepted(core, 3, core.last_index))
    assert chosen(core) == 3


def test_a_voter_that_is_silent_is_passed_over() -> None:
    core = replicating_leader()
    tick(core, MISSED_HEARTBEATS * core.config.heartbeat_ticks + 1)
    core.step(HeartbeatReply(core.term, 3, 1, core.last_index))
    assert chosen(core) == 3


def test_if_nobody_keeps_up_the_most_caught_up_is_chosen() -> None:
    core = replicating_leader()
    for _ in range(2 * NEARLY_CAUGHT_UP + 2):
        core.propose(b"a")
    core.step(accepted(core, 2, 1 + NEARLY_CAUGHT_UP // 2))
    core.step(accepted(core, 3, 1 + NEARLY_CAUGHT_UP))
    assert chosen(core) == 3


def test_a_voter_that_has_not_answered_in_this_term_is_passed_over() -> None:
    core = make_core(1)
    make_leader(core)
    core.step(accepted(core, 3, core.last_index))
    assert chosen(core) == 3


def test_a_new_leader_that_nobody_answered_chooses_nevertheless() -> None:
    core = make_core(1)
    make_leader(core)
    assert chosen(core) == 2


def _is_acknowledged_but_by(member: int, message: Message) -> bool:
    return message.sender != member and isinstance(message, AppendEntriesReply)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("members", [3, 5])
def test_while_each_is_restarted_in_turn_leadership_moves_twice_at_most(members: int, descending: bool) -> None:
    ids = tuple(range(1, members + 1))
    for first in ids:
        cluster = Cluster(ids)
        begun = cluster.elect(first).term
        order = sorted(ids, reverse=descending)
        for restarted, following in zip(order, [*order[1:], order[0]], strict=True):
            leader = cluster[restarted]
            if leader.role is Role.LEADER:
                # Under load it is by chance who is ahead: here it is always whoever is restarted next.
                cluster.drop = partial(_is_acknowledged_but_by, following)
                leader.propose(b"a")
                cluster.settle()
                cluster.heal()
                leader.transfer_leadership()
                cluster.tick(2 * leader.config.heartbeat_ticks)
        assert max(cluster[one].term for one in ids) - begun <= 2


def test_proposals_are_refused_meanwhile() -> None:
    core = replicating_leader()
    core.transfer_leadership(3)
    with pytest.raises(ProposalRefused, match="transferred to 3"):
        core.propose(b"a")
    assert core.last_index == 1


def test_a_transfer_that_fails_ends_after_an_election_timeout() -> None:
    core = replicating_leader(election_ticks=10)
    core.transfer_leadership(3)
    flush(core)
    tick(core, 9)
    core.step(accepted(core, 2, 1))
    with pytest.raises(ProposalRefused):
        core.propose(b"a")
    tick(core, 1)
    assert core.transferring is None
    core.propose(b"a")
    assert len(of(AppendEntries, flush(core))) == 2


def test_a_second_target_replaces_the_first() -> None:
    core = replicating_leader()
    core.transfer_leadership(3)
    core.transfer_leadership(2)
    assert (core.transferring, of(TimeoutNow, flush(core))[-1].to) == (2, 2)


def test_bad_targets() -> None:
    core = replicating_leader()
    for target in (1, 9):
        with pytest.raises(ValueError, match=f"{target} is not one of the other voters"):
            core.transfer_leadership(target)
    core.step(accepted(core, 3, 1, recovery=77))
    with pytest.raises(ProposalRefused, match="has not caught up"):
        core.transfer_leadership(3)
    core.transfer_leadership()
    assert core.transferring == 2
    with pytest.raises(NotLeader):
        make_core(1).transfer_leadership()


def test_a_single_voter_has_nobody_to_hand_over_to() -> None:
    core = replicating_leader(voters=(1,))
    with pytest.raises(ProposalRefused):
        core.transfer_leadership()


def test_a_lost_timeout_now_is_repeated() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.drop = lambda message: isinstance(message, TimeoutNow)
    cluster[1].transfer_leadership(2)
    cluster.settle()
    assert cluster[1].role is Role.LEADER
    cluster.heal()
    cluster.tick(5)
    assert cluster[2].role is Role.LEADER


def test_a_recovering_member_ignores_timeout_now() -> None:
    core = make_core(1, terms=[1], recovering=True)
    core.step(TimeoutNow(1, 2, 1))
    assert (core.role, core.term) == (Role.FOLLOWER, 1)


def test_a_recovering_member_knows_by_timeout_now_who_leads_the_term() -> None:
    """So it votes for nobody else in that term, although it stays a follower."""
    core = make_core(1, terms=[1], recovering=True)
    core.step(TimeoutNow(2, 2, 1))
    assert (core.role, core.term, core.leader_id) == (Role.FOLLOWER, 2, 2)
    core.step(RequestVote(2, 3, 1, 5, 1, False))
    assert [reply.granted for reply in of(RequestVoteReply, flush(core))] == [False]


def test_every_transfer_gets_its_full_time() -> None:
    core = replicating_leader(election_ticks=10)
    core.transfer_leadership(3)
    tick(core, 5)
    core.transfer_leadership(2)
    for peer in (2, 3):
        core.step(accepted(core, peer, 1))
    tick(core, 9)
    assert core.transferring == 2
    tick(core, 1)
    assert core.transferring is None


def test_a_target_that_is_behind_is_sent_what_it_lacks_at_once() -> None:
    core = replicating_leader()
    core.propose(b"a")
    flush(core)
    core.link_lost(3)
    core.transfer_leadership(3)
    assert [(message.to, len(message.entries)) for message in of(AppendEntries, flush(core))] == [(3, 1)]


def test_only_the_targets_own_sign_of_life_repeats_the_order() -> None:
    core = replicating_leader()
    core.transfer_leadership(3)
    flush(core)
    core.step(HeartbeatReply(1, 2, 1, 1))
    assert of(TimeoutNow, flush(core)) == []
    core.step(HeartbeatReply(1, 3, 1, 1))
    assert of(TimeoutNow, flush(core)) == [TimeoutNow(1, 1, 3)]


def test_a_candidate_by_transfer_follows_nobody() -> None:
    core = make_core(1, terms=[1])
    core.step(append(core, (1, 1), [], term=1))
    assert (core.role, core.leader_id) == (Role.FOLLOWER, 2)
    core.step(TimeoutNow(1, 2, 1))
    assert (core.role, core.term, core.leader_id) == (Role.CANDIDATE, 2, None)
