"""The state of partition logs as a snapshot: it is of its moment, all of it comes back, and damage is refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.metadata_version import ENDS_AT_ONCE
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.logs_image import LogsImage, ProducerRow
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.log_state import (
    FIRST_OWN,
    STORE,
    batch,
    commit,
    data,
    drop,
    end,
    init,
    join,
    log_of,
    make,
    one,
    outcomes,
    silent,
    topic,
)
from tests.support.snapshot_file import snapshot_file

TX = (FIRST_OWN, 0)
OTHER = (FIRST_OWN + 1, 0)


def transactional(producer: tuple[int, int], log: int, sequence: int) -> Any:
    return data(log, producer, sequence, transactional=True)


@pytest.fixture
def machine() -> StateMachine:
    """Two topics, one of them deleted; a transaction that is open in two logs, one that was aborted, and garbage."""
    machine = make()
    batch(machine, topic("gone"), topic("t", 2), init("tx"), init("other"))
    batch(machine, join("tx", TX, "t", 0, 1), join("other", OTHER, "t", 0))
    batch(machine, commit(1, data(0)), commit(2, transactional(OTHER, 1, 0), data(1, (7, 1), 5)))
    batch(machine, commit(3, transactional(TX, 2, 0), transactional(TX, 1, 0), broker=2), drop("gone"))
    batch(machine, end("other", OTHER, committed=False))
    return machine


def restored(image: StateImage) -> StateMachine:
    """By way of a file."""
    machine = StateMachine("c")
    machine.restore(decode_snapshot(snapshot_file("c", image), "x.snap", "c"))
    return machine


def logs_of(machine: StateMachine) -> LogsImage:
    image = machine.image(1, 1).logs
    assert image is not None
    return image


def test_all_of_it_comes_back(machine: StateMachine) -> None:
    again = restored(machine.image(1, 1))
    assert again.image(1, 1) == machine.image(1, 1)
    one, other = machine.logs, again.logs
    assert (other.store_id, other.rows, other.open, other.aborted) == (STORE, 5, 2, 1)
    assert (one.rows, one.open, one.aborted, one.producer_count) == (5, 2, 1, other.producer_count)
    assert (other.objects.collectable(9), other.objects.path(1)) == ([0], one.objects.path(1))
    for number in (1, 2):
        before, after = log_of(machine, number), log_of(again, number)
        assert (after.open, after.last_stable, after.size) == (before.open, before.last_stable, before.size)
    assert other.topics.after("", 9) == one.topics.after("", 9)


def test_open_transactions_come_back_in_the_order_of_their_first_offsets(machine: StateMachine) -> None:
    """Producers are kept in the order in which they were heard last."""
    batch(machine, join("other", OTHER, "t", 0))
    outcomes(machine, commit(4, transactional(OTHER, 1, 1), transactional(TX, 1, 1)))
    again = log_of(restored(machine.image(1, 1)), 1)
    assert list(again.open.items()) == list(log_of(machine, 1).open.items()) == [(TX[0], 2), (OTHER[0], 4)]
    assert again.last_stable == 2


def test_both_go_on_alike(machine: StateMachine) -> None:
    again = restored(machine.image(1, 1))
    for member in (machine, again):
        assert outcomes(member, commit(3, data(1), data(1), broker=2)) == [0, 2], "the answer was kept too"
        assert outcomes(member, commit(4, transactional(TX, 1, 0), data(1, (7, 1), 5), data(1, (7, 1), 6))) == [2, 1, 4]
        one(member, end("tx", TX, committed=False))
        assert one(member, topic("new")).first_log == 3
        one(member, silent(member))
    assert again.image(1, 1) == machine.image(1, 1)


def test_an_image_is_of_its_moment(machine: StateMachine) -> None:
    """It is made on another thread, whatever is replayed meanwhile."""
    eager = machine.image(1, 1)
    captured = machine.capture(1, 1)
    outcomes(machine, commit(4, data(1), transactional(TX, 2, 1)))
    batch(machine, end("tx", TX, committed=False), topic("new"), commit(5, data(3)))
    assert captured.image() == eager
    second = machine.capture(1, 1)
    later = machine.image(1, 1)
    batch(machine, drop("t"), silent(machine))
    assert second.image() == later
    assert captured.image() == eager


def test_without_partition_logs_there_is_none() -> None:
    machine = StateMachine("c")
    assert machine.image(1, 1).logs is None
    again = restored(make().image(1, 1))
    assert logs_of(again).store_id == STORE, "a store alone is kept"


def test_an_older_version_has_none(machine: StateMachine) -> None:
    image = machine.image(1, 1)
    with pytest.raises(ValueError, match=r"image of version 9 with partition logs"):
        replace(image, version=ENDS_AT_ONCE)
    with pytest.raises(ValueError, match=r"image of version 9 with partition logs"):
        replace(image, version=ENDS_AT_ONCE, logs=None)
    replace(image, version=ENDS_AT_ONCE, logs=None, brokers=[])


def damaged(machine: StateMachine, **changed: Any) -> None:
    StateMachine("c").logs.restore(replace(logs_of(machine), **changed))


def test_a_damaged_state_is_refused(machine: StateMachine) -> None:
    image = logs_of(machine)
    damaged(machine)
    keys, *others = image.objects
    broken: list[tuple[dict[str, Any], str]] = [
        ({"topics": []}, "log 1 is of no topic"),
        ({"topics": [], "logs": []}, "open in log 2, which there is not"),
        ({"logs": [replace(image.logs[0], end=1), image.logs[1]]}, "log 1 has batches from 0 on"),
        ({"objects": (keys[:8], *others)}, "columns of"),
        ({"objects": (keys, *others[:5])}, "6 columns, where 7 are kept"),
        ({"objects": (keys, *others[:5], bytes([255]) * len(keys))}, "with -1 batches"),
        ({"foundings": []}, "object 0 of founding 0"),
        ({"next_object": 2}, "object 2 of founding 0"),
        (
            {"producers": [ProducerRow(9, 7, row.entry) for row in image.producers if row.entry.open_since >= 0]},
            "log 9",
        ),
    ]
    for changed, why in broken:
        with pytest.raises(ValueError, match=why):
            damaged(machine, **changed)


def test_objects_of_two_foundings_have_their_names(machine: StateMachine) -> None:
    objects, other = machine.logs.objects, uuid.UUID(int=77)
    key = objects.add(other, replace(_name(machine), number=9), 5, 0)
    again = restored(machine.image(1, 1)).logs.objects
    assert again.path(key) == objects.path(key)
    assert str(other) in again.path(key)
    assert again.foundings == objects.foundings


def _name(machine: StateMachine) -> Any:
    return commit(1, data(0)).object
