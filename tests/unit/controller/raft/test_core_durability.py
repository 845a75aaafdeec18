"""What waits for a write, and what a late storage acknowledgement may not do."""

from __future__ import annotations

import pytest

from pidkeeper.controller.raft.core import InvariantViolation, RaftCore, Ready, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    RequestVote,
    RequestVoteReply,
)
from tests.support.raft_network import (
    accepted,
    append,
    entries_of,
    flush,
    make_candidate,
    make_core,
    make_leader,
    of,
    pre_vote_grant,
    replicating_leader,
    tick_until,
)


def take(core: RaftCore) -> Ready:
    ready = core.ready()
    assert ready is not None
    return ready


def test_nothing_to_do() -> None:
    assert make_core(1, terms=[1]).ready() is None


def test_append_is_acknowledged_when_it_is_durable() -> None:
    core = make_core(1, term=1)
    core.step(append(core, (0, 0), [1], term=1))
    first = take(core)
    assert (first.token, first.entries, first.messages) == (1, entries_of([1]), [])
    core.step(append(core, (1, 1), [1], term=1))
    second = take(core)
    assert (second.token, second.messages) == (2, [])

    core.written(1)
    assert [reply.match_index for reply in of(AppendEntriesReply, take(core).messages)] == [1]
    core.written(2)
    assert [reply.match_index for reply in of(AppendEntriesReply, take(core).messages)] == [2]
    assert core.ready() is None


def test_a_repeated_append_waits_for_the_first_ones_write() -> None:
    core = make_core(1, term=1)
    message = append(core, (0, 0), [1], term=1)
    core.step(message)
    take(core)
    core.step(message)
    assert core.ready() is None

    core.written(1)

    assert [reply.match_index for reply in of(AppendEntriesReply, flush(core))] == [1, 1]


def test_what_is_durable_is_acknowledged_at_once() -> None:
    core = make_core(1, terms=[1])
    core.step(append(core, (0, 0), [1], term=1))
    ready = take(core)
    assert (ready.token, [reply.match_index for reply in of(AppendEntriesReply, ready.messages)]) == (None, [1])


def test_an_acknowledgement_waits_for_a_new_term_alone() -> None:
    core = make_core(1, terms=[1])
    core.step(append(core, (1, 1), [], term=2))
    ready = take(core)
    assert (ready.hard_state, ready.entries, ready.messages) == (HardState(2, None, 0, False), [], [])
    core.written(1)
    assert len(of(AppendEntriesReply, flush(core))) == 1


def test_a_vote_leaves_when_it_is_durable() -> None:
    core = make_core(1, term=1)
    core.step(RequestVote(2, 2, 1, 0, 0, False))
    ready = take(core)
    assert (ready.hard_state, ready.messages) == (HardState(2, 2, 0, False), [])
    core.written(1)
    assert [reply.granted for reply in of(RequestVoteReply, flush(core))] == [True]


def test_a_reply_of_a_passed_term_is_dropped() -> None:
    core = make_core(1, term=1)
    core.step(RequestVote(2, 2, 1, 0, 0, False))
    take(core)
    core.step(RequestVote(3, 3, 1, 0, 0, False))
    take(core)
    core.written(1)
    core.written(2)
    assert [(reply.term, reply.to) for reply in of(RequestVoteReply, flush(core))] == [(3, 3)]


def test_hard_state_is_durable_only_with_its_youngest_write() -> None:
    """The vote of term 3 may not leave because a write for term 2 is done, nor with a later write of entries alone."""
    core = make_core(1, term=1)
    core.step(append(core, (0, 0), [], term=2))
    take(core)
    core.step(RequestVote(3, 3, 1, 0, 0, True))
    core.written(1)
    assert of(RequestVoteReply, take(core).messages) == []
    core.written(2)
    assert len(of(RequestVoteReply, flush(core))) == 1


def test_a_changed_commit_alone_forces_no_write_but_rides_along() -> None:
    core = make_core(1, terms=[1, 1])
    core.step(append(core, (2, 1), [], term=1, commit=2))
    assert take(core).token is None
    core.step(append(core, (2, 1), [1], term=1, commit=2))
    ready = take(core)
    assert (ready.hard_state, len(ready.entries)) == (HardState(1, None, 2, False), 1)


def test_vote_requests_leave_when_the_candidates_own_vote_is_durable() -> None:
    """After a crash a candidate never stands again in a term in which it has asked for votes."""
    core = make_core(1)
    tick_until(core, Role.PRE_CANDIDATE)
    assert len(of(PreVote, take(core).messages)) == 2
    core.step(pre_vote_grant(core, 2))
    ready = take(core)
    assert (ready.hard_state, ready.messages) == (HardState(1, 1, 0, False), [])
    core.written(1)
    assert len(of(RequestVote, flush(core))) == 2


