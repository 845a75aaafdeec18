"""Looks at the record batches that objects of the store have at given places. A kernel.

An object is read once, from the first to the last of its batches that some log has. What else it holds was refused, or
is of logs that are no more. What the quorum says of a batch is not looked at here: so what was found stays true for as
long as the object is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final, TypeVar

import msgspec
import pyarrow as pa
from google_crc32c import value as crc32c

from pidkeeper.pipeline.engine.blobs import evidence
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

T = TypeVar("T")
_LONG: Final = pa.int64()
FOUND: Final = pa.schema(
    [
        ("object", pa.string()),
        ("position", _LONG),
        ("size", _LONG),
        ("damage", pa.string()),
        ("found_records", _LONG),
        ("found_offsets", _LONG),
        ("found_latest", _LONG),
        ("found_id", _LONG),
        ("found_epoch", pa.int32()),
        ("found_sequence", _LONG),
        ("found_transactional", pa.bool_()),
        ("found_control", pa.bool_()),
    ]
)
"""What the header of a batch says; or, in `damage`, why no batch of that size is there. Without an ID all three of the
producer are -1, for some clients write a sequence then."""
READ: Final = "read"
OBJECTS: Final = pa.schema([("object", pa.string()), ("state", pa.string()), ("bytes", _LONG), ("detail", pa.string())])
"""`state`: read, missing, or unreadable, with the reason in `detail`. `bytes`: of the whole object."""


class NamedObject(msgspec.Struct, frozen=True, array_like=True):
    """An object by its name in the store, and its batches in their order: the position and the size of each."""

    name: str
    batches: list[tuple[int, int]]

    @property
    def cost(self) -> int:
        """What it takes to read."""
        return OBJECT_COST + self.end - self.batches[0][0]

    @property
    def end(self) -> int:
        """Behind its last batch."""
        return max(position + size for position, size in self.batches)


class ObjectsTask(msgspec.Struct, frozen=True):
    """The objects that one task reads."""

    store: Location
    objects: list[NamedObject]


def share(parts: Iterable[T], cost: Callable[[T], int]) -> Iterator[list[T]]:
    """Parts for tasks of about TASK_BYTES each, whoever wrote them and whichever logs they are of."""
    task: list[T] = []
    room = TASK_BYTES
    for one in parts:
        if task and room < cost(one):
            yield task
            task, room = [], TASK_BYTES
        task.append(one)
        room -= cost(one)
    if task:
        yield task


def read_objects(task: ObjectsTask) -> Iterator[Named]:
    """Evidence: `found_batches` by FOUND, `objects_seen` by OBJECTS."""
    found: list[tuple[Any, ...]] = []
    seen: list[tuple[Any, ...]] = []
    with ThreadPoolExecutor(READERS, "objects") as threads:
        for state, rows in threads.map(lambda one: _look(task.store, one), task.objects):
            seen.append(state)
            found += rows
    yield from evidence("objects_seen", OBJECTS, seen)
    yield from evidence("found_batches", FOUND, found)


def _look(store: Location, named: NamedObject) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    """A row of OBJECTS, and those of FOUND."""
    start = named.batches[0][0]
    state, data = read_object(store, named.name, start, named.end)
    if state[1] != READ:
        return state, []
    rows = [
        (named.name, position, length, *_describe(data[position - start : position - start + length], length))
        for position, length in named.batches
    ]
    return state, rows


def read_object(store: Location, name: str, start: int, end: int) -> tuple[tuple[Any, ...], bytes]:
    """A row of OBJECTS, and what the object has of these bytes; none unless it was read."""
    try:
        with (store / name).open() as file:
            size = file.seek(0, os.SEEK_END)
            data = _read(file, start, min(end, size))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return (name, "missing", None, None), b""
    except (OSError, EOFError) as error:
        return (name, "unreadable", None, str(error)), b""
    return (name, READ, size, None), data


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


def _describe(data: bytes, size: int) -> tuple[Any, ...]:
    """The columns of FOUND from `damage` on. Of bytes that are not the ones that were written nothing is believed."""
    if (damage := _damage(data, size)) is not None:
        return (damage, *(None,) * 8)
    header = read_header(data)
    producer = (
        (header.producer_id, header.producer_epoch, header.base_sequence) if header.producer_id >= 0 else (-1,) * 3
    )
    counts = header.record_count, header.last_offset_delta + 1, header.max_timestamp
    return (None, *counts, *producer, bool(header.attributes & TRANSACTIONAL), bool(header.attributes & CONTROL))


def _damage(data: bytes, size: int) -> str | None:
    if len(data) < size:
        return f"{len(data)} bytes are there of {size}"
    if size < HEADER_BYTES:
        return f"{size} bytes are no record batch"
    header: BatchHeader = read_header(data)
    if header.magic != MAGIC or PREFIX_BYTES + header.batch_length != size:
        return f"no batch of {size} bytes is there: magic {header.magic}, length {header.batch_length}"
    if (found := crc32c(data[AFTER_CRC:])) != header.crc:
        return f"the CRC-32C of its bytes is {found:#010x}, its header says {header.crc:#010x}"
    return None
