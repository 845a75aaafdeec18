"""From a request to the next configuration, and who is answered when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.voter_changes import VoterChanges
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.transport.identity import Peer
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import AddVoterResponse, RemoveVoterResponse
from pidkeeper.protocol.metadata_version import BASE, LATEST
from pidkeeper.protocol.records import MAX_MEMBERS, FeatureLevelRecord, QuorumMember
from tests.support.raft_network import accepted, flush, make_core, replicating_leader

FOUR = QuorumMember(4, None, "h:4", "http://h:4", True)


class Changes:
    """The changes of a quorum with this metadata version, and the entries that they wait for."""

    def __init__(self, core: RaftCore, version: int = LATEST) -> None:
        machine = StateMachine("c")
        machine.replay([FeatureLevelRecord(version)])
        proposals = Proposals(core)
        self._changes = VoterChanges(core, machine, proposals)
        self.applied = proposals.applied

    def add(self, wanted: QuorumMember, peer: Peer | None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._changes.add(wanted, peer, answer)
        return answer

    def remove(self, member_id: int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._changes.remove(member_id, answer)
        return answer


def commit_last(core: RaftCore, changes: Changes) -> None:
    """The voters acknowledge everything, and the last entry is applied."""
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    flush(core)
    (entry,) = core.log.slice(core.last_index, core.last_index)
    changes.applied(entry)


def refused(code: ErrorCode, match: str) -> pytest.RaisesExc[RequestError]:
    return pytest.raises(RequestError, match=f"^{code.name}: .*{match}")


async def test_a_member_is_added_in_two_steps_and_removed_in_one() -> None:
    core = replicating_leader()
    changes = Changes(core)
    first = changes.add(FOUR, Peer("disk"))
    assert not first.done(), "nothing is answered before it is committed"
    commit_last(core, changes)
    assert first.result() == AddVoterResponse(4, voting=False)
    assert core.membership.record.members[3] == QuorumMember(4, "disk", "h:4", "http://h:4", False)

    early = changes.add(FOUR, Peer("disk"))
    assert early.result() == AddVoterResponse(4, voting=False, waiting_for="learner 4 does not answer")

    core.step(accepted(core, 4, core.last_index))
    second = changes.add(FOUR, Peer("disk"))
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    commit_last(core, changes)
    assert second.result() == AddVoterResponse(4, voting=True)
    assert core.membership.voters == frozenset({1, 2, 3, 4})
    again = changes.add(FOUR, None)
    commit_last(core, changes)
    assert again.result() == AddVoterResponse(4, voting=True), "asking again changes nothing"
    assert core.membership.voters == frozenset({1, 2, 3, 4})

    gone = changes.remove(4)
    commit_last(core, changes)
    assert gone.result() == RemoveVoterResponse(4)
    assert core.membership.members == frozenset({1, 2, 3})


async def test_another_entry_in_its_place_is_not_answered_as_success() -> None:
    core = replicating_leader()
    changes = Changes(core)
    answer = changes.add(FOUR, None)
    changes.applied(Entry(1, core.last_index - 1, b""))
    assert not answer.done()
    changes.applied(Entry(9, core.last_index, b""))
    with refused(ErrorCode.NOT_CONTROLLER, ""):
        answer.result()


async def test_requests_that_make_no_sense_change_nothing() -> None:
    core = replicating_leader()
    changes = Changes(core)
    last = core.last_index
    with refused(ErrorCode.INVALID_REQUEST, "member 1 is known at"):
        changes.add(QuorumMember(1, None, "elsewhere:1", "http://h:1", True), None)
    with refused(ErrorCode.INVALID_REQUEST, "has directory other, not mine"):
        changes.add(QuorumMember(4, "mine", "h:4", "http://h:4", True), Peer("other"))
    assert core.last_index == last
    unknown = changes.remove(9)
    commit_last(core, changes)
    with refused(ErrorCode.RESOURCE_NOT_FOUND, r"member 9 is not in the quorum: its members are \[1, 2, 3\]"):
        unknown.result()
    assert core.membership.members == frozenset({1, 2, 3})
    single = replicating_leader(voters=(1,))
    with refused(ErrorCode.INVALID_REQUEST, "member 1 is the last voter"):
        Changes(single).remove(1)
    with refused(ErrorCode.NOT_CONTROLLER, ""):
        Changes(make_core(1)).remove(2)


async def test_members_are_bounded() -> None:
    core = replicating_leader(voters=tuple(range(1, MAX_MEMBERS + 1)))
    with refused(ErrorCode.INVALID_REQUEST, f"there are {MAX_MEMBERS} members already"):
        Changes(core).add(QuorumMember(10, None, "h:1", "http://h:1", True), None)


async def test_a_second_change_waits_for_the_first() -> None:
    core = replicating_leader()
    changes = Changes(core)
    changes.add(FOUR, None)
    with refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, "is not committed yet"):
        changes.remove(3)
    with refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, "is not committed yet"):
        changes.add(QuorumMember(5, None, "h:5", "http://h:5", True), None)


async def test_builds_that_are_too_old_for_a_change_are_named() -> None:
    core = replicating_leader()
    last = core.last_index
    changes = Changes(core, BASE)
    reason = r"has metadata version 1.*see that all members \[1, 2, 3\] run"
    with refused(ErrorCode.UNSUPPORTED_VERSION, reason):
        changes.add(FOUR, Peer("disk"))
    with refused(ErrorCode.UNSUPPORTED_VERSION, reason):
        changes.remove(3)
    with refused(ErrorCode.UNSUPPORTED_VERSION, "upgrade member 4 first: it reads metadata version 1"):
        Changes(core).add(FOUR, Peer("disk", BASE))
    assert core.last_index == last


async def test_nothing_counts_as_done_before_it_is_committed() -> None:
    core = replicating_leader()
    changes = Changes(core)
    changes.add(FOUR, None)
    commit_last(core, changes)
    core.step(accepted(core, 4, core.last_index))
    changes.add(FOUR, None)
    again = changes.add(FOUR, None)
    changes.applied(Entry(1, core.commit, b""))
    assert not again.done()
    for peer in (2, 3):
        core.step(accepted(core, peer, core.last_index))
    commit_last(core, changes)
    assert again.result() == AddVoterResponse(4, voting=True)
    changes.remove(4)
    gone = changes.remove(4)
    assert not gone.done()
    commit_last(core, changes)
    with refused(ErrorCode.RESOURCE_NOT_FOUND, "member 4 is not in the quorum"):
        gone.result()


async def test_a_leader_that_was_cut_off_does_not_say_that_nothing_is_left_to_do() -> None:
    core = replicating_leader()
    changes = Changes(core)
    answers = [changes.add(QuorumMember(1, None, "", "", True), None), changes.remove(9)]
    changes.applied(Entry(9, core.last_index, b""))
    for answer in answers:
        with refused(ErrorCode.NOT_CONTROLLER, ""):
            answer.result()


async def test_a_follower_says_nothing_of_the_quorum() -> None:
    changes = Changes(make_core(1))
    one = QuorumMember(1, None, "", "", True)
    with refused(ErrorCode.NOT_CONTROLLER, ""):
        changes.add(one, None)
    with refused(ErrorCode.NOT_CONTROLLER, ""):
        changes.remove(9)
