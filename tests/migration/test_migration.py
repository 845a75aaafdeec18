"""The migration with real controllers and a real ZooKeeper, a step at a time. Tests that Kafka has too name its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from tests.migration.quorum_client import BROKER, Quorum, quorum_on, stored, znode_at
from tests.support.cluster import allocate, bring_back, ledger, metrics, new_leader, pidkeeper, quorum, wait_until
from tests.support.old_broker import Exhausted, OldBroker
from tests.support.zookeeper import Ensemble


@pytest.fixture
def chroot(zookeeper: Ensemble, request: pytest.FixtureRequest) -> str:
    return zookeeper.chroot(request.node.name.replace("[", "-").rstrip("]"))


@pytest.fixture
def old(chroot: str) -> Iterator[OldBroker]:
    broker = OldBroker(chroot, 7)
    yield broker
    broker.close()


def test_old_broker_and_quorum_interleave(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    """Kafka's testGetProducerIdZk: two managers on one ZooKeeper get 0, 1000, 2000 and 3000 by turns."""
    with quorum_on(chroot, tmp_path) as one:
        assert [old.allocate().first, one.first(), old.allocate().first, one.first()] == [0, 1000, 2000, 3000]
        assert [block["first"] for block in ledger(one.cluster)] == [1000, 3000]


def test_both_worlds_end_at_the_limit(zookeeper: Ensemble, tmp_path: Path) -> None:
    """Kafka's testExceedProducerIdLimitZk: after a block that ends near the limit there is none, and it is said."""
    last = MAX_PRODUCER_ID - 1500
    connect = zookeeper.chroot("limit", stored(last - 999, last))
    broker = OldBroker(connect, 7)
    try:
        with quorum_on(connect, tmp_path, controllers=1) as one, znode_at(connect) as znode:
            assert one.first() == last + 1, "one block is left"
            version = znode.version()
            with pytest.raises(Exhausted):
                broker.allocate()
            answer = one.allocate()
            assert (answer.status, answer.json()["code"]) == (507, "PRODUCER_IDS_EXHAUSTED")
            assert str(last + 1001) in answer.json()["detail"]
            assert znode.version() == version
            one.start()
            assert one.allocate().status == 507
    finally:
        broker.close()


