"""What the audit makes of snapshots and of records, against the state machine that decided them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest

from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.quorum.partitions.replay import LogsReplay
from pidkeeper.pipeline.quorum.partitions.saved import Copy, saved_logs
from pidkeeper.protocol.logs import BatchCoordinates, ObjectId, ObjectRecord, TopicRecord
from pidkeeper.protocol.records import LeaderChangeRecord, Record
from pidkeeper.protocol.segments import LogStartsRecord, SegmentName, SegmentRecord
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from pidkeeper.snapshots.image import StateImage
from tests.support.log_state import (
    FIRST_OWN,
    FOUNDING,
    NOW,
    commit,
    data,
    decided,
    drop,
    end,
    init,
    join,
    log_of,
    make,
    silent,
    topic,
)

STEPS = 300
Row = dict[str, Any]


class History:
    """What clients ask at random; the entries, and the states behind some of them."""

    def __init__(self, seed: int) -> None:
        self.machine = make()
        self.entries: list[list[Record]] = []
        self.images: list[StateImage] = []
        self._rng = random.Random(seed)
        self._pairs: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._numbers = {1: itertools.count(1), 2: itertools.count(1)}
        for name in ("a", "b", "c"):
            self._ask(topic(name, 2))
        for name in ("s", "t"):
            self._pairs[name] = self._pair(name)
        for step in range(STEPS):
            self._rng.choice((self._write, self._write, self._write, self._join, self._end, self._renew, self._other))()
            if step % 100 == 50:
                self.images.append(image_of(self.machine, len(self.entries)))

    def _ask(self, request: Any) -> Any:
        draft = Draft(self.machine, NOW + 10 * len(self.entries))
        (answer,) = decided(draft, [request])
        self.entries.append(list(draft.records) or [LeaderChangeRecord(1)])
        self.machine.replay(self.entries[-1])
        return answer

    def _pair(self, name: str) -> tuple[int, int]:
        answer = self._ask(init(name))
        return answer.producer_id, answer.producer_epoch

    def _write(self) -> None:
        batches = []
        for _ in range(self._rng.randint(1, 4)):
            logs = [number for topic in self.machine.logs.topics.all() for number in topic.logs]
            log, records = self._rng.choice([*logs, 99]), self._rng.randint(1, 3)
            pair = self._rng.choice([(-1, -1), (7, 0), (8, 0), *self._pairs.values()])
            sequence = self._sequences.get((log, *pair), 0) if pair[0] >= 0 else -1
            transactional = pair[0] >= FIRST_OWN
            batches.append(data(log, pair, sequence, records=records, transactional=transactional))
        broker = self._rng.choice((1, 2))
        answer = self._ask(commit(next(self._numbers[broker]), *batches, broker=broker))
        for batch, outcome in zip(batches, answer.outcomes, strict=True):
            if outcome >= 0 and batch.producer_id >= 0:
                place = (batch.log, batch.producer_id, batch.producer_epoch)
                self._sequences[place] = batch.base_sequence + batch.records

    def _join(self) -> None:
        name = self._rng.choice(list(self._pairs))
        self._ask(join(name, self._pairs[name], self._rng.choice("abc"), self._rng.randrange(2)))

    def _end(self) -> None:
        name = self._rng.choice(list(self._pairs))
        self._ask(end(name, self._pairs[name], committed=self._rng.random() < 0.5))

    def _renew(self) -> None:
        name = self._rng.choice(list(self._pairs))
        self._pairs[name] = self._pair(name)

    def _other(self) -> None:
        chance = self._rng.random()
        if chance < 0.1:
            self._ask(drop("b"))
        elif chance < 0.5:
            self._ask(topic("b", 2, len(self.entries)))
        else:
            self._ask(silent(self.machine, NOW))
            self._sequences.clear()


def image_of(machine: StateMachine, index: int) -> StateImage:
    return machine.capture(index, 1).image()


def replayed(history: History, image: StateImage | None, *, whole: bool = True) -> dict[str, list[Row]]:
    replay = LogsReplay(image, 0, 0, whole=whole)
    found: dict[str, list[Row]] = {}
    if image is None:
        # What `make` replays before anybody asks is no entry here: broker 1 has the epoch that it has.
        image = image_of(make(), 0)
        replay = LogsReplay(image, 0, 0, whole=whole)
    for index, records in enumerate(history.entries, 1):
        replay.take(records, index, None, 0, index)
    collect(replay.views(), found)
    return found


def collect(named: Iterable[Named], found: dict[str, list[Row]]) -> dict[str, list[Row]]:
    for name, batch in named:
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def located(machine: StateMachine) -> set[tuple[int, ...]]:
    """Of each batch of every log: log, base offset, records, position and size."""
    return {
        (topic.first_log + number, one.base_offset, one.records, one.position, one.size)
        for topic in machine.logs.topics.all()
        for number in range(topic.partitions)
        for one in log_of(machine, topic.first_log + number).batches_from(0, 2**62, 10**6)
    }


def marked(machine: StateMachine) -> set[tuple[Any, ...]]:
    return {
        (topic.first_log + number, *one)
        for topic in machine.logs.topics.all()
        for number in range(topic.partitions)
        for one in log_of(machine, topic.first_log + number).markers_from(0, 2**62, 10**6)
    }


def batches_of(rows: Iterable[Row], logs: set[int]) -> set[tuple[Any, ...]]:
    names = ("log", "base_offset", "records", "position", "size")
    return {tuple(row[name] for name in names) for row in rows if row["log"] in logs}


def markers_of(rows: Iterable[Row], logs: set[int]) -> set[tuple[Any, ...]]:
    names = ("log", "base_offset", "producer_id", "producer_epoch", "committed", "timestamp_ms")
    return {tuple(row[name] for name in names) for row in rows if row["log"] in logs}


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_follows_what_was_decided(seed: int) -> None:
    history = History(seed)
    found = replayed(history, None)
    assert found.get("log_faults", []) == []
    logs = {row["log"] for row in found["places"] if row["removed_index"] is None}
    assert logs == {number for topic in history.machine.logs.topics.all() for number in topic.logs}
    assert batches_of(found["coordinates"], logs) == located(history.machine) != set()
    assert markers_of(found["markers"], logs) == marked(history.machine) != set()


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_goes_on_from_a_snapshot(seed: int) -> None:
    history = History(seed)
    for image in history.images:
        saved = collect(saved_logs(image, Copy(0, 0, 0)), {})
        found = replayed(history, image)
        assert found.get("log_faults", []) == []
        logs = {row["log"] for row in found["places"] if row["removed_index"] is None}
        rows = [*saved.get("coordinates", []), *found.get("coordinates", [])]
        assert batches_of(rows, logs) == located(history.machine)
        markers = [*saved.get("markers", []), *found.get("markers", [])]
        assert markers_of(markers, logs) == marked(history.machine)


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_is_read_as_it_was_saved(seed: int) -> None:
    machine = History(seed).machine
    found = collect(saved_logs(image_of(machine, 9), Copy(3, 4, 5)), {})
    assert found.get("log_faults", []) == []
    everything = {number for topic in machine.logs.topics.all() for number in topic.logs}
    assert {row["log"] for row in found["places"]} == everything
    assert batches_of(found["coordinates"], everything) == located(machine)
    assert markers_of(found["markers"], everything) == marked(machine)
    assert {(row["member_id"], row["file_id"], row["index"]) for row in found["coordinates"]} == {(3, 4, 9)}
    for row in found["coordinates"]:
        if row["producer_id"] is not None:
            entry = machine.logs.producer(row["log"], row["producer_id"])
            assert entry is not None
            assert (row["base_sequence"], row["base_offset"]) in {(first, offset) for first, _, offset in entry.batches}


def test_what_cannot_be_followed_is_not_believed() -> None:
    """Without a state to begin with there are coordinates, and nothing is said of offsets and transactions."""
    history = History(0)
    replay = LogsReplay(None, 0, 0, whole=False)
    for index, records in enumerate(history.entries[50:], 51):
        replay.take(records, index, None, 0, index)
    found = collect(replay.views(), {})
    assert set(found) <= {"commits", "coordinates", "markers"}
    assert found["coordinates"]


def test_behind_an_entry_that_cannot_be_read_nothing_is_followed() -> None:
    history = History(0)
    replay = LogsReplay(image_of(make(), 0), 0, 0, whole=True)
    for index, records in enumerate(history.entries, 1):
        if index == 100:
            replay.stop()
        else:
            replay.take(records, index, None, 0, index)
    (view,) = collect(replay.views(), {})["views"]
    assert (view["to_index"], view["followed"]) == (99, True)


def test_the_marker_of_an_id_whose_epochs_are_used_up_fences_the_last_one() -> None:
    """The transactional id gets a new producer ID then, of which the marker can have nothing."""
    ongoing = TransactionRecord("s", 20, 32_766, -1, -1, 1000, 1, NOW, (TopicPartitions("a", (0,)),), NOW)
    renewed = TransactionRecord("s", 30, 0, 20, 32_766, 1000, 0, NOW)
    written = BatchCoordinates(0, 0, 1, 0, 10, 20, 32_766, 0, NOW, True)
    entry: list[Record] = [
        TopicRecord(FOUNDING, "a", 1, 0, -1, -1, NOW),
        ongoing,
        ObjectRecord(ObjectId(1, 3, 1), 10, (0,), (written,), NOW),
        renewed,
    ]
    replay = LogsReplay(None, 0, 0, whole=True)
    replay.take(entry, 1, 0, 0, 0)
    found = collect(replay.views(), {})
    assert "log_faults" not in found
    assert markers_of(found["markers"], {0}) == {(0, 1, 20, 32_767, False, NOW)}


def written(base_offset: int, records: int) -> Record:
    """An object of one batch."""
    one = BatchCoordinates(0, base_offset, records, 0, 10, -1, -1, -1, NOW, False)
    return ObjectRecord(ObjectId(1, 3, base_offset), 10, (0,), (one,), NOW)


def rolled(end_offset: int, replaces: int = 1) -> Record:
    return SegmentRecord(ObjectId(1, 3, 1), 0, SegmentName("a", 0, 0), end_offset, 20, 4, NOW, replaces, NOW)


@pytest.mark.parametrize(
    ("changes", "start", "tail_start"),
    [
        ([rolled(4)], 0, 4),
        ([rolled(4, replaces=0)], 0, 0),
        ([LogStartsRecord(((0, 6),), NOW)], 6, 6),
        ([rolled(4), LogStartsRecord(((0, 2),), NOW)], 2, 4),
        ([rolled(4), LogStartsRecord(((0, 6),), NOW)], 6, 6),
    ],
)
def test_tails_begin_where_the_quorum_says(changes: list[Record], start: int, tail_start: int) -> None:
    """By records, by a snapshot of what they made, and by records that follow the snapshot."""
    machine = make()
    before = [TopicRecord(FOUNDING, "a", 1, 0, -1, -1, NOW), written(0, 4), written(4, 4)]
    machine.replay(before)
    begun = image_of(machine, 1)
    machine.replay(changes)
    ended = image_of(machine, 2)
    shapes = []
    for image, entries in ((None, [before, changes]), (begun, [[], changes]), (ended, [])):
        replay = LogsReplay(image, 0, 0, whole=True)
        for index, records in enumerate(entries, 1):
            replay.take(records, index, 0, 0, 0)
        found = collect(replay.views(), {})
        assert "log_faults" not in found
        shapes.append(shape(found))
    saved = collect(saved_logs(ended, Copy(0, 0, 0)), {})
    assert "log_faults" not in saved
    # A snapshot has the last one, the replays behind it those that come.
    due = any(isinstance(one, SegmentRecord) for one in changes)
    assert [row["number"] for row in saved.get("rolls", [])] == [1] * due
    assert [*shapes, shape(saved)] == [(start, tail_start)] * 4


def shape(found: dict[str, list[Row]]) -> tuple[int, int]:
    """Where the log begins, and where its tail does."""
    start = max((row["start"] for row in found.get("starts", [])), default=0)
    ends = [row["end_offset"] for row in found.get("rolled", []) if row["until_index"] is None]
    return start, max(start, *ends, 0)


def test_a_segment_is_in_force_until_a_record_takes_it_out() -> None:
    """A record that no majority has may be the last one of a file: what it took out is in force without it."""
    replay = LogsReplay(None, 0, 0, whole=True)
    first, second = rolled(4), rolled(8)
    entries: list[list[Record]] = [
        [TopicRecord(FOUNDING, "a", 1, 0, -1, -1, NOW), written(0, 4), written(4, 4), written(8, 1)],
        [first],
        [second],
        [LogStartsRecord(((0, 8),), NOW)],
        [LogStartsRecord(((0, 9),), NOW)],
    ]
    for index, records in enumerate(entries, 1):
        replay.take(records, index, 0, 0, 0)
    found = collect(replay.views(), {})
    assert [(row["end_offset"], row["index"], row["until_index"]) for row in found["rolled"]] == [(4, 2, 3), (8, 3, 4)]
    assert [(row["index"], row["start"]) for row in found["starts"]] == [(4, 8), (5, 9)]


def test_a_segment_behind_the_end_of_its_log_is_none() -> None:
    replay = LogsReplay(None, 0, 0, whole=True)
    replay.take([TopicRecord(FOUNDING, "a", 1, 0, -1, -1, NOW), written(0, 4), rolled(5)], 1, 0, 0, 0)
    (fault,) = collect(replay.views(), {})["log_faults"]
    assert (fault["check"], fault["detail"]) == (
        "log_offsets",
        "a segment reaches up to offset 4, and the log ended at 4",
    )
