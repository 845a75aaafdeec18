"""Members with partition logs, and the store with their objects, as the product's own parts write them: all is well.

What the brokers ask is decided by the state machine, one decision an entry, and replayed by it. Brokers 1 and 2 have a
block each; each writes with a client of its own, and a transactional client writes through broker 1.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from pidkeeper.broker_agent.data.store.identity import NAME
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine, allocations
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import BrokerStoreRecord, ObjectId
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    LeaderChangeRecord,
    Record,
    RegisterBrokerRecord,
    encode_batch,
)
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage
from tests.support import log_state
from tests.support.log_state import FOUNDING, STORE, end, init, join, topic
from tests.support.member_files import MemberFiles
from tests.support.raft_network import members
from tests.support.segment_builder import batch as built

IDS: Final = 10
START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1_000
ORDERS, PAYMENTS, GONE = 0, 2, 3
"""The first log of each topic: two partitions, one, and one that is deleted."""

Batch = tuple[int, bytes]
"""The log, and a batch as its client built it."""


class SoundLogs:
    """A history as entries, its objects by name, and `images`: the states that members save.

    `uncommitted`: so many entries at the end that no member knows to be committed.
    """

    def __init__(self) -> None:
        self.machine = StateMachine("cluster-a", IDS)
        self.entries: list[list[Record]] = []
        self.objects: dict[str, bytes] = {}
        self.images: list[StateImage] = []
        self.uncommitted = 0
        self._numbers = itertools.count(1)
        self._now = itertools.count(START_MS, STEP_MS)
        self.replay(LeaderChangeRecord(1))
        self.replay(FeatureLevelRecord(LATEST))
        self.replay(FoundingRecord(FOUNDING, IDS, False, START_MS))
        self.epochs: dict[int, int] = {}
        for broker_id in (1, 2):
            self.epochs[broker_id] = self.machine.next_offset
            self.replay(
                RegisterBrokerRecord(broker_id, self.epochs[broker_id], f"incarnation-{broker_id}"),
                BrokerStoreRecord(broker_id, self.epochs[broker_id], STORE),
            )

    def replay(self, *records: Record) -> None:
        """One more entry."""
        self.machine.replay(records)
        self.entries.append(list(records))

    def ask(self, request: requests.Request) -> Any:
        """Decided, and one more entry; the answer."""
        draft = Draft(self.machine, next(self._now))
        (answer,) = log_state.decided(draft, [request])
        if draft.records:
            self.replay(*draft.records)
        return answer

    def commit(self, broker_id: int, *batches: Batch) -> str:
        """An object of these batches one behind another is put and committed, and all of them join; its name."""
        name = ObjectId(broker_id, self.epochs[broker_id], next(self._numbers))
        offered, position = [], 0
        for log, data in batches:
            offered.append(_offered(log, data, position))
            position += len(data)
        answer = self.ask(requests.CommitObject(name, FOUNDING, position, tuple(offered)))
        assert min(answer.outcomes) >= 0, answer
        self.objects[name.path(FOUNDING)] = b"".join(data for _, data in batches)
        return name.path(FOUNDING)

    def snapshot(self) -> None:
        """Members save the state behind the newest entry."""
        captured = self.machine.capture(len(self.entries), 1)
        self.images.append(msgspec.structs.replace(captured.image(), voters=members(1, 2, 3)))

    def blocks(self) -> list[AllocatedBlock]:
        """All that were allocated."""
        found, offset = [], 0
        for records in self.entries:
            for at, record in allocations(records, offset):
                first, last = record.producer_id_start, record.producer_id_end
                found.append(
                    AllocatedBlock(first, last, record.broker_id, record.broker_epoch, at, record.timestamp_ms)
                )
            offset += len(records)
        return found


def _offered(log: int, data: bytes, position: int) -> OfferedBatch:
    attributes, _, _, latest, producer_id, epoch, sequence, count = struct.unpack_from(">hiqqqhii", data, 21)
    transactional = bool(attributes & 0x10)
    return OfferedBatch(log, count, position, len(data), producer_id, epoch, sequence, latest, transactional)


def history() -> SoundLogs:
    """The history that tests spoil; a snapshot is taken in its middle, and another one near its end."""
    made = SoundLogs()
    for broker_id in (1, 2):
        made.ask(requests.AllocateProducerIds(broker_id, made.epochs[broker_id]))
    for name, partitions in (("orders", 2), ("payments", 1), ("gone", 1)):
        made.ask(topic(name, partitions))
    one, two = (0, 0), (IDS, 0)
    made.commit(1, (ORDERS, data(one, 0, 3)), (ORDERS + 1, data(one, 0, 1)), (PAYMENTS, data(two, 0, 2)))
    made.commit(2, (ORDERS, data(one, 3, 2)), (GONE, data(two, 0, 1)))
    pair = made.ask(init("app")).producer_id, 0
    made.ask(join("app", pair, "orders", 0))
    made.ask(join("app", pair, "payments", 0))
    made.commit(1, (ORDERS, data(pair, 0, 2, True)), (PAYMENTS, data(pair, 0, 1, True)))
    made.ask(end("app", pair))
    made.snapshot()
    made.commit(2, (ORDERS + 1, data(one, 1, 4)), (PAYMENTS, data((-1, -1), -1, 2)))
    made.ask(join("app", pair, "orders", 1))
    made.commit(1, (ORDERS + 1, data(pair, 0, 3, True)), (ORDERS, data(one, 5, 1)))
    made.ask(end("app", pair, committed=False))
    made.ask(log_state.drop("gone"))
    made.snapshot()
    made.commit(2, (ORDERS, data(one, 6, 2)), (PAYMENTS, data(two, 2, 2)))
    return made


def data(pair: tuple[int, int], sequence: int, records: int, transactional: bool = False) -> bytes:
    """A batch of `records` records of a producer and epoch."""
    return built(0, [b"value"] * records, producer=(*pair, sequence), transactional=transactional)


def write(
    directory: Path, made: SoundLogs, spoil: Callable[[SoundLogs, int], SoundLogs] = lambda made, _: made
) -> list[MemberFiles]:
    """The members' data in `data/1` to `data/3`, each of what `spoil` makes of the history for it, and the `store`."""
    write_store(directory / "store", made.objects)
    return [write_member(directory / "data" / str(node), node, spoil(made, node)) for node in (1, 2, 3)]


