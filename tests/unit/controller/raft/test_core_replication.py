"""Replication beyond the paper's rules: stale and reordered messages, flow control, fast back-up, limits."""

from __future__ import annotations

import pytest

from pidkeeper.controller.raft.core import InvariantViolation, NotLeader, ProposalRefused, RaftCore, Role
from pidkeeper.controller.raft.messages import (
    MAX_ENTRY_BYTES,
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
)
from pidkeeper.controller.raft.progress import PROBE, REPLICATE
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import (
    Cluster,
    accepted,
    append,
    entries_of,
    flush,
    make_core,
    make_leader,
    of,
    rejected,
    replicating_leader,
    tick,
)


def appends_to(core: RaftCore, peer: int) -> list[AppendEntries]:
    return [message for message in of(AppendEntries, flush(core)) if message.to == peer]


def test_cannot_commit_without_an_entry_of_the_new_term() -> None:
    cluster = Cluster(voters=(1, 2, 3, 4, 5))
    cluster.elect(1)
    cluster.isolate(1, 2)
    cluster[1].propose(b"a")
    cluster[1].propose(b"b")
    cluster.settle()
    assert cluster[1].commit == 1
    cluster.nodes[1].up = False
    cluster.drop = lambda message: isinstance(message, AppendEntries) and message.prev_log_index > 3

    core = cluster[2]
    make_leader(core)
    old = core.last_index - 1
    core.step(accepted(core, 3, old))
    core.step(accepted(core, 4, old))
    core.step(accepted(core, 5, old))
    assert core.commit == 1, "replicated on a majority, but of an earlier term"
    core.step(accepted(core, 3, old + 1))
    core.step(accepted(core, 4, old + 1))

    assert core.commit == old + 1


def test_old_messages_do_not_harm() -> None:
    """An append of an earlier leader of a passed term changes nothing."""
    core = make_core(1, terms=[1, 2])
    core.step(append(core, (2, 2), [3], term=3))
    flush(core)
    core.step(append(core, (1, 1), [2, 2], term=2, leader=3))
    flush(core)
    assert [core.term_at(index) for index in (1, 2, 3)] == [1, 2, 3]


def test_a_repeated_append_does_not_shorten_the_log() -> None:
    """Reordered messages of one leader: an early one again, after the late ones."""
    core = make_core(1, term=1)
    messages = [append(core, (index, 1 if index else 0), [1], term=1, commit=index) for index in range(6)]
    for message in messages:
        core.step(message)
    core.step(messages[1])
    flush(core)
    assert (core.last_index, core.commit, core.applied) == (6, 5, 5)


def test_a_reordered_append_is_refused_and_then_fits() -> None:
    core = make_core(1, term=1)
    core.step(append(core, (1, 1), [1], term=1))
    assert core.last_index == 0
    core.step(append(core, (0, 0), [1], term=1))
    core.step(append(core, (1, 1), [1], term=1))
    assert core.last_index == 2


def test_commit_is_clamped_to_what_the_message_verified() -> None:
    """The tail past the verified entries may be another leader's: it is not committed by this message."""
    core = make_core(1, terms=[1, 1, 1, 1, 1])
    core.step(append(core, (1, 1), [], term=2, commit=5))
    assert core.commit == 1
    core.step(append(core, (1, 1), [1], term=2, commit=5))
    assert core.commit == 2


def test_stale_rejections_and_acknowledgements_are_harmless() -> None:
    core = replicating_leader()
    core.propose(b"a")
    core.step(accepted(core, 2, 2))
    flush(core)
    core.step(rejected(core, 2, 1, 0, 0))
    core.step(accepted(core, 2, 1))
    assert (core.progress[2].match, core.progress[2].next, core.progress[2].state) == (2, 3, REPLICATE)


def test_an_acknowledgement_past_our_log_stops_the_leader() -> None:
    core = replicating_leader()
    with pytest.raises(InvariantViolation, match=r"^R9:"):
        core.step(accepted(core, 2, 9))


def test_entries_are_pipelined() -> None:
    core = replicating_leader()
    for data in (b"a", b"b", b"c"):
        core.propose(data)
    assert [(m.prev_log_index, len(m.entries)) for m in appends_to(core, 2)] == [(1, 1), (2, 1), (3, 1)]


def test_flow_control_full() -> None:
    core = replicating_leader(max_inflight_messages=3)
    for _ in range(5):
        core.propose(b"a")
    assert len(appends_to(core, 2)) == 3
    core.propose(b"a")
    assert appends_to(core, 2) == []


def test_flow_control_moves_forward() -> None:
    core = replicating_leader(max_inflight_messages=3)
    for _ in range(6):
        core.propose(b"a")
    flush(core)
    core.step(accepted(core, 2, 1))
    assert appends_to(core, 2) == [], "a stale acknowledgement frees nothing"
    core.step(accepted(core, 2, 3))
    sent = appends_to(core, 2)
    assert [(message.prev_log_index, len(message.entries)) for message in sent] == [(4, 3)], "all that waited at once"


