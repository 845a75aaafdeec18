"""Kafka's rules of topics, producers and transactions in plain dicts and lists: slow, and one request after the other.

What the draft of a batch of decisions does otherwise than one request after the other is said where it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs import limits
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import MAX_SEQUENCE
from tests.support.log_state import FIRST_OWN

NO_PAIR = (-1, -1)
FULL, UNKNOWN, GAP, OLD, NOT_IN_TRANSACTION, NOBODYS = -19, -3, -45, -47, -48, -49
E = ErrorCode


@dataclass
class Producer:
    """What a log knows of one."""

    epoch: int
    time: int
    open: int | None = None
    batches: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Topic:
    """A topic and its logs."""

    topic_id: Any
    name: str
    logs: range


@dataclass
class Transaction:
    """A transactional id. `outcome`: of the last transaction, None before the first and after InitProducerId."""

    producer: tuple[int, int]
    last: tuple[int, int] = NO_PAIR
    ongoing: bool = False
    outcome: bool | None = None
    partitions: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Log:
    """Rows of the tail are (offset, records, producer id, epoch, outcome): the outcome is None for data.

    `segments` are (first offset, offset behind the last). `behind`: where the tail begins when it has no row.
    """

    rows: list[tuple[int, int, int, int, bool | None]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    behind: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return self.rows[-1][0] + self.rows[-1][1] if self.rows else self.behind

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Segments and rows, each by its first offset and the one behind its last."""
        return self.segments + [(row[0], row[0] + row[1]) for row in self.rows]

    def roll(self, base: int, end: int) -> None:
        """One segment from `base` to `end`."""
        self.behind = self.end
        self.segments = [one for one in self.segments if one[0] < base] + [(base, end)]
        self.rows = [row for row in self.rows if row[0] >= end]
        self.aborted = [one for one in self.aborted if one[2] >= end]

    def cut(self, start: int) -> None:
        """Nothing below `start`."""
        self.behind, self.start = self.end, start
        self.segments = [one for one in self.segments if one[1] > start]
        self.rows = [row for row in self.rows if row[0] + row[1] > start]
        tail = self.rows[0][0] if self.rows else self.behind
        self.aborted = [one for one in self.aborted if one[2] >= max(start, tail)]


