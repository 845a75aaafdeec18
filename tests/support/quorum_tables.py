"""The tables of a quorum that worked as it should, built record by record, to be spoilt and judged."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from pidkeeper.pipeline.quorum.evidence import ALLOCATIONS

Row = dict[str, Any]
START_MS = 1_700_000_000_000
STEP_MS = 60_000
BLOCK_COLUMNS = ("first_id", "last_id", "offset", "broker_id", "broker_epoch", "timestamp_ms")


class History:
    """Committed records from offset 0 on, one entry each, so that the index of a record is its offset plus one."""

    def __init__(self, *brokers: int) -> None:
        self.records: list[Row] = []
        self.next_id = 0
        self.epochs: dict[int, int] = {}
        self.term = 1
        self.elect()
        for broker in brokers:
            self.register(broker)

    def add(self, record_type: str, **columns: Any) -> int:
        offset = len(self.records)
        place = {"index": offset + 1, "term": self.term, "offset": offset, "record_number": 0, "committed": True}
        self.records.append(place | {"record_type": record_type} | columns)
        return offset

    def now(self) -> int:
        return START_MS + STEP_MS * len(self.records)

    def elect(self) -> None:
        self.add("LeaderChangeRecord", leader_id=1 + self.term % 3)

    def register(self, broker: int) -> int:
        self.epochs[broker] = len(self.records)
        return self.add("RegisterBrokerRecord", broker_id=broker, broker_epoch=len(self.records), incarnation_id="i")

    def allocate(self, broker: int, length: int = 10, **columns: Any) -> int:
        first, self.next_id = self.next_id, self.next_id + length
        block = {"broker_id": broker, "broker_epoch": self.epochs[broker], "timestamp_ms": self.now()}
        block |= {"first_id": first, "last_id": first + length - 1}
        return self.add("AllocateProducerIdsRecord", **(block | columns))

    def take_own(self, length: int = 10, **columns: Any) -> int:
        """The quorum takes a block for its transactional producers."""
        first, self.next_id = self.next_id, self.next_id + length
        block = {"broker_id": -1, "broker_epoch": -1, "first_id": first, "last_id": self.next_id - 1}
        return self.add("TransactionalBlockRecord", timestamp_ms=self.now(), **(block | columns))

    def jump(self, next_id: int, zookeeper: bool = False) -> int:
        assert next_id > self.next_id
        self.next_id = next_id
        columns: Row = {"next_producer_id": next_id, "timestamp_ms": self.now()}
        if zookeeper:
            return self.add("ZooKeeperBlockRecord", broker_id=-1, znode_version=4, **columns)
        return self.add("ProducerIdFloorRecord", **columns)


class QuorumTables:
    """Rows of every table, with names of members and files; `quorum_evidence` makes evidence of them."""

    def __init__(self) -> None:
        self.blocks: list[Row] = []
        self.files: list[Row] = []
        self.snapshots: list[Row] = []
        self.log: list[Row] = []

    def add_member(
        self, history: History, member: str, archived: Iterable[tuple[int, int]], log: tuple[int, int] | None = None
    ) -> None:
        """A member with archive files of these offsets, a snapshot at the end of the last, and a log of these."""
        for start, end in archived:
            self.add_archive(history, member, start, end)
            last = end
        if archived:
            self.snapshots.append(snapshot(history, member, last))
        for record in history.records[slice(*log)] if log else []:
            place = {"member": member, "cluster_id": "c", "file": f"{member}/wal/0.wal", "segment": "0.wal"}
            self.log.append(place | {"position": 4096 + 64 * record["offset"]} | record)

    def add_archive(self, history: History, member: str, start: int, end: int) -> None:
        file = {"member": member, "cluster_id": "c", "file": f"{member}/archive/{start}-{end}.arc"}
        records = [one for one in history.records[start:end] if one["record_type"] in ALLOCATIONS]
        for number, record in enumerate(records):
            self.blocks.append(file | {"position": 128 + 48 * number} | {name: record[name] for name in BLOCK_COLUMNS})
        ids = {"first_id": records[0]["first_id"], "last_id": records[-1]["last_id"]} if records else {}
        covers = {"from_offset": start, "to_offset": end, "rows": len(records), "superseded": False}
        self.files.append(file | {"bytes": 128 + 48 * len(records)} | covers | ids)

    def copies(self, offset: int, member: str | None = None) -> list[Row]:
        """The copies of the block of an offset, in archives and logs, of all members or of one."""
        rows = [*self.blocks, *(one for one in self.log if one["record_type"] in ALLOCATIONS)]
        return [one for one in rows if one["offset"] == offset and member in {None, one["member"]}]

    def change(self, offset: int, member: str | None = None, **columns: Any) -> None:
        """Spoil the block of an offset in all of its copies, or in those of one member."""
        found = self.copies(offset, member)
        assert found, f"no copy of a block at offset {offset}"
        for row in found:
            row.update(columns)


def snapshot(history: History, member: str, next_offset: int) -> Row:
    """What a member that applied everything before this offset saves."""
    before = history.records[:next_offset]
    blocks = [one for one in before if "last_id" in one]
    jumps = [one["next_producer_id"] for one in before if "next_producer_id" in one]
    next_id = max([*jumps, *(one["last_id"] + 1 for one in blocks)], default=0)
    last = {f"last_{name}": blocks[-1][name] for name in BLOCK_COLUMNS} if blocks else {}
    file = {"member": member, "cluster_id": "c", "file": f"{member}/snapshots/{next_offset}.snap", "bytes": 300}
    state = {"index": next_offset, "term": before[-1]["term"], "metadata_version": 4, "next_offset": next_offset}
    return file | state | {"next_producer_id": next_id, "brokers": 2, "transactions": 0} | last


def three_members(history: History) -> QuorumTables:
    """Members 1 and 2 hold everything; 3 was down, went on behind a received snapshot, and is a little behind."""
    end = len(history.records)
    third = end // 3
    tables = QuorumTables()
    tables.add_member(history, "1", [(0, third), (third, 2 * third)], (third, end))
    tables.add_member(history, "2", [(0, 2 * third)], (2 * third - 2, end))
    tables.add_member(history, "3", [(0, third // 2), (third, 2 * third)], (2 * third - 1, end - 1))
    return copy.deepcopy(tables)
