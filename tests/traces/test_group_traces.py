"""Courses of consumer groups in the specification: what the code decides is allowed, and what it must not is refused.

The decisions are those of the shipped state, replayed by it; whole histories are followed by `make traces`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pidkeeper.controller.state import offset_decisions, requests
from pidkeeper.controller.state.groups.group import TopicRows
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.group_messages import OffsetsTransaction
from pidkeeper.protocol.groups import NO_VERSION, GroupMember, PartitionOffset, TopicOffsets
from pidkeeper.protocol.records import Record
from spec.run import why_no_tlc
from tests.support.log_leader import LogLeader
from tests.traces.group_course import GroupCourse
from tests.traces.group_recorder import GroupRecorder
from tests.traces.group_seeds import listening_to_decisions, recorded, with_groups
from tests.traces.told_course import FollowedCourse

PLACE = ("g", "t", 0)
LIMIT = 1000


class RecordedLeader(LogLeader):
    """A leader whose records are written down, and members of a group."""

    def __init__(self, recorder: GroupRecorder) -> None:
        self.recorder = recorder
        super().__init__()
        self.broker = 7, self.register(7)
        self.add_topic("t")

    def _replay(self, records: list[Record]) -> None:
        super()._replay(records)
        self.recorder.entry(records, self.machine.next_offset - len(records), self.machine)

    def generation(self, number: int, *members: str) -> None:
        """A group has these members."""
        group = self.machine.groups.get("g")
        described = tuple(GroupMember(one, None, "", "") for one in members)
        after = NO_VERSION if group is None else group.version
        self.decide(requests.CommitGroup(self.broker, "g", after, number, "consumer", described))

    def commit(self, offset: int, generation: int, member: str, pair: tuple[int, int] | None = None) -> None:
        """A member commits an offset, in its transaction if it names one."""
        topics = (TopicOffsets("t", (PartitionOffset(0, offset, -1, ""),)),)
        transaction = None if pair is None else OffsetsTransaction("x", *pair, joining=True)
        self.decide(requests.CommitOffsets(self.broker, "g", topics, generation, member, None, transaction))

    def pair(self) -> tuple[int, int]:
        """Of the producer."""
        given = self.decide(requests.InitProducerId(*self.broker, "x", 60_000, -1, -1, -1, may_take_block=True))
        return given.producer_id, given.producer_epoch

    def end_txn(self, pair: tuple[int, int], *, committed: bool) -> tuple[int, int]:
        """The transaction ends: the next pair (KIP-890)."""
        given = self.decide(requests.EndTxn(*self.broker, "x", *pair, committed, new_epoch=True, may_take_block=True))
        return given.producer_id, given.producer_epoch

    def follow(self) -> FollowedCourse:
        """What the specification says."""
        return GroupCourse(self.recorder, PLACE, LIMIT).follow()


@pytest.fixture(autouse=True)
def tlc() -> None:
    """Whoever lacks Java or TLC is told so."""
    if (missing := why_no_tlc()) is not None:
        pytest.skip(missing)


@pytest.fixture
def leader() -> Iterator[RecordedLeader]:
    """With two generations, in the second of which m is no member any more."""
    recorder = GroupRecorder()
    with listening_to_decisions(recorder):
        leader = RecordedLeader(recorder)
        leader.generation(1, "m", "n")
        leader.commit(3, 1, "m")
        leader.generation(2, "n")
        yield leader


def test_what_the_code_decides_is_a_behaviour_of_the_specification(leader: RecordedLeader) -> None:
    pair = leader.pair()
    with pytest.raises(RequestError):
        leader.commit(9, 1, "m", pair)
    leader.commit(5, 2, "n", pair)
    leader.generation(3, "n", "o")
    pair = leader.end_txn(pair, committed=True)
    leader.commit(7, 3, "o", pair)
    leader.commit(6, 3, "n")
    pair = leader.end_txn(pair, committed=True)
    leader.commit(8, 3, "o", pair)
    leader.end_txn(pair, committed=False)
    leader.generation(4)
    leader.commit(1, -1, "")
    leader.decide(requests.DeleteGroup(leader.broker, "g"))
    leader.generation(1, "m")
    leader.commit(2, 1, "m")
    leader.drop_topic("t")
    found = leader.follow()
    assert found.refused is None
    assert found.actions == {
        "Advances": 5, "CommitsPlain": 4, "Holds": 3, "Transacts": 3, "Ended": 3, "Forgets": 1, "Drops": 1,
    }  # fmt: skip


def _stale(leader: RecordedLeader, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_decisions, "_check_member", lambda *_: None)
    leader.commit(4, 1, "m", leader.pair())


def _aborted(leader: RecordedLeader, patch: pytest.MonkeyPatch) -> None:
    shipped = GroupsState.end_transaction
    patch.setattr(
        GroupsState, "end_transaction", lambda groups, one, *, committed: shipped(groups, one, committed=True)
    )
    pair = leader.pair()
    leader.commit(4, 2, "n", pair)
    leader.end_txn(pair, committed=False)


def _earlier(leader: RecordedLeader, patch: pytest.MonkeyPatch) -> None:
    shipped = TopicRows.settle

    def settle(rows: TopicRows, partition: int, producer_id: int, *, committed: bool) -> None:
        rows.forget(partition)
        shipped(rows, partition, producer_id, committed=committed)

    patch.setattr(TopicRows, "settle", settle)
    pair = leader.pair()
    leader.commit(4, 2, "n", pair)
    leader.commit(6, 2, "n")
    leader.end_txn(pair, committed=True)


@pytest.mark.parametrize(
    ("wrong", "step"),
    [(_stale, "Holds"), (_aborted, "Ended"), (_earlier, "Ended")],
    ids=["of a stale member", "aborted and counted", "over a later commit"],
)
def test_a_decision_that_must_not_be_is_refused(
    leader: RecordedLeader,
    wrong: Callable[[RecordedLeader, pytest.MonkeyPatch], None],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(leader, monkeypatch)
    refused = leader.follow().refused
    assert refused is not None
    assert f": {step} " in refused.splitlines()[-1]


def test_a_group_of_a_history_is_followed() -> None:
    """From where the listener sits to TLC; `make traces` goes further."""
    recorder, violation = recorded(next(with_groups(5)))
    assert violation is None
    busiest = max(recorder.places, key=lambda place: len(recorder.places[place]))
    found = GroupCourse(recorder, busiest, LIMIT).follow()
    assert found.refused is None
    assert {"Advances", "Holds", "Ended"} <= found.actions.keys()
