"""Archive files of members and log segments of Kafka in bulk, with a history in which no check finds a violation.

Blocks of 1,000 IDs go to BROKERS brokers in turn, one every 20 ms; every member holds all of them. Idempotent producers
of BATCHES_PER_PRODUCER batches each have IDs from all over these blocks and write over the same time. Columns are made
by numpy; nothing here goes through a loop for each row.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt

from pidkeeper.pipeline.formats.archive_rows import ROW_TYPE
from pidkeeper.snapshots.archive_format import MAX_ARCHIVE_ROWS, ArchiveHeader, encode_header

CLUSTER_ID: Final = "bench"
START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 20
"""15 blocks a minute for each broker: far below what the checks call a storm."""
BROKERS: Final = 200
BLOCK_IDS: Final = 1000
FIRST_OFFSET: Final = 1000
"""Broker epochs are the offsets before it: those of the registrations."""

TOPICS: Final = ("orders", "payments")
PARTITIONS: Final = 4
"""Of each topic."""
BATCHES_PER_PRODUCER: Final = 100
RECORDS: Final = 5
RECORD_BYTES: Final = 20
SEGMENT_BATCHES: Final = 1 << 20
"""200 MiB: below Kafka's default `log.segment.bytes`, 1 GiB."""
PIECE_BATCHES: Final = 1 << 18
"""What is in memory at once: 50 MiB."""
INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default `index.interval.bytes`."""

_COVERED_AT: Final = 21
"""The CRC of a batch is over all bytes from here on."""


class Workload(msgspec.Struct, frozen=True):
    """How much to write: distinct `blocks`, each in the archives of `members` members, and `batches`.

    skewed: one broker has nine tenths of the blocks, and one partition nine tenths of the batches.
    """

    blocks: int
    batches: int
    members: int = 3
    skewed: bool = False


def write_workload(directory: Path, load: Workload) -> tuple[Path, Path]:
    """Write `quorum`, with a data directory for each member, and `kafka`, a broker's log directory; both paths."""
    quorum, kafka = directory / "quorum", directory / "kafka"
    for member in range(1, load.members + 1):
        data = quorum / str(member)
        data.mkdir(parents=True)
        identity = {"cluster_id": CLUSTER_ID, "node_id": member, "directory_id": uuid.UUID(int=member)}
        (data / "meta.json").write_bytes(msgspec.json.encode(identity))
        write_archive(data, load, 0, load.blocks)
    write_segments(kafka, load)
    return quorum, kafka


def grow_workload(directory: Path, load: Workload, share: float) -> Workload:
    """Write more of the same behind it: an archive file for each member, and a segment for each partition."""
    blocks = load.blocks + int(load.blocks * share)
    for member in range(1, load.members + 1):
        write_archive(directory / "quorum" / str(member), load, load.blocks, blocks)
    batches = 0
    for place, name in enumerate(_partitions()):
        count = batches_of(load, place)
        more = int(count * share)
        _write_segment(directory / "kafka" / name, load, place, range(count, count + more))
        batches += count + more
    return msgspec.structs.replace(load, blocks=blocks, batches=batches)


def write_archive(data: Path, load: Workload, start: int, end: int) -> None:
    """Archive files of the blocks from `start` to before `end`, in a member's data directory."""
    (data / "archive").mkdir(parents=True, exist_ok=True)
    for first in range(start, end, MAX_ARCHIVE_ROWS):
        rows = block_rows(load, first, min(first + MAX_ARCHIVE_ROWS, end))
        content = rows.tobytes()
        bounds = (FIRST_OFFSET + first if first else 0, FIRST_OFFSET + first + len(rows))
        ids = (int(rows["first_id"][0]), int(rows["last_id"][-1]))
        header = ArchiveHeader(CLUSTER_ID, *bounds, len(rows), *ids, google_crc32c.value(content))
        name = f"{bounds[0]:020d}-{bounds[1]:020d}.arc"
        (data / "archive" / name).write_bytes(encode_header(header) + content)


def block_rows(load: Workload, first: int, end: int) -> npt.NDArray[Any]:
    """Blocks `first` to before `end` as the rows of an archive file."""
    number = np.arange(first, end, dtype=np.int64)
    rows = np.zeros(len(number), dtype=ROW_TYPE)
    rows["first_id"] = number * BLOCK_IDS
    rows["last_id"] = number * BLOCK_IDS + BLOCK_IDS - 1
    rows["offset"] = FIRST_OFFSET + number
    broker = np.where(number % 10 > 0, 0, number % BROKERS) if load.skewed else number % BROKERS
    rows["broker_epoch"] = broker
    rows["timestamp_ms"] = START_MS + number * STEP_MS
    rows["broker_id"] = broker
    return rows


