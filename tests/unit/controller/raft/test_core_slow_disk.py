"""A leader whose disk stalls hands over to whoever is faster; a member whose disk stalls does not come to lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.disk_pace import CALM_TIMEOUTS
from pidkeeper.controller.raft.durability_lag import DurabilityLag
from pidkeeper.controller.raft.messages import (
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    PreVote,
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
    members,
    of,
    replicating_leader,
    tick,
)

TIMEOUT = 10
HEARTBEAT = 2


def leader(**kwargs: object) -> RaftCore:
    """Leader 1, whose log is durable and committed."""
    return replicating_leader(election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT, **kwargs)


def propose_unsynced(core: RaftCore) -> int:
    """An entry that the leader hands out for writing and that does not become durable; its index."""
    _, index = core.propose(b"x")
    core.ready()
    return index


def pass_time(core: RaftCore, ticks: int, *heard: int) -> None:
    """Ticks, in each of which `heard` answer a heartbeat."""
    for _ in range(ticks):
        core.tick()
        for peer in heard:
            core.step(HeartbeatReply(core.term, peer, core.node_id, core.last_index))


def asked(core: RaftCore) -> list[int]:
    """Whom the core has asked to lead since the last call."""
    found = []
    while (ready := core.ready()) is not None:
        found += [message.to for message in of(TimeoutNow, ready.messages)]
    return found


# Who hands over.


def test_the_leader_hands_over_when_the_others_have_had_its_entry_for_an_election_timeout() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    pass_time(core, TIMEOUT + 1, 2, 3)
    assert (core.transferring, asked(core)) == (None, [])
    pass_time(core, 1, 2, 3)
    assert (core.transferring, asked(core)[:1]) == (2, [2])


def test_it_allows_its_disk_twice_the_time_that_the_others_took() -> None:
    core = leader()
    index = propose_unsynced(core)
    pass_time(core, 7, 2, 3)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    # Marked at the first tick and found committed at the eighth: seven ticks.
    pass_time(core, 1 + 7 + TIMEOUT, 2, 3)
    assert core.transferring is None
    pass_time(core, 1, 2, 3)
    assert core.transferring == 2


def test_without_a_majority_of_others_that_is_faster_it_leads_on() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    pass_time(core, 20 * TIMEOUT, 2, 3)
    assert (core.role, core.transferring, asked(core)) == (Role.LEADER, None, [])
    assert core.disk.stalled


def test_a_sole_voter_leads_on() -> None:
    core = replicating_leader(voters=(1,), election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    propose_unsynced(core)
    pass_time(core, 20 * TIMEOUT)
    assert (core.role, core.transferring) == (Role.LEADER, None)


def test_one_of_two_voters_leads_on_as_the_other_could_not_lead_without_it() -> None:
    core = replicating_leader(voters=(1, 2), election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    core.step(accepted(core, 2, propose_unsynced(core)))
    pass_time(core, 20 * TIMEOUT, 2)
    assert (core.role, core.transferring) == (Role.LEADER, None)


def test_a_hiccup_costs_nothing() -> None:
    core = leader()
    for _ in range(5):
        index = propose_unsynced(core)
        core.step(accepted(core, 2, index))
        core.step(accepted(core, 3, index))
        pass_time(core, TIMEOUT + 1, 2, 3)
        core.written(core._outbox.oldest_write)
        pass_time(core, 5, 2, 3)
    assert (core.role, core.transferring, core.disk.slow) == (Role.LEADER, None, False)


def test_each_entry_has_its_own_time() -> None:
    """The second write waits behind the first; what it is behind the others counts from its own append."""
    core = leader()
    first = propose_unsynced(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, first))
    pass_time(core, TIMEOUT, 2, 3)
    second = propose_unsynced(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, second))
    pass_time(core, 1, 2, 3)
    core.written(core._outbox.oldest_write)
    pass_time(core, TIMEOUT, 2, 3)
    assert core.transferring is None
    pass_time(core, 1, 2, 3)
    assert core.transferring == 2


def test_what_is_not_committed_yet_hides_nothing_of_what_was_before() -> None:
    core = leader()
    first = propose_unsynced(core)
    pass_time(core, 1, 2, 3)
    second = propose_unsynced(core)
    pass_time(core, 1, 2, 3)
    for peer in (2, 3):
        core.step(accepted(core, peer, first))
    pass_time(core, 6, 2, 3)
    for peer in (2, 3):
        core.step(accepted(core, peer, second))
    # Marked at the first tick and found committed at the third, so as if from the start of the second.
    pass_time(core, 1 + 2 * 2 + TIMEOUT - 8, 2, 3)
    assert core.transferring is None
    pass_time(core, 1, 2, 3)
    assert core.transferring == 2


def test_not_while_a_majority_of_the_others_has_lagged_lately() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.written(core._outbox.oldest_write)
    core.step(accepted(core, 2, index))
    pass_time(core, TIMEOUT, 2, 3)
    core.step(accepted(core, 3, index))
    index = propose_unsynced(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, index))
    # It lagged until the last tick before that.
    pass_time(core, CALM_TIMEOUTS * TIMEOUT - 1, 2, 3)
    assert core.transferring is None
    pass_time(core, 1, 2, 3)
    assert core.transferring == 2


def test_whoever_lags_for_less_than_a_timeout_is_steady() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.written(core._outbox.oldest_write)
    core.step(accepted(core, 2, index))
    pass_time(core, TIMEOUT - 1, 2, 3)
    core.step(accepted(core, 3, index))
    index = propose_unsynced(core)
    for peer in (2, 3):
        core.step(accepted(core, peer, index))
    pass_time(core, TIMEOUT + 2, 2, 3)
    assert core.transferring == 2


@pytest.mark.parametrize(("held", "lags"), [(1, False), (0, True)])
def test_whoever_holds_what_there_was_a_timeout_ago_does_not_lag(held: int, lags: bool) -> None:
    lag = DurabilityLag(TIMEOUT)
    log: Any = SimpleNamespace(last_index=0, commit=0, stable=100)
    peers: Any = {2: SimpleNamespace(match=held, counted=held)}
    for now in range(1, TIMEOUT + 1):
        log.last_index = now
        lag.tick(now, log, peers)
    assert list(lag._lagged) == ([2] if lags else [])


def test_time_alone_makes_no_marks() -> None:
    core = leader()
    for _ in range(2):
        propose_unsynced(core)
        pass_time(core, 3 * TIMEOUT, 2, 3)
    assert core.leadership is not None
    assert len(core.leadership._lag._not_durable) == len(core.leadership._lag._not_committed) == 2


def test_idle_the_leader_is_behind_nobody() -> None:
    core = leader()
    pass_time(core, 20 * TIMEOUT, 2, 3)
    assert (core.role, core.transferring) == (Role.LEADER, None)


# To whom.


def test_only_to_one_that_was_heard_lately() -> None:
    core = leader(voters=(1, 2, 3, 4, 5))
    index = propose_unsynced(core)
    for peer in (2, 3, 4):
        core.step(accepted(core, peer, index))
    pass_time(core, TIMEOUT + 2, 3, 4)
    assert core.transferring == 3


def test_only_to_one_that_had_the_entry_in_time() -> None:
    core = leader(voters=(1, 2, 3, 4, 5))
    index = propose_unsynced(core)
    for peer in (3, 4, 5):
        core.step(accepted(core, peer, index))
    pass_time(core, TIMEOUT, 2, 3, 4, 5)
    core.step(accepted(core, 2, index))
    pass_time(core, 2, 2, 3, 4, 5)
    assert core.transferring == 3


def test_only_to_one_that_holds_all_there_is() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    pass_time(core, TIMEOUT, 2, 3)
    later = propose_unsynced(core)
    core.step(accepted(core, 3, later))
    pass_time(core, 2, 2, 3)
    assert core.transferring == 3


def test_not_to_one_that_lost_its_data_since() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    pass_time(core, 1, 2, 3)
    for peer in (2, 3):
        core.step(accepted(core, peer, 0, recovery=77 + peer))
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index, recovery=77 + peer))
    pass_time(core, 3 * TIMEOUT, 2, 3)
    assert (core.role, core.transferring) == (Role.LEADER, None)


def test_not_to_a_learner() -> None:
    cluster = Cluster((2, 3, 4), others=[1], election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    cluster.elect(2).change_members(members(2, 3, 4, learners=[1]))
    cluster.tick(TIMEOUT)
    assert not cluster[1].recovering
    cluster.nodes[2].hangs = True
    cluster[2].propose(b"a")
    cluster.tick(TIMEOUT + 4)
    assert leaders(cluster) == [3]


def test_who_does_not_take_over_is_asked_again_after_the_others() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    targets: list[int] = []
    for _ in range(4 * TIMEOUT + 1):
        pass_time(core, 1, 2, 3)
        if core.transferring is not None and core.transferring not in targets[-1:]:
            targets.append(core.transferring)
    assert targets == [2, 3, 2]


def test_the_first_to_be_asked_is_the_lowest() -> None:
    core = make_core(2, election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    make_leader(core)
    for peer in (1, 3):
        core.step(accepted(core, peer, core.last_index))
    flush(core)
    index = propose_unsynced(core)
    for peer in (1, 3):
        core.step(accepted(core, peer, index))
    pass_time(core, TIMEOUT + 2, 1, 3)
    assert core.transferring == 1


def test_a_handover_that_an_operator_asked_for_is_not_disturbed() -> None:
    core = leader()
    index = propose_unsynced(core)
    core.step(accepted(core, 2, index))
    core.step(accepted(core, 3, index))
    pass_time(core, TIMEOUT, 2, 3)
    core.transfer_leadership(3)
    pass_time(core, 3, 2, 3)
    assert core.transferring == 3


# A whole cluster.


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster((1, 2, 3), election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    cluster.elect(1)
    return cluster


def leaders(cluster: Cluster) -> list[int]:
    return [node_id for node_id, node in cluster.nodes.items() if node.up and node.core.role is Role.LEADER]


def test_the_successor_commits_what_the_old_leader_could_not_answer(cluster: Cluster) -> None:
    cluster.nodes[1].hangs = True
    cluster[1].propose(b"a")
    # Found committed a tick after it was marked, so two ticks more than an election timeout are allowed.
    cluster.tick(TIMEOUT + 3)
    assert leaders(cluster) == [1]
    cluster.tick(1)
    assert leaders(cluster) == [2]
    assert (2, 1, b"a") in cluster.nodes[2].applied
    assert (2, 1, b"a") not in cluster.nodes[1].applied
    cluster[2].propose(b"b")
    cluster.tick(HEARTBEAT)
    assert cluster.nodes[3].applied[-1][2] == b"b"


def test_nothing_that_rests_on_the_write_that_hangs_leaves(cluster: Cluster) -> None:
    cluster.nodes[1].hangs = True
    cluster[1].propose(b"a")
    sent = len(cluster.sent)
    cluster.tick(5 * TIMEOUT)
    assert (cluster[1].vote, cluster[1].last_index) == (2, cluster[2].last_index)
    left = [message for message in cluster.sent[sent:] if message.sender == 1]
    assert not of(RequestVoteReply, left)
    assert not of(AppendEntriesReply, left)


def test_the_old_leader_follows_and_catches_up_when_its_disk_answers(cluster: Cluster) -> None:
    cluster.nodes[1].hangs = True
    cluster[1].propose(b"a")
    cluster.tick(5 * TIMEOUT)
    cluster.nodes[1].hangs = False
    cluster.nodes[1].sync()
    cluster.tick(2 * CALM_TIMEOUTS * TIMEOUT)
    assert leaders(cluster) == [2]
    assert cluster.nodes[1].applied == cluster.nodes[2].applied
    assert not cluster[1].disk.slow


def test_equally_hanging_disks_change_no_leader(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.hangs = True
    cluster[1].propose(b"a")
    cluster.tick(10 * TIMEOUT)
    assert leaders(cluster) == [1]
    for node in cluster.nodes.values():
        node.hangs = False
        node.sync()
    cluster.tick(HEARTBEAT)
    assert [node.applied[-1][2] for node in cluster.nodes.values()] == [b"a"] * 3
    assert cluster[1].term == 1


def test_a_followers_hanging_disk_costs_nothing(cluster: Cluster) -> None:
    cluster.nodes[3].hangs = True
    for number in range(5):
        cluster[1].propose(b"%d" % number)
        cluster.tick(TIMEOUT)
    assert (leaders(cluster), cluster[1].term) == ([1], 1)
    assert cluster.nodes[1].applied[-1][2] == b"4"


# Who comes to lead.


def follower() -> RaftCore:
    """Follower 1 of leader 2, durable so far."""
    core = make_core(1, election_ticks=TIMEOUT, heartbeat_ticks=HEARTBEAT)
    core.step(append(core, (0, 0), [1], term=1))
    flush(core)
    return core


def stall(core: RaftCore, *, ticks: int = TIMEOUT + 2) -> None:
    """A write of a follower hangs while its leader goes on."""
    core.step(append(core, (core.last_index, 1), [1], term=1))
    core.ready()
    for _ in range(ticks):
        core.tick()
        core.step(Heartbeat(1, 2, 1, 0, 0, 0))


def end_stall(core: RaftCore) -> None:
    """The write is durable after all."""
    core.written(core._outbox.oldest_write)
    flush(core)
    core.tick()


def test_whoever_is_named_takes_over_while_its_disk_works() -> None:
    core = follower()
    stall(core, ticks=TIMEOUT)
    core.step(TimeoutNow(1, 2, 1))
    assert core.role is Role.CANDIDATE


def test_whoever_is_named_while_its_own_write_stalls_declines() -> None:
    core = follower()
    stall(core)
    core.step(TimeoutNow(1, 2, 1))
    assert (core.role, core.term, core.leader_id) == (Role.FOLLOWER, 1, 2)


def test_nobody_stands_while_its_own_write_stalls() -> None:
    core = follower()
    stall(core)
    tick(core, 20 * TIMEOUT)
    assert (core.role, core.leader_id, of(PreVote, flush(core))) == (Role.FOLLOWER, None, [])


def test_it_stands_once_its_write_is_durable() -> None:
    core = follower()
    stall(core)
    tick(core, 5 * TIMEOUT)
    end_stall(core)
    tick(core, 4 * TIMEOUT)
    assert core.role is Role.PRE_CANDIDATE


def test_whose_disk_was_slow_waits_an_election_timeout_longer() -> None:
    sound, slow = follower(), follower()
    stall(slow)
    end_stall(slow)
    slow.step(Heartbeat(1, 2, 1, 0, 0, 0))
    waited = [_ticks_until_it_stands(core) for core in (sound, slow)]
    assert waited[1] == waited[0] + TIMEOUT


def test_whose_disk_was_slow_does_not_take_its_turn_when_the_link_breaks() -> None:
    sound, slow = follower(), follower()
    stall(slow)
    end_stall(slow)
    for core in (sound, slow):
        core.link_lost(2)
    assert (sound.role, slow.role) == (Role.PRE_CANDIDATE, Role.FOLLOWER)
    assert _ticks_until_it_stands(slow) > TIMEOUT


def test_a_slow_disk_is_forgotten_when_it_was_fast_for_long() -> None:
    core = follower()
    stall(core)
    end_stall(core)
    for _ in range(CALM_TIMEOUTS * TIMEOUT):
        core.tick()
        core.step(Heartbeat(1, 2, 1, 0, 0, 0))
    core.link_lost(2)
    assert core.role is Role.PRE_CANDIDATE


def _ticks_until_it_stands(core: RaftCore) -> int:
    for ticks in range(1, 10 * TIMEOUT):
        core.tick()
        if core.role is not Role.FOLLOWER:
            return ticks
    raise AssertionError(f"it never stood: {core.role}")


def test_all_slow_disks_still_elect_a_leader(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.hangs = True
    cluster[1].propose(b"a")
    cluster.tick(3 * TIMEOUT)
    for node in cluster.nodes.values():
        node.hangs = False
        node.sync()
    assert cluster[2].disk.slow
    cluster.nodes[1].up = False
    cluster.tick(4 * TIMEOUT)
    assert leaders(cluster) in ([2], [3])
    assert of(RequestVote, cluster.sent)[-1].transfer is False
