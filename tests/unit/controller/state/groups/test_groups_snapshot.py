"""Groups as a snapshot: it is of its moment, all of it comes back, and damage is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.snapshots.groups_image import GroupsImage, KeptOffset, OffsetRow, PendingRow
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.group_state import add_group, committed, delete, gather, keep, member, pending
from tests.support.log_state import FIRST_OWN, batch, drop, end, init, make, topic
from tests.support.snapshot_file import snapshot_file

TX = FIRST_OWN, 0


@pytest.fixture
def machine() -> StateMachine:
    """A group with members, one of offsets alone, one of pending offsets alone, and an empty one."""
    machine = make()
    batch(machine, topic("t", 3), topic("u"), init("tx"))
    batch(machine, *[add_group("tx", TX, name) for name in ("g", "h", "i")])
    batch(machine, gather("g", -1, 4, "a", member("b", "s")), gather("empty", -1, 0))
    batch(machine, keep("g", ("t", 2, 5), ("u", 0, 6), ("t", 0, 7), who=(4, "a", None), metadata="ü"))
    batch(machine, keep("h", ("t", 1, 8)), keep("i", ("u", 0, 9), transaction=("tx", TX)))
    batch(machine, keep("g", ("t", 2, 10), ("t", 0, 11), who=(4, "b", "s"), transaction=("tx", TX)))
    return machine


def image_of(machine: StateMachine) -> GroupsImage:
    image = machine.image(1, 1).groups
    assert image is not None
    return image


def restored(image: StateImage) -> StateMachine:
    """By way of a file."""
    machine = StateMachine("c")
    machine.restore(decode_snapshot(snapshot_file("c", image), "x.snap", "c"))
    return machine


def test_all_groups_come_back(machine: StateMachine) -> None:
    again = restored(machine.image(1, 1))
    assert again.image(1, 1) == machine.image(1, 1)
    one, other = machine.groups, again.groups
    assert (len(other), other.offsets, other.pending) == (4, 4, 3)
    assert (other.offset_bytes, other.members_bytes) == (one.offset_bytes, one.members_bytes)
    assert other.held_by(FIRST_OWN) == 3
    for name in ("g", "h", "i", "empty"):
        before, after = machine.groups.get(name), again.groups.get(name)
        assert before is not None
        assert after is not None
        assert (after.record, after.version) == (before.record, before.version)
        assert (committed(again, name), pending(again, name)) == (committed(machine, name), pending(machine, name))


def test_rows_are_in_one_order_whatever_came_first(machine: StateMachine) -> None:
    image = image_of(machine)
    assert [known.record.group_id for known in image.groups] == ["empty", "g"]
    assert [(row.group_id, row.topic, row.partition) for row in image.offsets] == [
        ("g", "t", 0),
        ("g", "t", 2),
        ("g", "u", 0),
        ("h", "t", 1),
    ]
    assert [(row.group_id, row.topic, row.partition) for row in image.pending] == [
        ("g", "t", 0),
        ("g", "t", 2),
        ("i", "u", 0),
    ]


def test_groups_that_were_restored_go_on_alike(machine: StateMachine) -> None:
    again = restored(machine.image(1, 1))
    for one in (machine, again):
        batch(one, keep("g", ("t", 0, 20), who=(4, "a", None)))
        batch(one, end("tx", TX), keep("h", ("u", 0, 2)))
        batch(one, drop("u"))
        assert committed(one, "g") == {("t", 0): 20, ("t", 2): 10}
    assert snapshot_file("c", again.image(2, 1)) == snapshot_file("c", machine.image(2, 1))


def test_an_image_is_of_its_moment(machine: StateMachine) -> None:
    """It is made on another thread, whatever is replayed meanwhile."""
    eager, captured = machine.image(1, 1), machine.capture(1, 1)
    batch(machine, keep("g", ("t", 0, 12), who=(4, "a", None)), keep("h", ("t", 1, 0), metadata="m"))
    batch(machine, end("tx", TX), keep("new", ("u", 0, 1)))
    assert captured.image() == eager
    later, second = machine.image(1, 1), machine.capture(1, 1)
    version = machine.groups.after("f", 1)[0].version
    batch(machine, gather("g", version, 5), delete("g"), delete("h"), drop("t"))
    assert second.image() == later
    assert captured.image() == eager, "once more"
    assert len(machine.groups) == 3


def test_without_groups_there_is_none() -> None:
    machine = make()
    assert machine.image(1, 1).groups is None
    batch(machine, gather("g"), delete("g"))
    assert machine.image(1, 1).groups is None
    assert len(restored(machine.image(1, 1)).groups) == 0


def test_an_older_version_has_none(machine: StateMachine) -> None:
    image = machine.image(1, 1)
    with pytest.raises(ValueError, match=r"image of version 11 with consumer groups"):
        replace(image, version=SEGMENTS)
    replace(image, version=SEGMENTS, groups=None)


KEPT = KeptOffset(1, -1, "", 5, 0)


def test_damaged_groups_are_refused(machine: StateMachine) -> None:
    state = machine.image(1, 1)
    image = image_of(machine)
    rows, held = list(image.offsets), list(image.pending)
    with pytest.raises(ValueError, match="the groups do not ascend"):
        replace(image, groups=image.groups[::-1])
    broken: list[tuple[dict[str, Any], str]] = [
        ({"offsets": rows[::-1]}, r"the offset of \('g', 'u', 0\) comes behind that of \('h', 't', 1\)"),
        ({"offsets": [*rows, rows[-1]]}, "comes behind"),
        ({"pending": held[::-1]}, "comes behind"),
        ({"pending": [held[0], held[0]]}, "comes behind"),
        ({"offsets": [*rows, OffsetRow("h", "t", 3, KEPT)]}, "of a partition that there is not"),
        ({"offsets": [*rows, OffsetRow("h", "v", 0, KEPT)]}, "of a partition that there is not"),
        ({"pending": [PendingRow("h", "v", 0, FIRST_OWN, KEPT)]}, "of a partition that there is not"),
        ({"pending": [PendingRow("h", "t", 0, FIRST_OWN + 1, KEPT)]}, "has no transaction under way"),
    ]
    for changed, why in broken:
        with pytest.raises(ValueError, match=why):
            StateMachine("c").restore(replace(state, groups=replace(image, **changed)))
    StateMachine("c").restore(state)


def test_what_is_held_for_a_transaction_that_is_over_is_refused(machine: StateMachine) -> None:
    held = machine.image(1, 1).groups
    batch(machine, end("tx", TX))
    with pytest.raises(ValueError, match="has no transaction under way"):
        StateMachine("c").restore(replace(machine.image(1, 1), groups=held))
