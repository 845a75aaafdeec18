"""Every assertion of replay by itself: a record that no decision makes stops the process."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.groups import (
    GroupRecord,
    OffsetsRecord,
    RemoveGroupRecord,
    RemoveOffsetsRecord,
    TopicOffsets,
)
from pidkeeper.protocol.logs import RemoveTopicRecord
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.protocol.records import FeatureLevelRecord, Record
from pidkeeper.protocol.transactions import TopicPartitions
from tests.support.group_state import add_group, keep, member, offsets, pending
from tests.support.log_state import EPOCHS, FIRST_OWN, NOW, batch, end, init, make, topic

TX = FIRST_OWN, 0
GROUP = GroupRecord("g", -1, 5, "consumer", (member("a"),), 1, EPOCHS[1], NOW)
PLAIN = OffsetsRecord("h", -1, -1, offsets([("t", 0, 1)]), NOW)
HELD = replace(PLAIN, producer_id=FIRST_OWN, producer_epoch=0)
FORGOTTEN = RemoveOffsetsRecord("h", (TopicPartitions("t", (0,)),), NOW)


def started() -> StateMachine:
    """With a topic of two partitions, and a transaction under way for the groups g and h."""
    machine = make()
    batch(machine, topic("t", 2), init("tx"), add_group("tx", TX, "g"), add_group("tx", TX, "h"))
    return machine


AT = started().next_offset
FORBIDDEN: list[tuple[str, list[Record], Record]] = [
    ("S5", [], replace(GROUP, broker_epoch=2)),
    ("S5", [], replace(GROUP, broker_id=9)),
    ("G1", [], replace(GROUP, after=0)),
    ("G1", [GROUP], GROUP),
    ("G1", [GROUP, replace(GROUP, after=AT)], replace(GROUP, after=AT)),
    ("G1", [replace(GROUP, members=()), RemoveGroupRecord("g", NOW)], replace(GROUP, after=AT)),
    ("G2", [GROUP], replace(GROUP, after=AT, generation=4)),
    ("G2", [], replace(GROUP, members=(member("a"), member("a")))),
    ("G2", [], replace(GROUP, members=(member("a", "s"), member("b", "s")))),
    ("G3", [], replace(PLAIN, topics=offsets([("t", 2, 1)]))),
    ("G3", [], replace(PLAIN, topics=offsets([("t", 0, 1), ("u", 0, 1)]))),
    ("G4", [], replace(PLAIN, producer_epoch=0)),
    ("G4", [], replace(HELD, producer_epoch=1)),
    ("G4", [], replace(HELD, producer_id=FIRST_OWN + 1)),
    ("G6", [], FORGOTTEN),
    ("G6", [PLAIN], replace(FORGOTTEN, topics=(TopicPartitions("t", (1,)),))),
    ("G6", [PLAIN], replace(FORGOTTEN, topics=(TopicPartitions("u", (0,)),))),
    ("G6", [PLAIN, FORGOTTEN], FORGOTTEN),
    ("G6", [HELD], FORGOTTEN),
    ("G6", [], RemoveGroupRecord("g", NOW)),
    ("G6", [GROUP], RemoveGroupRecord("g", NOW)),
    ("G6", [PLAIN, HELD], RemoveGroupRecord("h", NOW)),
]


@pytest.mark.parametrize(("invariant", "before", "record"), FORBIDDEN)
def test_a_record_that_no_decision_makes_stops_the_process(
    invariant: str, before: list[Record], record: Record
) -> None:
    machine = started()
    machine.replay(before)
    with pytest.raises(AssertionError, match=f"^{invariant}: "):
        machine.replay([record])


def test_g3_a_topic_that_is_gone_has_none() -> None:
    machine = started()
    known = machine.logs.topics.get("t")
    assert known is not None
    machine.replay([PLAIN, RemoveTopicRecord(known.topic_id, NOW)])
    with pytest.raises(AssertionError, match=r"^G3: "):
        machine.replay([PLAIN])


def test_g4_a_transaction_does_not_leave_what_it_holds() -> None:
    """No decision prepares one any more."""
    machine = started()
    known = machine.transactions.get("tx")
    assert known is not None
    machine.replay([HELD])
    with pytest.raises(AssertionError, match=r"^G4: .* with 1 offsets pending"):
        machine.replay([replace(known, status=TransactionStatus.PREPARE_ABORT, producer_epoch=1)])


def test_g4_nothing_is_held_for_a_transaction_that_is_over() -> None:
    machine = started()
    batch(machine, end("tx", TX))
    with pytest.raises(AssertionError, match=r"^G4: "):
        machine.replay([HELD])


def test_the_same_records_in_their_order_are_replayed() -> None:
    machine = started()
    empty = replace(GROUP, after=AT, members=(), generation=6)
    machine.replay([GROUP, empty, RemoveGroupRecord("g", NOW), GROUP, PLAIN, HELD, FORGOTTEN])
    assert pending(machine, "h") == {("t", 0, FIRST_OWN): 1}
    assert [(one.group_id, one.version) for one in machine.groups.after(None, 9)] == [("g", AT + 3), ("h", -1)]


def test_topics_without_partitions_say_nothing() -> None:
    """No decision writes one; it is replayed all the same."""
    machine = started()
    machine.replay([replace(PLAIN, topics=(TopicOffsets("t", ()), *PLAIN.topics))])
    machine.replay([replace(PLAIN, group_id="i", topics=(TopicOffsets("t", ()),))])
    assert [one.group_id for one in machine.groups.after(None, 9)] == ["h"]


def test_an_older_log_has_no_groups() -> None:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(SEGMENTS)])
    with pytest.raises(AssertionError, match=r"^S7: "):
        machine.replay([RemoveGroupRecord("g", NOW)])


@pytest.mark.parametrize(
    ("bound", "most"),
    [("MAX_OFFSETS", 2), ("MAX_OFFSET_BYTES", 4), ("MAX_GROUPS", 2), ("MAX_MEMBERS_BYTES", 32), ("MAX_PENDING", 1)],
)
def test_g5_no_bound_is_passed(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """A group with a member of 27 bytes, and one with a committed and a pending offset, of two bytes each."""
    for value in (most - 1, most):
        machine = started()
        monkeypatch.setattr(limits, bound, value)
        if value < most:
            with pytest.raises(AssertionError, match=r"^G5: "):
                machine.replay([GROUP, PLAIN, HELD])
        else:
            machine.replay([GROUP, PLAIN, HELD])


def test_groups_come_in_the_order_of_their_ids() -> None:
    machine = started()
    machine.replay([replace(PLAIN, group_id=name) for name in ("b", "", "ä", "a", "c")])
    groups = machine.groups
    assert [one.group_id for one in groups.after(None, 9)] == ["", "a", "b", "c", "ä"]
    assert [one.group_id for one in groups.after("a", 2)] == ["b", "c"]
    assert [one.group_id for one in groups.after("aa", 1)] == ["b"]
    machine.replay([RemoveGroupRecord("b", NOW), replace(PLAIN, group_id="bb")])
    assert [one.group_id for one in groups.after("", 3)] == ["a", "bb", "c"]


def test_offsets_come_in_the_order_of_topics_and_partitions() -> None:
    machine = started()
    batch(machine, topic("u"), topic("s"))
    batch(machine, keep("h", ("u", 0, 1), ("t", 1, 2), ("s", 0, 3), ("t", 0, 4)))
    group = machine.groups.get("h")
    assert group is not None
    places = [(name, number) for name, number, _ in group.committed_after()]
    assert places == [("s", 0), ("t", 0), ("t", 1), ("u", 0)]
    for position, place in enumerate(places):
        assert [row[:2] for row in group.committed_after(*place)] == places[position + 1 :]
    assert [row[:2] for row in group.committed_after("t")] == places[1:]
    assert [row[:2] for row in group.committed_after("tt", 5)] == places[3:]
