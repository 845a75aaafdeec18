"""Partition logs as the records of the quorum's log make them, told apart from the code under test.

Each log is a list of rows, batches and markers. A transaction's end marks all of its rows, so what a consumer is to see
is read off the rows; no offset, epoch or sequence is looked up anywhere else. A log that lost its beginning keeps its
rows here: what consumers read a moment ago is judged by them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from pidkeeper.protocol.groups import OFFSETS_TOPIC, GroupsRecord, OffsetsRecord, offsets_partition
from pidkeeper.protocol.logs import BatchCoordinates, ObjectRecord, TopicRecord
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.segments import SegmentRecord
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord
from tests.simulation.group_model import GroupModel
from tests.simulation.transaction_model import COMPLETE_COMMIT, ONGOING, Pair, State, joined, state_of
from tests.simulation.world import Violation

MARKER_BYTES: Final = 78
"""Of a control batch in a segment."""


class Row:
    """A batch or a marker. `committed`: None while its transaction is open; `covered`: a batch's bytes from the CRC's
    reach on, nothing for a marker. `place`: the object that it is read from, nothing for a marker of a tail.
    `until`: where the part of the log ends with which it goes, itself or a segment. `size`: bytes that count for
    retention. `latest`: the time of its latest record, -1 of a marker in a tail."""

    __slots__ = (
        "committed",
        "covered",
        "latest",
        "offset",
        "pair",
        "place",
        "records",
        "size",
        "transactional",
        "until",
    )

    def __init__(self, offset: int, records: int, pair: Pair, covered: bytes, *, transactional: bool) -> None:
        self.offset = offset
        self.records = records
        self.pair = pair
        self.covered = covered
        self.transactional = transactional
        self.size, self.latest = 0, -1
        self.place = ""
        self.until = offset + records
        self.committed: bool | None = None if transactional and covered else True

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.records


class LogEnds(NamedTuple):
    """Where a log ends, the offset below which everything is decided, and where it begins."""

    end: int
    last_stable: int
    start: int = 0


class ModelLog:
    """One log. `open`: the rows of each producer's open transaction. `first`: the index of the first row that is there.

    `removed`: when its topic was deleted, in the world's time. `known`: of each producer that the log has not forgotten
    the offset since which it knows it; `heard`: when it wrote last, by the leader's clock.
    """

    def __init__(self, record: TopicRecord, partition: int) -> None:
        self.record = record
        self.topic = record.name
        self.partition = partition
        self.number = record.first_log + partition
        self.rows: list[Row] = []
        self.open: dict[int, list[Row]] = {}
        self.start = self.first = 0
        self.removed: int | None = None
        self.known: dict[int, int] = {}
        self.heard: dict[int, int] = {}

    @property
    def ends(self) -> LogEnds:
        """As of now. What was deleted on demand may reach into a transaction."""
        end = self.rows[-1].end if self.rows else 0
        stable = min((rows[0].offset for rows in self.open.values()), default=end)
        return LogEnds(end, max(stable, self.start), self.start)

    @property
    def size(self) -> int:
        """Bytes that count for retention."""
        return sum(row.size for row in self.rows[self.first :])

    def was_there(self, since: int) -> bool:
        """Whether it was there at a moment, or came later."""
        return self.removed is None or self.removed >= since

    def parts(self) -> Iterator[list[Row]]:
        """The rows of each segment, and each row of the tail."""
        part: list[Row] = []
        for row in self.rows[self.first :]:
            if part and row.until != part[0].until:
                yield part
                part = []
            part.append(row)
        if part:
            yield part

    def rolled(self, record: SegmentRecord) -> list[Row]:
        """The rows that a segment takes the place of, which are decided. Raises Violation."""
        base, end = record.name.base_offset, record.end_offset
        rows = [row for row in self.rows[self.first :] if row.offset >= base and row.end <= end]
        whole = rows and rows[0].offset == base and rows[-1].end == end
        if not whole or end > self.ends.last_stable or rows[-1].until > end:
            raise Violation("rolled-amid", f"{base} to {end} of {self.topic}: the log is {self.ends}")
        for row in rows:
            row.until = end
            row.size = row.size or MARKER_BYTES
            if record.max_timestamp < 0:
                row.latest = record.timestamp_ms
        return rows

    def begin(self, start: int) -> list[Row]:
        """It begins at an offset from now on; the rows that it lets go of."""
        self.start, before = start, self.first
        while self.first < len(self.rows) and self.rows[self.first].until <= start:
            self.first += 1
        return self.rows[before : self.first]

    def remove(self, now: int) -> list[Row]:
        """Its topic was deleted; the rows that it lets go of."""
        self.removed = now
        self.open.clear()
        before, self.first = self.first, len(self.rows)
        return self.rows[before:]

    def visible(self, first: int, below: int, *, committed: bool) -> list[Row]:
        """The batches in a range that a consumer is given, each whole."""
        rows = [row for row in self.rows if row.end > first and row.offset < below and row.covered]
        return [row for row in rows if row.committed is True] if committed else rows


class LogModel:
    """All logs by their numbers, the transactions as the records tell of them, and the groups. `ended`: how many
    transactions did. `now()`: the world's time, for groups."""

    def __init__(self, now: Callable[[], int] = lambda: 0) -> None:
        self.groups = GroupModel(now)
        self.logs: dict[int, ModelLog] = {}
        self._places: dict[tuple[str, int], list[ModelLog]] = {}
        self._topics: dict[uuid.UUID, TopicRecord] = {}
        self._states: dict[str, State] = {}
        self._users: dict[int, str] = {}
        self.ended = 0

    def ends(self) -> dict[int, LogEnds]:
        """Of every log that is there."""
        return {log.number: log.ends for log in self.present()}

    def present(self) -> Iterator[ModelLog]:
        """Every log that is there."""
        return (log for log in self.logs.values() if log.removed is None)

    def log_of(self, topic: str, partition: int) -> ModelLog | None:
        """The log of a partition, if it is there."""
        logs = self._places.get((topic, partition))
        return None if not logs or logs[-1].removed is not None else logs[-1]

    def logs_since(self, topic: str, partition: int, since: int) -> list[ModelLog]:
        """The logs that a partition had at a moment and later, the newest first."""
        return [log for log in reversed(self._places.get((topic, partition), [])) if log.was_there(since)]

    def others(self, records: Iterable[Record]) -> None:
        """Take in records that have to do with no object."""
        for record in records:
            if isinstance(record, TopicRecord):
                self._create(record)
            elif isinstance(record, AddPartitionsRecord):
                self._join(record)
            elif isinstance(record, TransactionRecord):
                self._transact(record)
            elif isinstance(record, ForgetTransactionRecord):
                del self._states[record.transactional_id]
            elif isinstance(record, GroupsRecord):
                if isinstance(record, OffsetsRecord) and record.producer_id >= 0:
                    place = OFFSETS_TOPIC, offsets_partition(record.group_id)
                    self._check_joined(place, (record.producer_id, record.producer_epoch))
                self.groups.take(record)

    def remove(self, topic_id: uuid.UUID, now: int) -> list[Row]:
        """A topic was deleted; the rows that its logs let go of. Raises Violation if there was none."""
        record = self._topics.pop(topic_id, None)
        if record is None:
            raise Violation("topic-unknown", f"{topic_id} is deleted, and is of no topic")
        self.groups.drop_topic(record.name)
        return [row for number in record.logs for row in self.logs[number].remove(now)]

    def append(self, record: ObjectRecord, batch: BatchCoordinates, covered: bytes) -> Row:
        """A batch joins. Raises Violation unless it begins where its log ends, and its producer may write there."""
        log = self.logs.get(batch.log)
        if log is None or log.removed is not None or batch.base_offset != log.ends.end:
            raise Violation("offsets", f"{batch} of {record.object} joins, the log is {log and log.ends}")
        pair = (batch.producer_id, batch.producer_epoch)
        self._check_pair(pair)
        if batch.transactional:
            self._check_joined((log.topic, log.partition), pair)
        row = Row(batch.base_offset, batch.records, pair, covered, transactional=batch.transactional)
        row.size, row.latest = batch.size, batch.max_timestamp
        log.rows.append(row)
        if batch.producer_id >= 0:
            log.known.setdefault(batch.producer_id, row.offset)
            log.heard[batch.producer_id] = record.timestamp_ms
        if batch.transactional:
            log.open.setdefault(batch.producer_id, []).append(row)
        return row

    def _create(self, record: TopicRecord) -> None:
        self._topics[record.topic_id] = record
        for partition, number in enumerate(record.logs):
            if number in self.logs:
                raise Violation("log-twice", f"{record}, but log {number} was of {self.logs[number].record}")
            log = self.logs[number] = ModelLog(record, partition)
            logs = self._places.setdefault((log.topic, partition), [])
            if logs and logs[-1].removed is None:
                raise Violation("topic-twice", f"{record} beside {logs[-1].record}")
            logs.append(log)

    def _join(self, record: AddPartitionsRecord) -> None:
        before = self._states.get(record.transactional_id)
        after = joined(before, record)
        if before is None or after is None or before.pair != after.pair:
            raise Violation("zombie-behind-the-fence", f"{record} comes after {before}")
        self._states[record.transactional_id] = after

    def _check_pair(self, pair: Pair) -> State | None:
        """The state of the producer that has the pair, if anything is known of it. Raises Violation if not that one."""
        user = self._users.get(pair[0])
        state = None if user is None else self._states.get(user)
        if state is not None and state.pair != pair:
            raise Violation("zombie-behind-the-fence", f"{pair} writes, but {user} has {state.pair}")
        return state

    def _check_joined(self, place: tuple[str, int], pair: Pair) -> None:
        """Raise Violation unless a partition is in the transaction of the producer that has the pair."""
        state = self._check_pair(pair)
        if state is None or state.status != ONGOING or place not in state.partitions:
            raise Violation("outside-its-transaction", f"{pair} writes to {place} in {state}")

    def _transact(self, record: TransactionRecord) -> None:
        before, after = self._states.get(record.transactional_id), state_of(record)
        self._states[record.transactional_id] = after
        self._users[after.pair[0]] = record.transactional_id
        if before is not None and before.status == ONGOING and after.status != ONGOING:
            self.ended += 1
            self.groups.settle(before.pair[0], committed=after.status == COMPLETE_COMMIT)
            for log in self.present():
                if (log.topic, log.partition) in before.partitions:
                    _end(log, before.pair, record.update_ms, committed=after.status == COMPLETE_COMMIT)


def _end(log: ModelLog, pair: Pair, now_ms: int, *, committed: bool) -> None:
    """Whoever has something open in the log gets a marker there."""
    rows = log.open.pop(pair[0], None)
    if rows is None:
        return
    for row in rows:
        row.committed = committed
    marker = Row(log.ends.end, 1, pair, b"", transactional=True)
    marker.committed = committed
    log.rows.append(marker)
    log.heard[pair[0]] = now_ms
