"""Edits of segments, their indices, their records and their files, for faults of rolled partition logs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
from msgspec.structs import replace

from pidkeeper.broker_agent.data.segment_index import decode_index
from pidkeeper.controller.state import requests
from pidkeeper.pipeline.formats.sparse_index import SparseIndex, decode_sparse_index
from pidkeeper.protocol.segments import SegmentRecord, index_path
from pidkeeper.snapshots.logs_image import LogsImage
from tests.pipeline.log_faults import Spoil
from tests.support.log_state import FOUNDING, drop
from tests.support.rolled_logs import APP, segments
from tests.support.segment_builder import marker
from tests.support.sound_logs import ORDERS, PAYMENTS, SoundLogs

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


def of_record(log: int, nth: int, **fields: Any) -> Spoil:
    """Another record of the nth roll of a log."""

    def spoil(made: SoundLogs) -> None:
        record = record_of(made, log, nth)
        entry = next(entry for entry in made.entries if record in entry)
        entry[entry.index(record)] = replace(record, **fields)

    return spoil


def record_of(made: SoundLogs, log: int, nth: int) -> SegmentRecord:
    return [one for entry in made.entries for one in entry if isinstance(one, SegmentRecord) and one.log == log][nth]


def renamed(log: int, nth: int, **fields: Any) -> Spoil:
    """In the record and in the store."""

    def spoil(made: SoundLogs) -> None:
        record = replace(record_of(made, log, nth), **fields)
        for old, new in zip(segments(made, log)[nth], _names(record), strict=True):
            made.objects[new] = made.objects.pop(old)
        of_record(log, nth, **fields)(made)

    return spoil


def _names(record: SegmentRecord) -> tuple[str, str]:
    path = record.name.path(record.object, FOUNDING)
    return path, index_path(path)


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
    last = record_of(made, ORDERS, 1)
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