def test_read_migrate_and_write_producer_id(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    """Kafka's ZkMigrationClientTest.testReadMigrateAndWriteProducerId: three blocks of ZooKeeper, the next ID is
    imported, the quorum writes its own; back in ZooKeeper a broker goes on. Kafka skips a block there, this does not.
    """
    assert [old.allocate().first for _ in range(3)] == [0, 1000, 2000]
    with quorum_on(chroot, tmp_path) as one, znode_at(chroot) as znode:
        one.start()
        assert one.describe()["next_producer_id"] == 3000 == znode.next_id()
        assert [one.first() for _ in range(3)] == [3000, 4000, 5000]
        assert znode.next_id() == 6000
        one.roll_back()
        assert znode.next_id() == 6000
        assert old.allocate().first == 6000
        assert one.first() == 7000


def test_an_empty_znode_is_written_once_for_the_first_block(chroot: str, tmp_path: Path) -> None:
    """Kafka's KRaftMigrationZkWriterTest.testReconcileSnapshotEmptyZk: exactly one write of the producer ID."""
    with quorum_on(chroot, tmp_path, snapshot_entries=10) as one, znode_at(chroot) as znode:
        one.start()
        assert znode.block() is None, "nothing was handed out"
        before = znode.version()
        assert one.first() == 0
        block = znode.block()
        assert block is not None and (block["block_start"], block["block_end"]) == ("0", "999")
        assert znode.version() == before + 1
        old_leader = one.cluster.leader()
        one.cluster.kill(old_leader)
        new_leader(one.cluster, old_leader)
        bring_back(one.cluster)
        assert znode.version() == before + 1, "a new leader wrote what was there already"


def test_dual_write(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    """Kafka's ZkMigrationIntegrationTest.testDualWrite: the block before the migration is 0, the one after another.
    And every block of dual write is in ZooKeeper before anybody has it."""
    assert old.allocate().first == 0
    with quorum_on(chroot, tmp_path) as one, znode_at(chroot) as znode:
        one.start()
        for number in range(1, 6):
            assert one.first() == number * 1000
            assert znode.next_id() == (number + 1) * 1000
            block = znode.block()
            assert block is not None and block["broker"] == -1
            assert block["claimed_by"] == one.describe()["claimed_by"]


def test_dual_write_takes_blocks_of_brokers_that_go_on(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path) as one:
        one.start()
        assert [one.first(), old.allocate().first, old.allocate().first, one.first()] == [0, 1000, 2000, 3000]
        one.finalize()
        with pytest.raises(Exhausted):
            old.allocate()
        assert one.first() == 4000


def test_what_a_dead_leader_claimed_is_not_lost(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    """It wrote the znode and died before it committed: the next leader, or ZooKeeper after a rollback, takes it up."""
    with quorum_on(chroot, tmp_path) as one, znode_at(chroot) as znode:
        one.start()
        assert one.first() == 0
        name = one.describe()["claimed_by"]
        # Exactly what such a leader leaves behind.
        znode.store(stored(1000, 1999, broker=-1)[:-1] + b', "claimed_by": "' + name.encode() + b'"}')
        old_leader = one.cluster.leader()
        one.cluster.kill(old_leader)
        new_leader(one.cluster, old_leader)
        one.roll_back()
        assert znode.next_id() == 1000
        assert [old.allocate().first, one.first()] == [1000, 2000]


def test_a_leader_that_was_deposed_unawares_does_not_call_the_ids_exhausted(chroot: str, tmp_path: Path) -> None:
    """Cut off from the others, but not from ZooKeeper, it finds the seal of a leader that it has not heard of."""
    with quorum_on(chroot, tmp_path, controllers=1) as one, znode_at(chroot) as znode:
        one.start()
        assert one.first() == 0
        name = one.describe()["claimed_by"]
        seal = stored(MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID, broker=-1)
        znode.store(seal[:-1] + b', "claimed_by": "' + name.encode() + b'"}')
        problem = one.allocate().json()
        assert (problem["code"], problem["retryable"]) == ("MIGRATION_UNDER_WAY", True), problem
        assert "another leader of this quorum" in problem["detail"]


def test_sixty_four_requests_cost_a_few_writes(zookeeper: Ensemble, chroot: str, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path, controllers=1) as one, znode_at(chroot) as znode:
        one.start()
        one.cluster.controller_options["zookeeper"]["request_timeout_ms"] = 20_000
        one.cluster.controller_options["zookeeper"]["session_timeout_ms"] = 60_000
        one.cluster.kill(*one.cluster.members())
        bring_back(one.cluster)
        one.epoch = one.register()
        leader, before = one.cluster.leader(), znode.version()
        # ZooKeeper holds back its answer to the first claim, so that all the others are there for the second.
        zookeeper.pause(1)
        try:
            with ThreadPoolExecutor(64) as callers:
                answers = [callers.submit(allocate, leader, BROKER, one.epoch) for _ in range(64)]
                wait_until(lambda: metrics(leader)["pidkeeper_zookeeper_claims_waiting"] == 64, "64 waiting requests")
                zookeeper.resume(1)
        finally:
            zookeeper.resume(1)
        firsts = sorted(answer.result().json()["producer_id_start"] for answer in answers)
        assert firsts == list(range(0, 64_000, 1000))
        assert znode.version() - before <= 3


def test_restart_in_dual_write_keeps_the_phase(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path, snapshot_entries=10) as one:
        one.start()
        firsts = [one.first() for _ in range(30)]
        wait_until(lambda: quorum(one.cluster.leader())["snapshot_index"] > 0, "a snapshot")
        name = one.describe()["claimed_by"]
        one.cluster.kill(*one.cluster.members())
        assert old.allocate().first == firsts[-1] + 1000, "brokers go on meanwhile"
        bring_back(one.cluster)
        described = one.describe()
        assert (described["phase"], described["claimed_by"]) == ("dual_write", name)
        assert one.first() == firsts[-1] + 2000


def test_whose_an_id_is_that_zookeeper_gave_is_told_with_where_the_quorum_took_over(
    chroot: str, old: OldBroker, tmp_path: Path
) -> None:
    assert [old.allocate().first for _ in range(3)] == [0, 1000, 2000]
    with quorum_on(chroot, tmp_path) as one:
        one.start()
        assert one.first() == 3000
        assert old.allocate().first == 4000
        assert one.first() == 5000

        def said(producer_id: int) -> str:
            asked = pidkeeper("ids", "owner", str(producer_id), "--cluster", one.cluster.directory)
            assert asked.returncode == 5, asked
            return asked.stderr

        def check() -> None:
            for producer_id, took_over in ((0, 3000), (2999, 3000), (4000, 5000)):
                assert "was given by ZooKeeper's controller" in said(producer_id)
                assert f"took over from it at the next ID {took_over} (" in said(producer_id)
            assert "is not handed out yet: the next one is 6000" in said(6000)

        check()
        one.cluster.kill(*one.cluster.layout.controllers)
        bring_back(one.cluster)
        check()


def test_after_the_end_zookeeper_is_forgotten(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    with quorum_on(chroot, tmp_path, snapshot_entries=10) as one:
        assert [old.allocate().first, one.first()] == [0, 1000]
        one.start()
        one.finalize()
        firsts = [one.first() for _ in range(30)]
        wait_until(lambda: quorum(one.cluster.leader())["snapshot_index"] > 0, "a snapshot")
        one.cluster.kill(*one.cluster.members())
        del one.cluster.controller_options["zookeeper"]
        one.cluster.controller_options["mode"] = "quorum"
        bring_back(one.cluster)
        assert one.first() == firsts[-1] + 1000
        assert one.describe()["phase"] == "finalized"
        answer = one.order("rollback")
        assert (answer.status, answer.json()["code"]) == (409, "MIGRATION_REFUSED")
        with pytest.raises(Exhausted):
            old.allocate()


def test_two_quorums_on_one_znode(chroot: str, old: OldBroker, tmp_path: Path) -> None:
    """Whatever they were meant to do there, no ID is in both; and the first one that is final shuts out the other."""
    with (
        quorum_on(chroot, tmp_path / "one", controllers=1) as one,
        quorum_on(chroot, tmp_path / "two", controllers=1) as two,
    ):
        turns = [one.first(), two.first(), one.first(), old.allocate().first, two.first(), two.first(), one.first()]
        assert turns == list(range(0, 7000, 1000))
        assert one.describe()["claimed_by"] != two.describe()["claimed_by"]
        assert _both(one, two, 20) == list(range(7000, 47_000, 1000))
        one.start()
        two.start()
        assert _both(one, two, 20) == list(range(47_000, 87_000, 1000))
        one.finalize()
        assert one.first() == 87_000
        answer = two.allocate()
        assert (answer.status, answer.json()["code"]) == (507, "PRODUCER_IDS_EXHAUSTED")
        assert "was sealed by pidkeeper/" in answer.json()["detail"]
        answer = two.order("finalize", agreed=True)
        assert (answer.status, answer.json()["code"]) == (409, "MIGRATION_REFUSED")
        assert answer.json()["detail"].startswith("not now: the znode was sealed by pidkeeper/")
        assert two.describe()["phase"] == "dual_write"
        assert one.first() == 88_000


def _both(one: Quorum, two: Quorum, blocks: int) -> list[int]:
    """The first IDs of so many blocks for each of them, asked for at the same time."""

    def take(quorum: Quorum) -> list[int]:
        return [quorum.first() for _ in range(blocks)]

    with ThreadPoolExecutor(2) as callers:
        return sorted(first for firsts in callers.map(take, [one, two]) for first in firsts)