def test_flow_control_in_bytes() -> None:
    core = replicating_leader(max_inflight_bytes=250)
    for _ in range(5):
        core.propose(b"x" * 100)
    assert len(appends_to(core, 2)) == 3


def test_flow_control_heartbeat_reply_frees_one() -> None:
    """A full window whose messages were lost would be stuck for ever."""
    core = replicating_leader(max_inflight_messages=2)
    for _ in range(3):
        core.propose(b"a")
    flush(core)
    for _ in range(2):
        core.step(HeartbeatReply(1, 2, 1, 1))
        assert len(appends_to(core, 2)) == 1


def test_appends_are_bounded_in_bytes() -> None:
    core = make_core(1, max_append_bytes=250)
    make_leader(core)
    for _ in range(5):
        core.propose(b"x" * 100)
    flush(core)
    core.step(accepted(core, 2, 1))
    assert [len(message.entries) for message in appends_to(core, 2)] == [2]


def test_a_lost_append_is_found_by_the_heartbeat() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.drop = lambda message: isinstance(message, AppendEntries) and message.to == 2
    leader.propose(b"a")
    cluster.settle()
    assert leader.progress[2].match == 1
    cluster.heal()
    cluster.tick(10)
    assert (leader.progress[2].match, cluster[2].commit) == (2, 2)


def test_a_caught_up_follower_returns_to_replicate_on_a_heartbeat_reply() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.link_lost(2)
    assert leader.progress[2].state is PROBE
    cluster.tick(5)
    assert leader.progress[2].state.value == "replicate"


def test_probe_is_one_message_until_the_answer() -> None:
    core = make_core(1)
    make_leader(core)
    core.propose(b"a")
    core.propose(b"b")
    assert appends_to(core, 2) == []
    core.step(HeartbeatReply(1, 2, 1, 0))
    assert [(m.prev_log_index, len(m.entries)) for m in appends_to(core, 2)] == [(0, 3)]


@pytest.mark.parametrize("index", [0, 1])
def test_the_end_of_a_followers_log_in_a_heartbeat_reply_acknowledges_nothing(index: int) -> None:
    """Behind what it acknowledged, here nothing or one entry, its log may differ from the leader's."""
    core = make_core(1, terms=[1, 1, 1])
    make_leader(core)
    if index:
        core.step(accepted(core, 2, index))
    core.step(HeartbeatReply(core.term, 2, 1, core.last_index))
    flush(core)
    progress = core.progress[2]
    assert (progress.match, progress.counted, core.commit) == (index, index, 0)


def test_lagging_commit_arrives_with_a_heartbeat() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.propose(b"a")
    cluster.settle()
    assert (leader.commit, cluster[2].commit) == (2, 1)
    cluster.tick(5)
    assert (cluster[2].commit, cluster.nodes[3].applied[-1]) == (2, (2, 1, b"a"))


def test_heartbeat_commit_is_clamped_to_what_the_follower_holds() -> None:
    core = replicating_leader()
    core.propose(b"a")
    core.step(accepted(core, 2, 2))
    flush(core)
    tick(core, 5)
    beats = of(Heartbeat, flush(core))
    assert {message.to: (message.leader_commit, message.commit_term) for message in beats} == {2: (2, 1), 3: (1, 1)}
    core.compact(SnapshotId(2, 1), 3)
    tick(core, 5)
    terms = {message.to: (message.leader_commit, message.commit_term) for message in of(Heartbeat, flush(core))}
    assert terms == {2: (2, 1), 3: (1, 0)}, "what was compacted has no term any more"


def test_a_heartbeat_cannot_commit_what_is_not_there() -> None:
    core = make_core(1, terms=[1])
    with pytest.raises(InvariantViolation, match=r"^R4:"):
        core.step(Heartbeat(1, 2, 1, 2, 0))


def test_an_entry_of_a_term_above_its_leaders_is_not_taken() -> None:
    core = make_core(1, term=4, terms=[1])
    with pytest.raises(InvariantViolation, match=r"^R1: an entry of term 5 came in term 4"):
        core.step(append(core, (1, 1), [4, 5], term=4))
    assert core.last_index == 1


