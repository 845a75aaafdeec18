"""What a wrong roller, a disk or a store may do to the segments of partition logs, and which check says so."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import pyarrow.parquet as pq
from click.testing import CliRunner
from msgspec.structs import replace

from pidkeeper.broker_agent.data.segment_index import decode_index
from pidkeeper.cli.audit import audit
from pidkeeper.controller.state import requests
from pidkeeper.pipeline.audit import look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.formats.sparse_index import NO_TIME, SparseIndex, decode_sparse_index
from pidkeeper.pipeline.ledger import RUNS
from pidkeeper.pipeline.verdict import read_verdict
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName, SegmentRecord, index_path
from pidkeeper.snapshots.logs_image import LogsImage
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
from tests.support.log_state import FOUNDING, drop
from tests.support.random_logs import RandomLogs, behind
from tests.support.rolled_logs import APP, rolled_history, segments
from tests.support.segment_builder import marker
from tests.support.sound_logs import ORDERS, PAYMENTS, SoundLogs, data, write

EXIT_CODES: Final = {"clean": 0, "violations": 5, "incomplete": 6}
PREFIX: Final = 12
"""Bytes of a batch before its length counts."""
Content = Callable[[bytearray], None]


def of_segment(edit: Content, log: int = ORDERS, nth: int = 0, *, index: bool = False) -> Spoil:
    """Another content of a segment, or of its index; its record is as it was."""

    def spoil(made: SoundLogs) -> None:
        name = segments(made, log)[nth][index]
        content = bytearray(made.objects[name])
        edit(content)
        made.objects[name] = bytes(content)

    return spoil


def of_index(log: int = ORDERS, nth: int = 0, **columns: Any) -> Spoil:
    """Other columns in an index, with a right CRC. Numbers below 128 take a byte each, so its size is what it was."""

    def edit(content: bytearray) -> None:
        index: SparseIndex = replace(decode_sparse_index(bytes(content)), **columns)
        stored = msgspec.msgpack.encode(index)
        content[:] = google_crc32c.value(stored).to_bytes(4, "big") + stored
        decode_index(bytes(content))

    return of_segment(edit, log, nth, index=True)


def batches(content: bytes | bytearray) -> list[bytes]:
    found, position = [], 0
    while position < len(content):
        end = position + PREFIX + int.from_bytes(content[position + 8 : position + PREFIX], "big")
        found.append(bytes(content[position:end]))
        position = end
    return found


def without(nth: int, content: bytearray) -> None:
    content[:] = b"".join(one for number, one in enumerate(batches(content)) if number != nth)


def twice(nth: int, content: bytearray) -> None:
    """In the place of the batch behind it, which is as long."""
    whole = batches(content)
    assert len(whole[nth]) == len(whole[nth + 1])
    content[:] = b"".join([*whole[: nth + 1], whole[nth], *whole[nth + 2 :]])


def written_by(nth: int, producer: tuple[int, int, int], content: bytearray) -> None:
    """A batch of another producer, epoch and sequence."""
    whole = batches(content)
    batch = bytearray(whole[nth])
    struct.pack_into(">qhi", batch, 43, *producer)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    content[:] = b"".join([*whole[:nth], bytes(batch), *whole[nth + 1 :]])


def committed(nth: int, content: bytearray) -> None:
    """A marker that commits in the place of one that aborts."""
    whole = batches(content)
    offset = int.from_bytes(whole[nth][:8], "big")
    latest = whole[nth][27:43]
    batch = bytearray(marker(offset, APP, commit=True, leader_epoch=-1))
    batch[27:43] = latest
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    assert len(batch) == len(whole[nth])
    content[:] = b"".join([*whole[:nth], bytes(batch), *whole[nth + 1 :]])


def of_records(edit: Callable[[SegmentRecord], SegmentRecord], log: int, nth: int) -> Spoil:
    """Another record of the nth roll of a log."""

    def spoil(made: SoundLogs) -> None:
        rolls = [
            (entry, number)
            for entry in made.entries
            for number, one in enumerate(entry)
            if isinstance(one, SegmentRecord) and one.log == log
        ]
        entry, number = rolls[nth]
        record = entry[number]
        assert isinstance(record, SegmentRecord)
        entry[number] = edit(record)

    return spoil


def of_record(log: int, nth: int, **fields: Any) -> Spoil:
    return of_records(lambda record: replace(record, **fields), log, nth)


def renamed(log: int, nth: int, **fields: Any) -> Spoil:
    """In the record and in the store."""

    def spoil(made: SoundLogs) -> None:
        record = replace(SEGMENT_OF[log, nth](made), **fields)
        for old, new in zip(segments(made, log)[nth], _names(record), strict=True):
            made.objects[new] = made.objects.pop(old)
        of_record(log, nth, **fields)(made)

    return spoil


def _names(record: SegmentRecord) -> tuple[str, str]:
    path = record.name.path(record.object, FOUNDING)
    return path, index_path(path)


def _record(log: int, nth: int, made: SoundLogs) -> SegmentRecord:
    return [one for entry in made.entries for one in entry if isinstance(one, SegmentRecord) and one.log == log][nth]


SEGMENT_OF: Final = {(log, nth): partial(_record, log, nth) for log in (ORDERS, ORDERS + 1) for nth in (0, 1)}


def in_the_images(edit: Callable[[LogsImage], LogsImage]) -> Spoil:
    """In the newest snapshot."""

    def spoil(made: SoundLogs) -> None:
        image = made.images[-1]
        assert image.logs is not None
        made.images[-1] = replace(image, logs=edit(image.logs))

    return spoil


def another_size(logs: LogsImage) -> LogsImage:
    first, *rest = logs.segments
    columns = (*first.columns[:3], (183).to_bytes(4, "little"), *first.columns[4:])
    return replace(logs, segments=[replace(first, columns=columns), *rest])


def without_names(logs: LogsImage) -> LogsImage:
    return replace(logs, segment_names={})


def with_a_short_column(logs: LogsImage) -> LogsImage:
    first, *rest = logs.segments
    return replace(logs, segments=[replace(first, columns=(first.columns[0][:-1], *first.columns[1:])), *rest])


def without_object(log: int = ORDERS, nth: int = 0, *, index: bool = False) -> Spoil:
    def spoil(made: SoundLogs) -> None:
        del made.objects[segments(made, log)[nth][index]]

    return spoil


def dropped(made: SoundLogs) -> None:
    gone = [name for one in segments(made, PAYMENTS) for name in one]
    made.ask(drop("payments"))
    for name in gone:
        del made.objects[name]


def begun_later(made: SoundLogs) -> None:
    """The log has lost its first segment, and a part of the second."""
    first = segments(made, ORDERS)[0]
    made.ask(requests.DeleteRecords((1, made.epochs[1]), ((ORDERS, 6),)))
    for name in first:
        del made.objects[name]


def never_committed(made: SoundLogs) -> None:
    """A member has one roll more than the others: there may be no such segment, and all batches are where they were."""
    last = SEGMENT_OF[ORDERS, 1](made)
    number = replace(last.object, number=last.object.number + 9)
    made.entries.append([replace(last, object=number, end_offset=16, replaces=4)])
    made.uncommitted = 1


def lagging(made: SoundLogs) -> None:
    """A member does not know yet of the last two rolls, and names segments that are gone."""
    del made.entries[-4:]


def without_older_segments(root: Path) -> None:
    """What only the member that lags names."""
    for path in (root / "store" / "segments").rglob("*"):
        if path.is_file() and "/00000000000000000002/payments-0/" in str(path):
            path.unlink()


def rolled_since(root: Path) -> None:
    """The store has a segment of which no file tells: it took the place of one that is named."""
    segment_folder = root / "store" / "segments" / str(FOUNDING) / "1" / "3"
    later = segment_folder / f"{8:020}" / "orders-0"
    later.mkdir(parents=True)
    (later / f"{0:020}.log").write_bytes(b"x")
    for path in (segment_folder / f"{0:020}" / "orders-0").iterdir():
        path.unlink()


def unreadable(root: Path) -> None:
    path = root / "store" / "segments" / str(FOUNDING) / "1" / "3" / f"{0:020}" / "orders-0" / f"{0:020}.log"
    path.unlink()
    path.symlink_to("/proc/self/mem")


def newest_snapshot_alone(root: Path) -> None:
    """Copies as they are shipped: of batches that were rolled by then nothing is told but of the last five."""
    for node in (1, 2, 3):
        for path in (root / "data" / str(node) / "wal").iterdir():
            path.unlink()
        for path in sorted((root / "data" / str(node) / "snapshots").iterdir())[:-1]:
            path.unlink()


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


def check_by_command(root: Path, fault: Fault) -> None:
    """As `log_faults.check_fault`, by what the command leaves and ends with."""
    write_fault(root, fault)
    out = root / "out"
    paths = [str(root / "data"), "--store", str(root / "store"), "--out", str(out)]
    ran = CliRunner().invoke(audit, ["run", "--engine", "local", *paths])
    assert ran.exit_code == EXIT_CODES[fault.verdict], ran.output
    found = told(pq.read_table(next((out / RUNS).iterdir()) / "findings.parquet").to_pylist())
    assert_told(fault, read_verdict(locate(out)), found)


def check_random(root: Path, seed: int) -> None:
    """Whatever agents and clients do, and however far a member lags, nothing is wrong with it."""
    made = RandomLogs(seed)
    write(root, made, lambda sound, node: behind(sound, seed % 9) if node == 1 else sound)
    outcome = look(LocalEngine(), options(root))
    found = [one for one in found_in(outcome) if one[1] == "violation"]
    assert (outcome.verdict.verdict, found) == ("clean", []), outcome.verdict.coverage.unseen
    logs = outcome.verdict.coverage.logs
    assert logs is not None and logs.segments_read == logs.segments > 0
