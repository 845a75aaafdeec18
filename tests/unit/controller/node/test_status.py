"""What health tells of the replicated state before a bound of it is reached, and of a disk that hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path, PurePath

import pytest

from pidkeeper.controller.node import status
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.status import shortages
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.records import FeatureLevelRecord, ProducerIdFloorRecord
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from tests.support.loopback_cluster import LoopbackCluster, eventually
from tests.support.memory_files import MemoryFiles


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(TRANSACTIONS), ProducerIdFloorRecord(1000, 0)])
    return machine


def test_a_state_with_room_is_told_nothing_of(machine: StateMachine) -> None:
    assert shortages(machine) == []


@pytest.mark.parametrize("left", [MAX_PRODUCER_ID // 10 - 2, 0])
def test_the_approach_of_the_end_of_the_ids_is_told(machine: StateMachine, left: int) -> None:
    machine.replay([ProducerIdFloorRecord(MAX_PRODUCER_ID - left, 0)])
    (told,) = shortages(machine)
    assert f"{MAX_PRODUCER_ID - left} of {MAX_PRODUCER_ID} producer IDs are used" in told


def test_transactional_ids_near_their_bound_are_told_of(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_TRANSACTIONAL_IDS", 10)
    for number in range(8):
        machine.replay([_record(number)])
    assert shortages(machine) == []
    machine.replay([_record(8)])
    (told,) = shortages(machine)
    assert told.startswith("9 of 10 transactional ids are kept")
    assert "transactional_id_expiration_ms" in told


def test_partitions_near_their_bound_are_told_of(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.replay([_record(1)])
    machine.replay([_record(1, partitions=(TopicPartitions("t", tuple(range(100))),))])
    used = machine.transactions.partition_bytes
    monkeypatch.setattr(status, "MAX_PARTITION_BYTES", used)
    (told,) = shortages(machine)
    assert told.startswith(f"{used} of {used} bytes are kept for the partitions of transactions")


def _record(number: int, partitions: tuple[TopicPartitions, ...] = ()) -> TransactionRecord:
    """Of a new id; with `partitions`, of an id in its first transaction."""
    status = TransactionStatus.ONGOING if partitions else TransactionStatus.EMPTY
    return TransactionRecord(f"tx-{number}", number, 0, -1, -1, 60_000, status, 1, partitions)


class HangingDisk(MemoryFiles):
    """A disk whose syncs of the log wait while it does not `work`."""

    def __init__(self) -> None:
        super().__init__()
        self.works = threading.Event()
        self.works.set()
        self.before = self._wait

    def _wait(self, kind: str, path: PurePath) -> None:
        if kind == "fdatasync" and "/wal/" in str(path):
            self.works.wait()


@contextlib.asynccontextmanager
async def members(count: int) -> AsyncIterator[tuple[LoopbackCluster, dict[int, HangingDisk]]]:
    """A quorum of so many, and their disks, which all work again at the end."""
    disks = {node_id: HangingDisk() for node_id in range(1, count + 1)}
    cluster = LoopbackCluster(Path("/m"), voters=count)
    try:
        for node_id, disk in disks.items():
            disk.make_directory(PurePath(f"/m/member-{node_id}"))
            await cluster.start(node_id, files=disk)
        yield cluster, disks
    finally:
        for disk in disks.values():
            disk.works.set()
        await cluster.close()


def failed_checks(member: ClusterMember) -> list[str]:
    interface = MemberInterface(member)
    assert all(check.ok for check in interface.liveness()), "a restart would mend nothing"
    return [check.name for check in interface.readiness() if not check.ok]


async def test_a_leader_whose_disk_hangs_is_unhealthy_and_ready_where_nobody_is_faster() -> None:
    async with members(1) as (cluster, disks):
        epoch = await cluster.register()
        leader = cluster.members[1]
        assert MemberInterface(leader).describe().reasons == []
        disks[1].works.clear()
        answer = leader.submit(requests.AllocateProducerIds(1, epoch))
        await eventually(lambda: bool(MemberInterface(leader).describe().reasons))
        (told,) = MemberInterface(leader).describe().reasons
        assert told.startswith("the disk is slow: a write of the log took ")
        assert told.endswith(" ms; it leads on until a majority of the other voters is faster")
        assert failed_checks(leader) == []
        disks[1].works.set()
        assert (await answer).producer_id_start == 0


async def test_a_follower_whose_disk_hangs_is_not_ready() -> None:
    async with members(3) as (cluster, disks):
        epoch = await cluster.register()
        follower = (await cluster.followers())[0]
        await eventually(lambda: failed_checks(follower) == [])
        disks[follower.node_id].works.clear()
        assert await cluster.allocate(epoch) == [0]
        await eventually(lambda: failed_checks(follower) == ["disk_pace"])
        (told,) = MemberInterface(follower).describe().reasons
        assert told.startswith("the disk is slow: a write of the log took ")
        assert failed_checks(await cluster.leader()) == []
