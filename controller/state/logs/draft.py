"""Partition logs in a batch of decisions under way: the applied state, with what the batch makes of it on top."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pidkeeper.controller.state.logs import limits, producers
from pidkeeper.controller.state.logs.state import Key, LogsState, last_commit, last_roll, logs_of, marker_epoch
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.logs import BatchCoordinates, ObjectRecord, TopicRecord
from pidkeeper.protocol.segments import SegmentRecord
from pidkeeper.protocol.transactions import NO_PRODUCER_ID, TransactionRecord
from pidkeeper.snapshots.logs_image import LastCommit, LastRoll, ProducerEntry


class LogsDraft:
    """What the next batch will make of partition logs. All counts are those behind the batch, or above them."""

    __slots__ = (
        "_aborted",
        "_begun",
        "_commits",
        "_committers",
        "_created",
        "_deleted",
        "_ends",
        "_objects",
        "_open",
        "_producers",
        "_removed",
        "_rolled",
        "_rollers",
        "_rolls",
        "_rows",
        "_segments",
        "_state",
        "_strangers",
        "collected",
        "next_log",
        "partitions",
        "store_id",
    )

    def __init__(self, state: LogsState) -> None:
        self._state = state
        self.store_id = state.store_id
        self.next_log = state.topics.next_log
        self.partitions = state.topics.partitions
        self._rows, self._open, self._aborted = state.rows, state.open, state.aborted
        self._objects = len(state.objects)
        self._committers = state.committers
        self._strangers = state.producer_count
        self._created: dict[str, TopicRecord] = {}
        # By their first logs: the id of one that is gone may be that of one that comes.
        self._removed: set[int] = set()
        self._ends: dict[int, int] = {}
        self._producers: dict[Key, ProducerEntry | None] = {}
        self._commits: dict[int, LastCommit] = {}
        self.collected = state.collected
        self._segments, self._rollers = state.segments, state.rollers
        self._rolls: dict[int, LastRoll] = {}
        self._rolled: set[int] = set()
        # Where logs begin that the batch cuts.
        self._begun: dict[int, int] = {}
        self._deleted: set[int] = set()

    # Topics.

    def topic(self, name: str) -> TopicRecord | None:
        """The topic of that name, if there is one."""
        known = self._created.get(name) or self._state.topics.get(name)
        return None if known is None or known.first_log in self._removed else known

    def of_id(self, topic_id: uuid.UUID) -> TopicRecord | None:
        """The topic with that id, if there is one."""
        made = (topic for topic in self._created.values() if topic.topic_id == topic_id)
        known = next(made, None) or self._state.topics.of_id(topic_id)
        return None if known is None or known.first_log in self._removed else known

    def topic_of(self, log: int) -> TopicRecord | None:
        """The topic of a log, if there is such a log."""
        known = self._state.log(log)
        if known is not None:
            return None if known.topic.first_log in self._removed else known.topic
        return next((topic for topic in self._created.values() if log in topic.logs), None)

    def create(self, topic: TopicRecord) -> None:
        """A topic is created."""
        self._created[topic.name] = topic
        self.next_log += topic.partitions
        self.partitions += topic.partitions

    def remove(self, topic: TopicRecord) -> None:
        """A topic is deleted. What its logs held counts still: it goes with the batch."""
        self._removed.add(topic.first_log)
        self._created.pop(topic.name, None)
        self.partitions -= topic.partitions

    # Batches and producers.

    def last_commit(self, broker_id: int) -> LastCommit | None:
        """What a broker committed last, whatever its epoch was."""
        return self._commits.get(broker_id) or self._state.last_commit(broker_id)

    def end(self, log: int) -> int:
        """The offset of the next batch of a log."""
        if (drafted := self._ends.get(log)) is not None:
            return drafted
        known = self._state.log(log)
        return 0 if known is None else known.end

    def producer(self, log: int, producer_id: int) -> ProducerEntry | None:
        """What a log knows of a producer."""
        place = log, producer_id
        return self._producers[place] if place in self._producers else self._state.producer(log, producer_id)

    def has_room(self, entry: ProducerEntry | None, producer_id: int, *, transactional: bool) -> bool:
        """Whether a batch of that producer, of which the log knows `entry`, passes no bound, nor its object.

        A marker has to have its place whenever it comes: it is counted with the batch that opens the transaction.
        """
        opens = transactional and (entry is None or entry.open_since == producers.NOT_OPEN)
        return (
            self._rows + self._open + 1 + opens <= limits.MAX_ROWS
            and self._aborted + self._open + opens <= limits.MAX_ABORTED
            and self._objects < limits.MAX_OBJECTS
            and (entry is not None or producer_id == NO_PRODUCER_ID or self._strangers < limits.MAX_PRODUCERS)
        )

    def has_room_for_committer(self) -> bool:
        """Whether the last commit of one more broker may be kept."""
        return self._committers < limits.MAX_COMMITTERS

    def append(self, batch: BatchCoordinates, before: ProducerEntry | None, timestamp_ms: int) -> None:
        """A batch joins, of whose producer the log knew `before`."""
        self._ends[batch.log] = batch.base_offset + batch.records
        self._rows += 1
        if batch.producer_id == NO_PRODUCER_ID:
            return
        after = producers.after_batch(before, batch, batch.base_offset, timestamp_ms)
        self._producers[batch.log, batch.producer_id] = after
        self._strangers += before is None
        self._open += after.open_since != producers.NOT_OPEN and (
            before is None or before.open_since == producers.NOT_OPEN
        )

    def forget(self, log: int, producer_id: int) -> None:
        """A log forgets a producer."""
        self._producers[log, producer_id] = None
        self._strangers -= 1

    def commit(self, record: ObjectRecord) -> None:
        """An object is committed."""
        name = record.object
        self._committers += self.last_commit(name.broker_id) is None
        self._commits[name.broker_id] = last_commit(record)
        self._objects += bool(record.batches)

    # Segments, and what is deleted.

    def last_roll(self, broker_id: int) -> LastRoll | None:
        """The segment that a broker committed last, whatever its epoch was."""
        return self._rolls.get(broker_id) or self._state.last_roll(broker_id)

    def has_room_for_roll(self, broker_id: int) -> bool:
        """Whether a segment of that broker, and its last one, may be kept."""
        return (
            (self.last_roll(broker_id) is not None or self._rollers < limits.MAX_COMMITTERS)
            and self._segments < limits.MAX_SEGMENTS
            and self._objects < limits.MAX_OBJECTS
        )

    def is_reshaped(self, log: int) -> bool:
        """Whether the batch rolls or cuts that log."""
        return log in self._begun or log in self._rolled

    def roll(self, record: SegmentRecord) -> None:
        """A segment is committed."""
        broker_id = record.object.broker_id
        self._rollers += self.last_roll(broker_id) is None
        self._rolls[broker_id] = last_roll(record)
        self._rolled.add(record.log)
        self._segments += 1
        self._objects += 1

    def start(self, log: int) -> int:
        """The first offset of a log."""
        known = self._state.log(log)
        return self._begun.get(log, 0 if known is None else known.start)

    def begin(self, log: int, offset: int) -> None:
        """A log begins at an offset from now on."""
        self._begun[log] = offset

    def is_garbage(self, key: int) -> bool:
        """Whether an object is to be deleted."""
        return key in self._state.objects.garbage and key not in self._deleted

    def deleted(self, keys: Iterable[int]) -> None:
        """Objects are deleted. They count still: they go with the batch."""
        self._deleted.update(keys)

    def end_transaction(self, before: TransactionRecord, after: TransactionRecord) -> None:
        """As `LogsState.end_transaction`."""
        epoch, committed = marker_epoch(before, after), after.status == TransactionStatus.COMPLETE_COMMIT
        for log in logs_of(before, self.topic):
            entry = self.producer(log, before.producer_id)
            if entry is None or entry.open_since == producers.NOT_OPEN:
                continue
            self._producers[log, before.producer_id] = producers.after_marker(entry, epoch, after.update_ms)
            self._ends[log] = self.end(log) + 1
            self._rows += 1
            self._open -= 1
            self._aborted += not committed
