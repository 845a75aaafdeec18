"""Two brokers of Kafka 3.9 that keep to ZooKeeper, beside a real quorum on the same znode.

Broker 1 asks Kafka's controller for its blocks, as every broker does from IBP 3.0 on; broker 2 takes them itself, as
before. Kafka's controller is one of the two, and takes the blocks for broker 1 from the znode.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.controller.migration.znode import encode, seal
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from tests.migration.quorum_client import Quorum, quorum_on, stored, znode_at
from tests.support.cluster import REPOSITORY, wait_until
from tests.support.http_calls import Answer
from tests.support.zookeeper import Ensemble
from tests.support.zookeeper_mode_broker import JARS, ZookeeperModeBroker, why_unavailable

pytestmark = pytest.mark.timeout(300)
"""A broker starts in 10 s on a quiet machine with two cores."""

TOKEN: Final = "the operators' secret"
CHROOT: Final = "real-brokers"
ROUND: Final = 300
"""Requests at a time: four rounds are more than a block."""


class RealBrokers:
    """The two of them. `connect`: their chroot."""

    def __init__(self, connect: str, directory: Path) -> None:
        self.connect: Final = connect
        self.asking: Final = ZookeeperModeBroker(directory / "1", connect, 1, "3.9")
        self.taking: Final = ZookeeperModeBroker(directory / "2", connect, 2, "2.8")

    def up(self, *brokers: ZookeeperModeBroker) -> None:
        """Have these run, with IDs to give."""
        for broker in brokers:
            if not broker.running():
                broker.start()
        for broker in brokers:
            wait_until(broker.gives_ids, f"an ID of broker {broker.broker_id}")


@pytest.fixture(scope="module")
def brokers(_single: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    _single.start()
    both = RealBrokers(_single.chroot(CHROOT), tmp_path_factory.mktemp("real-brokers"))
    try:
        yield both
    finally:
        both.asking.stop()
        both.taking.stop()


def test_no_broker_gets_a_block_behind_the_seal(brokers: RealBrokers, tmp_path: Path) -> None:
    brokers.up(brokers.asking, brokers.taking)
    with quorum_on(brokers.connect, tmp_path / "quorum", controllers=1, operator_token=TOKEN) as quorum:
        ids, blocks = _interleaved(quorum, brokers)
        quorum.start()
        assert quorum.describe()["brokers"]["ids"] == [1, 2]
        _refused(quorum.order("finalize", agreed=True), "not now: brokers 1, 2 are still in ZooKeeper (/brokers/ids). ")
        assert quorum.order("finalize", agreed=True, force=True).status == 200
        quorum.reach("finalized")
        end = quorum.describe()["next_producer_id"]
        ids += _used_up(brokers.asking, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ids += _used_up(brokers.taking, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert max(ids) < end, "a block was taken that the quorum did not know of when it sealed the znode"
        brokers.taking.stop()
        brokers.taking.start()
        wait_until(lambda: not brokers.taking.running(), "the end of a broker that finds the seal when it starts")
        assert "Have exhausted all producerIds" in brokers.taking.log()
        assert _used_up(brokers.asking, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) == []
        blocks += [quorum.first() for _ in range(3)]
    assert min(blocks[-3:]) >= end
    _check_no_overlap(ids, blocks)


def test_nobody_has_to_force_it_once_the_brokers_are_gone(brokers: RealBrokers, tmp_path: Path) -> None:
    with znode_at(brokers.connect) as znode:
        # Another quorum begins here, far above whatever was there.
        znode.store(stored(10**9, 10**9 + DEFAULT_BLOCK_SIZE - 1))
    brokers.up(brokers.asking)
    with quorum_on(brokers.connect, tmp_path / "quorum", controllers=1) as quorum:
        quorum.start()
        _refused(quorum.order("finalize", agreed=True), "not now: broker 1 is still in ZooKeeper (/brokers/ids). ")
        brokers.asking.stop()
        wait_until(lambda: quorum.describe()["brokers"]["ids"] == [], "the end of its session")
        quorum.finalize()


def test_kafkas_own_migration_reads_no_seal_but_what_the_runbook_puts_there(tmp_path: Path) -> None:
    """The first would have Kafka's controllers hand out negative IDs; behind the second no ID is the quorum's."""
    if (why := why_unavailable() or (None if shutil.which("javac") else "no JDK on PATH")) is not None:
        pytest.skip(why)
    runbook = (REPOSITORY / "docs" / "migration.md").read_text()
    found = re.search(f"^set {BLOCK_PATH} (.*)$", runbook, re.MULTILINE)
    assert found is not None, "the runbook does not say what to put there"
    source = tmp_path / "Reader.java"
    source.write_text(_READER)
    command = ["java", "-cp", f"{JARS}/*", str(source), encode(seal("pidkeeper/cluster/name")).decode(), found[1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=True)
    assert [int(line) for line in done.stdout.split()] == [-(2**63), 2**62]


_READER: Final = """
import java.nio.charset.StandardCharsets;
import kafka.zk.ProducerIdBlockZNode;

/** What KIP-866 takes for the next ID (ZkMigrationClient.migrateProducerId) from each argument, the data of a znode. */
public class Reader {
    public static void main(String[] znodes) {
        for (String data : znodes) {
            byte[] bytes = data.getBytes(StandardCharsets.UTF_8);
            System.out.println(ProducerIdBlockZNode.parseProducerIdBlockData(bytes).nextBlockFirstId());
        }
    }
}
"""


def _interleaved(quorum: Quorum, brokers: RealBrokers) -> tuple[list[int], list[int]]:
    """Four rounds of both brokers, and a block of the quorum before each: all IDs, and the first ones of its blocks."""
    ids: list[int] = []
    blocks: list[int] = []
    for _ in range(4):
        blocks.append(quorum.first())
        for broker in (brokers.asking, brokers.taking):
            tally = broker.claim(ROUND)
            # Broker 1 has its next block in advance, or not yet.
            assert set(tally.errors) <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.kafka_code}
            ids += tally.ids
    assert len(ids) > 2 * DEFAULT_BLOCK_SIZE, "less than a block for each of them"
    return ids, blocks


def _used_up(broker: ZookeeperModeBroker, error: ErrorCode) -> list[int]:
    """The IDs that it still had; then nothing but the error is answered."""
    ids: list[int] = []
    while (tally := broker.claim(ROUND)).claims:
        ids += tally.ids
        assert set(tally.errors) <= {error.kafka_code}, tally.errors
        assert len(ids) <= 3 * DEFAULT_BLOCK_SIZE, "more than it may have had in advance"
    assert set(tally.errors) == {error.kafka_code}, tally.errors
    return ids


def _refused(answer: Answer, detail: str) -> None:
    assert (answer.status, answer.json()["code"]) == (409, "MIGRATION_REFUSED"), answer
    assert answer.json()["detail"].startswith(detail), answer


def _check_no_overlap(ids: list[int], blocks: list[int]) -> None:
    assert len(set(ids)) == len(ids)
    of_the_quorum = {first // DEFAULT_BLOCK_SIZE for first in blocks}
    assert len(of_the_quorum) == len(blocks)
    assert of_the_quorum.isdisjoint(one // DEFAULT_BLOCK_SIZE for one in ids)
