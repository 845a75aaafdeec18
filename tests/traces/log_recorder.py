"""What a quorum decides about partition logs, and what befalls their objects in the store, as steps of a course.

Nothing is taken from the code under test but the records themselves, and what a member then shows of its logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.logs import (
    BatchCoordinates,
    ObjectId,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    TopicRecord,
)
from pidkeeper.protocol.records import Record, RegisterBrokerRecord
from pidkeeper.protocol.segments import LogStartsRecord, SegmentRecord
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionRecord,
)
from tests.simulation.transaction_model import COMPLETE_COMMIT, NOBODY, ONGOING, Pair, State, joined, state_of

PLAIN: Final = "plain"
"""Whoever writes without idempotence."""

FOUNDING: Final = 1
"""As the specification numbers the only founding of a course."""

Name = tuple[int, int, int, int, str]
"""Of an object, in the specification's words: founding, broker, epoch, number, and kind."""


class LogShown(NamedTuple):
    """What a member shows of a log: offsets, rows of its tail, and segments."""

    start: int
    end: int
    last_stable: int
    rows: int
    segments: int


class LogStep(NamedTuple):
    """One step of the courses of some logs; of all of them where `log` is None. `of`: the object that it is about."""

    action: str
    arguments: dict[str, Any]
    log: int | None = None
    of: Name | None = None


