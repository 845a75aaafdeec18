"""From metadata version 2 on the log says who the voters are, whether any was ever changed or not (KIP-853)."""

from __future__ import annotations

from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import RequestVoteReply
from pidkeeper.protocol.records import QuorumMember, VotersRecord, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.raft_network import (
    NOOP,
    Cluster,
    flush,
    make_candidate,
    make_core,
    members,
)


def named(core: RaftCore) -> list[int]:
    """Where the log of `core` says who the voters are."""
    entries = core.log.slice(core.first_index, core.last_index)
    return [entry.index for entry in entries if read_voters(entry.data) is not None]


def elected(core: RaftCore) -> RaftCore:
    make_candidate(core)
    flush(core)
    core.step(RequestVoteReply(core.term, 2, 1, True, 0))
    assert core.role is Role.LEADER
    return core


def naming_cluster() -> Cluster:
    cluster = Cluster()
    for node in cluster.nodes.values():
        node.core.name_voters()
    return cluster


def test_the_first_entry_of_a_leader_names_the_voters_where_the_log_does_not() -> None:
    cluster = naming_cluster()
    leader = cluster.elect(1)
    cluster.settle()
    assert named(leader) == [leader.commit] == [leader.leadership.noop_index if leader.leadership else None]
    for node in (1, 2, 3):
        assert cluster[node].membership.index == leader.commit
        assert cluster[node].voters == {1, 2, 3}


def test_a_later_leader_has_it_in_its_log_and_adds_an_empty_entry() -> None:
    cluster = naming_cluster()
    cluster.elect(1).transfer_leadership(2)
    cluster.settle()
    second = cluster[2]
    assert second.role is Role.LEADER
    assert len(named(second)) == 1
    assert second.leadership is not None
    assert [entry.data for entry in second.log.slice(second.leadership.noop_index, second.last_index)] == [NOOP]


def test_nobody_writes_what_some_member_cannot_read() -> None:
    assert named(elected(make_core(1, terms=[1]))) == []


def test_who_leads_already_names_them_at_once_and_once_only() -> None:
    leader = elected(make_core(1, terms=[1]))
    before = leader.last_index
    leader.name_voters()
    leader.name_voters()
    assert named(leader) == [before + 1] == [leader.last_index]
    assert leader.voters == {1, 2, 3}


def test_a_log_that_names_them_is_left_alone() -> None:
    core = make_core(1, snapshot=SnapshotId(7, 1))
    core.log.memberships.restart(7, members(1, 2, 4))
    core.name_voters()
    elected(core)
    assert named(core) == []
    assert core.voters == {1, 2, 4}


def test_a_snapshot_without_voters_needs_an_entry() -> None:
    core = make_core(1, snapshot=SnapshotId(7, 1))
    core.name_voters()
    assert named(elected(core)) == [8]


def test_the_log_holds_against_whatever_a_member_was_founded_with() -> None:
    """A blank disk that was told of five voters by machines that only their files call voters."""
    cluster = naming_cluster()
    leader = cluster.elect(2)
    cluster.settle()
    misled = make_core(1, voters=(1, 2, 3, 4, 5), recovering=True)
    for entry in leader.log.slice(leader.first_index, leader.last_index):
        misled.log.append(entry)
    assert misled.voters == {1, 2, 3}
    assert misled.membership.index == leader.last_index


def record(*addresses: str, directory_id: str | None = None) -> VotersRecord:
    return VotersRecord(
        tuple(
            QuorumMember(one, directory_id, f"{address}:1", f"http://{address}:2", True)
            for one, address in enumerate(addresses, 1)
        )
    )


def test_members_since_the_founding_are_where_the_file_says() -> None:
    """The entry was written with the file of some leader of long ago."""
    memberships = Memberships(record("moved", "b", "c"), 7, record("a", "b", "c"))
    assert [one.peer for one in memberships.members_of(memberships.newest)] == ["moved:1", "b:1", "c:1"]
    assert [one.http for one in memberships.contacts()] == ["http://moved:2", "http://b:2", "http://c:2"]


def test_members_that_a_change_took_in_are_where_the_change_says() -> None:
    added = record("a", "b", "c", directory_id="d")
    assert Memberships(record("old", "b", "c"), 7, added).contacts() == list(added.members)
    # A removed voter's id, given to a machine that has not connected yet, so that its directory is not known.
    learner = QuorumMember(1, None, "new:1", "http://new:2", False)
    back = VotersRecord((learner, *record("a", "b", "c").members[1:]))
    assert Memberships(record("old", "b", "c"), 7, back).contacts()[0] == learner


def test_committed_voters_are_told_where_they_are_reached() -> None:
    core = make_core(1, voters=(1, 2))
    core.join(record("moved", "b"))
    core.log.memberships.restart(7, record("a", "b"))
    assert [one.peer for one in core.committed_voters] == [one.peer for one in core.members] == ["moved:1", "b:1"]
