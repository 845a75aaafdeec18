"""What the audit makes of the records of groups, against the state machine that decided them."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.pipeline.quorum.partitions.groups import saved_groups
from pidkeeper.pipeline.quorum.partitions.replay import LogsReplay, SavedGroups
from pidkeeper.pipeline.quorum.partitions.tables import MAX_FAULTS
from pidkeeper.protocol.groups import OffsetsRecord, PartitionOffset, TopicOffsets
from pidkeeper.protocol.records import Record
from pidkeeper.snapshots.image import StateImage
from tests.support.sound_groups import RandomGroups

SEEDS = range(6)
Row = dict[str, Any]


class History(RandomGroups):
    """One of which every state is known."""

    def __init__(self, seed: int) -> None:
        self.states: dict[int, StateImage] = {}
        super().__init__(seed)

    def replay(self, *records: Record) -> None:
        super().replay(*records)
        self.states[len(self.entries)] = self.machine.capture(len(self.entries), 1).image()


def saved(image: StateImage) -> SavedGroups:
    return SavedGroups(0, image.next_offset, image.groups)


def faults(replay: LogsReplay) -> list[Row]:
    return [row for name, batch in replay.views() if name == "group_faults" for row in batch.to_pylist()]


def followed(
    entries: list[list[Record]], later: dict[int, StateImage], begin: StateImage | None = None, *, whole: bool = True
) -> list[Row]:
    """The faults that are found on the way, with each state compared that is given."""
    known = {index: saved(image) for index, image in later.items()}
    replay = LogsReplay(begin, 0, 0, whole=whole, later=known)
    offset = 0
    for index, records in enumerate(entries, 1):
        replay.take(records, index, offset, 0, index)
        offset += len(records)
    return faults(replay)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_replay_has_every_state_that_the_machine_had(seed: int) -> None:
    made = History(seed)
    groups = [image.groups for image in made.states.values() if image.groups is not None]
    assert any(one.pending for one in groups)
    assert any(one.offsets for one in groups)
    assert followed(made.entries, made.states) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_replay_goes_on_from_a_snapshot(seed: int) -> None:
    made = History(seed)
    for index in range(10, len(made.entries), 20):
        assert followed(made.entries, made.states, made.states[index]) == []
        assert list(saved_groups(made.states[index], 0, 0)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_state_is_taken_for_the_one_before(seed: int) -> None:
    """Whatever changes groups makes a difference that is told, once."""
    made = History(seed)
    changed = [
        index for index in range(2, len(made.entries) + 1) if made.states[index].groups != made.states[index - 1].groups
    ]
    assert len(changed) > 20
    for index in changed:
        before = {index: made.states[index - 1]}
        assert followed(made.entries, before), made.entries[index - 1]


def test_what_cannot_be_followed_is_not_compared() -> None:
    made = History(0)
    assert followed(made.entries, {len(made.entries): made.states[1]}, whole=False) == []
    replay = LogsReplay(None, 0, 0, whole=True, later={len(made.entries): saved(made.states[1])})
    for index, records in enumerate(made.entries, 1):
        replay.take(records, index, None, 0, index)
    assert faults(replay) == []


def test_a_state_that_is_wrong_altogether_gives_no_more_than_the_first_faults() -> None:
    many = tuple(PartitionOffset(number, 0, -1, "") for number in range(MAX_FAULTS + 1))
    (*found,) = followed([[OffsetsRecord("g", -1, -1, (TopicOffsets("none", many),), 0)]], {})
    assert len(found) == MAX_FAULTS


def test_an_offset_behind_the_end_is_told_once() -> None:
    made = History(1)
    topic = made.machine.logs.topics.all()[0].name
    late = OffsetsRecord("g", -1, -1, (TopicOffsets(topic, (PartitionOffset(0, 2**62, -1, ""),)),), 2**70)
    (row,) = followed([*made.entries, [late], [late]], {})
    assert (row["severity"], row["check"], row["topic"], row["timestamp_ms"]) == (
        "warning",
        "group_offsets",
        topic,
        None,
    )
