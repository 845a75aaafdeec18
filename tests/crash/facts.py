"""What a member finds on its disk after a crash, through the recovery that it really starts with."""

from __future__ import annotations

import random
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from pidkeeper.controller.node.assembly import make_core, raft_config
from pidkeeper.controller.node.opening import OpenedStorage, open_storage
from pidkeeper.controller.node.settings import PROFILES, MemberSettings, Voter
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.owner_archive import SUFFIX, OwnerArchive
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import Files
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import Owner, OwnerError, decode_owners
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.crash.disk import CrashDisk, Image

CLUSTER_ID: Final = "crash"
DATA: Final = PurePath("/data")
SEGMENT_BYTES: Final = 1024
BLOCK_SIZE: Final = 10
_ADDRESS: Final = HostPort("127.0.0.1", 1)


def settings(data_dir: PurePath) -> MemberSettings:
    """Of a member alone, with segments that a few appends fill."""
    return MemberSettings(
        node_id=1,
        cluster_id=CLUSTER_ID,
        data_dir=str(data_dir),
        voters=(Voter(1, _ADDRESS, "http://127.0.0.1:1"),),
        peer_listen=_ADDRESS,
        timing=PROFILES["lan"],
        block_size=BLOCK_SIZE,
        broker_session_timeout_ms=60_000,
        snapshot_entries=1,
        snapshot_allocations=1,
        segment_bytes=SEGMENT_BYTES,
        peer_keys=(None,),
    )


class Facts(NamedTuple):
    """What was found. `image`: the restored state; `labels`: the timestamps in the rows of both archives, each unique.

    `covered_to` is the end of the allocation archive, `owners_to` that of the owners'.
    """

    hard_state: HardState
    entries: list[Entry]
    next_index: int
    snapshot: SnapshotId
    image: StateImage
    covered_to: int
    owners_to: int
    labels: frozenset[int]
    truncated: bool


class Broken(Exception):  # noqa: N818 - a finding about the storage under test
    """A promise was broken."""


class Recoverer:
    """Opens disks and reads everything back. `blocks` and `owners` say what each archived row must be, by its
    timestamp."""

    def __init__(self, data_dir: PurePath, blocks: dict[int, AllocatedBlock], owners: dict[int, Owner]) -> None:
        self._settings = settings(data_dir)
        self._blocks = blocks
        self._owners = owners
        self._archives: dict[int, frozenset[int]] = {}

    def open(self, disk: Files) -> tuple[OpenedStorage, Facts]:
        """The opened storage and what it holds. Raises Broken if the member cannot start, or found damage."""
        try:
            storage = self.start(disk)
        except Exception as error:
            raise Broken(f"the member cannot start: {type(error).__name__}: {error}") from error
        if storage.catalog.damaged:
            raise Broken(f"a snapshot is damaged: {storage.catalog.damaged}")
        return storage, self.read(disk, storage)

    def start(self, disk: Files) -> OpenedStorage:
        """As a member starts, its core included; raises what that raises."""
        storage = open_storage(disk, self._settings)
        make_core(self._settings, storage, raft_config(self._settings, storage), random.SystemRandom())
        return storage

    def recover(self, image: Image, directories: set[PurePath]) -> Facts:
        """What is found on this disk, whose log then takes an append and opens again with all of it.

        Raises Broken.
        """
        disk = CrashDisk.of(image, directories)
        storage, found = self.open(disk)
        added, hard_state = go_on(storage.wal)
        _, again = self.open(CrashDisk.of(disk.lost(), directories))
        expected = found._replace(
            hard_state=hard_state,
            entries=[*found.entries, added],
            next_index=found.next_index + 1,
            truncated=False,
        )
        if again != expected:
            raise Broken(f"after an append and another power cut {again} was found, not {expected}")
        return found

    def read(self, disk: Files, storage: OpenedStorage) -> Facts:
        """What was found. Raises Broken if an archive holds what was never committed."""
        return Facts(
            hard_state=storage.log.hard_state,
            entries=storage.log.entries,
            next_index=storage.wal.next_index,
            snapshot=storage.snapshot,
            image=storage.machine.image(storage.snapshot.index, storage.snapshot.term),
            covered_to=storage.archive.covered_to,
            owners_to=storage.owners.covered_to,
            labels=self._labels(disk, storage.directory.archive, storage),
            truncated=storage.log.truncated is not None,
        )

    def _labels(self, disk: Files, path: PurePath, storage: OpenedStorage) -> frozenset[int]:
        content = hash(tuple((name, disk.read_bytes(path / name)) for name in disk.listdir(path)))
        if content not in self._archives:
            owners = self._owned(disk, path, storage.owners)
            self._archives[content] = frozenset((*self._allocated(storage.archive), *owners))
        return self._archives[content]

    def _allocated(self, archive: AllocationArchive) -> list[int]:
        rows = list(archive)
        for row in rows:
            if self._blocks.get(row.timestamp_ms) != row:
                raise Broken(f"the archive holds {row}, which was never committed")
        return [row.timestamp_ms for row in rows]

    def _owned(self, disk: Files, path: PurePath, archive: OwnerArchive) -> list[int]:
        """Those of the owners, each of which is found by its ID."""
        labels = []
        for name in disk.listdir(path):
            if not name.endswith(SUFFIX):
                continue
            try:
                owners = decode_owners(disk.read_bytes(path / name))
            except OwnerError as error:
                raise Broken(f"{name} was opened, but is not whole: {error}") from error
            for owner in owners:
                if self._owners.get(owner.timestamp_ms) != owner:
                    raise Broken(f"{name} holds {owner}, which was never committed")
                if archive.find(owner.producer_id) != owner:
                    raise Broken(f"{owner} is in {name}, and is not found")
            labels += [owner.timestamp_ms for owner in owners]
        return labels


def go_on(wal: WriteAheadLog) -> tuple[Entry, HardState]:
    """Append an entry and a vote in a new term, as a member does after its start."""
    hard_state = msgspec.structs.replace(wal.hard_state, term=wal.hard_state.term + 1, vote=1)
    added = Entry(hard_state.term, wal.next_index, b"after the crash")
    wal.append([added], hard_state)
    return added, hard_state
