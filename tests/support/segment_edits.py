"""The log of one partition as a list of batches that a test changes and writes back, to the byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

FIELDS: Final = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
"""Where they stand in a batch, by Kafka's description of the format; the reader's own table is what is tested."""
PREFIX_BYTES: Final = 12
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_COVERED_FROM: Final = 21


class Place(NamedTuple):
    """A byte of a file, and the producer of what stands there; None where it is of no importance."""

    file: Path
    position: int | None = None
    producer: int | None = None


class Batch:
    """One batch. `file`: the base offset in the name of its segment."""

    def __init__(self, data: bytes, file: int) -> None:
        self.data = data
        self.file = file

    def __getattr__(self, name: str) -> int:
        if name not in FIELDS:
            raise AttributeError(name)
        at, code = FIELDS[name]
        (value,) = struct.unpack_from(code, self.data, at)
        return int(value)

    @property
    def end_offset(self) -> int:
        """The offset behind its last one."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_data(self) -> bool:
        """Records of a producer with an ID."""
        return self.producer_id >= 0 and not self.attributes & CONTROL

    def changed(self, **fields: int) -> Batch:
        """Another one with other fields, and a CRC that is right for them."""
        data = bytearray(self.data)
        for name, value in fields.items():
            at, code = FIELDS[name]
            struct.pack_into(code, data, at, value)
        struct.pack_into(">I", data, FIELDS["crc"][0], google_crc32c.value(bytes(data[_COVERED_FROM:])))
        return Batch(bytes(data), self.file)


class PartitionLog:
    """All batches of a folder of segments, in order. Changes are on disk after `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[int] = []
        self.batches: list[Batch] = []
        for path in sorted(folder.glob("*.log")):
            self.files.append(int(path.stem))
            self.batches += _split(path.read_bytes(), int(path.stem))

    def path(self, file: int) -> Path:
        """The segment of this base offset."""
        return self.folder / f"{file:020d}.log"

    @property
    def end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self.batches[-1].end_offset

    def place(self, index: int) -> Place:
        """Where a batch stands, as the log is now."""
        batch = self.batches[index]
        before = sum(len(each.data) for each in self.batches[:index] if each.file == batch.file)
        return Place(self.path(batch.file), before, batch.producer_id)

    def of_file(self, number: int) -> list[int]:
        """The batches of a segment, counted from 0 in the order of the log."""
        return [index for index, batch in enumerate(self.batches) if batch.file == self.files[number]]

    def append(self, batch: Batch) -> int:
        """Put a batch behind the end, at the offsets due there; which one it is."""
        self.batches.append(batch.changed(base_offset=self.end_offset))
        self.batches[-1].file = self.files[-1]
        return len(self.batches) - 1

    def insert(self, index: int, batch: Batch) -> None:
        """Put a batch before another one, into its segment; all from there on come later by as many offsets."""
        at = self.batches[index]
        self.shift(index, batch.last_offset_delta + 1)
        self.batches.insert(index, batch.changed(base_offset=at.base_offset))
        self.batches[index].file = at.file

    def drop(self, index: int, *, hole: bool) -> Batch:
        """Take a batch out; without a hole all behind it are earlier by as many offsets."""
        gone = self.batches.pop(index)
        if not hole:
            self.shift(index, -(gone.last_offset_delta + 1), gone.file)
        return gone

    def shift(self, index: int, offsets: int, file: int | None = None) -> None:
        """Move all batches from `index` on, and the names of segments behind `file`, by default behind its own."""
        kept = self.batches[index].file if file is None else file
        for number in range(index, len(self.batches)):
            batch = self.batches[number]
            moved = batch.file + offsets if batch.file > kept else batch.file
            self.batches[number] = batch.changed(base_offset=batch.base_offset + offsets)
            self.batches[number].file = moved
        self.files = [name + offsets if name > kept else name for name in self.files]

    def next_of(self, index: int) -> int | None:
        """The next data of the same producer behind a batch, None if there is none."""
        mine = self.batches[index].producer_id
        behind = range(index + 1, len(self.batches))
        return next((at for at in behind if self.batches[at].is_data and self.batches[at].producer_id == mine), None)

    def write(self) -> None:
        """Replace the segments on disk by these."""
        for path in self.folder.glob("*.log"):
            path.unlink()
        for file in self.files:
            self.path(file).write_bytes(b"".join(batch.data for batch in self.batches if batch.file == file))


def _split(data: bytes, file: int) -> list[Batch]:
    found = []
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        found.append(Batch(data[at : at + PREFIX_BYTES + length], file))
        at += PREFIX_BYTES + length
    return found