def test_a_candidate_counts_its_own_vote_only_when_it_is_durable() -> None:
    core = make_core(1)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(pre_vote_grant(core, 2))
    take(core)
    for peer in (2, 3):
        core.step(RequestVoteReply(1, peer, 1, True, 0))
    assert core.role.value == "candidate"

    core.written(1)
    core.step(RequestVoteReply(1, 2, 1, True, 0))

    assert core.role.value == "leader"


def test_candidate_self_vote_after_lost_election() -> None:
    """A write of the own vote that ends after the election was lost makes no candidate of a follower."""
    core = make_core(1)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(pre_vote_grant(core, 2))
    take(core)
    core.step(append(core, (0, 0), [], term=1))
    core.written(1)
    flush(core)
    assert (core.role, core.leader_id, core.vote) == (Role.FOLLOWER, 2, 1)


def test_own_vote_of_an_earlier_term_is_not_counted_in_a_later_one() -> None:
    core = make_core(1)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(pre_vote_grant(core, 2))
    take(core)
    tick_until(core, Role.PRE_CANDIDATE)
    core.step(pre_vote_grant(core, 2))
    take(core)
    assert core.term == 2

    core.written(1)
    core.step(RequestVoteReply(2, 2, 1, True, 0))
    assert core.role.value == "candidate"
    core.written(2)
    core.step(RequestVoteReply(2, 2, 1, True, 0))

    assert core.role.value == "leader"


def test_leader_counts_itself_only_when_durable() -> None:
    core = replicating_leader(voters=(1, 2, 3, 4, 5))
    core.propose(b"a")
    ready = take(core)
    core.step(accepted(core, 2, 2))
    core.step(accepted(core, 3, 2))
    assert core.commit == 1

    assert ready.token is not None
    core.written(ready.token)

    assert core.commit == 2


def test_leader_counts_only_what_its_finished_writes_cover() -> None:
    core = replicating_leader(voters=(1, 2, 3, 4, 5))
    core.propose(b"a")
    first = take(core)
    core.propose(b"b")
    take(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, 3))
    assert first.token is not None
    core.written(first.token)
    assert core.commit == 2


def test_leader_may_commit_before_its_own_write_but_applies_after_it() -> None:
    core = replicating_leader()
    core.propose(b"a")
    ready = take(core)
    core.step(accepted(core, 2, 2))
    core.step(accepted(core, 3, 2))
    assert (core.commit, core.ready()) == (2, None)

    assert ready.token is not None
    core.written(ready.token)

    assert [entry.index for entry in take(core).committed] == [2]


def test_leader_self_ack_after_term_change() -> None:
    """A leader's own write that ends after it was deposed and elected again covers only what is still in its log."""
    core = replicating_leader()
    core.propose(b"a")
    old = take(core)
    core.step(append(core, (1, 1), [2], term=2))
    take(core)
    assert old.token is not None
    core.written(old.token)
    assert (core.log.stable, core.commit) == (1, 1)
    core.written(old.token + 1)
    make_leader(core)
    core.step(accepted(core, 3, 1))
    assert core.commit == 1


def test_append_aba_race() -> None:
    """Entry 2 of term 2 is overwritten and comes back: the first write of it acknowledges nothing any more."""
    core = make_core(1, terms=[1], commit=1)
    flush(core)
    core.step(append(core, (1, 1), [2], term=2))
    take(core)
    core.step(append(core, (1, 1), [3], term=3, leader=3))
    take(core)
    core.step(append(core, (1, 1), [2], term=4, commit=2))
    core.written(1)
    ready = take(core)
    assert (of(AppendEntriesReply, ready.messages), ready.committed, core.log.stable) == ([], [], 1)
    core.written(2)
    assert core.log.stable == 1
    assert ready.token == 3
    core.written(3)
    last = take(core)
    assert [reply.match_index for reply in of(AppendEntriesReply, last.messages)] == [2]
    assert [entry.term for entry in last.committed] == [2]


def test_storage_acknowledgements_come_in_order() -> None:
    core = make_core(1, term=1)
    core.step(append(core, (0, 0), [1], term=1))
    take(core)
    for wrong in (0, 2):
        with pytest.raises(InvariantViolation, match=r"^R13:"):
            core.written(wrong)
    core.written(1)
    with pytest.raises(InvariantViolation, match=r"^R13:"):
        core.written(2)


