"""What callers are told of partition logs, from the state that the decisions make."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.controller.node import log_views
from pidkeeper.controller.node.log_views import find_offsets, find_topics, read_logs, topics_page
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import CommitSegment
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AbortedTransaction,
    FindOffsetsRequest,
    FoundOffset,
    LogBatches,
    Marker,
    ReadLog,
    ReadLogsRequest,
    StoredBatch,
)
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import CommitSegmentResponse
from pidkeeper.protocol.segments import SegmentName
from tests.support.log_state import (
    EPOCHS,
    FIRST_OWN,
    FOUNDING,
    NOW,
    batch,
    commit,
    data,
    end,
    init,
    join,
    log_of,
    make,
    one,
    outcomes,
    topic,
)

TX = (FIRST_OWN, 0)
OTHER = (FIRST_OWN + 1, 0)
ANY = 2**31 - 1


@pytest.fixture
def machine() -> StateMachine:
    """Log 0: 0-1 data, 2 of TX, 3-4 data, 5 TX aborted, 6 of OTHER, which is open, 7 data. Log 1 is empty."""
    machine = make()
    batch(machine, topic("t", 2), init("tx"), init("other"), join("tx", TX, "t", 0), join("other", OTHER, "t", 0))
    of_tx, of_other = data(0, TX, 0, transactional=True, time=30), data(0, OTHER, 0, transactional=True, time=50)
    outcomes(machine, commit(1, data(0, records=2, time=10), of_tx, data(0, records=2, time=20)))
    batch(machine, end("tx", TX, committed=False))
    outcomes(machine, commit(2, of_other, data(0, time=40), broker=2))
    return machine


def read(machine: StateMachine, offset: int, *, most: int = ANY, committed: bool = False, log: int = 0) -> LogBatches:
    (found,) = read_logs(machine.logs, ReadLogsRequest([ReadLog(log, offset, most)], committed)).logs
    return found


def offsets(found: LogBatches) -> tuple[list[int], list[int]]:
    """Of the batches and of the markers."""
    return [one.base_offset for one in found.batches], [one.offset for one in found.markers]


def test_where_the_batches_are(machine: StateMachine) -> None:
    answer = read_logs(machine.logs, ReadLogsRequest([ReadLog(1, 0, ANY), ReadLog(0, 3, ANY), ReadLog(9, 0, ANY)]))
    assert answer.objects == [f"wal/{FOUNDING}/1/3/{1:020}", f"wal/{FOUNDING}/2/5/{2:020}"]
    assert answer.logs == [
        LogBatches(1, 0, 0, 0, 0),
        LogBatches(
            0,
            0,
            0,
            8,
            6,
            [StoredBatch(3, 0, 20, 10), StoredBatch(6, 1, 0, 10), StoredBatch(7, 1, 10, 10)],
            [Marker(5, *TX, False, NOW)],
        ),
        LogBatches(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code),
    ]


@pytest.mark.parametrize("offset", range(8))
def test_from_the_batch_that_holds_the_offset_on(machine: StateMachine, offset: int) -> None:
    first = {1: 0, 4: 3}.get(offset, offset)
    assert offsets(read(machine, offset)) == (
        [one for one in (0, 2, 3, 6, 7) if one >= first],
        [5] if offset <= 5 else [],
    )


def test_what_is_committed_ends_at_the_last_stable_offset(machine: StateMachine) -> None:
    found = read(machine, 0, committed=True)
    assert offsets(found) == ([0, 2, 3], [5])
    assert found.aborted == [AbortedTransaction(TX[0], 2, 5)]
    assert offsets(read(machine, 6, committed=True)) == offsets(read(machine, 7, committed=True)) == ([], [])
    assert read(machine, 7, committed=True).error_code == 0
    batch(machine, end("other", OTHER, committed=False))
    assert offsets(read(machine, 6, committed=True)) == ([6, 7], [8])
    assert read(machine, 6, committed=True).aborted == [AbortedTransaction(OTHER[0], 6, 8)]
    assert read(machine, 0).aborted == [], "who reads everything needs none"


def test_an_offset_that_there_is_not(machine: StateMachine) -> None:
    assert read(machine, 9) == LogBatches(0, ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code, 0, 8, 6)
    assert read(machine, 8) == LogBatches(0, 0, 0, 8, 6), "the end is where a reader waits"


def test_one_batch_at_least_and_no_gap(machine: StateMachine) -> None:
    """A marker belongs to what is before it and to what is behind it."""
    assert offsets(read(machine, 0, most=0)) == ([0], [])
    assert offsets(read(machine, 0, most=20)) == ([0, 2], [])
    assert offsets(read(machine, 3, most=10)) == ([3], [5])
    assert offsets(read(machine, 5, most=10)) == ([6], [5])
    assert read(machine, 0, most=10, committed=True).aborted == []
    assert read(machine, 0, most=20, committed=True).aborted == [AbortedTransaction(TX[0], 2, 5)]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (1, [([0], []), ([], [])]),
        (3, [([0, 2, 3], []), ([], [])]),
        (4, [([0, 2, 3], [5]), ([], [])]),
        (5, [([0, 2, 3, 6], [5]), ([], [])]),
        (6, [([0, 2, 3, 6, 7], [5]), ([], [])]),
        (8, [([0, 2, 3, 6, 7], [5]), ([3], [5])]),
    ],
)
def test_all_logs_of_an_answer_share_its_room(
    machine: StateMachine, monkeypatch: pytest.MonkeyPatch, room: int, expected: Any
) -> None:
    monkeypatch.setattr(log_views, "MAX_READ_BATCHES", room)
    answer = read_logs(machine.logs, ReadLogsRequest([ReadLog(0, 0, ANY), ReadLog(0, 3, ANY)]))
    assert [offsets(one) for one in answer.logs] == expected
    assert [one.end for one in answer.logs] == [8, 8]


def test_a_log_is_read_piece_by_piece_without_a_gap(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        batch(machine, join("tx", TX, "t", 1))
        assert outcomes(machine, commit(10 + number, data(1, TX, number, transactional=True))) == [2 * number]
        batch(machine, end("tx", TX))
    for room in (1, 2, 3):
        monkeypatch.setattr(log_views, "MAX_READ_BATCHES", room)
        seen: list[int] = []
        while len(seen) < 6:
            batches, markers = offsets(read(machine, len(seen), log=1))
            assert 0 < len(batches) + len(markers) <= room
            seen += sorted(batches + markers)
        assert seen == list(range(6))


def found_at(machine: StateMachine, time: int, *, committed: bool = False, log: int = 0) -> FoundOffset:
    """What is found, without its place, which is that of the batch at that offset."""
    answer = find_offsets(machine.logs, FindOffsetsRequest([(log, time)], committed))
    (found,) = answer.offsets
    batch = found.batch
    if batch is not None:
        (there,) = read(machine, found.offset, most=1).batches
        assert (batch.base_offset, batch.position, batch.size) == (there.base_offset, there.position, there.size)
        assert len(answer.objects) == 1
    return FoundOffset(found.error_code, found.offset, found.timestamp)


def test_offsets_by_time(machine: StateMachine) -> None:
    assert found_at(machine, EARLIEST) == FoundOffset(0, 0, -1)
    assert found_at(machine, LATEST) == FoundOffset(0, 8, -1)
    assert found_at(machine, LATEST, committed=True) == FoundOffset(0, 6, -1)
    assert found_at(machine, 0) == FoundOffset(0, 0, 10)
    assert found_at(machine, 11) == FoundOffset(0, 2, 30)
    assert found_at(machine, 31) == FoundOffset(0, 6, 50)
    assert found_at(machine, 31, committed=True) == FoundOffset(0, -1, -1), "it is not stable yet"
    assert found_at(machine, 51) == FoundOffset(0, -1, -1)
    assert found_at(machine, MAX_TIMESTAMP) == FoundOffset(0, 6, 50)
    assert found_at(machine, MAX_TIMESTAMP, committed=True) == FoundOffset(0, -1, -1)
    assert found_at(machine, MAX_TIMESTAMP, log=1) == FoundOffset(0, -1, -1)
    assert found_at(machine, -4).error_code == ErrorCode.INVALID_REQUEST.kafka_code
    assert found_at(machine, LATEST, log=9) == FoundOffset(3, -1, -1)


def test_topics_page_by_page(machine: StateMachine) -> None:
    batch(machine, topic("a"), topic("z", 3))
    names: list[str] = []
    after: str | None = ""
    for _ in range(3):
        assert after is not None
        page = topics_page(machine.logs, after, 1)
        names += [one.name for one in page.topics]
        after = page.next_after
    assert (names, after) == (["a", "t", "z"], None)
    assert topics_page(machine.logs, "", 3).next_after is None
    assert topics_page(machine.logs, "", 2).next_after == "t"
    assert [(one.name, one.first_log) for one in find_topics(machine.logs, ["z", "none", "a", "z"]).topics] == [
        ("z", 3),
        ("a", 2),
    ]


def test_a_rolled_part_is_read_from_its_segment_and_the_tail_as_before(machine: StateMachine) -> None:
    log = log_of(machine, 0)
    end, size = log.last_stable, log.segments.size
    rows = log.covered(0, end)
    assert rows is not None and size == 0
    before = read(machine, end)
    name = SegmentName(log.topic.name, 0, 0)
    request = CommitSegment(ObjectId(1, EPOCHS[1], 99), FOUNDING, 0, name, end, 70, 9, 40, rows)
    assert one(machine, request) == CommitSegmentResponse(joined=True)
    for offset in range(end):
        answer = read_logs(machine.logs, ReadLogsRequest([ReadLog(0, offset, 1000)], committed=True))
        (found,) = answer.logs
        assert (found.batches, found.markers, found.aborted) == ([], [], [])
        assert found.segment is not None
        assert (found.segment.base_offset, found.segment.end_offset) == (0, end)
        assert answer.objects[found.segment.object].endswith(f"/{name.topic}-0/{0:020}.log")
    assert read(machine, end) == before
    assert found_at(machine, 11) == FoundOffset(0, 0, 40), "somewhere in the segment"
    assert log_of(machine, 0).size == 70 + log_of(machine, 0).tail_size
