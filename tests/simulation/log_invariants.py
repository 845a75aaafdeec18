"""What must hold of partition logs, looked at from outside, whenever a member applies an entry:

- each batch begins where its log ends, and every member has each log's start, end and last stable offset as the records
  have them; none of them ever falls on what one member applied;
- an object whose batches join is in the store, with these batches at their places, and stays (`log_references.py`);
- a segment that takes the place of rows has just these, each as it was, and control batches for markers, in a part of
  its log that is decided; its index is there;
- a log refers to nothing that an agent asked to delete, and loses its beginning only as `log_starts.py` allows;
- a batch was sent by somebody for this very log, once for each time that it is there, and once at all if its producer
  is idempotent, and the log has not forgotten it since; its producer id had been given to somebody;
- no producer is forgotten that has a transaction open, nor before its time;
- nothing of a producer joins behind its fence, nor outside of its transaction;
- every member has each group's newest record, its offsets and what transactions hold just as the records have them, and
  each record of a group follows the one before (`group_model.py`).

And whenever somebody is told that a batch is there, it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.kafka.wire.data.record_batch import read_batch_header
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.protocol.founding import FoundingRecord, SuccessionRecord
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.logs import (
    BatchCoordinates,
    BrokerStoreRecord,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
)
from pidkeeper.protocol.records import Record, decode_batch
from pidkeeper.protocol.segments import CollectionReleasedRecord, LogStartsRecord, SegmentRecord, index_path
from tests.simulation.group_model import GroupsImage, image_of
from tests.simulation.log_model import LogEnds, LogModel, Row
from tests.simulation.log_references import References
from tests.simulation.log_starts import LogStarts
from tests.simulation.object_store import SimStore
from tests.simulation.sent_batches import COVERED_FROM, Batches, Sent
from tests.simulation.world import MILLISECOND, Violation
from tests.support.segment_builder import START_MS

if TYPE_CHECKING:
    from tests.simulation.process import Process

NOWHERE: Final = LogEnds(0, 0)
NEVER_MS: Final = 1 << 62


class LogMonitor:
    """Watches the logs of all members. Raises Violation in the event in which a promise was broken.

    `garbage`: how long an object stays at least that no log needs, in microseconds. `expiration_ms`: for how long a
    producer is known at least that writes nothing. `copied`: entries up to there were in the copy that was restored.
    """

    def __init__(
        self, store: SimStore, batches: Batches, *, garbage: int = 0, expiration_ms: int = NEVER_MS, copied: int = 0
    ) -> None:
        self.model = LogModel(lambda: store.world.now)
        self.references = References(store, garbage)
        self.starts = LogStarts()
        self.segments = self.removed = self.expired = 0
        self.copied = copied
        self._store = store
        self._batches = batches
        self._garbage = garbage
        self._expiration_ms = expiration_ms
        self._entries: list[bytes] = []
        self._ends: list[dict[int, LogEnds]] = []
        """By the index of the entry, less one, and so are the entries and the groups."""
        self._groups: list[GroupsImage] = []
        self._seen: dict[Process, dict[int, LogEnds]] = {}
        store.on_delete = self.references.deleting

    @property
    def now_ms(self) -> int:
        """What all clocks say."""
        return START_MS + self._store.world.now // MILLISECOND

    def rewound(self, last: int, entries: Sequence[Entry]) -> LogMonitor:
        """One that knows what a copy of the quorum's log says, which ends at the index `last`, with these entries.

        Nothing may be deleted by its records, before an operator releases that.
        """
        data = list(self._entries)
        for entry in entries:
            data[entry.index - 1 :] = [entry.data]
        del data[last:]
        for sent in self._batches:
            sent.offsets.clear()
        other = LogMonitor(
            self._store, self._batches, garbage=self._garbage, expiration_ms=self._expiration_ms, copied=len(data)
        )
        other.starts = self.starts
        for one in data:
            other._first_applied(None, one)
        other.references.succeed()
        return other

    def applied(self, process: Process, entry: Entry) -> None:
        """A member applied an entry."""
        if entry.index > len(self._ends):
            self._first_applied(process, entry.data)
        wanted, logs = self._ends[entry.index - 1], process.machine.logs
        before = self._seen.get(process, {})
        if set(logs.numbers()) != wanted.keys():
            raise Violation("logs", f"member {process.node_id} has logs {logs.numbers()}, not {list(wanted)}")
        for number, ends in wanted.items():
            log = logs.log(number)
            found = None if log is None else LogEnds(log.end, log.last_stable, log.start)
            if found != ends:
                raise Violation("log-ends", f"member {process.node_id} has log {number} at {found}, not {ends}")
            known = before.get(number, NOWHERE)
            fell = ends.end < known.end or ends.last_stable < known.last_stable or ends.start < known.start
            if fell or not ends.start <= ends.last_stable <= ends.end:
                raise Violation("log-fell", f"member {process.node_id} had log {number} at {known}, then at {ends}")
        self._seen[process] = wanted
        if (groups := image_of(process.machine.groups)) != self._groups[entry.index - 1]:
            facts = f"member {process.node_id} has {groups}, not {self._groups[entry.index - 1]}"
            raise Violation("groups", facts)

    def acknowledged(self, sent: Sent, offset: int, asked: int) -> None:
        """Somebody who asked at the moment `asked` was told that a batch is at `offset`."""
        logs = self.model.logs_since(sent.topic, sent.partition, asked)
        if not any(offset in sent.offsets.get(log.number, ()) for log in logs):
            raise Violation("acknowledged-uncommitted", f"{sent} was said to be at {offset}, which no member applied")

    def holder(self, sent: Sent) -> int | None:
        """The log that has a batch, and has not forgotten its producer since; None if no log that is there has."""
        log = self.model.log_of(sent.topic, sent.partition)
        if log is None or not (offsets := sent.offsets.get(log.number)):
            return None
        ids = {triple[0] for triple in sent.forms.values()}
        since = [log.known[one] for one in ids if one in log.known]
        return log.number if since and max(offsets) >= max(since) else None

    def _first_applied(self, process: Process | None, data: bytes) -> None:
        """`process`: None for what a copy has, and was looked at before."""
        trusted = process is None or len(self._ends) < self.copied
        for record in decode_batch(data):
            self._take(process, record, trusted=trusted)
            self.model.groups.at += 1
        self._ends.append(self.model.ends())
        self._groups.append(self.model.groups.image())
        self._entries.append(data)

    def _take(self, process: Process | None, record: Record, *, trusted: bool) -> None:
        match record:
            case ObjectRecord():
                self._commit(process, record, trusted=trusted)
            case SegmentRecord():
                self._rolled(record, trusted=trusted)
            case LogStartsRecord():
                self._begin(record, trusted=trusted)
            case RemoveTopicRecord():
                self.removed += 1
                self._let_go(self.model.remove(record.topic_id, self._store.world.now))
            case ProducersExpiredRecord():
                self._expire(record, trusted=trusted)
            case ObjectsDeletedRecord():
                self.references.told_deleted(record.keys, trusted=trusted)
            case CollectionReleasedRecord():
                self.references.held, self.references.released = False, record.foundings
            case BrokerStoreRecord():
                self.references.pinned = True
            case FoundingRecord() | SuccessionRecord():
                self.references.founding = record.founding_id
            case _:
                self.model.others([record])

    def _path(self, record: ObjectRecord | SegmentRecord) -> str:
        founding_id = self.references.founding
        assert founding_id is not None, f"{record} of no founding"
        if isinstance(record, SegmentRecord):
            return record.name.path(record.object, founding_id)
        return record.object.path(founding_id)

    def _commit(self, process: Process | None, record: ObjectRecord, *, trusted: bool) -> None:
        if not record.batches:
            return
        name = self._path(record)
        data = self._store.ever[name] if trusted else self._stored(name, record)
        if len(data) != record.size:
            raise Violation("commit-before-put", f"{record}, but {name} has {len(data)} bytes")
        self.references.add(name, len(record.batches))
        for batch in record.batches:
            piece = data[batch.position : batch.position + batch.size]
            sent = self._batches.sent_as(piece)
            row = self.model.append(record, batch, piece[COVERED_FROM:])
            row.place = name
            self._check_sender(process, batch, sent, row)

    def _stored(self, name: str, record: Record) -> bytes:
        data = self._store.content(name)
        if name in self._store.discarded:
            raise Violation("discarded-then-referenced", f"{name}, which its agent asked to delete: {record}")
        if data is None:
            raise Violation("commit-before-put", f"{record}, but there is no {name}")
        return data

    def _rolled(self, record: SegmentRecord, *, trusted: bool) -> None:
        name = self._path(record)
        if not record.replaces:
            self.references.add(name, 0)
            return
        rows = self.model.logs[record.log].rolled(record)
        if not trusted:
            self._stored(index_path(name), record)
        self._check_segment(record, rows, memoryview(self._store.ever[name] if trusted else self._stored(name, record)))
        self.references.add(name, len(rows))
        self._let_go(rows)
        for row in rows:
            row.place = name
        self.segments += 1

    def _check_segment(self, record: SegmentRecord, rows: Iterable[Row], view: memoryview) -> None:
        for row in rows:
            header = read_batch_header(view)
            found = header.base_offset, header.records_count, header.is_control
            same = row.covered in {b"", bytes(view[: header.size])[COVERED_FROM:]}
            if found != (row.offset, row.records, not row.covered) or not same:
                raise Violation("segment-content", f"{record} has {header} for the row at {row.offset}")
            view = view[header.size :]
        if view:
            raise Violation("segment-content", f"{record} has {len(view)} bytes behind its last row")

    def _begin(self, record: LogStartsRecord, *, trusted: bool) -> None:
        for number, start in record.starts:
            log = self.model.logs[number]
            if not trusted:
                self.starts.check(log, start, self.now_ms)
            self._let_go(log.begin(start))

    def _expire(self, record: ProducersExpiredRecord, *, trusted: bool) -> None:
        for number, producer_id in record.producers:
            log = self.model.logs[number]
            silent = self.now_ms - log.heard.pop(producer_id, NEVER_MS)
            if producer_id in log.open or not (trusted or self._expiration_ms <= silent):
                facts = f"open {producer_id in log.open}, silent for {silent} ms"
                raise Violation("expired-too-early", f"producer {producer_id} in log {number}: {facts}")
            log.known.pop(producer_id, None)
            self.expired += 1

    def _let_go(self, rows: Iterable[Row]) -> None:
        self.references.let_go(row.place for row in rows)

    def _check_sender(self, process: Process | None, batch: BatchCoordinates, sent: Sent | None, row: Row) -> None:
        log = self.model.logs[batch.log]
        if sent is None or (log.topic, log.partition) != (sent.topic, sent.partition):
            raise Violation("nobodys-batch", f"{batch} joins {log.topic}-{log.partition}: {sent}")
        triple = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if triple != sent.forms[row.covered] or batch.records != sent.records:
            raise Violation("header", f"{batch} is {sent}, sent as {sent.forms[row.covered]}")
        given = MAX_PRODUCER_ID if process is None else process.machine.producer_ids.next_producer_id
        if batch.producer_id > MAX_PRODUCER_ID or batch.producer_id >= given:
            raise Violation("nobodys-id", f"{batch} of {sent} joins")
        known = sent.offsets.setdefault(log.number, [])
        # What a log has forgotten it cannot know again.
        again = [offset for offset in known if offset >= log.known.get(batch.producer_id, 0)]
        known.append(batch.base_offset)
        if again if sent.idempotent else len(known) > sent.times:
            raise Violation("batch-twice", f"{sent} is at {known}, and was sent {sent.times} times")
        if sent.refused:
            raise Violation("refused-yet-there", f"{sent} joins at {batch.base_offset}")
