"""What must hold of partition logs, looked at from outside, whenever a member applies an entry:

- each batch begins where its log ends, and every member has each log's end and last stable offset as the records have
  them; the second is never above the first, and neither ever falls on what one member applied;
- an object whose batches join is in the store, with these very batches at their places, and stays;
- a segment that takes the place of rows has just these, each as it was, and control batches for markers, in a part of
  its log that is decided; its index is there;
- no agent asks to delete what a log refers to, nor does a log refer to what an agent asked to delete;
- a batch was sent by somebody for this very log, once for each time that it is there, and once at all if its producer
  is idempotent; its producer id had been given to somebody;
- nothing of a producer joins behind its fence, nor outside of its transaction.

And whenever somebody is told that a batch is there, it is.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.kafka.wire.data.record_batch import read_batch_header
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.logs import BatchCoordinates, ObjectRecord
from pidkeeper.protocol.records import decode_batch
from pidkeeper.protocol.segments import LOG_SUFFIX, SegmentRecord, index_path
from tests.simulation.log_model import LogEnds, LogModel, Row
from tests.simulation.object_store import SimStore
from tests.simulation.sent_batches import COVERED_FROM, Batches, Sent
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.process import Process

NOWHERE: Final = LogEnds(0, 0)


class LogMonitor:
    """Watches the logs of all members. Raises Violation in the event in which a promise was broken."""

    def __init__(self, store: SimStore, batches: Batches) -> None:
        self.model = LogModel()
        self._store = store
        self._batches = batches
        self._ends: list[dict[int, LogEnds]] = []
        """By the index of the entry, less one."""
        self._seen: dict[Process, dict[int, LogEnds]] = {}
        self._referenced: dict[str, int] = {}
        """The CRC of each object, by name."""
        self._rows: dict[str, int] = {}
        """How many rows are read from each."""
        self.segments = 0
        store.on_delete = self._deleting

    def applied(self, process: Process, entry: Entry) -> None:
        """A member applied an entry."""
        if entry.index > len(self._ends):
            self._first_applied(process, entry)
        wanted, logs = self._ends[entry.index - 1], process.machine.logs
        before = self._seen.get(process, {})
        for number, ends in wanted.items():
            log = logs.log(number)
            found = None if log is None else LogEnds(log.end, log.last_stable)
            if found != ends:
                raise Violation("log-ends", f"member {process.node_id} has log {number} at {found}, not {ends}")
            known = before.get(number, NOWHERE)
            if ends.last_stable > ends.end or ends.end < known.end or ends.last_stable < known.last_stable:
                raise Violation("log-fell", f"member {process.node_id} had log {number} at {known}, then at {ends}")
        self._seen[process] = wanted

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """Somebody was told that a batch is at `offset`."""
        log = self.model.log_of(sent.topic, sent.partition)
        rows = () if log is None else log.rows
        if not any(row.offset == offset and row.covered in sent.forms for row in rows):
            raise Violation("acknowledged-uncommitted", f"{sent} was said to be at {offset}, which no member applied")

    def check_store(self) -> int:
        """At the end: all that is referred to is there as it was; how many objects that are."""
        for name, crc in self._referenced.items():
            data = self._store.content(name)
            if data is None or zlib.crc32(data) != crc:
                raise Violation("object-lost", f"logs refer to {name}, of which there is {data and len(data)}")
        return len(self._referenced)

    def _first_applied(self, process: Process, entry: Entry) -> None:
        founding = process.machine.foundings.founding_id
        for record in decode_batch(entry.data):
            if isinstance(record, SegmentRecord):
                assert founding is not None, f"{record} of no founding"
                self._rolled(record, record.name.path(record.object, founding))
            elif not isinstance(record, ObjectRecord):
                self.model.others([record])
            elif record.batches:
                assert founding is not None, f"{record} of no founding"
                self._commit(process, record, record.object.path(founding))
        self._ends.append(self.model.ends())

    def _commit(self, process: Process, record: ObjectRecord, name: str) -> None:
        data = self._store.content(name)
        if name in self._store.discarded:
            raise Violation("discarded-then-referenced", f"{name}, which its agent asked to delete: {record}")
        if data is None or len(data) != record.size:
            raise Violation("commit-before-put", f"{record}, but of {name} there is {data and len(data)}")
        if name in self._referenced:
            raise Violation("object-twice", f"{record}")
        self._referenced[name] = zlib.crc32(data)
        for batch in record.batches:
            piece = data[batch.position : batch.position + batch.size]
            sent = self._batches.sent_as(piece)
            row = self.model.append(record, batch, piece[COVERED_FROM:])
            row.place = name
            self._rows[name] = self._rows.get(name, 0) + 1
            self._check_sender(process, batch, sent, row)

    def _rolled(self, record: SegmentRecord, name: str) -> None:
        if not record.replaces:
            return
        log = self.model.logs[record.log]
        rows = log.rolled(record.name.base_offset, record.end_offset)
        for stored in (name, index_path(name)):
            data = self._store.content(stored)
            if data is None or stored in self._store.discarded:
                raise Violation("segment-missing", f"{record}, but of {stored} there is {data and len(data)}")
            self._referenced[stored] = zlib.crc32(data)
        view = memoryview(self._store.content(name) or b"")
        for row in rows:
            header = read_batch_header(view)
            found = header.base_offset, header.records_count, header.is_control
            same = row.covered in {b"", bytes(view[: header.size])[COVERED_FROM:]}
            if found != (row.offset, row.records, not row.covered) or not same:
                raise Violation("segment-content", f"{record} has {header} for the row at {row.offset}")
            view = view[header.size :]
            self._let_go(row.place)
            row.place = name
        if view:
            raise Violation("segment-content", f"{record} has {len(view)} bytes behind its last row")
        self._rows[name] = self._rows[index_path(name)] = len(rows)
        self.segments += 1

    def _let_go(self, name: str) -> None:
        """A row is not read from this object any more, nor anything else of it if it was the last one."""
        for stored in (name, index_path(name)) if name.endswith(LOG_SUFFIX) else (name,):
            if not name:
                continue
            self._rows[stored] -= 1
            if not self._rows[stored]:
                del self._rows[stored], self._referenced[stored]

    def _check_sender(self, process: Process, batch: BatchCoordinates, sent: Sent | None, row: Row) -> None:
        log = self.model.logs[batch.log]
        if sent is None or (log.topic, log.partition) != (sent.topic, sent.partition):
            raise Violation("nobodys-batch", f"{batch} joins {log.topic}-{log.partition}: {sent}")
        triple = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if triple != sent.forms[row.covered] or batch.records != sent.records:
            raise Violation("header", f"{batch} is {sent}, sent as {sent.forms[row.covered]}")
        if batch.producer_id > MAX_PRODUCER_ID or batch.producer_id >= process.machine.producer_ids.next_producer_id:
            raise Violation("nobodys-id", f"{batch} of {sent} joins")
        sent.offsets.append(batch.base_offset)
        most = 1 if sent.idempotent else sent.times
        if len(sent.offsets) > most:
            raise Violation("batch-twice", f"{sent} is at {sent.offsets}, and was sent {sent.times} times")
        if sent.refused:
            raise Violation("refused-yet-there", f"{sent} joins at {batch.base_offset}")

    def _deleting(self, name: str) -> None:
        if name in self._referenced:
            raise Violation("referenced-then-discarded", f"an agent asks to delete {name}")
