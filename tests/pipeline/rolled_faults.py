"""What a wrong roller, a disk or a store may do to the segments of partition logs, and which check says so."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from click.testing import CliRunner

from pidkeeper.cli.audit import audit
from pidkeeper.pipeline.audit import look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.sparse_index import NO_TIME
from pidkeeper.pipeline.ledger import RUNS
from pidkeeper.pipeline.verdict import read_verdict
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName
from tests.pipeline.log_faults import (
    Fault,
    Spoil,
    assert_told,
    both,
    flip,
    found_in,
    one_more,
    options,
    told,
    write_fault,
)
from tests.pipeline.rolled_edits import (
    another_size,
    begun_later,
    committed,
    dropped,
    in_the_images,
    lagging,
    never_committed,
    newest_snapshot_alone,
    of_index,
    of_record,
    of_segment,
    renamed,
    rolled_since,
    twice,
    unreadable,
    with_a_short_column,
    without,
    without_names,
    without_object,
    without_older_segments,
    written_by,
)
from tests.support.random_logs import RandomLogs, behind
from tests.support.rolled_logs import rolled_history
from tests.support.sound_logs import ORDERS, data, write

EXIT_CODES: Final = {"clean": 0, "violations": 5, "incomplete": 6}


def _fault(check: str | None, part: str = "", *spoils: Spoil, **options: Any) -> Fault:
    return Fault(check, part, both(*spoils), begin=rolled_history, **options)


_CLEAN: Final = {
    "rolled logs with nothing wrong": _fault(None, verdict="clean"),
    "a topic that was deleted": _fault(None, "", dropped, verdict="clean"),
    "a log that begins later": _fault(None, "", begun_later, verdict="clean"),
    "a roll that was never committed": _fault(None, "", never_committed, of_all=False, verdict="clean"),
    "a member that lags": _fault(None, "", lagging, files=without_older_segments, of_all=False, verdict="clean"),
    "sequences that go on from a segment": _fault(
        None, "", one_more(ORDERS + 1, 12, data((0, 0), 5, 1), 1, (0, 0), 5), verdict="clean"
    ),
}
_UNSEEN: Final = {
    "files older than the store": _fault(None, "", files=rolled_since, verdict="incomplete"),
    "a segment that nobody can read": _fault(None, "", files=unreadable, verdict="incomplete"),
    "a snapshot whose segments have no names": _fault(None, "", in_the_images(without_names), verdict="incomplete"),
    "a short column of segments": _fault(None, "", in_the_images(with_a_short_column), verdict="incomplete"),
}
_OF_SEGMENTS: Final = {
    "a segment that is gone": _fault("segments", "it is not in the store: 5 offsets are lost", without_object()),
    "a segment cut short": _fault(
        "segments", "the object has 172 bytes", of_segment(lambda one: one.__delitem__(slice(-10, None)))
    ),
    "a bit of a segment": _fault("segments", "bad_crc", of_segment(flip)),
    "a batch left out of a segment": _fault("segments", "records are missing", of_segment(partial(without, 1), nth=1)),
    "a batch twice in a segment": _fault("segments", "offsets are in it twice", of_segment(partial(twice, 3), nth=1)),
    "another producer in a segment": _fault(
        "segments", "producer 11, not 0", of_segment(partial(written_by, 2, (11, 0, 5)), nth=1)
    ),
    "another sequence in a segment": _fault(
        "segments", "sequence 7, not 5", of_segment(partial(written_by, 2, (0, 0, 7)), nth=1)
    ),
    "an abort that became a commit": _fault(
        "segments", "commit True, not False", of_segment(partial(committed, 0), ORDERS + 1, 1)
    ),
    "another time than its records": _fault(
        "segments", "its latest record is of", of_record(ORDERS, 0, max_timestamp=5)
    ),
    "another end than its batches": _fault(
        "segments", "what stands before ends at 5", of_record(ORDERS, 0, end_offset=4)
    ),
    "two segments of one number": _fault(
        "segments", "2 segments have this object", renamed(ORDERS + 1, 1, object=ObjectId(1, 3, 1))
    ),
    "a segment of another partition": _fault(
        "segments", "it is named after another partition", renamed(ORDERS, 0, name=SegmentName("orders", 1, 0))
    ),
    "an ID of nobody in a segment": _fault(
        "unallocated",
        "no broker was given",
        of_segment(partial(written_by, 0, (700, 0, 0))),
        files=newest_snapshot_alone,
    ),
    "an epoch that fences what is in later segments": _fault(
        "fenced_epoch",
        "stand behind epoch 5",
        of_segment(partial(written_by, 0, (0, 5, 0))),
        files=newest_snapshot_alone,
    ),
    "a sequence left out behind a segment": _fault(
        "out_of_sequence", "2 sequences before it", one_more(ORDERS + 1, 12, data((0, 0), 7, 1), 1, (0, 0), 7)
    ),
    "a batch of a segment once more": _fault(
        "duplicate", "were written before", one_more(ORDERS + 1, 12, data((0, 0), 1, 4), 4, (0, 0), 1)
    ),
}
_OF_OTHERS: Final = {
    "offsets before the first segment": _fault(
        "log_offsets", "no file has offsets 0 to 1", renamed(ORDERS, 0, name=SegmentName("orders", 0, 2))
    ),
    "offsets between segments": _fault("log_offsets", "no file has offsets 4 to 4", of_record(ORDERS, 0, end_offset=4)),
    "a segment that is behind its log's end": _fault(
        "log_offsets", "the log ended at 12", of_record(ORDERS + 1, 3, end_offset=14)
    ),
    "another segment of one": _fault(
        "replicas_disagree", "says that the log has a segment", in_the_images(another_size), of_all=False
    ),
}
_OF_INDICES: Final = {
    "an index that is gone": _fault("segment_index", "nobody can read the segment", without_object(index=True)),
    "a bit of an index": _fault(
        "segment_index", "CRC-32C", of_segment(lambda one: one.__setitem__(9, one[9] ^ 1), index=True)
    ),
    "an index of another length": _fault(
        "segment_index", "the index has 28 bytes", of_segment(lambda one: one.append(0), index=True)
    ),
    "an index of another segment": _fault("segment_index", "it is of offsets 0 to 5", of_index(end_offset=6)),
    "an entry that points at no batch": _fault(
        "segment_index",
        "of offset 2 is at byte 100, and there is none",
        of_index(offsets=[0, 2], positions=[0, 100], latest=[NO_TIME, 5]),
        of_record(ORDERS, 0, index_size=30),
    ),
    "a time before there is any": _fault(
        "segment_index", "an entry has 5 ms", of_index(latest=[5]), of_record(ORDERS, 0, index_size=19)
    ),
    "an abort of another": _fault(
        "segment_index",
        "lacks the transaction of producer 20 aborted at offset 8",
        of_index(ORDERS + 1, 1, producer_ids=[21]),
    ),
    "an abort that was none": _fault(
        "segment_index", "was aborted at offset 7: none was", of_index(ORDERS, 1, marker_offsets=[7])
    ),
    "an abort that began elsewhere": _fault(
        "segment_index", "its first batch at 11", of_index(ORDERS, 1, first_offsets=[10])
    ),
    "an abort at another offset of the tail": _fault(
        "segment_index", "no such marker is in the log's tail", of_index(ORDERS, 1, marker_offsets=[15])
    ),
    "an abort in the tail that is left out": _fault(
        "segment_index",
        "lacks the transaction of producer 20 aborted at offset 14, in the log's tail",
        of_index(ORDERS, 1, producer_ids=[], first_offsets=[], marker_offsets=[]),
        of_record(ORDERS, 1, index_size=28),
    ),
    "an abort of whose beginning nobody knows": _fault(
        "segment_index",
        "began at 10 by it, and has a batch in the segment before it",
        of_index(ORDERS + 1, 2, producer_ids=[], first_offsets=[], marker_offsets=[]),
        of_record(ORDERS + 1, 2, index_size=26),
        of_index(ORDERS + 1, 3, first_offsets=[10]),
    ),
    "an abort that neighbours see otherwise": _fault(
        "segment_index", "is not in the index of the segment before it", of_index(ORDERS + 1, 1, first_offsets=[4])
    ),
    "an abort that began in the segment before": _fault(
        "segment_index", "began at offset 8", of_index(ORDERS + 1, 1, first_offsets=[8])
    ),
}
ROLLED: Final[dict[str, Fault]] = {**_CLEAN, **_UNSEEN, **_OF_SEGMENTS, **_OF_OTHERS, **_OF_INDICES}


def check_by_command(root: Path, fault: Fault) -> list[tuple[Any, ...]]:
    """As `log_faults.check_fault`, by what the command leaves and ends with; findings as of `log_faults.told`."""
    write_fault(root, fault)
    out = root / "out"
    paths = [str(root / "data"), "--store", str(root / "store"), "--out", str(out)]
    ran = CliRunner().invoke(audit, ["run", "--engine", "local", *paths])
    assert ran.exit_code == EXIT_CODES[fault.verdict], ran.output
    found = told(pq.read_table(next((out / RUNS).iterdir()) / "findings.parquet").to_pylist())
    assert_told(fault, read_verdict(locate(out)), found)
    return found


def check_random(root: Path, seed: int, kind: type[RandomLogs] = RandomLogs) -> None:
    """Whatever agents and clients do, and however far a member lags, nothing is wrong with it."""
    made = kind(seed)
    write(root, made, lambda sound, node: behind(sound, seed % 9) if node == 1 else sound)
    outcome = look(LocalEngine(), options(root))
    found = [one for one in found_in(outcome) if one[1] == "violation"]
    assert (outcome.verdict.verdict, found) == ("clean", []), outcome.verdict.coverage.unseen
    logs = outcome.verdict.coverage.logs
    assert logs is not None and logs.segments_read == logs.segments > 0