class LogRecorder:
    """Writes down the steps of all logs.

    `shown`: by the step behind which they were, what a member showed of its logs. `transactional`: producers that are.
    """

    def __init__(self) -> None:
        self.steps: list[LogStep] = []
        self.shown: dict[int, dict[int, LogShown]] = {}
        self.topics: dict[int, tuple[str, int]] = {}
        self.producers: set[str] = {PLAIN}
        self.transactional: set[str] = set()
        self.brokers: set[int] = set()
        self._states: dict[str, State] = {}
        self._told: dict[tuple[int, str], tuple[int, bool]] = {}
        self._keys: list[Name] = []
        self._closed = False

    def close(self) -> None:
        """Write down no more."""
        self._closed = True

    # The store.

    def stored(self, path: str) -> None:
        """An object is in the store."""
        self._befalls("Stored", path)

    def doomed(self, path: str) -> None:
        """Somebody asks the store to delete an object."""
        self._befalls("Doomed", path)

    def gone(self, path: str) -> None:
        """The store has deleted an object, if it had it."""
        self._befalls("Gone", path)

    def _befalls(self, action: str, path: str) -> None:
        # A segment's index is put before its commit and deleted with it: the simulator looks after it.
        if not self._closed and (name := named(path)) is not None:
            self.steps.append(LogStep(action, {"name": name}, of=name))

    # The quorum.

    def entry(self, records: Iterable[Record], machine: StateMachine) -> None:
        """An entry is committed, and a member that has applied it shows what it has."""
        if self._closed:
            return
        for record in records:
            self._record(record)
        logs = machine.logs
        found = {number: logs.log(number) for number in self.topics}
        self.shown[len(self.steps)] = {
            number: LogShown(log.start, log.end, log.last_stable, log.rows, len(log.segments))
            for number, log in found.items()
            if log is not None
        }

    def _record(self, record: Record) -> None:
        match record:
            case RegisterBrokerRecord():
                self.brokers.add(record.broker_id)
                self._add("Registered", {"broker": record.broker_id, "epoch": record.broker_epoch})
            case TopicRecord():
                self._create(record)
            case ObjectRecord():
                self._commit(record)
            case SegmentRecord():
                self._roll(record)
            case LogStartsRecord() | ObjectsDeletedRecord() | ProducersExpiredRecord():
                self._let_go(record)
            case AddPartitionsRecord() | TransactionRecord() | ForgetTransactionRecord():
                self._transact(record)

    def _create(self, record: TopicRecord) -> None:
        """Transactions may have its partitions already: a name joins, whether or not it is one of a topic."""
        for partition, log in enumerate(record.logs):
            self.topics[log] = place = record.name, partition
            for state in self._states.values():
                self._tell(log, state.pair, ongoing=state.status == ONGOING and place in state.partitions)

    def _let_go(self, record: LogStartsRecord | ObjectsDeletedRecord | ProducersExpiredRecord) -> None:
        if isinstance(record, LogStartsRecord):
            for log, start in record.starts:
                self._add("Started", {"start": start}, log)
        elif isinstance(record, ObjectsDeletedRecord):
            for name in (self._keys[key] for key in record.keys):
                self.steps.append(LogStep("Deleted", {"names": [name]}, of=name))
        else:
            for log, producer_id in record.producers:
                self._add("Expired", {"producer": self._producer(producer_id)}, log)

    def _add(self, action: str, arguments: dict[str, Any], log: int | None = None) -> None:
        self.steps.append(LogStep(action, arguments, log))

    def _commit(self, record: ObjectRecord) -> None:
        name = _name(record.object, "batches")
        if record.batches:
            self._keys.append(name)
        # The number is taken in every log's course; the batches are those of the log that they are in.
        logs = {batch.log for batch in record.batches}
        for log in self.topics:
            batches = [batch for batch in record.batches if batch.log == log]
            told = {
                "o": _object(name, log, items=tuple(self._batch(batch) for batch in batches)),
                "outcomes": tuple(batch.base_offset for batch in batches),
            }
            self.steps.append(LogStep("Committed", told, log, name if log in logs else None))

    def _batch(self, batch: BatchCoordinates) -> dict[str, Any]:
        plain = batch.producer_id == NO_PRODUCER_ID
        producer = PLAIN if plain else self._producer(batch.producer_id)
        if batch.transactional:
            self.transactional.add(producer)
        sequence = 0 if plain else batch.base_sequence
        pair = {"producer": producer, "epoch": batch.producer_epoch}
        return {"kind": "batch", **pair, "sequence": sequence, "records": batch.records}

    def _roll(self, record: SegmentRecord) -> None:
        name = _name(record.object, "segment")
        self._keys.append(name)
        # Of one that did not fit the record does not tell how many parts it was for: as many as no log has.
        span = {"base": record.name.base_offset, "end": record.end_offset, "replaces": record.replaces or -1}
        for log in self.topics:
            told = {"o": _object(name, log, **span)}
            if log == record.log:
                self.steps.append(LogStep("Rolled", {**told, "joined": record.replaces > 0}, log, name))
            else:
                self.steps.append(LogStep("RolledElsewhere", told, log))

    def _transact(self, record: AddPartitionsRecord | TransactionRecord | ForgetTransactionRecord) -> None:
        before = self._states.get(record.transactional_id)
        if isinstance(record, ForgetTransactionRecord):
            self._states.pop(record.transactional_id, None)
            return
        after = joined(before, record) if isinstance(record, AddPartitionsRecord) else state_of(record)
        assert after is not None, f"{record} joins what nobody began"
        self._states[record.transactional_id] = after
        for log, place in self.topics.items():
            if before is not None and before.status == ONGOING != after.status and place in before.partitions:
                epoch = after.pair[1] if after.pair[0] == before.pair[0] else before.pair[1] + 1
                outcome = "commit" if after.status == COMPLETE_COMMIT else "abort"
                ended = {"producer": self._producer(before.pair[0]), "epoch": epoch, "outcome": outcome}
                self._add("Ended", ended, log)
            self._tell_pair(before, after, log, ongoing=after.status == ONGOING and place in after.partitions)

    def _tell_pair(self, before: State | None, after: State, log: int, *, ongoing: bool) -> None:
        if before is not None and before.pair[0] not in {after.pair[0], NOBODY[0]}:
            # The epochs of the ID before are used up: nobody may write with it any more.
            self._tell(log, (before.pair[0], before.pair[1] + 1), ongoing=False)
        self._tell(log, after.pair, ongoing=ongoing)

    def _tell(self, log: int, pair: Pair, *, ongoing: bool) -> None:
        """What does not change for this log is no step."""
        producer, now = self._producer(pair[0]), (pair[1], ongoing)
        if self._told.get((log, producer), (0, False)) != now:
            self._told[log, producer] = now
            self._add("Transacts", {"producer": producer, "epoch": pair[1], "ongoing": ongoing}, log)

    def _producer(self, producer_id: int) -> str:
        name = f"p{producer_id}"
        self.producers.add(name)
        return name


def named(path: str) -> Name | None:
    """The object at a path of the store; None for a segment's index, and what is no object."""
    parts = path.split("/")
    if parts[0] not in {"wal", "segments"} or (parts[0] == "segments" and not path.endswith(".log")):
        return None
    return _name(ObjectId(*map(int, parts[2:5])), "batches" if parts[0] == "wal" else "segment")


def _name(object_id: ObjectId, kind: str) -> Name:
    return FOUNDING, object_id.broker_id, object_id.broker_epoch, object_id.number, kind


def _object(name: Name, log: int, **more: Any) -> dict[str, Any]:
    """As the specification has it. `log`: each course has one log, whose number is 1 there."""
    return {
        "name": name,
        "log": 1,
        "base": -1,
        "end": -1,
        "replaces": 0,
        "items": (),
        "aborted": [],
        **more,
    }
