"""What a member's data directory holds after years, written at once by the product's own storage classes.

The member is the only voter of a quorum that was founded and then stopped: so it goes on from what is written here.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from bench.generate import BLOCK_IDS, BROKERS, FIRST_OFFSET, START_MS, STEP_MS, Workload, write_archive
from bench.grown_logs import logs_written
from pidkeeper.cli.local_cluster import READY_SECONDS, Controller, LocalCluster
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.controller.storage.directory import read_meta
from pidkeeper.controller.storage.founding import read_founding
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionRecord
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import BrokerRegistration, LastBlock
from pidkeeper.snapshots.snapshot_id import SnapshotId

WRITE_ENTRIES: Final = 1000
"""Entries in one write of the log: 100,000 of them are 100 syncs."""

POLL_SECONDS: Final = 0.02
TIMEOUT_MS: Final = 60_000
MAX_GROWN_PARTITIONS: Final = 1000
"""So that a log has some hundred rows where all have as many as there may be."""


def founded(cluster: LocalCluster) -> Path:
    """Start a cluster of one controller, stop it when its founding is in its log; the data directory.

    Raises CommandError, TimeoutError.
    """
    (member,) = cluster.layout.controllers
    try:
        cluster.start(member)
        cluster.wait_ready(member)
        wait_newest_version(cluster, member)
    finally:
        cluster.stop()
    return Path(member.data_dir)


def wait_newest_version(cluster: LocalCluster, member: Controller) -> None:
    """Wait until the quorum has the newest metadata version, as a member says. Raises TimeoutError."""
    deadline = time.monotonic() + READY_SECONDS
    while json.loads(cluster.get(member, "/v1/quorum")[1])["metadata_version"] < LATEST:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no metadata version {LATEST} after {READY_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


class GrownDirectory:
    """The data directory at `path` of a member that does not run. Use as a context manager.

    Raises DirectoryError, LogCorruption, SnapshotError for a directory that is none.
    """

    def __init__(self, path: Path) -> None:
        files = OsFiles()
        meta = read_meta(files, path)
        self._path = path
        self._catalog = SnapshotCatalog(files, path / "snapshots", meta.cluster_id)
        self._machine = StateMachine(meta.cluster_id)
        self._wal, log = WriteAheadLog.open(files, path / "wal", meta)
        newest = self._catalog.newest()
        if newest is not None:
            self._machine.restore(newest[1])
        covered = 0 if newest is None else newest[0].index
        for entry in log.entries:
            if entry.index > covered:
                self._machine.replay(decode_batch(entry.data))
        self._term = self._wal.hard_state.term

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wal.close()

    def add_history(self, blocks: int) -> None:
        """`blocks` allocations in the archive, and a snapshot behind them with 200 fenced brokers."""
        write_archive(self._path, Workload(blocks, 0, members=1), 0, blocks)
        newest = blocks - 1
        broker = newest % BROKERS
        last = LastBlock(
            newest * BLOCK_IDS, BLOCK_IDS, broker, broker, FIRST_OFFSET + newest, START_MS + newest * STEP_MS
        )
        self._restart(
            blocks,
            next_offset=FIRST_OFFSET + blocks,
            next_producer_id=blocks * BLOCK_IDS,
            last_block=last,
            brokers=[_registration(number) for number in range(BROKERS)],
            own_ids=(),
        )

    def add_transactional_ids(self, count: int) -> None:
        """A snapshot with `count` idle transactional ids."""
        given = -(-count // BLOCK_IDS) * BLOCK_IDS
        self._restart(
            count,
            next_offset=self._machine.next_offset + 2 * count,
            next_producer_id=self._machine.producer_ids.next_producer_id + given,
            transactions=[_transaction(number) for number in range(count)],
            own_ids=(),
        )

    def add_partition_logs(self, producers: int, rows_each: int) -> None:
        """A snapshot with a topic to which each of `producers` wrote `rows_each` batches."""
        machine, partitions = self._machine, max(1, min(MAX_GROWN_PARTITIONS, producers))
        entries = 0
        if machine.foundings.founding_id is None:
            # The leader's hearing had not ended when the member was stopped, and objects are named after its outcome.
            founding = read_founding(OsFiles(), self._path)
            assert founding is not None and founding.founding_id is not None, f"{self._path} is of no founded quorum"
            machine.replay([FoundingRecord(founding.founding_id, machine.block_size, False, START_MS)])
            entries += 1
        next_id = machine.producer_ids.next_producer_id
        for records in logs_written(machine.next_offset, next_id, producers, partitions, rows_each):
            machine.replay(records)
            entries += 1
        self._restart(entries)

    def add_log(self, entries: int) -> None:
        """`entries` in the log behind what is there: a registration, then blocks for this broker, one in each."""
        records = self._allocations(entries)
        index = self._wal.next_index
        for start in range(0, entries, WRITE_ENTRIES):
            part = itertools.islice(records, min(WRITE_ENTRIES, entries - start))
            self._wal.append(
                [Entry(self._term, index + start + at, encode_batch([record])) for at, record in enumerate(part)], None
            )
        self._wal.append([], msgspec.structs.replace(self._wal.hard_state, commit=self._wal.next_index - 1))

    def _allocations(self, count: int) -> Iterator[Record]:
        machine = self._machine
        epoch, start, own = machine.next_offset, machine.producer_ids.next_producer_id, machine.block_size
        if count:
            yield RegisterBrokerRecord(1, epoch, str(uuid.UUID(int=1)))
        for first in range(start, start + (count - 1) * own, own):
            yield AllocateProducerIdsRecord(1, epoch, first + own - 1, first, own, START_MS)

    def _restart(self, entries: int, **state: Any) -> None:
        """Go on behind a snapshot of what is there and `state`, as if `entries` more had led to it."""
        index = self._wal.next_index - 1 + entries
        image = msgspec.structs.replace(self._machine.image(index, self._term), **state)
        self._catalog.save(image)
        self._wal.restart_at(SnapshotId(index, self._term), msgspec.structs.replace(self._wal.hard_state, commit=index))


def _registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, broker_id, str(uuid.UUID(int=broker_id)), fenced=True, superseded=())


def _transaction(number: int) -> TransactionRecord:
    pair = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    name = f"orders-service-{number:08d}"
    return TransactionRecord(name, number, 0, *pair, TIMEOUT_MS, TransactionStatus.EMPTY, START_MS)
