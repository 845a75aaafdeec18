"""Data directories as members leave them, written by the product's own storage classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import format_directory, read_meta
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import AllocateProducerIdsRecord, LeaderChangeRecord, Record, encode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import LastBlock, StateImage

CLUSTER: Final = "cluster-a"
SEGMENT_BYTES: Final = 2048


def block(offset: int) -> AllocatedBlock:
    """The block that the record of this offset gives out."""
    return AllocatedBlock(offset * 10, offset * 10 + 9, 7, 3, offset, 1_700_000_000_000 + offset)


def blocks(start: int, end: int) -> list[AllocatedBlock]:
    """One block for each offset from `start` to before `end`."""
    return [block(offset) for offset in range(start, end)]


class MemberFiles:
    """One member's data directory under `path`."""

    def __init__(self, path: Path, node_id: int = 1, cluster: str = CLUSTER) -> None:
        self.path = path
        self.files = OsFiles()
        self.meta = format_directory(self.files, path, cluster, node_id)
        assert read_meta(self.files, path) == self.meta

    def archive(self, *ranges: tuple[int, int]) -> list[AllocatedBlock]:
        """Archive the blocks of ranges of offsets, one after the other; all blocks of them."""
        archive = AllocationArchive(self.files, self.path / "archive", self.meta.cluster_id)
        for start, end in ranges:
            archive.append(blocks(start, end), start, end)
        return [row for start, end in ranges for row in blocks(start, end)]

    def log(self, count: int, commit: int) -> list[Record]:
        """A closed log of several segments: a leader change and `count` - 1 allocations, committed up to `commit`."""
        records: list[Record] = [LeaderChangeRecord(1)]
        for offset in range(1, count):
            new = block(offset)
            records.append(AllocateProducerIdsRecord(7, 3, new.last, new.first, 10, new.timestamp_ms))
        log, _ = WriteAheadLog.open(self.files, self.path / "wal", self.meta, segment_bytes=SEGMENT_BYTES)
        log.append([], HardState(term=1, vote=1, commit=0))
        for index, record in enumerate(records, 1):
            log.append([Entry(1, index, encode_batch([record]))], None)
        log.append([], HardState(term=1, vote=1, commit=commit))
        log.close()
        return records

    def snapshot(self, index: int, next_offset: int, **state: Any) -> Path:
        """A snapshot that has the block of the last record before `next_offset`. `state`: more of its StateImage."""
        newest = block(next_offset - 1)
        last = LastBlock(newest.first, 10, 7, 3, newest.offset, newest.timestamp_ms)
        image = StateImage(
            **{"version": 1, **state},
            index=index,
            term=1,
            next_offset=next_offset,
            next_producer_id=newest.last + 1,
            last_block=last,
            brokers=[],
        )
        snapshot = SnapshotCatalog(self.files, self.path / "snapshots", self.meta.cluster_id).save(image)
        return self.path / "snapshots" / snapshot.name

    def found(self, folder: str) -> list[Path]:
        """The files in `wal`, `snapshots` or `archive`, oldest first."""
        return sorted((self.path / folder).iterdir())