@pytest.mark.parametrize(
    ("leader_terms", "follower_terms", "probes"),
    [
        # The follower's hint skips its whole conflicting term, the leader's skips its own.
        ([1, 3, 3, 3, 5, 5, 5, 5], [1, 1, 1, 1, 2, 2, 2, 2], [(8, 5), (1, 1)]),
        ([1, 1, 1, 1, 1, 1, 1, 5], [1, 4, 4, 4, 4, 4, 4, 4, 4], [(8, 5), (7, 1), (1, 1)]),
        ([2, 2, 3, 3, 3, 3], [2, 2], [(6, 3), (2, 2)]),
        ([1, 1, 1], [], [(3, 1), (0, 0)]),
    ],
)
def test_fast_log_rejection(leader_terms: list[int], follower_terms: list[int], probes: list[tuple[int, int]]) -> None:
    leader = make_core(1, terms=leader_terms, term=6)
    follower = make_core(2, terms=follower_terms, term=6)
    sent = of(AppendEntries, make_leader(leader))
    seen = []
    for _ in range(10):
        (message,) = [message for message in sent if message.to == 2]
        seen.append((message.prev_log_index, message.prev_log_term))
        follower.step(message)
        (reply,) = flush(follower)
        leader.step(reply)
        if leader.progress[2].match == leader.last_index:
            break
        sent = of(AppendEntries, flush(leader))
    assert seen == probes
    assert [follower.term_at(index) for index in range(1, leader.last_index + 1)] == [*leader_terms, 7]


def test_proposals_need_a_leader() -> None:
    core = make_core(1, term=1)
    with pytest.raises(NotLeader, match="none is known") as error:
        core.propose(b"a")
    assert error.value.leader_id is None
    core.step(Heartbeat(1, 3, 1, 0, 0))
    with pytest.raises(NotLeader, match="the leader is 3"):
        core.propose(b"a")
    assert core.last_index == 0


def test_a_too_large_proposal_is_refused_and_changes_nothing() -> None:
    core = replicating_leader()
    with pytest.raises(ValueError, match="split the batch"):
        core.propose(b"x" * (MAX_ENTRY_BYTES + 1))
    assert core.last_index == 1
    core.propose(b"x" * MAX_ENTRY_BYTES)
    assert core.last_index == 2


def test_uncommitted_entry_limit() -> None:
    core = replicating_leader(max_uncommitted_bytes=300)
    for _ in range(3):
        core.propose(b"x" * 100)
    with pytest.raises(ProposalRefused, match="300 bytes wait"):
        core.propose(b"x")
    flush(core)

    core.step(accepted(core, 2, 3))
    core.propose(b"x" * 200)
    with pytest.raises(ProposalRefused):
        core.propose(b"x")
    core.step(accepted(core, 2, core.last_index))
    flush(core)
    core.step(accepted(core, 2, core.last_index))
    core.propose(b"x" * 1000)

    assert core.role is Role.LEADER


def test_a_new_leader_counts_the_uncommitted_entries_that_it_inherits() -> None:
    core = make_core(1, terms=[1, 1, 1], commit=1, max_uncommitted_bytes=10)
    make_leader(core)
    inherited = sum(len(entry.data) for entry in entries_of([1, 1], 2))
    core.propose(b"x" * (10 - inherited))
    with pytest.raises(ProposalRefused):
        core.propose(b"x")


def test_a_lost_link_makes_the_leader_probe_and_a_new_one_at_once() -> None:
    core = replicating_leader()
    core.propose(b"a")
    flush(core)
    core.link_lost(2)
    progress = core.progress[2]
    assert (progress.state, progress.next, progress.inflight) == (PROBE, 2, 0)

    core.link_up(2)

    assert [(m.prev_log_index, len(m.entries)) for m in appends_to(core, 2)] == [(1, 1)]


def test_a_new_link_repeats_a_probe_that_may_be_lost() -> None:
    core = replicating_leader()
    core.link_lost(2)
    core.propose(b"a")
    assert [message.to for message in of(AppendEntries, flush(core))] == [2, 3]
    core.propose(b"b")
    assert [message.to for message in of(AppendEntries, flush(core))] == [3]
    core.link_up(2)
    assert [(message.to, len(message.entries)) for message in of(AppendEntries, flush(core))] == [(2, 2)]


def test_an_append_keeps_the_follower_quiet() -> None:
    core = make_core(1, term=1)
    for _ in range(3):
        core.step(append(core, (0, 0), [], term=1))
        tick(core, core.config.election_ticks - 1)
        assert (core.role, core.leader_id) == (Role.FOLLOWER, 2)


def test_an_append_below_the_commit_index_is_acknowledged_up_to_it() -> None:
    core = make_core(1, terms=[1, 1, 1], commit=3)
    core.step(append(core, (1, 1), [1], term=1, commit=3))
    assert flush(core) == [AppendEntriesReply(1, 1, 2, False, 3, 0, 0, 0, 0)]


def test_a_heartbeat_reply_frees_nothing_of_a_window_with_room() -> None:
    core = replicating_leader()
    core.propose(b"a")
    flush(core)
    core.step(HeartbeatReply(1, 2, 1, 1))
    assert core.progress[2].inflight == 1
