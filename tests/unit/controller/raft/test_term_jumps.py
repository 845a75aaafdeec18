"""Terms that no election can have led to are refused, whatever brings them; those who were away join as ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.controller.raft.term_jumps import JUMP_TICKS, MAX_TERM_JUMP, SMALL_TERM_JUMP
from pidkeeper.protocol.log_position import MAX_NUMBER
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import flush, make_core, make_leader, of, tick

AHEAD = SnapshotId(9, 1)
KINDS: dict[str, Callable[[int, int], Message]] = {
    "pre-vote": lambda term, sender: PreVote(term, sender, 1, 0, 0),
    "agreement": lambda term, sender: PreVoteReply(term, sender, 1, True, False),
    "refusal": lambda term, sender: PreVoteReply(term, sender, 1, False, False),
    "vote request": lambda term, sender: RequestVote(term, sender, 1, 0, 0, False),
    "vote request of a transfer": lambda term, sender: RequestVote(term, sender, 1, 0, 0, True),
    "vote": lambda term, sender: RequestVoteReply(term, sender, 1, False, 0),
    "append": lambda term, sender: AppendEntries(term, sender, 1, 0, 0, 0, []),
    "acknowledgement": lambda term, sender: AppendEntriesReply(term, sender, 1, False, 0, 0, 0, 0, 0),
    "heartbeat": lambda term, sender: Heartbeat(term, sender, 1, 0, 0),
    "heartbeat reply": lambda term, sender: HeartbeatReply(term, sender, 1, 0),
    "snapshot": lambda term, sender: InstallSnapshot(term, sender, 1, AHEAD, 0, b"", False),
    "snapshot reply": lambda term, sender: InstallSnapshotReply(term, sender, 1, AHEAD, 0, False),
    "timeout now": lambda term, sender: TimeoutNow(term, sender, 1),
}


def seen(core: RaftCore) -> tuple[int, int | None, Role, bool]:
    return core.term, core.vote, core.role, core.ready() is None


@pytest.mark.parametrize("role", ["follower", "leader"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("term", [MAX_NUMBER - 1, MAX_TERM_JUMP + 6])
def test_a_term_too_far_ahead_changes_nothing_and_is_answered_by_nothing(kind: str, role: str, term: int) -> None:
    """Each of these would have left no term to elect a leader in, for good."""
    core = make_core(1, term=4 if role == "leader" else 5)
    if role == "leader":
        make_leader(core)
    before = seen(core)
    core.step(KINDS[kind](term, 3))
    assert seen(core) == before
    assert core.terms_refused == {3: 1}


def test_the_furthest_term_that_is_borne() -> None:
    core = make_core(1, term=5)
    core.step(Heartbeat(5 + MAX_TERM_JUMP, 2, 1, 0, 0))
    assert (core.term, core.leader_id, core.terms_refused) == (5 + MAX_TERM_JUMP, 2, {})


def test_a_blank_member_and_one_that_was_away_take_the_term_of_their_leader() -> None:
    for term in (0, 70_000):
        core = make_core(1, term=term)
        core.step(Heartbeat(10_000_000, 2, 1, 0, 0))
        core.step(Heartbeat(10_000_001, 3, 1, 0, 0))
        assert (core.term, core.leader_id) == (10_000_001, 3)


def test_a_second_jump_of_the_same_peer_waits_and_another_peer_does_not() -> None:
    core = make_core(1, term=1)
    tick(core, 7)
    jump = SMALL_TERM_JUMP + 1
    core.step(Heartbeat(1 + jump, 2, 1, 0, 0))
    core.step(Heartbeat(1 + 2 * jump, 2, 1, 0, 0))
    assert (core.term, core.terms_refused) == (1 + jump, {2: 1})
    core.step(Heartbeat(1 + 2 * jump, 3, 1, 0, 0))
    assert (core.term, core.leader_id) == (1 + 2 * jump, 3)
    tick(core, JUMP_TICKS - 1)
    term = core.term
    core.step(Heartbeat(term + jump, 2, 1, 0, 0))
    assert core.terms_refused == {2: 2}
    tick(core, 1)
    core.step(Heartbeat(core.term + jump, 2, 1, 0, 0))
    assert (core.leader_id, core.terms_refused) == (2, {2: 2})


def test_who_may_not_jump_gets_no_vote_in_a_term_of_ours_either() -> None:
    core = make_core(1, term=1)
    jump = SMALL_TERM_JUMP + 1
    core.step(AppendEntriesReply(1 + jump, 2, 1, False, 0, 0, 0, 0, 0))
    flush(core)
    core.step(RequestVote(1 + 2 * jump, 2, 1, 0, 0, True))
    assert seen(core) == (1 + jump, None, Role.FOLLOWER, True)


def test_small_steps_are_never_limited() -> None:
    core = make_core(1, term=1)
    for _ in range(100):
        core.step(Heartbeat(core.term + SMALL_TERM_JUMP, 2, 1, 0, 0))
    assert (core.term, core.terms_refused) == (1 + 100 * SMALL_TERM_JUMP, {})


def test_a_vote_request_that_is_refused_for_its_leaders_sake_uses_no_jump_up() -> None:
    core = make_core(1, term=1)
    core.step(Heartbeat(1, 2, 1, 0, 0))
    core.step(RequestVote(1_000_000, 3, 1, 0, 0, False))
    assert core.term == 1
    core.step(HeartbeatReply(1_000_000, 3, 1, 0))
    assert (core.term, core.terms_refused) == (1_000_000, {})


def test_a_pre_vote_within_reach_is_answered() -> None:
    core = make_core(1, term=1)
    core.step(PreVote(1_000_000, 3, 1, 0, 0))
    (reply,) = of(PreVoteReply, flush(core))
    assert reply.granted
    assert core.term == 1


def test_without_a_leader_for_long_a_member_goes_to_a_term_too_far_ahead_in_steps() -> None:
    """Two members that were taken there, and two that were not, elect nobody in a quorum of five else."""
    core, far = make_core(1, term=5), 7 + 3 * MAX_TERM_JUMP
    while core.role is Role.FOLLOWER:
        tick(core, 1)
    core.step(PreVoteReply(far, 2, 1, False, False))
    assert (core.term, core.role) == (5 + MAX_TERM_JUMP, Role.FOLLOWER)
    core.step(PreVoteReply(far, 2, 1, False, False))
    assert core.term == 5 + MAX_TERM_JUMP
    core.step(PreVoteReply(far, 3, 1, False, False))
    assert core.term == 5 + 2 * MAX_TERM_JUMP
    tick(core, JUMP_TICKS)
    core.step(Heartbeat(far, 2, 1, 0, 0))
    assert (core.term, core.leader_id) == (5 + 3 * MAX_TERM_JUMP, None)
    tick(core, JUMP_TICKS)
    core.step(Heartbeat(far, 2, 1, 0, 0))
    assert (core.term, core.leader_id) == (far, 2)
    core.step(HeartbeatReply(far + MAX_TERM_JUMP + 1, 3, 1, 0))
    assert (core.term, core.leader_id) == (far, 2)


def test_a_blank_member_joins_a_quorum_whose_term_is_too_far_ahead() -> None:
    core = make_core(1, term=0, recovering=True)
    tick(core, 60)
    core.step(Heartbeat(MAX_TERM_JUMP + 9, 2, 1, 0, 0))
    tick(core, JUMP_TICKS)
    core.step(Heartbeat(MAX_TERM_JUMP + 9, 2, 1, 0, 0))
    assert (core.term, core.leader_id) == (MAX_TERM_JUMP + 9, 2)
