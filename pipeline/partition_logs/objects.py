"""Looks at the batches that objects of the store have where the quorum says so. A kernel.

An object is read once, from the first to the last of its batches that some log has. What else it holds was refused, or
is of logs that are no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from google_crc32c import value as crc32c

from pidkeeper.pipeline.engine.blobs import record_batch
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.record_batch import (
    AFTER_CRC,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from pidkeeper.protocol.logs import MAX_OBJECT_BYTES

READERS: Final = 8
"""Objects that a task reads at once, for most of the time goes by until a store answers: 128 MiB of them at most."""
TASK_BYTES: Final = 64 << 20
"""What a task reads; an object counts as OBJECT_COST more, which is about what it could read while it asks."""
OBJECT_COST: Final = 64 << 10

_LONG: Final = pa.int64()
FOUND: Final = pa.schema(
    [
        ("row_id", pa.int32()),
        ("producer_id", _LONG),
        ("producer_epoch", pa.int32()),
        ("base_sequence", _LONG),
        ("transactional", pa.bool_()),
        ("fault", pa.string()),
    ]
)
"""A batch of which the object was read: what its header says, or what is wrong with it."""
OBJECTS: Final = pa.schema([("object", pa.string()), ("state", pa.string()), ("bytes", _LONG), ("detail", pa.string())])
"""`state`: read, missing, or unreadable, with the reason in `detail`."""
TABLES: Final = {"found_batches": FOUND, "objects_seen": OBJECTS}


class NamedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch as the quorum knows it. `producer`: id, epoch and base sequence; None where no file tells."""

    row_id: int
    position: int
    size: int
    records: int
    max_timestamp: int
    producer: tuple[int, int, int] | None
    transactional: bool | None


class NamedObject(msgspec.Struct, frozen=True, array_like=True):
    """An object by its name in the store, with its batches in their order. `size`: None where no file tells."""

    name: str
    size: int | None
    batches: list[NamedBatch]

    @property
    def cost(self) -> int:
        """What it takes to read."""
        return OBJECT_COST + self.batches[-1].position + self.batches[-1].size - self.batches[0].position


class ObjectsTask(msgspec.Struct, frozen=True):
    """The objects that one task reads."""

    store: Location
    objects: list[NamedObject]


def share_objects(store: Location, objects: Iterator[NamedObject]) -> list[ObjectsTask]:
    """Tasks of about TASK_BYTES each, whoever wrote the objects and whichever logs they are of."""
    tasks: list[ObjectsTask] = []
    room = 0
    for one in objects:
        if room < one.cost:
            tasks.append(ObjectsTask(store, []))
            room = max(TASK_BYTES, one.cost)
        tasks[-1].objects.append(one)
        room -= one.cost
    return tasks


def read_objects(task: ObjectsTask) -> Iterator[Named]:
    """Evidence by TABLES."""
    found: list[tuple[Any, ...]] = []
    seen: list[tuple[Any, ...]] = []
    with ThreadPoolExecutor(READERS, "objects") as threads:
        for state, rows in threads.map(lambda one: _look(task.store, one), task.objects):
            seen.append(state)
            found += rows
    for name, rows in (("objects_seen", seen), ("found_batches", found)):
        if rows:
            yield name, record_batch(TABLES[name], rows)


def _look(store: Location, named: NamedObject) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    """A row of OBJECTS, and those of FOUND."""
    try:
        with (store / named.name).open() as file:
            size = file.seek(0, os.SEEK_END)
            start = named.batches[0].position
            data = _read(file, start, min(max(one.position + one.size for one in named.batches), size))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return (named.name, "missing", 0, None), []
    except (OSError, EOFError) as error:
        return (named.name, "unreadable", 0, str(error)), []
    detail = None if named.size in {None, size} else f"it has {size} bytes, and was committed with {named.size}"
    return (named.name, "read", size, detail), [
        _judge(one, data[one.position - start :][: one.size]) for one in named.batches
    ]


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    if end - start > MAX_OBJECT_BYTES:
        raise OSError(f"bytes {start} to {end} are more than the {MAX_OBJECT_BYTES} that an object has at most")
    file.seek(start)
    pieces = []
    while start < end:
        piece = file.read(end - start)
        if not piece:
            raise EOFError(f"it ends at byte {start}")
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _judge(named: NamedBatch, data: bytes) -> tuple[Any, ...]:
    """A row of FOUND. Of a batch whose bytes are not the ones that were written, the header says nothing."""
    fault = _damage(named, data)
    if fault is not None:
        return named.row_id, None, None, None, None, fault
    header = read_header(data)
    wrong = "; ".join(_differences(named, header)) or None
    producer = (
        (header.producer_id, header.producer_epoch, header.base_sequence) if header.producer_id >= 0 else (-1,) * 3
    )
    return named.row_id, *producer, bool(header.attributes & TRANSACTIONAL), wrong


def _damage(named: NamedBatch, data: bytes) -> str | None:
    if len(data) < named.size:
        return f"{len(data)} bytes are there of {named.size}"
    if named.size < HEADER_BYTES:
        return f"{named.size} bytes are no record batch"
    header = read_header(data)
    if header.magic != MAGIC or PREFIX_BYTES + header.batch_length != named.size:
        return f"no batch of {named.size} bytes is there: magic {header.magic}, length {header.batch_length}"
    if (found := crc32c(data[AFTER_CRC:])) != header.crc:
        return f"the CRC-32C of its bytes is {found:#010x}, its header says {header.crc:#010x}"
    return None


def _differences(named: NamedBatch, header: BatchHeader) -> Iterator[str]:
    """In what a whole batch is another one than was committed."""
    pairs: Sequence[tuple[str, object, object]] = [
        ("records", header.record_count, named.records),
        ("offsets", header.last_offset_delta + 1, named.records),
        ("latest timestamp", header.max_timestamp, named.max_timestamp),
        ("transactional", bool(header.attributes & TRANSACTIONAL), named.transactional),
        ("control", bool(header.attributes & CONTROL), False),
    ]
    yield from (f"{name} {found}, not {due}" for name, found, due in pairs if due is not None and found != due)
    if named.producer is None:
        return
    if (producer := _producer(header)) != named.producer:
        yield "producer {}, epoch {}, sequence {}, not {}, {}, {}".format(*producer, *named.producer)


def _producer(header: BatchHeader) -> tuple[int, int, int]:
    """Id, epoch and base sequence; some clients write a sequence where they have no id."""
    found = (header.producer_id, header.producer_epoch, header.base_sequence)
    return found if header.producer_id >= 0 else (-1, -1, -1)