def write_store(directory: Path, objects: dict[str, bytes]) -> None:
    """By the store that agents use."""

    async def put() -> None:
        store = open_store(str(directory), {})
        await store.create(NAME, msgspec.json.encode({"store_id": STORE, "format": 1}))
        for name, content in objects.items():
            await store.put(name, [content])
        await store.close()

    asyncio.run(put())


def write_member(path: Path, node: int, made: SoundLogs) -> MemberFiles:
    """Archive, snapshots and log; the log begins a little before the first snapshot."""
    member = MemberFiles(path, node)
    catalog = SnapshotCatalog(member.files, path / "snapshots", member.meta.cluster_id)
    for image in made.images:
        catalog.save(image)
    archived = made.images[-1].next_offset
    archive = AllocationArchive(member.files, path / "archive", member.meta.cluster_id)
    archive.append([one for one in made.blocks() if one.offset < archived], 0, archived)
    log, _ = WriteAheadLog.open(OsFiles(), path / "wal", member.meta, segment_bytes=2048)
    log.append([], HardState(term=1, vote=1, commit=0))
    for index, records in enumerate(made.entries, 1):
        log.append([Entry(1, index, encode_batch(records))], None)
    log.append([], HardState(term=1, vote=1, commit=len(made.entries) - made.uncommitted))
    log.compact(made.images[0].index - 1)
    log.close()
    return member
