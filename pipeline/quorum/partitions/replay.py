"""Follows partition logs, and groups beside them, through one member's log, from a snapshot or from the beginning.

What the quorum decided is checked against what stood before it: each batch begins where its log ends, and one of a
transactional id has the id's pair and a partition of the transaction under way. The record that ends a transaction is
its markers, in each log where something of it is (docs/decisions/0047).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.engine.blobs import record_batch
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.quorum.partitions.groups import GroupsReplay, counted
from pidkeeper.pipeline.quorum.partitions.rolled import RolledLogs, rolled_segment, saved_segments, shape_of
from pidkeeper.pipeline.quorum.partitions.tables import TABLES, VIEWS, as_time
from pidkeeper.pipeline.quorum.partitions.transactions import COMMITTED, IDLE, Transaction, Transactions
from pidkeeper.protocol.founding import FoundingRecord, SuccessionRecord
from pidkeeper.protocol.groups import GroupRecord, OffsetsRecord, RemoveGroupRecord, RemoveOffsetsRecord
from pidkeeper.protocol.logs import BatchCoordinates, BrokerStoreRecord, ObjectRecord, RemoveTopicRecord, TopicRecord
from pidkeeper.protocol.records import Record, RegisterBrokerRecord, UnregisterBrokerRecord
from pidkeeper.protocol.segments import LogStartsRecord, SegmentRecord
from pidkeeper.protocol.transactions import AddPartitionsRecord, ForgetTransactionRecord, TransactionRecord
from pidkeeper.snapshots.groups_image import GroupsImage
from pidkeeper.snapshots.image import StateImage

NOT_OPEN: Final = -1
ROWS: Final = 16_384
"""So many rows of a table are handed on at once."""


class _Log(msgspec.Struct):
    """A log up to `end`; `open`: producers whose transactions have something in it."""

    topic: str
    partition: int
    end: int
    created_index: int
    open: set[int]
    removed_index: int | None = None


class SavedGroups(NamedTuple):
    """The groups of a snapshot, the number of its file, and the offset of the record behind it."""

    file_id: int
    next_offset: int
    groups: GroupsImage | None


class LogsReplay:
    """One view of a member: `take` each record in its order, `rows` as they come, and `views` at the end.

    `image`: the state from which on it is followed; None from the first record on. Records of entries that the image
    has in it are coordinates alone, for they came before it. `later`: by index, what other snapshots have of groups.
    """

    def __init__(
        self,
        image: StateImage | None,
        member_id: int,
        view: int,
        *,
        whole: bool,
        later: Mapping[int, SavedGroups] | None = None,
    ) -> None:
        self._copy = member_id, view
        self._whole = self._follows_groups = whole
        self._later = later or {}
        self._after = 0 if image is None else image.index
        self._reached = self._after
        self._founding = None if image is None or image.founding is None else str(image.founding.founding_id)
        self._store: str | None = None
        self._topics: dict[str, TopicRecord] = {}
        self._logs: dict[int, _Log] = {}
        self._removed: list[tuple[int, _Log]] = []
        self._transactions = Transactions(() if image is None else image.transactions)
        self._groups = GroupsReplay(image, self._transactions, self._end_of)
        self._found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._place: tuple[Any, ...] = ()
        self._rolled = RolledLogs(member_id, view)
        if image is not None:
            self._begin(image)

    def _begin(self, image: StateImage) -> None:
        if (logs := image.logs) is None:
            return
        self._store = None if logs.store_id is None else str(logs.store_id)
        for topic in logs.topics:
            self._create(topic, image.index)
        try:
            segments = saved_segments(logs)
        except ValueError:
            self._whole = self._follows_groups = False  # Who reads the snapshot itself tells of it.
            return
        for saved in logs.logs:
            if (log := self._logs.get(saved.number)) is not None:
                log.end = saved.end
        self._rolled = shape_of(logs, segments, (self._copy[0], None, image.index, None), self._copy[1])
        for row in logs.producers:
            if row.entry.open_since != NOT_OPEN and row.log in self._logs:
                self._logs[row.log].open.add(row.producer_id)

    # Records.

    def take(self, records: Iterable[Record], index: int, offset: int | None, file_id: int, at: int) -> None:
        """The records of one entry. offset: of its first record in the quorum's log, None where it is not known."""
        self._place = (self._copy[0], file_id, index, at)
        if index <= self._after:
            for number, record in enumerate(records):
                if isinstance(record, ObjectRecord):
                    self._coordinates(record, None if offset is None else offset + number, None)
            return
        for number, record in enumerate(records):
            if (handle := _HANDLERS.get(type(record))) is not None:
                own = None if offset is None else offset + number
                self._groups.faults.at = (*self._place, own)
                handle(self, record, own)
        self._reached = index
        if self._follows_groups and (saved := self._later.get(index)) is not None:
            self._groups.faults.at = (self._copy[0], saved.file_id, index, None, saved.next_offset)
            self._groups.compare(saved.groups)

    def stop(self) -> None:
        """An entry cannot be read: what follows is not followed."""
        self._whole = self._whole and self._reached > self._after
        self._after = 1 << 63

    def _object(self, record: ObjectRecord, offset: int | None) -> None:
        self._found["commits"].append((*self._place, *msgspec.structs.astuple(record.object)))
        if self._whole:
            for batch in record.batches:
                self._join(batch, record.timestamp_ms)
        self._coordinates(record, offset, self._founding)

    def _coordinates(self, record: ObjectRecord, offset: int | None, founding: str | None) -> None:
        name = record.object
        named = (founding, name.broker_id, name.broker_epoch, name.number, record.size)
        self._found["coordinates"] += [
            (
                *self._place,
                offset,
                batch.log,
                batch.base_offset,
                batch.records,
                *named,
                batch.position,
                batch.size,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.transactional,
                as_time(record.timestamp_ms),
            )
            for batch in record.batches
        ]

    def _join(self, batch: BatchCoordinates, timestamp_ms: int) -> None:
        log = self._logs.get(batch.log)
        if log is None:
            self._fault(
                "log_offsets", batch, timestamp_ms, f"there is no log {batch.log}, of no topic is it a partition"
            )
            return
        if batch.base_offset != log.end:
            lost = "records were lost" if batch.base_offset > log.end else "offsets were given twice"
            detail = f"a batch begins at offset {batch.base_offset}, and the log ended at {log.end}: {lost}"
            # Where offsets begin to be wrong, as a snapshot shows it too.
            wrong_from = msgspec.structs.replace(batch, base_offset=min(batch.base_offset, log.end))
            self._fault("log_offsets", wrong_from, timestamp_ms, detail)
        log.end = max(log.end, batch.base_offset + batch.records)
        what = "a transactional batch" if batch.transactional else "a batch"
        pair, place = (batch.producer_id, batch.producer_epoch), (log.topic, log.partition)
        why = self._transactions.why_not(what, pair, place, transactional=batch.transactional)
        if why is not None:
            self._fault("transaction_pair", batch, timestamp_ms, why)
        if batch.transactional:
            log.open.add(batch.producer_id)

    def _fault(self, check: str, batch: BatchCoordinates, timestamp_ms: int, detail: str) -> None:
        row = (check, batch.log, batch.base_offset, batch.producer_id, as_time(timestamp_ms), detail)
        self._found["log_faults"].append((*self._place, *row))

    # Topics and transactions.

    def _topic(self, record: TopicRecord, _: int | None) -> None:
        for number in record.logs:
            if (log := self._logs.get(number)) is not None:
                detail = f"topic {record.name!r} was given the log of {log.topic}-{log.partition}"
                row = ("log_offsets", number, 0, None, as_time(record.timestamp_ms), detail)
                self._found["log_faults"].append((*self._place, *row))
        self._create(record, self._place[2])

    def _create(self, topic: TopicRecord, index: int) -> None:
        self._topics[topic.name] = topic
        for partition, number in enumerate(topic.logs):
            self._logs[number] = _Log(topic.name, partition, 0, index, set())

    def _remove(self, record: RemoveTopicRecord, _: int | None) -> None:
        topic = next((one for one in self._topics.values() if one.topic_id == record.topic_id), None)
        if topic is None:
            return
        del self._topics[topic.name]
        for number in topic.logs:
            if (log := self._logs.pop(number, None)) is not None:
                log.removed_index = self._place[2]
                self._removed.append((number, log))
        self._groups.drop_topic(topic.name)

    def _transact(self, record: TransactionRecord, _: int | None) -> None:
        if (before := self._transactions.take(record)) is None:
            return
        if record.status in IDLE:
            self._end(before, record)
        self._groups.end(before, record.status, record.update_ms)

    def _end(self, before: Transaction, after: TransactionRecord) -> None:
        """A marker in each log where something of the transaction is."""
        epoch = after.producer_epoch if after.producer_id == before.producer_id else before.producer_epoch + 1
        for name, partition in before.joined:
            number, log = self._find(name, partition)
            if log is None or before.producer_id not in log.open:
                continue
            log.open.discard(before.producer_id)
            row = (before.producer_id, epoch, after.status == COMMITTED, as_time(after.update_ms))
            self._found["markers"].append((*self._place, number, log.end, *row))
            log.end += 1

    def _find(self, name: str, partition: int) -> tuple[int, _Log | None]:
        """The log of a partition, and its number."""
        topic = self._topics.get(name)
        if topic is None or partition >= topic.partitions:
            return -1, None
        number = topic.first_log + partition
        return number, self._logs.get(number)

    def _add(self, record: AddPartitionsRecord, _: int | None) -> None:
        self._transactions.add(record)

    def _forget(self, record: ForgetTransactionRecord, _: int | None) -> None:
        if (before := self._transactions.forget(record)) is not None:
            self._groups.end(before, None)

    def _end_of(self, name: str, partition: int) -> int | None:
        _, log = self._find(name, partition)
        return None if log is None else log.end

    def _group(self, record: Any, offset: int | None) -> None:
        # Records of groups are known by their offsets.
        self._follows_groups = self._follows_groups and offset is not None
        if offset is not None and self._follows_groups:
            _OF_GROUPS[type(record)](self._groups, record, offset)

    def _found_by(self, record: FoundingRecord | SuccessionRecord, _: int | None) -> None:
        self._founding = str(record.founding_id)

    def _pin(self, record: BrokerStoreRecord, _: int | None) -> None:
        self._store = str(record.store_id)

    def _roll(self, record: SegmentRecord, _: int | None) -> None:
        self._found["rolls"].append((*self._place, *msgspec.structs.astuple(record.object)))
        log = self._logs.get(record.log)
        if not record.replaces or log is None:
            return
        if record.end_offset > log.end:
            detail = f"a segment reaches up to offset {record.end_offset - 1}, and the log ended at {log.end}"
            row = ("log_offsets", record.log, log.end, None, as_time(record.timestamp_ms), detail)
            self._found["log_faults"].append((*self._place, *row))
        self._rolled.roll(self._place, rolled_segment(record, self._founding))

    def _cut(self, record: LogStartsRecord, _: int | None) -> None:
        for number, offset in record.starts:
            self._rolled.cut(self._place[2], number, offset)

    # What came of it.

    def rows(self, *, least: int = ROWS) -> Iterator[Named]:
        """Evidence by `tables.TABLES` that has at least so many rows by now."""
        for name, rows in self._found.items():
            if len(rows) >= least:
                yield name, record_batch(TABLES[name], rows)
                rows.clear()

    def views(self) -> Iterator[Named]:
        """All that is left, and the logs of the view if it is known whole."""
        if self._whole and (self._logs or self._removed or self._store is not None):
            first = min(one.created_index for one in self._logs.values()) if self._logs else self._reached
            row = (*self._copy, first, self._reached, True, self._store, *counted(self._groups.kept()))
            yield "views", record_batch(VIEWS, [row])
            self._found["places"] = [
                (*self._copy, number, one.topic, one.partition, one.created_index, one.removed_index)
                for number, one in [*self._logs.items(), *self._removed]
            ]
            yield from self._rolled.rows()
        yield from self._groups.faults.rows()
        yield from self.rows(least=1)


_OF_GROUPS: Final[dict[type[Any], Callable[[GroupsReplay, Any, int], None]]] = {
    RegisterBrokerRecord: GroupsReplay.register,
    UnregisterBrokerRecord: GroupsReplay.unregister,
    GroupRecord: GroupsReplay.advance,
    OffsetsRecord: GroupsReplay.commit,
    RemoveOffsetsRecord: GroupsReplay.remove,
    RemoveGroupRecord: GroupsReplay.forget,
}
_HANDLERS: Final[dict[type[Any], Callable[[LogsReplay, Any, int | None], None]]] = {
    ObjectRecord: LogsReplay._object,
    TopicRecord: LogsReplay._topic,
    RemoveTopicRecord: LogsReplay._remove,
    TransactionRecord: LogsReplay._transact,
    AddPartitionsRecord: LogsReplay._add,
    ForgetTransactionRecord: LogsReplay._forget,
    FoundingRecord: LogsReplay._found_by,
    SuccessionRecord: LogsReplay._found_by,
    BrokerStoreRecord: LogsReplay._pin,
    SegmentRecord: LogsReplay._roll,
    LogStartsRecord: LogsReplay._cut,
    **dict.fromkeys(_OF_GROUPS, LogsReplay._group),
}
