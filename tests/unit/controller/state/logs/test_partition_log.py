"""One log: what is found in it by offset and by time, and aborted transactions against a list of all that ever was."""

from __future__ import annotations

import itertools
import uuid
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.protocol.logs import BatchCoordinates, TopicRecord
from pidkeeper.snapshots.logs_image import LogImage

TOPIC = TopicRecord(uuid.UUID(int=1), "t", 3, 40, -1, -1, 0)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(-1, 4), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 4), st.booleans()),
    ),
    max_size=40,
)


class Row(NamedTuple):
    """Anything in the log: `kind` is "data", "open" for data of a transaction, or "marker"."""

    kind: str
    offset: int
    records: int
    producer_id: int
    time: int


class Told:
    """A log, and plain lists of what was done to it."""

    def __init__(self, done: list[tuple[str, int, int]]) -> None:
        self.log = PartitionLog(TOPIC, 2)
        self.rows: list[Row] = []
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        for time, (kind, producer_id, value) in enumerate(done):
            if kind == "data":
                self._append(producer_id, value, time * 7 % 11)
            elif producer_id in self.open:
                self._end(producer_id, committed=bool(value))

    def _append(self, producer_id: int, records: int, time: int) -> None:
        log, transactional = self.log, producer_id >= 0
        number = len(self.rows)
        batch = BatchCoordinates(40, log.end, records, number, 9, producer_id, 0, 0, time, transactional)
        self.rows.append(Row("open" if transactional else "data", log.end, records, producer_id, time))
        if transactional:
            self.open.setdefault(producer_id, log.end)
        log.append(batch, number)

    def _end(self, producer_id: int, *, committed: bool) -> None:
        first = self.open.pop(producer_id)
        if not committed:
            self.aborted.append((producer_id, first, self.log.end))
        self.rows.append(Row("marker", self.log.end, 1, producer_id, 5))
        self.log.append_marker(producer_id, 1, committed=committed, timestamp_ms=5)

    @property
    def batches(self) -> list[Row]:
        return [row for row in self.rows if row.kind != "marker"]


@given(steps)
def test_offsets_and_the_last_stable_one(done: list[tuple[str, int, int]]) -> None:
    told = Told(done)
    ends = [row.offset + row.records for row in told.rows]
    assert [row.offset for row in told.rows] == [0, *ends][: len(ends)], "there is no gap"
    assert told.log.end == (ends[-1] if ends else 0)
    assert told.log.last_stable == min(told.open.values(), default=told.log.end)
    assert (told.log.rows, told.log.aborted_count) == (len(told.rows), len(told.aborted))
    assert told.log.open == told.open
    assert list(told.log.open.values()) == sorted(told.open.values())
    assert told.log.size == 9 * len(told.batches)
    assert told.log.keys() == [told.rows.index(row) for row in told.batches]


transactions = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, 3), st.just(1)),
        st.tuples(st.just("end"), st.integers(0, 3), st.just(0)),
    ),
    min_size=4,
    max_size=20,
)


@given(st.one_of(steps, transactions))
def test_aborted_transactions_between_any_two_offsets(done: list[tuple[str, int, int]]) -> None:
    """Against all of them: `aborted_between` looks at those alone whose rows may matter."""
    told = Told(done)
    ends = sorted({row.offset for row in told.rows[:20]} | {told.log.end})
    for offset, below in itertools.product(ends, ends):
        between = told.log.aborted_between(offset, below)
        found = [(one.producer_id, one.first_offset, one.marker_offset) for one in between]
        assert found == [one for one in told.aborted if one[2] >= offset and one[1] < below]


@given(steps, st.integers(0, 60), st.integers(0, 60), st.integers(0, 10))
def test_batches_and_markers_between_two_offsets(
    done: list[tuple[str, int, int]], offset: int, below: int, most: int
) -> None:
    told = Told(done)
    wanted = [row.offset for row in told.batches if row.offset + row.records > offset and row.offset < below]
    assert [one.base_offset for one in told.log.batches_from(offset, below, most)] == wanted[:most]
    ends = [row.offset for row in told.rows if row.kind == "marker" and offset <= row.offset < below]
    assert [one.offset for one in told.log.markers_from(offset, below, most)] == ends[:most]


@given(steps, st.integers(-1, 12))
def test_batches_by_time(done: list[tuple[str, int, int]], time: int) -> None:
    told = Told(done)
    first = next((row.offset for row in told.batches if row.time >= time), None)
    found = told.log.first_at(time)
    assert (None if found is None else found.base_offset) == first
    latest = told.log.latest()
    newest = max((row.time for row in told.batches), default=None)
    assert (latest is None) == (newest is None)
    if latest is not None:
        assert latest.max_timestamp == newest
        assert latest.base_offset == next(row.offset for row in told.batches if row.time == newest)


@given(steps, steps)
def test_a_copy_and_a_restored_one_are_equal_and_apart(
    done: list[tuple[str, int, int]], later: list[tuple[str, int, int]]
) -> None:
    told = Told(done)
    image, opened = told.log.image(), dict(told.open)
    copy = told.log.clone(7)
    assert (copy.generation, copy.image(), copy.open) == (7, image, opened)
    kept, told.log = told.log, copy
    for kind, producer_id, value in later:
        if kind == "data":
            told._append(producer_id, value, 3)
    assert (kept.image(), kept.open) == (image, opened)
    again = PartitionLog(TOPIC, 2)
    again.restore(image)
    again.open = opened
    assert (again.image(), again.size, again.rows, again.last_stable) == (
        image,
        kept.size,
        kept.rows,
        kept.last_stable,
    )


IMAGE = Told([("data", 1, 2), ("data", -1, 1), ("end", 1, 0)]).log.image()


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (replace(IMAGE, end=2), "has batches from 0 on, and goes from 0 to 2"),
        (replace(IMAGE, start=2), "has batches from 0 on, and goes from 2 to 4"),
        (replace(IMAGE, columns=IMAGE.columns[1:]), "5 columns, where 6 are kept"),
        (replace(IMAGE, columns=(*IMAGE.columns, b"")), "7 columns, where 6 are kept"),
        (replace(IMAGE, columns=(b"", *IMAGE.columns[1:])), r"columns of \[0, 2, 2, 2, 2, 2\] rows"),
        (replace(IMAGE, columns=(IMAGE.columns[0][:-1], *IMAGE.columns[1:])), "multiple"),
        (replace(IMAGE, markers=IMAGE.markers[1:]), "4 columns, where 5 are kept"),
        (replace(IMAGE, aborted=(*IMAGE.aborted[:3], b"12345678" * 2)), r"columns of \[1, 1, 1, 2\] rows"),
    ],
)
def test_a_damaged_log_is_refused(damaged: LogImage, why: str) -> None:
    PartitionLog(TOPIC, 2).restore(IMAGE)
    with pytest.raises(ValueError, match=why):
        PartitionLog(TOPIC, 2).restore(damaged)


def test_columns_are_little_endian() -> None:
    assert IMAGE.columns[0] == bytes(8) + bytes([2]) + bytes(7)
    assert [len(column) // 2 for column in IMAGE.columns] == [8, 8, 4, 4, 4, 8]
    assert [len(column) for column in IMAGE.markers] == [8, 8, 2, 1, 8]
    assert [len(column) for column in IMAGE.aborted] == [8, 8, 8, 8]