def test_heartbeats_need_no_write() -> None:
    core = make_core(1, terms=[1])
    core.step(append(core, (1, 1), [1], term=1))
    take(core)
    core.step(Heartbeat(1, 2, 1, 1, 0))
    ready = take(core)
    assert [reply.last_log_index for reply in of(HeartbeatReply, ready.messages)] == [1], "the durable end"
    assert ready.token is None


def test_leader_sends_before_its_own_write() -> None:
    core = replicating_leader()
    core.propose(b"a")
    assert len(of(AppendEntries, take(core).messages)) == 2


def test_a_lost_log_is_noticed_at_start() -> None:
    with pytest.raises(InvariantViolation, match=r"^R4:.*5 is committed, but the log ends at 2"):
        make_core(1, terms=[1, 1], commit=5)
    with pytest.raises(InvariantViolation, match=r"^R1:"):
        make_core(1, terms=[3], term=2)


def test_candidate_restart_keeps_its_term() -> None:
    core = make_core(1)
    make_candidate(core)
    assert core.log.begin_write() == []
    assert (core.term, core.vote) == (1, 1)


def test_a_repeated_append_waits_for_the_youngest_write() -> None:
    core = make_core(1, term=1)
    core.step(append(core, (0, 0), [1], term=1))
    take(core)
    second = append(core, (1, 1), [1], term=1)
    core.step(second)
    take(core)
    core.step(second)
    assert core.ready() is None
    core.written(1)
    assert [reply.match_index for reply in of(AppendEntriesReply, take(core).messages)] == [1]
    core.written(2)
    assert [reply.match_index for reply in of(AppendEntriesReply, take(core).messages)] == [2, 2]


def test_a_repeated_append_is_acknowledged_if_the_write_ended_in_between() -> None:
    core = make_core(1, term=1)
    message = append(core, (0, 0), [1], term=1)
    core.step(message)
    take(core)
    core.step(message)
    core.written(1)
    assert [reply.match_index for reply in of(AppendEntriesReply, flush(core))] == [1, 1]


def test_a_commit_index_is_written_once() -> None:
    core = make_core(1, terms=[1, 1])
    core.step(append(core, (2, 1), [1], term=1, commit=2))
    assert take(core).hard_state == HardState(1, None, 2, False)
    core.step(append(core, (3, 1), [1], term=1, commit=2))
    assert take(core).hard_state is None


def test_a_restart_knows_of_the_commit_index_that_was_handed_out_for_writing() -> None:
    core = make_core(1, terms=[1, 1, 1], commit=1)
    assert core.submitted_commit == 1
    core.step(append(core, (3, 1), [], term=1, commit=2))
    flush(core)
    assert (core.commit, core.submitted_commit) == (2, 1), "a changed commit index alone forces no write"
    core.step(append(core, (3, 1), [1], term=1, commit=2))
    flush(core)
    assert core.submitted_commit == 2


def test_what_is_durable_is_acknowledged_without_waiting_for_a_later_write() -> None:
    core = make_core(1, term=1)
    first = append(core, (0, 0), [1], term=1)
    core.step(first)
    flush(core)
    core.step(append(core, (1, 1), [1], term=1))
    take(core)
    core.step(first)
    assert [reply.match_index for reply in of(AppendEntriesReply, take(core).messages)] == [1]


def test_a_vote_in_a_term_that_is_durable_already_waits_for_a_write_of_its_own() -> None:
    core = make_core(1, term=1)
    core.step(RequestVote(1, 2, 1, 0, 0, False))
    ready = take(core)
    assert (ready.hard_state, ready.messages) == (HardState(1, 2, 0, False), [])
    assert ready.token is not None
    core.written(ready.token)
    assert [reply.granted for reply in of(RequestVoteReply, take(core).messages)] == [True]


@pytest.mark.parametrize(("commit_term", "stops"), [(1, False), (2, True), (0, False)])
def test_a_disk_that_went_back_is_told_by_the_term_at_the_commit_index(commit_term: int, stops: bool) -> None:
    """The leader clamps the index to what we acknowledged: another entry there is one that we forgot to replace."""
    core = make_core(terms=[1, 1])
    core.step(AppendEntries(2, 2, 1, 1, 1, 0, []))
    heartbeat = Heartbeat(2, 2, 1, 2, 0, commit_term)
    if stops:
        with pytest.raises(InvariantViolation, match=r"^R4: told that 2 of term 2 .* the log holds one of term 1"):
            core.step(heartbeat)
        assert core.commit == 0
    else:
        core.step(heartbeat)
        assert core.commit == 2
