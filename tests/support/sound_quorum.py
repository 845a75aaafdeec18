"""The files of a quorum that worked as it should, written by the product's own storage: nothing to find in them.

Records by log offset: 0 the leader, 1 and 2 the registrations of brokers 7 and 8, then a block of ten IDs each, to the
two in turn, two seconds apart. An entry holds one record, so its index is the offset plus one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.metadata_version import FOUNDING
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    LeaderChangeRecord,
    Record,
    RegisterBrokerRecord,
    encode_batch,
)
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import BrokerRegistration, LastBlock, StateImage
from tests.support.member_files import MemberFiles
from tests.support.raft_network import members

START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 2_000
IDS: Final = 10
FIRST_BLOCK: Final = 3
ARCHIVED: Final = (0, 40, 60)
"""Bounds of the archive files; the log begins at LOG_FROM, so that both have some offsets."""
LOG_FROM: Final = 50
END: Final = 90
SEGMENT_BYTES: Final = 2048


def block(offset: int) -> AllocatedBlock:
    """What the record at an offset gave out, and to whom."""
    first = (offset - FIRST_BLOCK) * IDS
    broker = 7 + offset % 2
    return AllocatedBlock(first, first + IDS - 1, broker, broker - 6, offset, START_MS + offset * STEP_MS)


def blocks(start: int, end: int) -> list[AllocatedBlock]:
    """Those of the offsets from `start` to before `end`."""
    return [block(offset) for offset in range(max(start, FIRST_BLOCK), end)]


def records() -> list[Record]:
    """All of them, in order."""
    told: list[Record] = [LeaderChangeRecord(1), *(RegisterBrokerRecord(broker, broker - 6, "i") for broker in (7, 8))]
    return told + [
        AllocateProducerIdsRecord(one.broker_id, one.broker_epoch, one.last, one.first, IDS, one.timestamp_ms)
        for one in blocks(0, END)
    ]


def write_quorum(directory: Path, nodes: Sequence[int] = (1, 2, 3)) -> list[MemberFiles]:
    """A data directory for each member, by node id."""
    return [write_member(directory / str(node), node) for node in nodes]


def write_member(
    path: Path, node: int, cluster: str = "cluster-a", founding: FoundingRecord | None = None
) -> MemberFiles:
    """Archive, snapshot and log of one."""
    member = MemberFiles(path, node, cluster)
    archive = AllocationArchive(member.files, path / "archive", cluster)
    for start, end in pairwise(ARCHIVED):
        archive.append(blocks(start, end), start, end)
    snapshot(member, ARCHIVED[-1], founding=founding)
    write_log(member, records())
    return member


def snapshot(member: MemberFiles, next_offset: int, **changed: object) -> Path:
    """What a member that applied all before `next_offset` saves."""
    newest = block(next_offset - 1)
    state = {
        "version": FOUNDING,
        "index": next_offset,
        "term": 1,
        "next_offset": next_offset,
        "next_producer_id": newest.last + 1,
        "last_block": LastBlock(
            newest.first, IDS, newest.broker_id, newest.broker_epoch, newest.offset, newest.timestamp_ms
        ),
        "brokers": [BrokerRegistration(broker, broker - 6, "i", False, ()) for broker in (7, 8)],
        "voters": members(1, 2, 3),
    }
    catalog = SnapshotCatalog(member.files, member.path / "snapshots", member.meta.cluster_id)
    saved = catalog.save(StateImage(**{**state, **changed}))  # type: ignore[arg-type]
    return member.path / "snapshots" / saved.name


def write_log(member: MemberFiles, told: Sequence[Record], commit: int = END) -> None:
    """A log of several segments, without those before LOG_FROM."""
    log, _ = WriteAheadLog.open(OsFiles(), member.path / "wal", member.meta, segment_bytes=SEGMENT_BYTES)
    log.append([], HardState(term=1, vote=1, commit=0))
    for index, record in enumerate(told, 1):
        log.append([Entry(1, index, encode_batch([record]))], None)
    log.append([], HardState(term=1, vote=1, commit=commit))
    log.compact(LOG_FROM + 1)
    log.close()