class NaiveLogs:
    """The model. Each `ask` is answered as `decide` should, an ErrorCode for a refusal."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.next_log = 0
        self.logs: dict[int, Log] = {}
        self.producers: dict[tuple[int, int], Producer] = {}
        self.transactions: dict[str, Transaction] = {}
        self.users: dict[int, str] = {}
        self.commits: dict[int, tuple[int, list[int]]] = {}
        self.objects = 0
        self.next_own = FIRST_OWN
        self.now = 0
        self._lapsing: list[int] = []
        self.let_go = False

    def begin(self, now: int) -> None:
        """A batch of decisions begins."""
        self.now, self.let_go = now, False
        self._lapsing = []

    def finish(self) -> None:
        """The batch is replayed: what it forgot counts no more, though it counted for what was decided behind that."""
        for producer_id in self._lapsing:
            del self.users[producer_id]

    # Counts.

    @property
    def rows(self) -> int:
        """Batches and markers."""
        return sum(len(log.rows) for log in self.logs.values())

    @property
    def open(self) -> int:
        """Transactions that are open, once for each log."""
        return sum(one.open is not None for one in self.producers.values())

    @property
    def aborted(self) -> int:
        """Transactions that were aborted, once for each log."""
        return sum(len(log.aborted) for log in self.logs.values())

    def last_stable(self, log: int) -> int:
        """Of a log."""
        opened = [one.open for (of, _), one in self.producers.items() if of == log and one.open is not None]
        return max(min(opened, default=self.logs[log].end), self.logs[log].start)

    # Topics.

    def create(self, request: requests.CreateTopic) -> ErrorCode | int:
        """The first log of the topic."""
        known = next((one for one in self.topics.values() if one.topic_id == request.topic_id), None)
        if known is not None:
            return known.logs.start if known.name == request.name else E.INVALID_REQUEST
        if request.name in self.topics:
            return E.TOPIC_ALREADY_EXISTS
        logs = range(self.next_log, self.next_log + request.partitions)
        self.topics[request.name] = Topic(request.topic_id, request.name, logs)
        self.logs |= {number: Log() for number in logs}
        self.next_log = logs.stop
        return logs.start

    def delete(self, request: requests.DeleteTopic) -> ErrorCode | int:
        """0."""
        topic = self.topics.pop(request.name, None)
        if topic is None:
            return E.UNKNOWN_TOPIC_OR_PARTITION
        for number in topic.logs:
            del self.logs[number]
        self.producers = {place: one for place, one in self.producers.items() if place[0] not in topic.logs}
        self.let_go = True
        return 0

    # Transactions.

    def init(self, request: requests.InitProducerId) -> ErrorCode | tuple[int, int]:
        """The pair."""
        name, supplied = request.transactional_id, (request.producer_id, request.producer_epoch)
        known = self.transactions.get(name)
        if known is None:
            known = self.transactions[name] = Transaction((self.next_own, 0))
            self.users[self.next_own] = name
            self.next_own += 1
            return known.producer
        if supplied not in {NO_PAIR, known.producer} and (supplied != known.last or known.ongoing):
            return E.PRODUCER_FENCED
        if supplied == known.last != NO_PAIR:
            return known.producer
        self._fence(known, supplied)
        known.outcome = None
        return known.producer

    def add(self, request: requests.AddPartitionsToTxn) -> ErrorCode | int:
        """0."""
        known = self._owned(request)
        if isinstance(known, ErrorCode):
            return known
        known.ongoing = True
        known.partitions |= {(one.topic, number) for one in request.topics for number in one.partitions}
        return 0

    def end(self, request: requests.EndTxn) -> ErrorCode | int:
        """0."""
        known = self._owned(request)
        if isinstance(known, ErrorCode):
            return known
        if known.ongoing:
            self._end(known, known.producer[1], request.committed)
            return 0
        return 0 if known.outcome == request.committed else E.INVALID_TXN_STATE

    def abort(self, request: requests.AbortTransaction) -> ErrorCode | int:
        """0."""
        known = self.transactions.get(request.transactional_id)
        if known is None:
            return E.TRANSACTIONAL_ID_NOT_FOUND
        if not known.ongoing:
            return E.INVALID_TXN_STATE
        self._fence(known, known.producer if request.timed_out else NO_PAIR)
        return 0

    def forget(self, request: requests.ForgetTransactionalId) -> ErrorCode | int:
        """0. Until the batch is replayed, its producer ID counts as that of the name, whoever has the name then."""
        known = self.transactions.get(request.transactional_id)
        if known is None:
            return E.TRANSACTIONAL_ID_NOT_FOUND
        if known.ongoing or known.producer != (request.producer_id, request.producer_epoch):
            return E.INVALID_TXN_STATE
        del self.transactions[request.transactional_id]
        self._lapsing.append(known.producer[0])
        return 0

    def _owned(self, request: requests.AddPartitionsToTxn | requests.EndTxn) -> Transaction | ErrorCode:
        known = self.transactions.get(request.transactional_id)
        if known is None or known.producer[0] != request.producer_id:
            return E.INVALID_PRODUCER_ID_MAPPING
        return known if known.producer[1] == request.producer_epoch else E.PRODUCER_FENCED

    def _fence(self, known: Transaction, last: tuple[int, int]) -> None:
        producer_id, epoch = known.producer
        if known.ongoing:
            self._end(known, epoch + 1, committed=False)
        known.producer, known.last = (producer_id, epoch + 1), last

    def _end(self, known: Transaction, epoch: int, committed: bool) -> None:
        producer_id = known.producer[0]
        for (number, of), producer in self.producers.items():
            if of != producer_id or producer.open is None:
                continue
            log = self.logs[number]
            if not committed:
                log.aborted.append((producer_id, producer.open, log.end))
            log.rows.append((log.end, 1, producer_id, epoch, committed))
            if epoch != producer.epoch:
                producer.epoch, producer.batches = epoch, []
            producer.open, producer.time = None, self.now
        known.ongoing, known.outcome, known.partitions = False, committed, set()

    # Objects.

    def commit(self, request: requests.CommitObject, found: Any) -> ErrorCode | list[int]:
        """The outcomes. `found`: where a bound may be counted too high, that is what was decided."""
        broker_id, number = request.object.broker_id, request.object.number
        last = self.commits.get(broker_id)
        if last is not None and last[0] >= number:
            same = last[0] == number and len(last[1]) == len(request.batches)
            return last[1] if same else E.INVALID_REQUEST
        told = found if isinstance(found, list) else [None] * len(request.batches)
        before = self.rows
        outcomes = [self._append(one, outcome) for one, outcome in zip(request.batches, told, strict=True)]
        self.objects += self.rows > before
        self.commits[broker_id] = (number, outcomes)
        return outcomes

    def _append(self, batch: OfferedBatch, found: int | None) -> int:
        topic = next((one for one in self.topics.values() if batch.log in one.logs), None)
        if topic is None:
            return UNKNOWN
        place = (batch.log, batch.producer_id)
        producer = self.producers.get(place)
        sequences = batch.base_sequence, (batch.base_sequence + batch.records - 1) % (MAX_SEQUENCE + 1)
        if batch.producer_id >= 0 and (refused := self._refused(batch, topic)):
            return refused
        if producer is not None:
            for first, last, offset in producer.batches:
                if producer.epoch == batch.producer_epoch and (first, last) == sequences:
                    return offset
            if refused := _out_of_order(producer, batch):
                return refused
        if self._is_full(batch, producer) or (self.let_go and found == FULL):
            return FULL
        log = self.logs[batch.log]
        offset = log.end
        log.rows.append((offset, batch.records, batch.producer_id, batch.producer_epoch, None))
        if batch.producer_id >= 0:
            self._hear(place, batch, (*sequences, offset))
        return offset

    def _refused(self, batch: OfferedBatch, topic: Topic) -> int:
        if batch.producer_id >= self.next_own:
            return NOBODYS
        user = self.users.get(batch.producer_id)
        known = None if user is None else self.transactions.get(user)
        if known is None:
            return NOBODYS if batch.transactional else 0
        if known.producer != (batch.producer_id, batch.producer_epoch):
            return OLD
        joined = known.ongoing and (topic.name, batch.log - topic.logs.start) in known.partitions
        return NOT_IN_TRANSACTION if batch.transactional and not joined else 0

    def _is_full(self, batch: OfferedBatch, producer: Producer | None) -> bool:
        opens = batch.transactional and (producer is None or producer.open is None)
        return (
            self.rows + self.open + 1 + opens > limits.MAX_ROWS
            or self.aborted + self.open + opens > limits.MAX_ABORTED
            or (producer is None and batch.producer_id >= 0 and len(self.producers) >= limits.MAX_PRODUCERS)
            or self.objects >= limits.MAX_OBJECTS
        )

    def _hear(self, place: tuple[int, int], batch: OfferedBatch, kept: tuple[int, int, int]) -> None:
        producer = self.producers.setdefault(place, Producer(batch.producer_epoch, 0))
        if producer.epoch != batch.producer_epoch:
            producer.epoch, producer.batches = batch.producer_epoch, []
        producer.batches = [*producer.batches, kept][-5:]
        if batch.transactional and producer.open is None:
            producer.open = kept[2]
        producer.time = self.now

    def expire(self, request: requests.ExpireProducers) -> None:
        """Those are forgotten that wrote nothing since, and have no transaction open."""
        for log, producer_id, time in request.producers:
            producer = self.producers.get((log, producer_id))
            if producer is not None and producer.open is None and producer.time == time:
                del self.producers[log, producer_id]


def _out_of_order(producer: Producer, batch: OfferedBatch) -> int:
    if batch.producer_epoch < producer.epoch:
        return OLD
    known = producer.batches if batch.producer_epoch == producer.epoch else []
    expected = (known[-1][1] + 1) % (MAX_SEQUENCE + 1) if known else 0
    if batch.base_sequence != expected:
        return GAP
    return NOT_IN_TRANSACTION if producer.open is not None and not batch.transactional else 0
