"""What a wrong quorum, a wrong agent, a disk or a store may do to partition logs, and which check says so."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pidkeeper.pipeline.audit import AuditOptions, Outcome, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.findings import NOTE
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.verdict import Verdict
from pidkeeper.protocol.logs import BatchCoordinates, ObjectId, ObjectRecord, RemoveTopicRecord, TopicRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from pidkeeper.protocol.transactions import TransactionRecord
from pidkeeper.snapshots.logs_image import LogImage
from tests.support import sound_logs
from tests.support.log_state import FOUNDING
from tests.support.sound_logs import IDS, ORDERS, PAYMENTS, SoundLogs, data, write

PRODUCER: Final = (0, 0)
"""Whoever wrote the last batch of `orders-0`, up to sequence 5 before it."""
APP: Final = (2 * IDS, 0)
"""The transactional producer, which has no transaction under way at the end."""

Spoil = Callable[[SoundLogs], None]
Rows = list[BatchCoordinates]


class Fault(NamedTuple):
    """What is done to the history, and to the files; and the check, severity and a part of the detail that tell it.

    `of_all`: in all members alike, or in the first alone. Without a check the audit is clean. `begin`: what is spoilt.
    """

    check: str | None
    part: str = ""
    history: Spoil = lambda _: None
    files: Callable[[Path], None] = lambda _: None
    of_all: bool = True
    verdict: str = "violations"
    begin: Callable[[], SoundLogs] = sound_logs.history


def last_object(made: SoundLogs) -> ObjectRecord:
    (record,) = made.entries[-1]
    assert isinstance(record, ObjectRecord)
    return record


def rows(edit: Callable[[Rows], None]) -> Spoil:
    """Other coordinates in the last record, and the object as it was."""

    def spoil(made: SoundLogs) -> None:
        record = last_object(made)
        batches = list(record.batches)
        edit(batches)
        made.entries[-1] = [replace(record, batches=tuple(batches))]

    return spoil


def row(number: int = 0, **columns: int) -> Spoil:
    def edit(batches: Rows) -> None:
        batches[number] = replace(batches[number], **columns)

    return rows(edit)


def wrote(pair: tuple[int, int], sequence: int, *, transactional: bool = False) -> Spoil:
    """The last batch of `orders-0` is another one, in the record as in the object."""

    def spoil(made: SoundLogs) -> None:
        record = last_object(made)
        old, other = record.batches
        name = record.object.path(FOUNDING)
        new = data(pair, sequence, old.records, transactional)
        # All have the same width but for what is in them.
        assert len(new) == old.size
        made.objects[name] = new + made.objects[name][old.size :]
        written = replace(
            old, producer_id=pair[0], producer_epoch=pair[1], base_sequence=sequence, transactional=transactional
        )
        made.entries[-1] = [replace(record, batches=(written, other))]

    return spoil


def one_more(log: int, base_offset: int, batch: bytes, records: int, pair: tuple[int, int], sequence: int) -> Spoil:
    """An object with one batch at the end, which nobody should have let join."""

    def spoil(made: SoundLogs) -> None:
        record = last_object(made)
        name = ObjectId(record.object.broker_id, record.object.broker_epoch, record.object.number + 1)
        latest = record.batches[0].max_timestamp
        place = BatchCoordinates(log, base_offset, records, 0, len(batch), *pair, sequence, latest, False)
        made.objects[name.path(FOUNDING)] = batch
        made.entries.append([replace(record, object=name, size=len(batch), outcomes=(0,), batches=(place,))])

    return spoil


def both(*spoils: Spoil) -> Spoil:
    def spoil(made: SoundLogs) -> None:
        for one in spoils:
            one(made)

    return spoil


def allocated_later(made: SoundLogs) -> None:
    made.entries.append([AllocateProducerIdsRecord(1, made.epochs[1], 4 * IDS - 1, 3 * IDS, IDS, 1_700_000_100_000)])


def in_the_object(edit: Callable[[bytearray], None]) -> Spoil:
    def spoil(made: SoundLogs) -> None:
        name = last_object(made).object.path(FOUNDING)
        content = bytearray(made.objects[name])
        edit(content)
        made.objects[name] = bytes(content)

    return spoil


def flip(content: bytearray) -> None:
    content[80] ^= 1


def another_producer(content: bytearray) -> None:
    content[:85] = data((IDS + 1, 0), 6, 2)


def cut(content: bytearray) -> None:
    del content[-10:]


def in_the_image(edit: Callable[[LogImage], LogImage], log: int) -> Spoil:
    """In the newest snapshot."""

    def spoil(made: SoundLogs) -> None:
        image = made.images[-1]
        assert image.logs is not None
        logs = [edit(one) if one.number == log else one for one in image.logs.logs]
        made.images[-1] = replace(image, logs=replace(image.logs, logs=logs))

    return spoil


def without_markers(log: LogImage) -> LogImage:
    return replace(log, markers=(b"",) * len(log.markers))


def with_a_short_column(log: LogImage) -> LogImage:
    return replace(log, columns=(log.columns[0][:-8], *log.columns[1:]))


def without_an_end(made: SoundLogs) -> None:
    """The record that aborted the transaction says that it goes on."""
    for entry in made.entries:
        for number, one in enumerate(entry):
            if isinstance(one, TransactionRecord) and one.status == 5:
                entry[number] = replace(one, status=1)


def objects(root: Path) -> list[Path]:
    return sorted((root / "store" / "wal" / str(FOUNDING) / "2" / "5").iterdir())


def without_an_object(root: Path) -> None:
    objects(root)[-1].unlink()


def without_objects_of_the_deleted(root: Path) -> None:
    """The topic `gone` had a part of this one, and it is not named by its own batch any more."""
    content = objects(root)[0].read_bytes()
    objects(root)[0].write_bytes(content[:-73] + bytes(73))


def an_object_that_nobody_can_read(root: Path) -> None:
    """No file that can be read from its beginning, whoever reads it."""
    last = objects(root)[-1]
    last.unlink()
    last.symlink_to("/proc/self/mem")


def another_store(root: Path) -> None:
    (root / "store" / "store.json").write_bytes(msgspec.json.encode({"store_id": uuid.UUID(int=9), "format": 1}))


def store_without_a_name(root: Path) -> None:
    (root / "store" / "store.json").unlink()


def wrapped(made: SoundLogs) -> None:
    """Sequences of a producer that is new go up to the last there is, and on from 0."""
    both(one_more(ORDERS, 11, data((5, 0), 2**31 - 2, 2), 2, (5, 0), 2**31 - 2))(made)
    one_more(ORDERS, 13, data((5, 0), 0, 1), 1, (5, 0), 0)(made)


def shared_logs(made: SoundLogs) -> None:
    """Two topics are given the logs of `orders`, and all of them are deleted."""
    for number in (8, 9):
        made.entries.append(
            [TopicRecord(uuid.UUID(int=number), f"topic-{number}", 2, ORDERS, -1, -1, 1_700_000_100_000)]
        )
    made.entries.extend([RemoveTopicRecord(uuid.UUID(int=number), 1_700_000_100_000)] for number in (8, 9))


def too_large(made: SoundLogs) -> None:
    """The number of the next record in a snapshot is none that a table takes."""
    made.images[0] = replace(made.images[0], next_offset=2**63)


def never_committed(made: SoundLogs) -> None:
    """An offset is left out in an entry that one member has, and the others have not."""
    row(base_offset=10)(made)
    made.uncommitted = 1


FAULTS: Final[dict[str, Fault]] = {
    "nothing wrong": Fault(None, verdict="clean"),
    "sequences that wrap": Fault(None, history=wrapped, verdict="clean"),
    "bytes of a deleted topic": Fault(None, files=without_objects_of_the_deleted, verdict="clean"),
    "an entry that was never committed": Fault(None, history=never_committed, of_all=False, verdict="clean"),
    "an ID of nobody": Fault("unallocated", "no broker was given", wrote((700, 0), 0)),
    "an ID of a later block": Fault(
        "unallocated", "given out at offset 26 only", both(wrote((3 * IDS, 0), 0), allocated_later)
    ),
    "a sequence left out": Fault("out_of_sequence", "1 sequences before it", wrote(PRODUCER, 7)),
    "a batch once more": Fault(
        "duplicate", "were written before", one_more(ORDERS, 11, data(PRODUCER, 6, 2), 2, PRODUCER, 6)
    ),
    "an epoch of before": Fault(
        "fenced_epoch",
        "stand behind epoch 1",
        both(wrote((0, 1), 0), one_more(ORDERS, 11, data(PRODUCER, 6, 2), 2, PRODUCER, 6)),
    ),
    "an offset left out": Fault("log_offsets", "the log ended at 9", row(base_offset=10)),
    "an offset given twice": Fault("log_offsets", "offsets were given twice", row(base_offset=8)),
    "topics that share their logs": Fault("log_offsets", "'topic-8' was given the log of orders-1", shared_logs),
    "a marker left out": Fault("log_offsets", "records were lost", in_the_image(without_markers, ORDERS)),
    "a transaction without its end": Fault("replicas_disagree", "", without_an_end, of_all=False),
    "bytes behind the object": Fault("coordinates", "and the object has 170", row(1, size=100)),
    "bytes of another batch": Fault("coordinates", "two have the same bytes", row(1, position=80)),
    "a transaction that is over": Fault("transaction_pair", "had not joined", wrote(APP, 0, transactional=True)),
    "a fenced pair": Fault("transaction_pair", "it was fenced", wrote((2 * IDS, 7), 0, transactional=True)),
    "no transactional id": Fault("transaction_pair", "no transactional id has", wrote((0, 0), 6, transactional=True)),
    "another row of one": Fault("replicas_disagree", "but 2 copies", row(position=1, size=84), of_all=False),
    "another offset of one": Fault("replicas_disagree", "", row(base_offset=10), of_all=False),
    "another marker of one": Fault("log_offsets", "", in_the_image(without_markers, ORDERS), of_all=False),
    "an object that is gone": Fault("objects", "is not in the store: 2 batches of 2 logs", files=without_an_object),
    "a bit of an object": Fault("objects", "CRC-32C", in_the_object(flip)),
    "an object of another producer": Fault(
        "objects", "producer 11, epoch 0, sequence 6, not 0, 0, 6", in_the_object(another_producer)
    ),
    "an object cut short": Fault("objects", "the object has 160 bytes, and was committed with 170", in_the_object(cut)),
    "other records than in the object": Fault("objects", "records 2, not 3", row(1, records=3)),
    "another time than in the object": Fault("objects", "latest timestamp", row(max_timestamp=5)),
    "another store": Fault("identity", "its objects were left out", files=another_store),
    "a store without a name": Fault("objects", "store.json is missing", files=store_without_a_name),
    "an object that nobody can read": Fault(
        None,
        "1 of 6 objects of the store could not be read",
        files=an_object_that_nobody_can_read,
        verdict="incomplete",
    ),
    "a snapshot with a number that is too large": Fault(None, "could not be read", too_large, verdict="incomplete"),
    "a snapshot with a short column": Fault(
        None, "could not be read", in_the_image(with_a_short_column, PAYMENTS), verdict="incomplete"
    ),
}


def write_fault(directory: Path, fault: Fault) -> None:
    """Three members in `data/` and the store in `store/`."""
    spoilt = fault.begin()
    fault.history(spoilt)
    sound = spoilt if fault.of_all else fault.begin()
    write(directory, spoilt, lambda made, node: made if node == 1 else sound)
    fault.files(directory)


def options(root: Path, *, store: bool = True, anew: bool = False) -> AuditOptions:
    paths = AuditPaths([str(root / "data")], store=str(root / "store") if store else None)
    return AuditOptions(paths, locate(root / "out"), anew=anew)


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Findings above a note."""
    names = ("check", "severity", "subject", "offset", "file", "position", "detail")
    return sorted(tuple(map(str, (row[name] for name in names))) for row in rows if row["severity"] != NOTE)


def found_in(outcome: Outcome) -> list[tuple[Any, ...]]:
    return told(outcome.tables["findings"].to_pylist())


def check_fault(root: Path, fault: Fault) -> None:
    """Write the files with this fault in an empty directory, audit them, and assert that it is told."""
    write_fault(root, fault)
    outcome = look(LocalEngine(), options(root))
    assert_told(fault, outcome.verdict, found_in(outcome))


def assert_told(fault: Fault, verdict: Verdict, found: list[tuple[Any, ...]]) -> None:
    """found: as of `told`."""
    unseen = verdict.coverage.unseen
    assert verdict.verdict == fault.verdict, (found, unseen)
    if fault.check is None:
        assert all(fault.part in one for one in unseen), unseen
        assert [one for one in found if one[1] == "violation"] == []
    else:
        assert any(check == fault.check and fault.part in detail for check, *_, detail in found), found
        assert verdict.verdict != "violations" or verdict.checks[fault.check].violations > 0
