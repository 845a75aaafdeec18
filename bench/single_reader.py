"""`python -m bench.single_reader QUORUM KAFKA`: one Python process with numpy that asks the audit's main questions.

Every checksum is verified. Of the blocks: none overlaps another, IDs ascend with the log, the members agree. Of the
batches: each has an ID from a block, and follows its producer's last one in the partition. It holds all columns in
memory, knows no damaged file, replica, retention, transaction, epoch, and writes no table and no report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from pidkeeper.pipeline.formats.archive_rows import ROW_TYPE
from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.snapshots.archive_format import split_archive

SEQUENCES: Final = 1 << 31
COLUMNS: Final = ("producer_id", "base_sequence", "last_offset_delta")

Array = npt.NDArray[Any]


class Found(msgspec.Struct):
    """What was read, and how often each rule was broken."""

    blocks: int = 0
    batches: int = 0
    overlaps: int = 0
    regressions: int = 0
    disagreements: int = 0
    unallocated: int = 0
    out_of_sequence: int = 0


def main(quorum: str, kafka: str) -> None:
    """Print a Found as JSON."""
    found = Found()
    blocks = _blocks(Path(quorum), found)
    for folder in sorted(path for path in Path(kafka).iterdir() if path.is_dir()):
        _partition(folder, blocks, found)
    print(msgspec.json.encode(found).decode())


def _blocks(quorum: Path, found: Found) -> Array:
    copies = [_archive(data) for data in sorted(quorum.iterdir())]
    blocks = copies[0]
    found.blocks = len(blocks)
    found.disagreements = sum(not np.array_equal(blocks, copy) for copy in copies[1:])
    by_offset = blocks[np.argsort(blocks["offset"], kind="stable")]
    found.regressions = int(np.count_nonzero(np.diff(by_offset["first_id"].astype(np.int64)) < 0))
    blocks = blocks[np.argsort(blocks["first_id"], kind="stable")]
    reach = np.maximum.accumulate(blocks["last_id"].astype(np.int64))
    found.overlaps = int(np.count_nonzero(blocks["first_id"][1:] <= reach[:-1]))
    return blocks


def _archive(data: Path) -> Array:
    files = sorted((data / "archive").glob("*.arc"))
    return np.concatenate([np.frombuffer(split_archive(file.read_bytes())[1], dtype=ROW_TYPE) for file in files])


def _partition(folder: Path, blocks: Array, found: Found) -> None:
    pieces: dict[str, list[Array]] = {name: [] for name in COLUMNS}
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            for chunk in SegmentReader(file, path.stat().st_size, base_offset=int(path.stem)).chunks():
                for name, arrays in pieces.items():
                    arrays.append(np.asarray(chunk.column(name), dtype=np.int64))
    producer, sequence, delta = (np.concatenate(pieces[name]) for name in COLUMNS)
    found.batches += len(producer)
    place = np.searchsorted(blocks["first_id"].astype(np.int64), producer, side="right") - 1
    outside = (place < 0) | (blocks["last_id"][np.maximum(place, 0)] < producer)
    found.unallocated += int(np.count_nonzero(outside))
    order = np.argsort(producer, kind="stable")
    same = producer[order][1:] == producer[order][:-1]
    expected = (sequence + delta + 1)[order][:-1] % SEQUENCES
    found.out_of_sequence += int(np.count_nonzero(same & (sequence[order][1:] != expected)))


if __name__ == "__main__":
    main(*sys.argv[1:])
