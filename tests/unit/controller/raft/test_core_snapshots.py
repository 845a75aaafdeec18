"""Compaction, and chunked transfer to a follower that needs what was dropped."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.controller.raft.core import ChunkRequest, InvariantViolation, RaftCore, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    RequestVote,
    RequestVoteReply,
)
from pidkeeper.controller.raft.progress import PROBE, SNAPSHOT
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import (
    Cluster,
    accepted,
    append,
    flush,
    make_core,
    make_leader,
    of,
    rejected,
    replicating_leader,
    tick,
)

AT_11 = SnapshotId(11, 1)


def sending_leader(**config: Any) -> RaftCore:
    """Leader 1 with a snapshot that follower 2 needs: its log is empty. Nothing was taken from it yet."""
    core = make_core(1, terms=[], snapshot=AT_11, **config)
    make_leader(core)
    core.step(accepted(core, 3, 12))
    core.step(rejected(core, 2, 11, 0, 0))
    return core


def requests(core: RaftCore) -> list[ChunkRequest]:
    found: list[ChunkRequest] = []
    while (ready := core.ready()) is not None:
        found += ready.chunk_requests
        if ready.token is not None:
            core.written(ready.token)
    return found


def chunk(
    offset: int, data: bytes, *, done: bool = False, snapshot: SnapshotId = AT_11, term: int = 1
) -> InstallSnapshot:
    return InstallSnapshot(term, 2, 1, snapshot, offset, data, done)


def stored(core: RaftCore) -> tuple[list[InstallSnapshot], list[Message]]:
    chunks, messages = [], []
    while (ready := core.ready()) is not None:
        chunks += ready.chunks
        messages += ready.messages
        if ready.token is not None:
            core.written(ready.token)
    return chunks, messages


def wanted(offset: int, snapshot: SnapshotId = AT_11) -> InstallSnapshotReply:
    return InstallSnapshotReply(1, 1, 2, snapshot, offset, False)


def test_compact_drops_entries_and_keeps_the_newest_snapshot() -> None:
    core = make_core(1, terms=[1] * 6, commit=5)
    flush(core)
    core.compact(SnapshotId(4, 1), 3)
    assert (core.first_index, core.snapshot, core.term_at(2), core.term_at(1)) == (3, SnapshotId(4, 1), 1, None)
    core.compact(SnapshotId(3, 1), 4)
    assert (core.first_index, core.snapshot) == (4, SnapshotId(4, 1))


def test_the_tail_that_stays_behind_a_snapshot_is_that_of_the_log() -> None:
    core = make_core(1, terms=[1, 1, 1, 1, 1])
    assert core.tail(4, 2, 1_000) == 3


def test_a_snapshot_never_covers_more_than_was_applied() -> None:
    core = make_core(1, terms=[1] * 6, commit=5)
    with pytest.raises(InvariantViolation, match=r"^R12:"):
        core.compact(SnapshotId(5, 1), 1)
    flush(core)
    with pytest.raises(InvariantViolation, match=r"^R12:"):
        core.compact(SnapshotId(4, 1), 6)


def test_a_slow_follower_is_served_from_entries_below_the_snapshot() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    for _ in range(5):
        leader.propose(b"a")
    cluster.settle()
    cluster.nodes[1].take_snapshot(keep=5)
    cluster.heal()
    cluster.tick(10)
    assert cluster.nodes[3].applied == cluster.nodes[1].applied
    assert of(InstallSnapshot, cluster.sent) == []


def test_the_leader_asks_for_the_first_chunk_and_pauses_replication() -> None:
    core = sending_leader()
    progress = core.progress[2]
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 0)]
    assert (progress.state, progress.snapshot) == (SNAPSHOT, AT_11)

    core.propose(b"a")

    assert [message.to for message in of(AppendEntries, flush(core))] == [3]


def test_chunks_follow_each_other_and_repeated_replies_do_not_multiply() -> None:
    core = sending_leader()
    requests(core)
    for _ in range(3):
        core.step(InstallSnapshotReply(2, 2, 1, AT_11, 100, False))
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 100)]
    core.step(InstallSnapshotReply(2, 2, 1, SnapshotId(7, 1), 300, False))
    assert requests(core) == [], "of another snapshot"
    core.step(InstallSnapshotReply(2, 2, 1, AT_11, 0, False))
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 0)], "the follower started over"


def test_a_lost_chunk_is_asked_for_again_after_a_heartbeat() -> None:
    core = sending_leader()
    core.step(InstallSnapshotReply(2, 2, 1, AT_11, 100, False))
    requests(core)
    tick(core, core.config.heartbeat_ticks)
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 100)]


def test_a_stuck_transfer_starts_over_with_a_newer_snapshot() -> None:
    core = sending_leader(election_ticks=10)
    core.step(InstallSnapshotReply(2, 2, 1, AT_11, 100, False))
    requests(core)
    core.applied_to(12)
    core.compact(SnapshotId(12, 2), 13)
    for _ in range(2):
        tick(core, 5)
        core.step(accepted(core, 3, 12))
    assert requests(core)[-1] == ChunkRequest(2, 2, SnapshotId(12, 2), 0)


def test_installed_ends_the_transfer() -> None:
    core = sending_leader()
    requests(core)
    core.step(InstallSnapshotReply(2, 2, 1, AT_11, 0, True))
    assert (core.progress[2].state, core.progress[2].match, core.progress[2].next) == (PROBE, 11, 12)
    assert [(m.to, m.prev_log_index, len(m.entries)) for m in of(AppendEntries, flush(core))] == [(2, 11, 1)]


def test_an_acknowledgement_past_the_compaction_point_ends_the_transfer() -> None:
    core = sending_leader()
    requests(core)
    core.step(accepted(core, 2, 5))
    assert core.progress[2].state.value == "snapshot", "what follows 5 was dropped"
    core.step(accepted(core, 2, 11))
    assert core.progress[2].state.value == "probe"
    assert [(m.to, m.prev_log_index) for m in of(AppendEntries, flush(core))] == [(2, 11)]


def test_a_lost_link_starts_over() -> None:
    core = sending_leader()
    core.step(InstallSnapshotReply(2, 2, 1, AT_11, 100, False))
    requests(core)
    core.link_lost(2)
    core.link_up(2)
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 0)]


def test_the_follower_takes_chunks_in_order() -> None:
    core = make_core(1, terms=[1, 1])
    for message in (chunk(0, b"abc"), chunk(3, b"de"), chunk(5, b"f", done=True)):
        core.step(message)
    chunks, messages = stored(core)
    assert b"".join(part.data for part in chunks) == b"abcdef"
    assert messages == [wanted(3), wanted(5)], "the last one is answered when it is installed"


def test_lost_repeated_and_early_chunks_are_answered_with_the_wanted_one() -> None:
    core = make_core(1, term=1)
    for message in (chunk(3, b"de"), chunk(0, b"abc"), chunk(0, b"abc"), chunk(9, b"zz", done=True)):
        core.step(message)
    chunks, messages = stored(core)
    assert [part.offset for part in chunks] == [0]
    assert messages == [wanted(0), wanted(3), wanted(3), wanted(3)]


def test_a_newer_snapshot_starts_over_and_an_older_one_is_ignored() -> None:
    core = make_core(1, term=1)
    newer = SnapshotId(20, 1)
    core.step(chunk(0, b"abc"))
    core.step(chunk(0, b"new", snapshot=newer))
    core.step(chunk(3, b"de"))
    core.step(chunk(3, b"er", snapshot=newer))
    chunks, messages = stored(core)
    assert [(part.snapshot, part.offset) for part in chunks] == [(AT_11, 0), (newer, 0), (newer, 3)]
    assert messages == [wanted(3), wanted(3, newer), wanted(5, newer)]


def test_a_new_leaders_file_starts_over() -> None:
    core = make_core(1, term=1)
    core.step(chunk(0, b"abc"))
    stored(core)
    core.step(chunk(3, b"de", term=2))
    chunks, messages = stored(core)
    assert chunks == []
    assert [message.next_offset for message in of(InstallSnapshotReply, messages)] == [0]


def test_a_snapshot_that_is_not_needed_is_answered_with_the_commit_index() -> None:
    core = make_core(1, terms=[1] * 12, commit=11)
    core.step(chunk(0, b"abc"))
    chunks, messages = stored(core)
    assert chunks == []
    assert [message.match_index for message in of(AppendEntriesReply, messages)] == [11]


def test_installing_replaces_the_log() -> None:
    core = make_core(1, terms=[1, 1], commit=1)
    core.step(chunk(0, b"abc", done=True))
    stored(core)
    core.snapshot_installed(AT_11)
    assert (core.commit, core.applied, core.last_index, core.first_index, core.snapshot) == (11, 11, 11, 12, AT_11)
    assert of(InstallSnapshotReply, flush(core)) == [InstallSnapshotReply(1, 1, 2, AT_11, 0, True)]
    core.step(append(core, (11, 1), [1], term=1, commit=12))
    assert [entry.index for entry in committed(core)] == [12]


def committed(core: RaftCore) -> list[Entry]:
    found: list[Entry] = []
    while (ready := core.ready()) is not None:
        found += ready.committed
        if ready.token is not None:
            core.written(ready.token)
    return found


def test_a_snapshot_that_the_log_reaches_already_is_not_installed() -> None:
    core = make_core(1, terms=[1] * 13)
    core.step(chunk(0, b"abc", done=True))
    chunks, replies = stored(core)
    assert chunks == []
    assert [reply.match_index for reply in replies if isinstance(reply, AppendEntriesReply)] == [11]
    assert (core.commit, core.last_index) == (11, 13)


def test_nothing_is_applied_or_appended_while_a_snapshot_is_being_installed() -> None:
    core = make_core(1, terms=[1, 1], commit=2)
    core.step(chunk(0, b"abc", done=True))
    core.step(append(core, (2, 1), [1], term=1, commit=3))
    assert core.last_index == 2
    assert committed(core) == []
    core.step(chunk(0, b"xyz", snapshot=SnapshotId(30, 1)))
    assert stored(core)[0] == []
    core.snapshot_installed(AT_11)
    core.step(append(core, (11, 1), [1], term=1, commit=12))
    assert core.last_index == 12


def test_an_unusable_snapshot_is_forgotten() -> None:
    core = make_core(1, terms=[1], commit=1)
    core.step(chunk(0, b"abc", done=True))
    assert committed(core) == []
    core.snapshot_failed(AT_11)
    assert len(committed(core)) == 1
    core.step(chunk(0, b"abc", done=True))
    assert len(stored(core)[0]) == 1
    core.snapshot_installed(AT_11)
    assert core.applied == 11


def test_only_the_received_snapshot_can_be_installed() -> None:
    core = make_core(1, term=1)
    with pytest.raises(InvariantViolation, match=r"^R12:"):
        core.snapshot_installed(AT_11)


def test_a_snapshot_is_being_received_until_it_is_installed() -> None:
    core = make_core(1, term=1)

    def under_way() -> tuple[bool, SnapshotId | None]:
        return core.receiving, core.installing

    assert under_way() == (False, None), "nobody is followed"
    core.step(Heartbeat(1, 2, 1, 0, 0))
    assert under_way() == (False, None), "the leader has sent none"
    core.step(chunk(0, b"ab"))
    assert under_way() == (True, None)
    core.step(chunk(2, b"c", done=True))
    stored(core)
    assert under_way() == (True, AT_11)
    core.snapshot_installed(AT_11)
    assert under_way() == (False, None)


def test_a_vote_waits_until_the_snapshot_is_installed() -> None:
    core = make_core(1, terms=[1, 1], commit=1)
    core.step(chunk(0, b"abc", done=True))
    assert len(stored(core)[0]) == 1
    core.step(RequestVote(2, 3, 1, 12, 1, True))
    assert core.ready() is None  # a hard state with commit 1 would be written behind the snapshot's, with commit 11
    core.snapshot_installed(AT_11)
    ready = core.ready()
    assert ready is not None and ready.token is not None
    assert ready.hard_state == HardState(2, 3, 11) and ready.messages == []
    core.written(ready.token)
    assert [(reply.to, reply.granted) for reply in of(RequestVoteReply, flush(core))] == [(3, True)]


def test_a_vote_waits_no_longer_once_the_snapshot_proved_unusable() -> None:
    core = make_core(1, terms=[1, 1], commit=1)
    core.step(chunk(0, b"abc", done=True))
    stored(core)
    core.step(RequestVote(2, 3, 1, 12, 1, True))
    assert core.ready() is None
    core.snapshot_failed(AT_11)
    ready = core.ready()
    assert ready is not None and ready.hard_state == HardState(2, 3, 1)


def test_a_hard_state_from_before_the_last_chunk_is_written_before_it() -> None:
    core = make_core(1, terms=[1, 1], commit=1)
    core.step(RequestVote(2, 3, 1, 12, 1, True))
    core.step(InstallSnapshot(2, 3, 1, AT_11, 0, b"abc", True))
    ready = core.ready()
    assert ready is not None and len(ready.chunks) == 1
    assert ready.hard_state == HardState(2, 3, 1)


def test_a_leader_does_not_replace_its_log() -> None:
    core = make_core(1, term=1)
    make_leader(core)
    core._receiver.installing = AT_11  # it cannot come to this: nobody is elected without a durable vote
    with pytest.raises(InvariantViolation, match=r"^R6:"):
        core.snapshot_installed(AT_11)


def test_a_heartbeat_reply_does_not_disturb_a_transfer() -> None:
    core = sending_leader()
    requests(core)
    core.step(Heartbeat(1, 2, 1, 0, 0))
    assert core.progress[2].state is SNAPSHOT


@pytest.mark.parametrize("loss", [0, 3, 2])
def test_slow_node_restore_with_lost_and_repeated_chunks(loss: int) -> None:
    cluster = Cluster(chunk_bytes=16)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for _ in range(30):
        leader.propose(b"x" * 10)
    cluster.settle()
    cluster.nodes[1].take_snapshot()
    seen = 0

    def drop(message: Message) -> bool:
        nonlocal seen
        if isinstance(message, InstallSnapshot | InstallSnapshotReply):
            seen += 1
            if loss == 2 and isinstance(message, InstallSnapshot):
                cluster[3].step(message)
            return loss == 3 and seen % 3 == 0
        return False

    cluster.drop = drop
    cluster.tick(400)

    assert cluster.nodes[3].applied == cluster.nodes[1].applied
    assert cluster[3].snapshot.index == 31
    chunks = len(of(InstallSnapshot, cluster.sent))
    size = len(cluster.nodes[1].disk.image)
    assert chunks <= (2 if loss == 3 else 1) * (size // 16 + 1)


def test_replicating_after_install_reaches_the_replicate_state() -> None:
    core = replicating_leader()
    core.compact(SnapshotId(1, 1), 2)
    core.link_lost(2)
    core.link_up(2)
    assert [(m.to, m.prev_log_index) for m in of(AppendEntries, flush(core))] == [(2, 1)]


def wants(offset: int) -> InstallSnapshotReply:
    return InstallSnapshotReply(2, 2, 1, AT_11, offset, False)


def test_a_chunk_is_not_asked_for_again_before_a_heartbeat_interval() -> None:
    core = sending_leader()
    requests(core)
    tick(core, 3)
    core.step(wants(100))
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 100)]
    tick(core, 2)
    assert requests(core) == []
    tick(core, 5)
    assert requests(core) == [ChunkRequest(2, 2, AT_11, 100)]


def test_a_transfer_that_moves_goes_on_in_spite_of_a_newer_snapshot() -> None:
    core = sending_leader(election_ticks=10)
    requests(core)
    core.applied_to(12)
    core.compact(SnapshotId(12, 2), 13)
    for offset in range(100, 500, 100):
        tick(core, 5)
        core.step(wants(offset))
        assert requests(core)[-1] == ChunkRequest(2, 2, AT_11, offset)


def test_a_stuck_transfer_of_the_newest_snapshot_asks_for_the_same_chunk() -> None:
    core = sending_leader(election_ticks=10)
    core.step(wants(100))
    requests(core)
    for _ in range(4):
        tick(core, 5)
        core.step(accepted(core, 3, 12))
    assert set(requests(core)) == {ChunkRequest(2, 2, AT_11, 100)}


def test_asking_for_a_chunk_is_a_sign_of_life() -> None:
    core = sending_leader(election_ticks=10)
    tick(core, 7)
    core.step(wants(100))
    assert core.silent_ticks(2) == 0


def test_an_acknowledgement_just_below_the_compaction_point_does_not_end_the_transfer() -> None:
    core = sending_leader()
    requests(core)
    core.step(accepted(core, 2, 10))
    assert (core.progress[2].state, requests(core)) == (SNAPSHOT, [])


def role_after(core: RaftCore, ticks: int) -> Role:
    tick(core, ticks)
    return core.role


def test_a_chunk_keeps_the_follower_quiet() -> None:
    core = make_core(1, terms=[1, 1])
    core.step(chunk(0, b"abc"))
    tick(core, 20)
    core.step(chunk(3, b"def"))
    quiet = core.config.election_ticks
    assert [role_after(core, quiet), role_after(core, 1)] == [Role.FOLLOWER, Role.PRE_CANDIDATE]


@pytest.mark.parametrize("terms", [[1, 1], [1] * 13])
def test_a_recovering_follower_has_verified_what_a_snapshot_covers(terms: list[int]) -> None:
    core = make_core(1, terms=terms, recovering=True)
    core.step(chunk(0, b"abc", done=True))
    if stored(core)[0]:
        core.snapshot_installed(AT_11)
    flush(core)
    core.step(Heartbeat(1, 2, 1, 11, 0))
    assert of(HeartbeatReply, flush(core)) == [HeartbeatReply(1, 1, 2, 11)]


def test_a_snapshot_of_a_term_above_its_leaders_is_not_taken() -> None:
    """With it in the log's place the member would refuse its own disk at the next start."""
    core = make_core(1, term=4)
    with pytest.raises(InvariantViolation, match=r"^R1: a snapshot of term 5 came in term 4"):
        core.step(chunk(0, b"x", done=True, snapshot=SnapshotId(11, 5), term=4))
    assert core.ready() is None
