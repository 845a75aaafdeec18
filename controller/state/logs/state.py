"""All partition logs: replays what was decided of them, and becomes and comes from a snapshot.

Invariants, asserted where the state changes (docs/invariants.md):
L1  a batch begins where its log ends;
L2  a log has one topic, and its number is never given again;
L3  the objects of one epoch of a broker are committed in the order of their numbers, by who is registered with it and
    with the cluster's store;
L4  a batch has the sequence that follows in its log, and a transaction ends where it was open;
L5  an object is deleted once, and only when no log has a batch in it;
L6  no bound of `limits` is passed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import islice

from pidkeeper.controller.state.logs import limits, producers
from pidkeeper.controller.state.logs.objects import Objects
from pidkeeper.controller.state.logs.partition_log import Freed, PartitionLog
from pidkeeper.controller.state.logs.rolled import LocatedSegment
from pidkeeper.controller.state.logs.topics import Topics
from pidkeeper.controller.state.shared_dict import SharedDict
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.logs import (
    BatchCoordinates,
    LogRecord,
    ObjectRecord,
    ObjectsDeletedRecord,
    ProducersExpiredRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pidkeeper.protocol.segments import CollectionReleasedRecord, LogStartsRecord, RolledRecord, SegmentRecord
from pidkeeper.protocol.transactions import NO_PRODUCER_ID, TransactionRecord
from pidkeeper.snapshots.logs_image import LastCommit, LastRoll, LogsImage, ProducerEntry, ProducerRow, SegmentsImage
from pidkeeper.snapshots.rows import Rows

Key = tuple[int, int]
"""The number of a log, and a producer id."""


class LogsState:
    """Topics, their logs, and the producers that wrote to them.

    `store_id`: of the cluster's store, None until the first broker came with one. `rows`: batches and markers of all
    tails; `segments`: of all logs; `open`: transactions that are open, `aborted`: and that were aborted, once for each
    log. `gone_on`: logs that have changed since somebody took note of them. `collected`: foundings whose objects are
    deleted once no log needs them.
    """

    def __init__(self) -> None:
        self.store_id: uuid.UUID | None = None
        self.topics = Topics()
        self.objects = Objects()
        self.rows = self.segments = self.open = self.aborted = 0
        self.collected: tuple[uuid.UUID, ...] = ()
        self.gone_on: set[int] = set()
        self._generation = 0
        self._logs: dict[int, PartitionLog] = {}
        # Those that were silent longest come first.
        self._producers: SharedDict[Key, ProducerEntry] = SharedDict()
        self._commits: dict[int, LastCommit] = {}
        self._rolls: dict[int, LastRoll] = {}

    # Questions.

    def log(self, number: int) -> PartitionLog | None:
        """A log, to be looked at only."""
        return self._logs.get(number)

    def producer(self, log: int, producer_id: int) -> ProducerEntry | None:
        """What a log knows of a producer."""
        return self._producers.get((log, producer_id))

    def last_commit(self, broker_id: int) -> LastCommit | None:
        """What a broker committed last, whatever its epoch was."""
        return self._commits.get(broker_id)

    def last_roll(self, broker_id: int) -> LastRoll | None:
        """The segment that a broker committed last, whatever its epoch was."""
        return self._rolls.get(broker_id)

    def numbers(self) -> list[int]:
        """The numbers of all logs."""
        return list(self._logs)

    @property
    def rollers(self) -> int:
        """Brokers whose last segment is kept."""
        return len(self._rolls)

    def with_open(self) -> Iterator[PartitionLog]:
        """The logs in which a transaction is open, to be looked at only."""
        return (log for log in self._logs.values() if log.open) if self.open else iter(())

    @property
    def committers(self) -> int:
        """Brokers whose last commit is kept."""
        return len(self._commits)

    @property
    def producer_count(self) -> int:
        """Producers, counted once for each log that knows them."""
        return len(self._producers)

    def silent_longest(self, most: int) -> list[tuple[Key, ProducerEntry]]:
        """Those of the producers that were silent longest, at most so many."""
        return list(islice(self._producers.items(), most))

    # Replay.

    def pin(self, store_id: uuid.UUID, where: str) -> None:
        """A broker came with that store."""
        assert self.store_id in {None, store_id}, f"L3: {where} has store {store_id}, the cluster's is {self.store_id}"
        self.store_id = store_id

    def unregistered(self, broker_id: int) -> None:
        """A broker's registration ended: whoever takes the id has a later epoch."""
        self._commits.pop(broker_id, None)
        self._rolls.pop(broker_id, None)

    def collect(self, foundings: tuple[uuid.UUID, ...]) -> None:
        """Objects of these foundings are deleted once no log needs them."""
        self.collected = foundings

    def collects(self, founding_id: uuid.UUID | None) -> bool:
        """Whether anything is deleted in a quorum of that founding; `collected` says of which foundings."""
        return founding_id is not None and founding_id in self.collected

    def replay(self, record: LogRecord | RolledRecord, offset: int, founding_id: uuid.UUID | None) -> None:
        """Apply one committed record. Total and deterministic: a violated assertion stops the process."""
        where = f"offset {offset}"
        match record:
            case ObjectRecord():
                assert founding_id is not None, f"L3: {where} has {record.object}, but no founding is known"
                self._append(record, founding_id, where)
            case TopicRecord():
                self.topics.add(record, where)
                for partition, number in enumerate(record.logs):
                    self._logs[number] = PartitionLog(record, partition, self._generation)
            case RemoveTopicRecord():
                self._remove(self.topics.remove(record.topic_id, where))
            case ProducersExpiredRecord():
                self._expire(record, where)
            case ObjectsDeletedRecord():
                self.objects.deleted(record.keys, offset)
            case SegmentRecord() | LogStartsRecord() | CollectionReleasedRecord():
                self._reshape(record, founding_id, where)
        assert self.topics.partitions <= limits.MAX_PARTITIONS, f"L6: {where} makes {self.topics.partitions} partitions"

    def _append(self, record: ObjectRecord, founding_id: uuid.UUID, where: str) -> None:
        broker_id, epoch, number = record.object.broker_id, record.object.broker_epoch, record.object.number
        last = self._commits.get(broker_id)
        assert last is None or (epoch, number) > (last.broker_epoch, last.number), (
            f"L3: {where} commits {record.object} behind {last}"
        )
        self._commits[broker_id] = last_commit(record)
        if not record.batches:
            return
        key = self.objects.add(founding_id, record.object, record.size, len(record.batches))
        for batch in record.batches:
            self._join(batch, key, record.timestamp_ms, where)
        self.rows += len(record.batches)
        assert self.rows + self.open <= limits.MAX_ROWS, f"L6: {where} makes {self.rows} rows"
        assert len(self._commits) <= limits.MAX_COMMITTERS, f"L6: {where} makes {len(self._commits)} committers"
        assert self.aborted + self.open <= limits.MAX_ABORTED, f"L6: {where} makes {self.aborted} aborted transactions"
        assert len(self.objects) <= limits.MAX_OBJECTS, f"L6: {where} makes {len(self.objects)} objects"

    def _reshape(self, record: RolledRecord, founding_id: uuid.UUID | None, where: str) -> None:
        match record:
            case SegmentRecord():
                assert founding_id is not None, f"L3: {where} has {record.object}, but no founding is known"
                self._roll(record, founding_id, where)
            case LogStartsRecord():
                for number, start in record.starts:
                    log = self._own(number)
                    before = len(log.segments)
                    self._free(log.drop_below(start))
                    self.segments += len(log.segments) - before
            case CollectionReleasedRecord():
                self.collect(record.foundings)

    def _roll(self, record: SegmentRecord, founding_id: uuid.UUID, where: str) -> None:
        name = record.object
        last = self._rolls.get(name.broker_id)
        assert last is None or (name.broker_epoch, name.number) > (last.broker_epoch, last.number), (
            f"L3: {where} commits segment {name} behind {last}"
        )
        joined = record.replaces > 0
        self._rolls[name.broker_id] = last_roll(record)
        key = self.objects.add(founding_id, name, record.size, int(joined), record.name)
        if joined:
            log = self._own(record.log)
            covered = log.covered(record.name.base_offset, record.end_offset)
            assert covered == record.replaces, f"L7: {where} has {record}, but that takes the place of {covered}"
            before = len(log.segments)
            # As Kafka does for records without a time: that of the file counts.
            latest = record.max_timestamp if record.max_timestamp >= 0 else record.timestamp_ms
            span = record.name.base_offset, record.end_offset
            self._free(log.roll(LocatedSegment(*span, key, record.size, record.index_size, latest)))
            self.segments += len(log.segments) - before
        assert self.segments <= limits.MAX_SEGMENTS, f"L6: {where} makes {self.segments} segments"
        assert len(self.objects) <= limits.MAX_OBJECTS, f"L6: {where} makes {len(self.objects)} objects"
        assert len(self._rolls) <= limits.MAX_COMMITTERS, f"L6: {where} makes {len(self._rolls)} rollers"

    def _free(self, freed: Freed) -> None:
        self.rows -= freed.rows
        self.aborted -= freed.aborted
        self.objects.release(freed.keys)

    def _join(self, batch: BatchCoordinates, key: int, timestamp_ms: int, where: str) -> None:
        log = self._own(batch.log)
        if batch.producer_id != NO_PRODUCER_ID:
            place = batch.log, batch.producer_id
            # Behind all others, for it was heard just now.
            before = self._producers.pop(place)
            refused = producers.refusal(before, batch)
            assert refused is None, f"L4: {where} has {batch} behind {before}: {refused}"
            after = producers.after_batch(before, batch, batch.base_offset, timestamp_ms)
            self._producers[place] = after
            if before is None:
                assert len(self._producers) <= limits.MAX_PRODUCERS, f"L6: {where}: {len(self._producers)} producers"
            if after.open_since != producers.NOT_OPEN and (before is None or before.open_since != after.open_since):
                self.open += 1
        log.append(batch, key)

    def end_transaction(self, before: TransactionRecord, after: TransactionRecord) -> None:
        """The transaction of `before` ended by `after`: a marker in each log where something of it is."""
        epoch, committed = marker_epoch(before, after), after.status == TransactionStatus.COMPLETE_COMMIT
        for number in logs_of(before, self.topics.get):
            entry = self._producers.get((number, before.producer_id))
            if entry is None or entry.open_since == producers.NOT_OPEN:
                continue
            log = self._own(number)
            log.append_marker(before.producer_id, epoch, committed=committed, timestamp_ms=after.update_ms)
            del self._producers[number, before.producer_id]
            self._producers[number, before.producer_id] = producers.after_marker(entry, epoch, after.update_ms)
            self.rows += 1
            self.open -= 1
            self.aborted += not committed

    def _own(self, number: int) -> PartitionLog:
        """A log, to be changed: its copy if a snapshot is being made of it."""
        log = self._logs.get(number)
        assert log is not None, f"L2: log {number} is of no topic"
        if log.generation != self._generation:
            log = self._logs[number] = log.clone(self._generation)
        self.gone_on.add(number)
        return log

    def _remove(self, topic: TopicRecord) -> None:
        gone = set(topic.logs)
        for number in topic.logs:
            log = self._logs.pop(number)
            self.rows -= log.rows
            self.open -= len(log.open)
            self.aborted -= log.aborted_count
            self.segments -= len(log.segments)
            self.objects.release(log.keys())
        for place in [place for place in self._producers if place[0] in gone]:
            del self._producers[place]
        self.gone_on |= gone

    def _expire(self, record: ProducersExpiredRecord, where: str) -> None:
        for place in record.producers:
            entry = self._producers.pop(place)
            assert entry is not None and entry.open_since == producers.NOT_OPEN, (
                f"L4: {where} forgets producer {place[1]} of log {place[0]}, which is {entry}"
            )

    # Snapshots.

    def captured(self) -> Callable[[], LogsImage | None]:
        """What gives the image of this moment, on any thread, whatever is replayed meanwhile; None for no logs."""
        if self.store_id is None and not self.topics.next_log:
            return _nothing
        self._generation += 1
        store_id, topics, next_log = self.store_id, self.topics.all(), self.topics.next_log
        logs, entries, commits = self._logs.copy(), self._producers.share(), self._commits.copy()
        rolls, collected = self._rolls.copy(), self.collected
        objects, foundings, next_key = self.objects.captured(), list(self.objects.foundings), self.objects.next_key

        def image() -> LogsImage:
            columns, segment_names = objects()
            rolled = [logs[number] for number in sorted(logs) if len(logs[number].segments)]
            return LogsImage(
                store_id,
                next_log,
                next_key,
                topics,
                [logs[number].image() for number in sorted(logs)],
                columns,
                foundings,
                [commits[broker_id] for broker_id in sorted(commits)],
                Rows(len(entries), lambda: (ProducerRow(*place, entry) for place, entry in entries.items())),
                [SegmentsImage(log.number, log.segments.packed()) for log in rolled],
                segment_names,
                [rolls[broker_id] for broker_id in sorted(rolls)],
                collected,
            )

        return image

    def restore(self, image: LogsImage) -> None:
        """Become what a snapshot kept; for a state in which nothing is yet. Raises ValueError."""
        self.store_id = image.store_id
        self.topics = Topics(image.topics, image.next_log)
        self.objects.restore(image.objects, image.segment_names, image.foundings, image.next_object)
        self.collected = image.collected
        for topic in image.topics:
            for partition, number in enumerate(topic.logs):
                self._logs[number] = PartitionLog(topic, partition)
        for one in image.logs:
            log = self._logs.get(one.number)
            if log is None:
                raise ValueError(f"log {one.number} is of no topic")
            log.restore(one)
            self.rows += log.rows
            self.aborted += log.aborted_count
        self._restore_segments(image)
        self._commits = {one.broker_id: one for one in image.commits}
        self._rolls = {one.broker_id: one for one in image.rolls}
        self._producers = SharedDict(((one.log, one.producer_id), one.entry) for one in image.producers)
        self._reopen()

    def _restore_segments(self, image: LogsImage) -> None:
        for one in image.segments:
            log = self._logs.get(one.number)
            if log is None:
                raise ValueError(f"log {one.number} has segments, and is of no topic")
            log.segments.restore(one.columns)
            self.segments += len(log.segments)
            if (end := log.segments.trailing(1)[0].end_offset) != log.tail_start:
                raise ValueError(f"the segments of log {one.number} end at {end}, its tail begins at {log.tail_start}")

    def _reopen(self) -> None:
        opened = [(entry.open_since, place) for place, entry in self._producers.items()]
        opened = [one for one in opened if one[0] != producers.NOT_OPEN]
        for first_offset, (number, producer_id) in sorted(opened):
            if number not in self._logs:
                raise ValueError(f"producer {producer_id} has a transaction open in log {number}, which there is not")
            self._logs[number].open[producer_id] = first_offset
        self.open = len(opened)


def last_commit(record: ObjectRecord) -> LastCommit:
    """What is kept of a commit."""
    name = record.object
    return LastCommit(name.broker_id, name.broker_epoch, name.number, record.outcomes, bool(record.batches))


def last_roll(record: SegmentRecord) -> LastRoll:
    """What is kept of a segment's commit."""
    name = record.object
    return LastRoll(name.broker_id, name.broker_epoch, name.number, record.replaces > 0)


def logs_of(transaction: TransactionRecord, topic: Callable[[str], TopicRecord | None]) -> Iterator[int]:
    """The logs of those of a transaction's partitions that there are; `topic`: that of a name."""
    for joined in transaction.partitions:
        if (known := topic(joined.topic)) is not None:
            yield from (known.first_log + number for number in joined.partitions if number < known.partitions)


def marker_epoch(before: TransactionRecord, after: TransactionRecord) -> int:
    """The epoch of the markers that end the transaction of `before`: above that of whoever is fenced by it."""
    return after.producer_epoch if after.producer_id == before.producer_id else before.producer_epoch + 1


def _nothing() -> None:
    """Of an empty state."""
