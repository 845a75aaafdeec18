"""Bugs in the data plane: objects and their commits, decisions about batches, markers, and what consumers are told."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import insert_before, replace
from tests.mutants.planted import Planted

AGENT: Final = "broker_agent/data"
STATE: Final = "controller/state"


DATA_BUGS: Final = (
    Planted(
        "object-committed-before-it-is-stored",
        "what is visible is durable",
        "WarpStream's rule, turned round: the metadata may only follow the object",
        (
            replace(
                AGENT,
                "ObjectWriter.put",
                "await self._store.put(item.path, item.pieces)",
                "asyncio.get_running_loop().create_task(self._store.put(item.path, item.pieces))",
            ),
        ),
    ),
    Planted(
        "answered-without-a-commit",
        "what was acknowledged is in its log",
        "acks=1: the answer leaves before a majority has it",
        (
            insert_before(
                AGENT, "Gatherer._carry", "answer = await self._writer.commit(item)", "item.settle([0] * len(item))"
            ),
        ),
    ),
    Planted(
        "open-outcome-told-as-done",
        "what was acknowledged is in its log",
        "a time-out taken for an answer",
        (
            replace(
                AGENT,
                "PendingAppend.__init__",
                "[-REQUEST_TIMED_OUT] * len(batches)",
                "[0] * len(batches)",
            ),
        ),
    ),
    Planted(
        "lost-commit-sent-again-under-a-new-number",
        "a batch is in its log no more often than it was sent",
        "KIP-730's rule for blocks, where a gap is legal: a retry is a new request",
        (
            insert_before(
                AGENT,
                "ObjectWriter.commit",
                "continue",
                "item.id, item.offered = None, False\n"
                "await self.put(item)\n"
                "item.offered, self._last_offered = True, item.id.number\n"
                "request = item.commit_request()",
            ),
        ),
    ),
    Planted(
        "offered-object-discarded",
        "an object that logs refer to stays",
        "a commit whose answer is lost taken for one that failed",
        (replace(AGENT, "ObjectWriter.discard", "not item.offered", "True"),),
    ),
    Planted(
        "marker-forgotten-at-a-time-out",
        "a transaction that was aborted in time hangs in no log",
        "KIP-890: hanging transactions, whose markers were never written",
        (
            replace(
                STATE,
                "StateMachine._transact",
                "ends_at_once(before, record)",
                "ends_at_once(before, record) and before.producer_epoch == record.producer_epoch",
            ),
        ),
    ),
    Planted(
        "duplicates-not-looked-for",
        "a batch that comes again is told where it is",
        "KIP-98: the broker keeps the newest five batches of each producer",
        (
            replace(
                STATE,
                "commit_decisions._join",
                "producers.find_duplicate(entry, batch)",
                "producers.find_duplicate(None, batch)",
            ),
        ),
    ),
    Planted(
        "duplicate-of-another-epoch",
        "what was acknowledged is in its log",
        "KAFKA-8069's class: sequences compared across epochs",
        (replace(STATE, "find_duplicate", "entry.producer_epoch != batch.producer_epoch", "False"),),
    ),
    Planted(
        "unreferenced-commit-takes-no-number",
        "a log never refers to an object that its agent has deleted",
        "decision 0047: an earlier attempt that comes late is granted",
        (
            replace(STATE, "commit_object", "logs.commit(record)", "joining and logs.commit(record)"),
            replace(STATE, "commit_object", "draft.records.append(record)", "joining and draft.records.append(record)"),
        ),
        ("tests/unit/controller/state/logs/test_commit_decisions.py",),
    ),
    Planted(
        "epoch-of-a-transactional-producer-not-compared",
        "nothing of a fenced producer joins behind its fence",
        "KIP-890: a zombie that never wrote to the partition is known to its coordinator alone",
        (
            replace(
                STATE,
                "_refuse_pair",
                "(record.producer_id, record.producer_epoch) != (batch.producer_id, batch.producer_epoch)",
                "record.producer_id != batch.producer_id",
            ),
        ),
    ),
    Planted(
        "batch-outside-of-its-transaction",
        "a transactional batch joins where its transaction has joined",
        "Kafka before KIP-890: a late batch opens a transaction that nobody ends",
        (replace(STATE, "_refuse_pair", "not has_joined(record, topic.name, batch.log - topic.first_log)", "False"),),
    ),
    Planted(
        "id-that-nobody-was-given",
        "every producer id in a log was given to somebody",
        "Kafka takes any id (decision 0047)",
        (replace(STATE, "_refuse_pair", "batch.producer_id >= draft.next_producer_id", "False"),),
    ),
    Planted(
        "aborted-transaction-not-told",
        "who reads committed records is shown no others",
        "KAFKA-5376's class: the range of the aborted transactions is off",
        (replace(STATE, "PartitionLog.aborted_between", "one.first_offset < below", "one.first_offset < offset"),),
    ),
    Planted(
        "aborted-transactions-of-older-segments-forgotten",
        "who reads committed records is shown no others",
        "a transaction that lies in one segment, with its marker in the next one",
        (
            replace(
                AGENT,
                "SegmentMaker._built",
                "tail.aborted.union(*(one.aborted for one in older))",
                "tail.aborted",
            ),
        ),
        ("tests/unit/broker_agent/data/test_rolling.py",),
    ),
    Planted(
        "damaged-batch-rolled",
        "nothing is let go of that was not read whole",
        "a copy that is made without a look at the checksums, after which the original is deleted",
        (replace(AGENT, "roll_gathering._checked", "check_crc(data, header)", "pass"),),
        ("tests/unit/broker_agent/data/test_rolling.py",),
    ),
    Planted(
        "segment-committed-without-its-index",
        "what is visible is durable",
        "KIP-405's class: a segment whose index did not reach the remote storage",
        (replace(AGENT, "SegmentWriter.write", "await self._put(index_path(name.path), [built.sparse])", "pass"),),
        ("tests/unit/broker_agent/data/test_rolling.py",),
    ),
    Planted(
        "rolled-away-taken-for-lost",
        "a log is readable from each of its offsets",
        "whoever reads by coordinates of a moment ago finds objects that were collected since",
        (replace(AGENT, "Fetcher.fetch", "GoneError", "ZeroDivisionError"),),
        ("tests/unit/broker_agent/data/test_rolling.py",),
    ),
)
