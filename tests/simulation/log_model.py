"""Partition logs as the records of the quorum's log make them, told apart from the code under test.

Each log is a list of rows, batches and markers. A transaction's end marks all of its rows, so what a consumer is to see
is read off the rows; no offset, epoch or sequence is looked up anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pidkeeper.protocol.logs import BatchCoordinates, ObjectRecord, TopicRecord
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord
from tests.simulation.transaction_model import COMPLETE_COMMIT, ONGOING, Pair, State, joined, state_of
from tests.simulation.world import Violation


class Row:
    """A batch or a marker. `committed`: None while its transaction is open; `covered`: a batch's bytes from the CRC's
    reach on, nothing for a marker. `place`: the object that it is read from, nothing for a marker of a tail."""

    __slots__ = ("committed", "covered", "offset", "pair", "place", "records", "transactional")

    def __init__(self, offset: int, records: int, pair: Pair, covered: bytes, *, transactional: bool) -> None:
        self.offset = offset
        self.records = records
        self.pair = pair
        self.covered = covered
        self.transactional = transactional
        self.place = ""
        self.committed: bool | None = None if transactional and covered else True

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.records


class LogEnds(NamedTuple):
    """Where a log ends, and the offset below which everything is decided."""

    end: int
    last_stable: int


class ModelLog:
    """One log. `open`: the rows of each producer's open transaction."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.rows: list[Row] = []
        self.open: dict[int, list[Row]] = {}

    @property
    def ends(self) -> LogEnds:
        """As of now."""
        end = self.rows[-1].end if self.rows else 0
        return LogEnds(end, min((rows[0].offset for rows in self.open.values()), default=end))

    def rolled(self, base_offset: int, end_offset: int) -> list[Row]:
        """The rows that make up a range, which is decided. Raises Violation."""
        rows = [row for row in self.rows if row.offset >= base_offset and row.end <= end_offset]
        whole = rows and rows[0].offset == base_offset and rows[-1].end == end_offset
        if not whole or end_offset > self.ends.last_stable:
            raise Violation("rolled-amid", f"{base_offset} to {end_offset} of {self.topic}: the log is {self.ends}")
        return rows

    def visible(self, first: int, below: int, *, committed: bool) -> list[Row]:
        """The batches in a range that a consumer is given, each whole."""
        rows = [row for row in self.rows if row.end > first and row.offset < below and row.covered]
        return [row for row in rows if row.committed is True] if committed else rows


class LogModel:
    """All logs by their numbers, and the transactions as the records tell of them."""

    def __init__(self) -> None:
        self.logs: dict[int, ModelLog] = {}
        self._states: dict[str, State] = {}
        self._users: dict[int, str] = {}

    def ends(self) -> dict[int, LogEnds]:
        """Of every log."""
        return {number: log.ends for number, log in self.logs.items()}

    def log_of(self, topic: str, partition: int) -> ModelLog | None:
        """The log of a partition."""
        return next((log for log in self.logs.values() if (log.topic, log.partition) == (topic, partition)), None)

    def others(self, records: Iterable[Record]) -> None:
        """Take in records that are no objects."""
        for record in records:
            if isinstance(record, TopicRecord):
                for partition, number in enumerate(record.logs):
                    self.logs[number] = ModelLog(record.name, partition)
            elif isinstance(record, AddPartitionsRecord):
                state = joined(self._states.get(record.transactional_id), record)
                assert state is not None, f"{record} joins what nobody began"
                self._states[record.transactional_id] = state
            elif isinstance(record, TransactionRecord):
                self._transact(record)
            elif isinstance(record, ForgetTransactionRecord):
                del self._states[record.transactional_id]

    def append(self, record: ObjectRecord, batch: BatchCoordinates, covered: bytes) -> Row:
        """A batch joins. Raises Violation unless it begins where its log ends, and its producer may write there."""
        log = self.logs.get(batch.log)
        if log is None or batch.base_offset != log.ends.end:
            raise Violation("offsets", f"{batch} of {record.object} joins, the log is {log and log.ends}")
        pair = (batch.producer_id, batch.producer_epoch)
        self._check_pair(log, batch, pair)
        row = Row(batch.base_offset, batch.records, pair, covered, transactional=batch.transactional)
        log.rows.append(row)
        if batch.transactional:
            log.open.setdefault(batch.producer_id, []).append(row)
        return row

    def _check_pair(self, log: ModelLog, batch: BatchCoordinates, pair: Pair) -> None:
        user = self._users.get(batch.producer_id)
        state = None if user is None else self._states.get(user)
        if state is not None and state.pair != pair:
            raise Violation("zombie-behind-the-fence", f"{batch} joins, but {user} has {state.pair}")
        if not batch.transactional:
            return
        if state is None or state.status != ONGOING or (log.topic, log.partition) not in state.partitions:
            raise Violation("outside-its-transaction", f"{batch} joins {log.topic}-{log.partition} in {state}")

    def _transact(self, record: TransactionRecord) -> None:
        before, after = self._states.get(record.transactional_id), state_of(record)
        self._states[record.transactional_id] = after
        self._users[after.pair[0]] = record.transactional_id
        if before is not None and before.status == ONGOING and after.status != ONGOING:
            for log in self.logs.values():
                if (log.topic, log.partition) in before.partitions:
                    _end(log, before.pair, committed=after.status == COMPLETE_COMMIT)


def _end(log: ModelLog, pair: Pair, *, committed: bool) -> None:
    """Whoever has something open in the log gets a marker there."""
    rows = log.open.pop(pair[0], None)
    if rows is None:
        return
    for row in rows:
        row.committed = committed
    marker = Row(log.ends.end, 1, pair, b"", transactional=True)
    marker.committed = committed
    log.rows.append(marker)
