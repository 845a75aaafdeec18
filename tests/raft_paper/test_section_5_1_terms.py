"""Raft paper, section 5.1: terms act as a logical clock; servers start as followers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.messages import AppendEntriesReply, Heartbeat, Message, RequestVote, RequestVoteReply
from tests.support.raft_network import append, flush, make_candidate, make_core, make_leader, of


def follower() -> RaftCore:
    return make_core(1, term=1)


def candidate() -> RaftCore:
    core = make_core(1)
    make_candidate(core)
    return core


def leader() -> RaftCore:
    core = make_core(1)
    make_leader(core)
    return core


ROLES = pytest.mark.parametrize("make", [follower, candidate, leader])


@ROLES
def test_update_term_from_message(make: Callable[[], RaftCore]) -> None:
    """A server whose term is smaller takes over the larger one; a leader or candidate falls back."""
    core = make()
    assert core.term == 1

    core.step(append(core, (0, 0), [], term=2))

    assert (core.term, core.role, core.leader_id) == (2, Role.FOLLOWER, 2)


@ROLES
def test_reject_stale_term_message(make: Callable[[], RaftCore]) -> None:
    """A request with a stale term number is rejected, and its sender learns the current term."""
    core = make()
    core.step(append(core, (0, 0), [], term=3))
    flush(core)
    last = core.last_index

    core.step(append(core, (0, 0), [2], term=2, leader=3))
    core.step(Heartbeat(2, 3, 1, 0, 0))
    core.step(RequestVote(2, 3, 1, 9, 2, False))

    assert (core.term, core.last_index, core.leader_id) == (3, last, 2)
    replies = flush(core)
    assert [type(reply) for reply in replies] == [AppendEntriesReply, AppendEntriesReply, RequestVoteReply]
    assert all(reply.term == 3 and reply.to == 3 for reply in replies)
    assert all(reply.rejected for reply in of(AppendEntriesReply, replies))
    assert not of(RequestVoteReply, replies)[0].granted


@pytest.mark.parametrize("kind", [AppendEntriesReply, RequestVoteReply])
def test_stale_replies_are_ignored(kind: type[Message]) -> None:
    """An answer to a request of an earlier term says nothing about this one."""
    core = make_core(1, terms=[1, 1], term=4)
    make_leader(core)
    stale: Message = AppendEntriesReply(4, 2, 1, False, 3, 0, 0, 0, 0)
    if kind is RequestVoteReply:
        stale = RequestVoteReply(4, 2, 1, True, 0)

    core.step(stale)

    assert (core.commit, core.progress[2].match, core.role, flush(core)) == (0, 0, Role.LEADER, [])


def test_start_as_follower() -> None:
    """When servers start up, they begin as followers."""
    assert make_core(1).role is Role.FOLLOWER
