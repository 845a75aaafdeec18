"""Bugs in what becomes of partition logs: rolls, collection, sweep, retention, deletion, expiry, and restored copies.

Histories of the data plane are asked for them (`tests/histories`), in the simulator's place.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace as changed

from tests.mutants.edits import delete, insert_after, insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent/data"
STATE: Final = "controller/state"
NODE: Final = "controller/node"
KEPT_A_WHILE: Final = "an object stays for a while once no log needs it"
UNDECIDED: Final = "what is not decided stays in its tail"
NAMED: Final = "a copy that takes the place of its quorum deletes nothing before it is released"

_BUGS: Final = (
    Planted(
        "garbage-deleted-at-once",
        KEPT_A_WHILE,
        "readers that hold coordinates of a moment ago; the lag of Iceberg's orphan removal",
        (
            replace(
                NODE,
                "segment_views.garbage",
                "logs.objects.collectable(_1, before, _2)",
                "logs.objects.collectable(_1, None, _2)",
            ),
        ),
    ),
    Planted(
        "sweep-takes-what-living-agents-put",
        "an object is in the store as long as it may be committed",
        "a listing that is taken for the truth: WarpStream's and Delta's orphan files",
        (replace(NODE, "_is_dead", "registration is None or registration.broker_epoch > one.broker_epoch", "True"),),
    ),
    Planted(
        "index-of-a-segment-left-behind",
        "nothing that no log needs stays for ever",
        "KIP-405's class: the side files of a deleted remote segment",
        (replace(AGENT, "Collector.collect", "one.names", "one.names[:1]"),),
    ),
    Planted(
        "told-deleted-before-it-is",
        "nothing that no log needs stays for ever",
        "a crash between the two, and nobody knows the object any more",
        (
            insert_before(
                AGENT,
                "Collector.collect",
                "await self._store.delete(_)",
                "await self._calls.objects_deleted(\n"
                "    ObjectsDeletedRequest(self._session.broker_id, epoch, tuple(one.key for one in found))\n)",
            ),
        ),
    ),
    Planted(
        "segment-swapped-without-a-comparison",
        "of two rollers one wins",
        "two compactors of one log, each with its own idea of it",
        (
            replace(STATE, "_fits", "log.covered(_1, _2) == request.replaces", "True"),
            replace(STATE, "LogsState._roll", "covered == record.replaces", "True"),
        ),
    ),
    Planted(
        "roll-beyond-the-last-stable-offset",
        UNDECIDED,
        "KIP-405 uploads below the last stable offset alone",
        (
            replace(
                STATE,
                "PartitionLog.covered",
                "base_offset < end_offset <= self.last_stable",
                "base_offset < end_offset",
            ),
            replace(
                AGENT,
                "TailReader._ask",
                "ReadLogsRequest(_1, committed=True, confirmed=confirmed)",
                "ReadLogsRequest(_1, committed=False, confirmed=confirmed)",
            ),
        ),
    ),
    Planted(
        "retention-beyond-the-last-stable-offset",
        UNDECIDED,
        "KAFKA-10432's class: a log start within an open transaction",
        (
            replace(NODE, "SegmentDuties._retained", "min(start, log.last_stable)", "start"),
            replace(STATE, "retain", "min(offset, known.last_stable)", "offset"),
        ),
    ),
    Planted(
        "retention-keeps-a-part-too-few",
        "retention keeps as much as the topic asks for",
        "Kafka's deleteRetentionSizeBreachedSegments compares what would be left",
        (replace(NODE, "_start_by_bytes", "left - size < most", "left <= most"),),
    ),
    Planted(
        "retention-forgotten-with-leadership",
        "retention keeps no more than the topic asks for",
        "a duty whose first look never comes",
        (replace(NODE, "SegmentDuties._retained", "ticks >= due", "ticks > due + 1_000_000"),),
    ),
    Planted(
        "retention-by-one-look",
        "a clock that jumps and comes back drops nothing",
        "logs deleted as a clock was set to the wrong year",
        (replace(NODE, "SegmentDuties._retained", "min(found, known)", "found"),),
    ),
    Planted(
        "producers-forgotten-by-one-look",
        "a clock that jumps and comes back forgets nobody",
        "the same of producers: a batch that comes again is a new one",
        (replace(NODE, "LogDuties._look", "self._old.get(place) is one", "True"),),
    ),
    Planted(
        "records-deleted-beyond-the-end",
        "a log begins within itself",
        "KAFKA-7923's class: DeleteRecords beyond the high watermark",
        (replace(STATE, "delete_records", "wanted > end", "wanted > end + 10"),),
    ),
    Planted(
        "objects-below-a-log-start-kept",
        "nothing that no log needs stays for ever",
        "a count that is not brought down",
        (replace(STATE, "LogsState._reshape", "self._free(log.drop_below(start))", "log.drop_below(start)"),),
    ),
    Planted(
        "objects-of-a-deleted-topic-kept",
        "nothing that no log needs stays for ever",
        "KAFKA-7278's class: what a deleted topic leaves on disk",
        (delete(STATE, "LogsState._remove", "self.objects.release(log.keys())"),),
    ),
    Planted(
        "recreated-topic-inherits-producers",
        "a topic that is created anew knows no producer",
        "KAFKA-12226's class: state by name, where the id is another one",
        (
            insert_before(
                STATE,
                "LogsState._remove",
                "gone = set(topic.logs)",
                "self.__dict__.setdefault('left', {}).update(\n"
                "    {(topic.name, log - topic.first_log, who): one\n"
                "     for (log, who), one in self._producers.items() if log in topic.logs}\n"
                ")",
            ),
            insert_after(
                STATE,
                "LogsState.replay",
                "self._logs[number] = PartitionLog(record, partition, self._generation)",
                "for (name, part, who), one in list(self.__dict__.get('left', {}).items()):\n"
                "    if (name, part) == (record.name, partition):\n"
                "        self._producers[number, who] = one",
            ),
        ),
    ),
    Planted(
        "producers-of-a-deleted-topic-kept",
        "nothing grows by count alone",
        "state by number that nobody looks for again",
        (replace(STATE, "LogsState._remove", "place[0] in gone", "False"),),
    ),
    Planted(
        "producer-forgotten-in-its-transaction",
        "a transaction that is open is known",
        "KAFKA-9144's class: producer state expired below an ongoing transaction",
        (
            replace(STATE, "expire_producers", "entry.open_since == NOT_OPEN", "True"),
            replace(STATE, "LogsState._expire", "entry.open_since == producers.NOT_OPEN", "True"),
        ),
    ),
    Planted(
        "deleted-without-a-release",
        NAMED,
        "decision 0051: the store is all that is left of what the copy lacks",
        (replace(STATE, "LogsState.collects", "founding_id in self.collected", "True"),),
    ),
    Planted(
        "all-foundings-released-at-once",
        "what is not named stays",
        "the histories found it: garbage of any founding went with the first release",
        (
            replace(
                NODE,
                "segment_views.garbage",
                "logs.objects.collectable(_1, _2, logs.collected)",
                "logs.objects.collectable(_1, _2)",
            ),
        ),
    ),
    Planted(
        "names-before-the-succession",
        "no name is ever given to other bytes",
        "the histories found it: agents named objects after the founding of the copy",
        (replace(NODE, "FoundingDuty.prepared", "self.hearing()", "False", occurrence=2),),
    ),
    Planted(
        "names-without-the-founding",
        "no name is ever given to other bytes",
        "decision 0047: a restored quorum gives the same epochs again",
        (
            replace(
                "protocol",
                "ObjectId.path",
                'f"wal/{founding_id}/{self.broker_id}/{self.broker_epoch}/{self.number:020}"',
                'f"wal/{uuid.UUID(int=0)}/{self.broker_id}/{self.broker_epoch}/{self.number:020}"',
            ),
        ),
    ),
)

HISTORY_BUGS: Final = tuple(changed(bug, histories=True) for bug in _BUGS)
