"""Raft paper, section 5.4: the election restriction and committing entries from previous terms."""

from __future__ import annotations

import pytest

from pidkeeper.controller.raft.messages import PreVote, PreVoteReply, RequestVote, RequestVoteReply
from tests.support.raft_network import accepted, flush, make_candidate, make_core, make_leader, of


@pytest.mark.parametrize(("terms", "last"), [([1], (1, 1)), ([1, 2], (2, 2)), ([1, 1, 3], (3, 3))])
def test_vote_request(terms: list[int], last: tuple[int, int]) -> None:
    """The vote request carries the index and term of the candidate's last log entry."""
    core = make_core(1, terms=terms)

    requests = of(RequestVote, make_candidate(core))

    assert [message.to for message in requests] == [2, 3]
    assert {(message.last_log_index, message.last_log_term) for message in requests} == {last}
    assert {message.term for message in requests} == {terms[-1] + 1}


@pytest.mark.parametrize(
    ("terms", "candidate", "granted"),
    [
        ([1], (1, 1), True),
        ([1], (2, 1), True),
        ([1, 1], (1, 1), False),
        ([1], (1, 2), True),
        ([1], (2, 2), True),
        ([1, 1], (1, 2), True),
        ([2], (1, 1), False),
        ([2], (2, 1), False),
        ([2, 2], (1, 1), False),
        ([1, 2], (5, 1), False),
    ],
)
def test_voter(terms: list[int], candidate: tuple[int, int], granted: bool) -> None:
    """The voter denies its vote, and its pre-vote, if its own log is more up to date: last term first, then length."""
    core = make_core(1, terms=terms, term=3)

    core.step(PreVote(4, 2, 1, *candidate))
    core.step(RequestVote(4, 2, 1, *candidate, False))

    replies = flush(core)
    assert [reply.granted for reply in of(PreVoteReply, replies)] == [granted]
    assert [reply.granted for reply in of(RequestVoteReply, replies)] == [granted]


@pytest.mark.parametrize(("index", "committed"), [(1, 0), (2, 0), (3, 3)])
def test_leader_only_commits_log_from_current_term(index: int, committed: int) -> None:
    """Only entries of the leader's own term are committed by counting replicas (figure 8)."""
    core = make_core(1, terms=[1, 2])
    make_leader(core)
    assert core.term_at(3) == core.term == 3

    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))

    assert core.commit == committed
