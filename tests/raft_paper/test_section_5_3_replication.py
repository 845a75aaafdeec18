"""Raft paper, section 5.3: log replication, and the AppendEntries rules of figure 2."""

from __future__ import annotations

import pytest

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.messages import AppendEntries, AppendEntriesReply, Entry
from tests.support.raft_network import (
    Cluster,
    accepted,
    append,
    entries_of,
    flush,
    make_core,
    make_leader,
    of,
    replicating_leader,
)


def log_of(core: RaftCore) -> list[tuple[int, int]]:
    return [(entry.index, entry.term) for entry in core.log.slice(core.first_index, core.last_index)]


def test_leader_starts_replication() -> None:
    """The leader appends the command to its log, then sends AppendEntries with the entry before it to every server."""
    core = replicating_leader()

    term, index = core.propose(b"some")

    assert (term, index, core.last_index, core.commit) == (1, 2, 2, 1)
    expected = [AppendEntries(1, 1, peer, 1, 1, 1, [Entry(1, 2, b"some")]) for peer in (2, 3)]
    assert flush(core) == expected


def test_leader_commit_entry() -> None:
    """When the entry is safely replicated, the leader applies it, and later messages tell the commit index."""
    core = replicating_leader()
    core.propose(b"some")
    flush(core)

    core.step(accepted(core, 2, 2))
    ready = core.ready()

    assert core.commit == 2
    assert ready is not None
    assert ready.committed == [Entry(1, 2, b"some")]
    core.propose(b"next")
    assert [message.leader_commit for message in of(AppendEntries, flush(core))] == [2, 2]


@pytest.mark.parametrize(
    ("size", "acks", "committed"),
    [(1, 0, True), (3, 0, False), (3, 1, True), (3, 2, True), (5, 1, False), (5, 2, True), (5, 4, True)],
)
def test_leader_acknowledge_commit(size: int, acks: int, committed: bool) -> None:
    """A log entry is committed once the leader has replicated it on a majority of the servers."""
    core = replicating_leader(voters=tuple(range(1, size + 1)))
    _, index = core.propose(b"some")
    flush(core)

    for peer in range(2, 2 + acks):
        core.step(accepted(core, peer, index))

    assert (core.commit >= index) == committed


@pytest.mark.parametrize("terms", [[], [2], [1, 2], [1]])
def test_leader_commit_preceding_entries(terms: list[int]) -> None:
    """Committing an entry also commits all preceding entries, those of other leaders included."""
    core = make_core(1, terms=terms, term=2)
    make_leader(core)
    core.propose(b"some")
    flush(core)

    core.step(accepted(core, 2, core.last_index))
    ready = core.ready()

    assert ready is not None
    assert ready.committed == [*entries_of(terms), Entry(3, len(terms) + 1, b""), Entry(3, len(terms) + 2, b"some")]


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_follower_commit_entry(commit: int) -> None:
    """Once a follower learns that an entry is committed, it applies it, in log order."""
    core = make_core(1, term=1)

    core.step(append(core, (0, 0), [1, 1, 1], term=1, commit=commit))
    first = core.ready()
    assert first is not None
    assert first.token is not None
    core.written(first.token)
    second = core.ready()

    assert first.committed == [], "not durable yet"
    assert second is not None
    assert second.committed == entries_of([1] * commit)


@pytest.mark.parametrize(
    ("prev", "accept", "hint"),
    [
        ((0, 0), True, 0),
        ((1, 1), True, 0),
        ((2, 2), True, 0),
        ((1, 2), False, 1),
        ((3, 3), False, 2),
        ((2, 1), False, 1),
    ],
)
def test_follower_check_append(prev: tuple[int, int], accept: bool, hint: int) -> None:
    """A follower refuses entries if its log has no entry at the preceding index with the preceding term."""
    core = make_core(1, terms=[1, 2])

    core.step(append(core, prev, [], term=2))

    (reply,) = of(AppendEntriesReply, flush(core))
    assert reply.rejected == (not accept)
    assert (reply.match_index, reply.rejected_index) == ((prev[0], 0) if accept else (0, prev[0]))
    assert reply.hint_index == hint


@pytest.mark.parametrize(
    ("prev", "terms", "result", "written"),
    [
        ((2, 2), [3], [1, 2, 3], [3]),
        ((1, 1), [3, 4], [1, 3, 4], [3, 4]),
        ((0, 0), [1], [1, 2], []),
        ((0, 0), [3], [3], [3]),
        ((0, 0), [1, 2], [1, 2], []),
        ((0, 0), [1, 2, 4], [1, 2, 4], [4]),
        ((1, 1), [], [1, 2], []),
    ],
)
def test_follower_append_entries(
    prev: tuple[int, int], terms: list[int], result: list[int], written: list[int]
) -> None:
    """A follower deletes an entry that conflicts, and all that follow it, and appends what it lacks: nothing else."""
    core = make_core(1, terms=[1, 2], term=4)

    core.step(append(core, prev, terms, term=4))
    ready = core.ready()

    assert log_of(core) == list(enumerate(result, 1))
    assert ready is not None
    assert [entry.term for entry in ready.entries] == written


FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("name", FIGURE_7)
def test_leader_sync_follower_log(name: str) -> None:
    """The leader brings every follower of figure 7 to its own log."""
    cluster = Cluster()
    for node_id, terms in {1: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6], 2: FIGURE_7[name], 3: [1]}.items():
        node = cluster.nodes[node_id]
        node.disk.entries = entries_of(terms)
        node.disk.hard_state = type(node.disk.hard_state)(term=7, commit=1)
        node.restart()

    # The third voter has little, so it grants; the one of the figure need not.
    cluster.elect(1)
    cluster.tick(10)

    assert log_of(cluster[2]) == log_of(cluster[1]) == log_of(cluster[3])
    assert cluster[2].commit == cluster[1].commit == cluster[1].last_index == 11
    assert cluster.nodes[2].applied == cluster.nodes[1].applied


def test_leader_append_only() -> None:
    """A leader never overwrites or deletes entries in its log: no message of a peer makes it shorter."""
    core = replicating_leader()
    core.propose(b"a")
    flush(core)
    before = log_of(core)

    core.step(AppendEntriesReply(1, 2, 1, True, 0, 2, 0, 0, 0))
    core.step(accepted(core, 3, 1))

    assert core.role is Role.LEADER
    assert log_of(core) == before
