"""What is proposed: its answers leave when that very entry is applied, and with no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.raft.core import RaftCore
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import FeatureLevelRecord, LeaderChangeRecord, Record, VotersRecord, encode_batch
from tests.support.raft_network import make_core, members, replicating_leader

RECORDS: list[Record] = [FeatureLevelRecord(2)]


class ShrinkingLog:
    """A log that loses its end, as a leader's does that is deposed and leads again."""

    node_id = 1
    applied = 0

    def __init__(self) -> None:
        self.term = 1
        self.last_index = 0

    def propose(self, data: bytes) -> tuple[int, int]:
        self.last_index += 1
        return self.term, self.last_index

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        return self.propose(encode_batch([record]))


def future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def entry_at_end(core: RaftCore) -> Entry:
    (entry,) = core.log.slice(core.last_index, core.last_index)
    return entry


async def test_a_commit_is_timed_from_its_proposal_and_only_if_that_very_entry_is_applied() -> None:
    now = 1_000
    log = ShrinkingLog()
    proposals = Proposals(log, lambda: now)
    proposals.propose(RECORDS, [])
    proposals.propose(RECORDS, [])
    now = 1_700
    proposals.applied(Entry(log.term, 1, b""))
    proposals.applied(Entry(log.term + 1, 2, b""))
    assert (proposals.commit_duration.count, proposals.commit_duration._sum) == (1, 700)
    assert (proposals.unknown, proposals.refused) == (1, 0)


async def test_what_could_not_be_appended_and_what_was_given_up_on_are_counted() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    proposals.propose(RECORDS, [])
    core.transfer_leadership(2)
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        proposals.propose(RECORDS, [])
    assert (proposals.unknown, proposals.refused) == (0, 1)
    proposals.deposed()
    assert (proposals.unknown, proposals.refused) == (1, 1)


async def test_outcomes_leave_with_their_entry() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    good, bad = future(), future()
    proposal = proposals.propose(RECORDS, [(good, 7), (bad, RequestError(ErrorCode.INVALID_REQUEST))])
    entry = entry_at_end(core)
    assert proposals.records_of(entry) is RECORDS
    proposals.applied(Entry(entry.term, entry.index - 1, b""))
    assert proposal.pending
    assert not good.done()
    proposals.applied(entry)
    assert good.result() == 7
    assert proposals.records_of(entry) is None, "it is answered once"
    with pytest.raises(RequestError, match="INVALID_REQUEST"):
        bad.result()


async def test_every_entry_releases_its_own_outcomes_alone() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    first, second = future(), future()
    proposals.propose(RECORDS, [(first, 1)])
    entry = entry_at_end(core)
    proposals.propose(RECORDS, [(second, 2)])
    proposals.applied(entry)
    assert (first.result(), second.done()) == (1, False)
    proposals.applied(entry_at_end(core))
    assert second.result() == 2


@pytest.mark.parametrize(("later_term", "later_index"), [(1, 0), (0, 1), (1, 1)])
async def test_another_entry_in_its_place_answers_unknown(later_term: int, later_index: int) -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    answer = future()
    proposals.propose(RECORDS, [(answer, 7)])
    other = Entry(core.term + later_term, core.last_index + later_index, b"")
    assert proposals.records_of(other) is None
    proposals.applied(other)
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        answer.result()


async def test_who_waits_for_an_entry_that_was_truncated_is_told_when_its_place_is_taken() -> None:
    log = ShrinkingLog()
    proposals = Proposals(log)
    first, second = future(), future()
    proposals.propose(RECORDS, [(first, 1)])
    log.last_index, log.term = 0, 3
    proposals.confirm([(second, 2)])
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        first.result()
    proposals.applied(Entry(3, 1, b""))
    assert second.result() == 2


async def test_what_stands_before_the_cut_is_waited_for_still() -> None:
    log = ShrinkingLog()
    proposals = Proposals(log)
    kept, cut, later = future(), future(), future()
    proposals.propose(RECORDS, [(kept, 1)])
    proposals.propose(RECORDS, [(cut, 2)])
    log.last_index, log.term = 1, 3
    proposals.propose(RECORDS, [(later, 3)])
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        cut.result()
    proposals.applied(Entry(1, 1, b""))
    proposals.applied(Entry(3, 2, b""))
    assert (kept.result(), later.result()) == (1, 3)


async def test_lost_leadership_answers_unknown_once() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    answers = [future(), future()]
    for answer in answers:
        proposals.propose(RECORDS, [(answer, 7)])
    proposals.deposed()
    proposals.applied(entry_at_end(core))
    for answer in answers:
        with pytest.raises(RequestError, match="NOT_CONTROLLER"):
            answer.result()


async def test_a_change_of_the_voters_is_waited_for_by_who_leads_no_more() -> None:
    """A leader that is removed may be deposed by the commit, before its own disk has the entry that it then applies."""
    core = replicating_leader()
    proposals = Proposals(core)
    changed, allocated = future(), future()
    proposals.change_members(members(1, 2, 3, learners=(4,)), [(changed, "done")])
    entry = entry_at_end(core)
    proposals.propose(RECORDS, [(allocated, 7)])
    proposals.deposed()
    assert allocated.done()
    assert not changed.done()
    proposals.applied(entry)
    assert changed.result() == "done"


async def test_a_member_that_stops_answers_everything_with_its_fault() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    answers = [future(), future()]
    proposals.change_members(members(1, 2, 3, learners=(4,)), [(answers[0], "done")])
    proposals.propose(RECORDS, [(answers[1], 7)])
    proposals.fail(RequestError(ErrorCode.KAFKA_STORAGE_ERROR))
    for answer in answers:
        with pytest.raises(RequestError, match="KAFKA_STORAGE_ERROR"):
            answer.result()


async def test_what_confirms_changes_nothing() -> None:
    core = replicating_leader()
    proposals = Proposals(core)
    proposals.confirm([])
    assert proposals.records_of(entry_at_end(core)) == [LeaderChangeRecord(core.node_id)]
    assert not proposals.settled()


async def test_a_follower_proposes_nothing() -> None:
    proposals = Proposals(make_core(1))
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        proposals.propose(RECORDS, [(future(), 7)])
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        proposals.confirm([])
    with pytest.raises(RequestError, match="NOT_CONTROLLER"):
        proposals.change_members(members(1, 2, 3, learners=(4,)), [(future(), 7)])
