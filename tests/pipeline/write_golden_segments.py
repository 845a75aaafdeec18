"""Writes tests/pipeline/golden: `python -m tests.pipeline.write_golden_segments`.

One topic a case, so that the folder can be read as the log directory of a broker. What is expected next to a segment is
taken from what it was built of, never from the reader.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final

from tests.support.segment_builder import START_MS, batch, marker, old_message

GOLDEN: Final = Path(__file__).with_name("golden")
SEGMENT: Final = "00000000000000000100"
"""The name of every segment: its base offset is 100."""
ALICE, BOB = 4000, 5000
"""Two producer ids."""


class Case:
    """A segment as it grows, with what a reader must say of it."""

    def __init__(self) -> None:
        self.data = b""
        self.batches: list[dict[str, Any]] = []
        self.problems: list[list[Any]] = []

    def good(self, base_offset: int, *, records: int = 1, **settings: Any) -> Case:
        """Append a batch, which the reader must find."""
        settings.setdefault("values", [f"value {number}".encode() for number in range(records)])
        encoded = batch(base_offset, **settings)
        return self._found(encoded, base_offset, records, settings)

    def marker(self, base_offset: int, producer: tuple[int, int], *, commit: bool, coordinator_epoch: int) -> Case:
        """Append the marker of a transaction."""
        encoded = marker(base_offset, producer, commit=commit, coordinator_epoch=coordinator_epoch)
        settings = {"producer": (*producer, -1), "transactional": True, "control": True}
        self._found(encoded, base_offset, 1, settings)
        self.batches[-1].update(marker_type=int(commit), coordinator_epoch=coordinator_epoch)
        return self

    def _found(self, encoded: bytes, base_offset: int, records: int, settings: dict[str, Any]) -> Case:
        producer_id, epoch, sequence = settings.get("producer", (-1, -1, -1))
        timestamp = settings.get("base_timestamp", START_MS)
        flags = ("log_append_time", "transactional", "control", "delete_horizon")
        attributes = sum(settings.get(name, False) << bit for bit, name in enumerate(flags, 3))
        self.batches.append(
            {
                "position": len(self.data),
                "base_offset": base_offset,
                "batch_length": len(encoded) - 12,
                "partition_leader_epoch": settings.get("leader_epoch", 0),
                "magic": 2,
                "crc": struct.unpack_from(">I", encoded, 17)[0],
                "attributes": attributes | settings.get("compression", 0),
                "last_offset_delta": settings.get("last_offset_delta", records - 1),
                "base_timestamp": timestamp,
                "max_timestamp": settings.get("max_timestamp", timestamp),
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "record_count": settings.get("record_count", records),
                "marker_type": None,
                "coordinator_epoch": None,
            }
        )
        self.data += encoded
        return self

    def bad(self, kind: str | None, data: bytes) -> Case:
        """Append bytes that are no good batch; None if the problem was named before."""
        if kind is not None:
            self.problems.append([kind, len(self.data)])
        self.data += data
        return self


def damaged(data: bytes, at: int) -> bytes:
    """The same with one bit of byte `at` flipped."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def cases() -> dict[str, Case]:
    """Topic name -> segment."""
    torn = batch(101, producer=(ALICE, 0, 1))
    return {
        "plain": Case()
        .good(100, records=3, max_timestamp=START_MS + 5)
        .good(103, leader_epoch=2, log_append_time=True),
        "compressed": _compressed(),
        "transactional": Case()
        .good(100, records=2, producer=(ALICE, 0, 0), transactional=True)
        .good(102, records=1, producer=(BOB, 7, 40), transactional=True)
        .marker(103, (ALICE, 0), commit=True, coordinator_epoch=3)
        .marker(104, (BOB, 8), commit=False, coordinator_epoch=4),
        "wrapped": Case()
        .good(100, records=10, producer=(ALICE, 0, 2147483643))
        .good(110, records=1, producer=(ALICE, 0, 5))
        .good(111, records=1, producer=(BOB, 0, 2147483647))
        .good(112, records=1, producer=(BOB, 0, 0)),
        "compacted": Case()
        .good(100, records=1, last_offset_delta=9, record_count=1, producer=(ALICE, 0, 0))
        .good(150, records=0, values=[], last_offset_delta=4, producer=(ALICE, 0, 50), delete_horizon=True)
        .good(200, records=2, producer=(ALICE, 0, 100), base_timestamp=START_MS + 60_000),
        "torn": Case().good(100, producer=(ALICE, 0, 0)).bad("torn", torn[:-1]),
        "bad-crc": Case().good(100).bad("bad_crc", damaged(batch(101), 65)).good(102),
        "lost-boundary": Case().good(100).bad("lost_boundary", damaged(batch(101), 9)).good(102),
        "zero-tail": Case().good(100).bad("zero_tail", bytes(500)),
        "old-magic": Case().bad("old_magic", old_message(0, 100) + old_message(1, 101)).good(102),
        "offset-order": Case().good(105).bad("offset_order", b"").good(101),
        "empty": Case().bad("empty", b""),
        "foreign": Case().bad("foreign", b"[2024-01-01 00:00:00,000] INFO no segment, but the log of a program\n" * 8),
    }


def _compressed() -> Case:
    case = Case()
    for compression in range(1, 5):
        payload = b"not looked at, so not compressed in truth"
        case.good(96 + 4 * compression, records=4, compression=compression, payload=payload, record_count=4)
    return case


def expectation(case: Case) -> str:
    """What lies next to a segment: good batches field by field, problems as kind and byte."""
    return json.dumps({"batches": case.batches, "problems": case.problems}, indent=1) + "\n"


def main() -> None:
    """Write every segment and its expectation."""
    for topic, case in cases().items():
        directory = GOLDEN / f"{topic}-0"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{SEGMENT}.log").write_bytes(case.data)
        (directory / f"{SEGMENT}.json").write_text(expectation(case))


if __name__ == "__main__":
    main()
