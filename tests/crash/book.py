"""Entries with real records in them, and who was given what by them: the truth that a quorum agrees on in a history."""

from __future__ import annotations

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state.machine import StateMachine, allocations
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.crash.facts import BLOCK_SIZE, CLUSTER_ID

BROKER = 1


class Book:
    """`committed`: by index; `blocks`: the committed ones, by timestamp; `labels`: those in an entry's data."""

    def __init__(self) -> None:
        self.committed: dict[int, Entry] = {}
        self.images: dict[SnapshotId, StateImage] = {}
        self.blocks: dict[int, AllocatedBlock] = {}
        self.offsets: dict[int, int] = {}
        self.labels: dict[bytes, list[int]] = {b"": []}
        self._next: dict[bytes, tuple[int, int]] = {b"": (0, 0)}
        self._clock = 0
        self._machine = StateMachine(CLUSTER_ID, BLOCK_SIZE)

    def propose(self, previous: bytes, index: int, term: int, count: int) -> Entry:
        """The entry after the one with the data `previous`: the committed one, or a new one of `count` allocations."""
        if index in self.committed:
            return self.committed[index]
        offset, first = self._next[previous]
        records: list[Record] = []
        labels = []
        if offset == 0:
            records.append(RegisterBrokerRecord(BROKER, 0, f"made at {self._tick()}"))
        for _ in range(count):
            labels.append(self._tick())
            last = first + BLOCK_SIZE - 1
            records.append(AllocateProducerIdsRecord(BROKER, 0, last, first, BLOCK_SIZE, labels[-1]))
            first = last + 1
        data = encode_batch(records)
        self.labels[data] = labels
        self._next[data] = (offset + len(records), first)
        return Entry(term, index, data)

    def commit(self, entry: Entry) -> None:
        """The quorum agrees on `entry`, the one after the last that was committed."""
        if entry.index in self.committed:
            assert self.committed[entry.index] == entry, f"{entry} was committed as {self.committed[entry.index]}"
            return
        assert entry.index == len(self.committed) + 1, f"{entry} after {len(self.committed)} committed ones"
        records = decode_batch(entry.data)
        for offset, record in allocations(records, self._machine.next_offset):
            self.offsets[record.timestamp_ms] = offset
            self.blocks[record.timestamp_ms] = AllocatedBlock(
                first=record.producer_id_start,
                last=record.producer_id_end,
                broker_id=record.broker_id,
                broker_epoch=record.broker_epoch,
                offset=offset,
                timestamp_ms=record.timestamp_ms,
            )
        self._machine.replay(records)
        self.committed[entry.index] = entry
        self.images[SnapshotId(entry.index, entry.term)] = self._machine.image(entry.index, entry.term)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