def write_segments(logs: Path, load: Workload) -> None:
    """The log directory of broker 1: segments with their offset indexes."""
    logs.mkdir(parents=True)
    (logs / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
    for place, name in enumerate(_partitions()):
        count = batches_of(load, place)
        (logs / name).mkdir()
        for start in range(0, count, SEGMENT_BATCHES):
            _write_segment(logs / name, load, place, range(start, min(start + SEGMENT_BATCHES, count)))


def batches_of(load: Workload, place: int) -> int:
    """How many a partition has."""
    partitions = len(_partitions())
    if not load.skewed:
        return len(range(place, load.batches, partitions))
    others = load.batches // 10 // (partitions - 1)
    return others if place else load.batches - others * (partitions - 1)


def _partitions() -> list[str]:
    return [f"{topic}-{number}" for topic in TOPICS for number in range(PARTITIONS)]


def _write_segment(folder: Path, load: Workload, place: int, numbers: range) -> None:
    path = folder / f"{numbers.start * RECORDS:020d}.log"
    with path.open("wb") as file:
        for start in range(numbers.start, numbers.stop, PIECE_BATCHES):
            piece = range(start, min(start + PIECE_BATCHES, numbers.stop))
            file.write(batch_rows(load, place, piece).tobytes())
    size = _template().dtype.itemsize
    every = -(-INDEX_INTERVAL_BYTES // size)
    nth = np.arange(every, len(numbers), every)
    entries = np.stack([nth * RECORDS + RECORDS - 1, nth * size], axis=1)
    path.with_suffix(".index").write_bytes(entries.astype(">i4").tobytes())


def batch_rows(load: Workload, place: int, numbers: range) -> npt.NDArray[Any]:
    """Whole record batches of the partition that is the `place`-th: those of these numbers in its log."""
    partitions = len(TOPICS) * PARTITIONS
    producers = max(1, batches_of(load, place) // BATCHES_PER_PRODUCER)
    most = max(1, max(batches_of(load, each) for each in range(partitions)) // BATCHES_PER_PRODUCER)
    number = np.arange(numbers.start, numbers.stop, dtype=np.int64)
    turn, own = np.divmod(number, producers)
    producer = own * partitions + place
    block = producer * load.blocks // (most * partitions)
    template = _template()
    rows = np.repeat(template, len(number))
    rows["base_offset"] = number * RECORDS
    rows["producer_id"] = block * BLOCK_IDS + producer % BLOCK_IDS
    rows["base_sequence"] = turn * RECORDS & 0x7FFFFFFF
    rows["base_timestamp"] = rows["max_timestamp"] = START_MS + (number * partitions + place) * STEP_MS
    rows["crc"] = _checksums(template, rows)
    return rows


def _checksums(template: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """CRC-32C of every row. A CRC is affine: what a byte adds to it depends on the byte and its place alone."""
    size = template.dtype.itemsize
    plain = bytearray(template.tobytes())
    base = google_crc32c.value(bytes(plain[_COVERED_AT:]))
    content = rows.view(np.uint8).reshape(len(rows), size)
    found = np.full(len(rows), base, dtype=np.uint32)
    for at in _changing(template.dtype):
        added = np.empty(256, dtype=np.uint32)
        kept = plain[at]
        for byte in range(256):
            plain[at] = byte
            added[byte] = google_crc32c.value(bytes(plain[_COVERED_AT:])) ^ base
        plain[at] = kept
        found ^= added[content[:, at]]
    return found


def _changing(kind: np.dtype[Any]) -> Iterator[int]:
    """The bytes under the CRC in which batches differ."""
    assert kind.fields is not None, "a batch has fields"
    for name in ("base_timestamp", "max_timestamp", "producer_id", "base_sequence"):
        field = kind.fields[name]
        yield from range(field[1], field[1] + field[0].itemsize)


def _template() -> npt.NDArray[Any]:
    """A batch of format 2 (KIP-98) of one producer in epoch 0; its CRC and what differs are zero."""
    records = b"".join(_record(delta) for delta in range(RECORDS))
    kind = np.dtype(
        [
            ("base_offset", ">i8"),
            ("length", ">i4"),
            ("leader_epoch", ">i4"),
            ("magic", "i1"),
            ("crc", ">u4"),
            ("attributes", ">i2"),
            ("last_offset_delta", ">i4"),
            ("base_timestamp", ">i8"),
            ("max_timestamp", ">i8"),
            ("producer_id", ">i8"),
            ("producer_epoch", ">i2"),
            ("base_sequence", ">i4"),
            ("record_count", ">i4"),
            ("records", f"V{len(records)}"),
        ]
    )
    batch = np.zeros(1, dtype=kind)
    batch["length"] = kind.itemsize - 12
    batch["magic"] = 2
    batch["last_offset_delta"] = RECORDS - 1
    batch["record_count"] = RECORDS
    batch["records"] = np.frombuffer(records, dtype=kind["records"])
    return batch


def _record(delta: int) -> bytes:
    """A record without key and headers. All its varints are of one byte: twice the number, and 1 for -1."""
    body = bytes([0, 0, 2 * delta, 1, 2 * RECORD_BYTES]) + b"x" * RECORD_BYTES + b"\0"
    assert len(body) < 64, f"a length of {len(body)} takes two bytes"
    return bytes([2 * len(body)]) + body
