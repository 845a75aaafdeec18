"""Each peer of the benchmark for real: its loads, and that every number they count was given once."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.closed_loop import LoadResult
from bench.failover import FailoverResult
from bench.load_process import run_load
from bench.peers.etcd import Etcd
from bench.peers.failover import PeerFailover
from bench.peers.interface import Peer
from bench.peers.kafka import Kafka
from bench.peers.python_peers import PySyncObj
from bench.peers.zookeeper import ZooKeeper
from bench.txn_load import TxnLoadSpec
from pidkeeper.cli.kafka_load import ClaimTally, connect
from tests.support.cluster import running_cluster
from tests.support.waiting import until

SECONDS = 0.5
WARMUP = 0.1


def started(kind: type[Peer], directory: Path) -> Iterator[Peer]:
    if (why := kind.why_unavailable()) is not None:
        pytest.skip(why)
    with kind(directory) as peer:
        yield peer


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    yield from started(ZooKeeper, tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    yield from started(Etcd, tmp_path_factory.mktemp("etcd"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    yield from started(Kafka, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def pysyncobj(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    yield from started(PySyncObj, tmp_path_factory.mktemp("pysyncobj"))


def loaded(peer: Peer, number: int, callers: int) -> LoadResult:
    result = peer.schemes[number].load(callers, SECONDS, WARMUP)
    check(result)
    return result


def check(result: LoadResult) -> None:
    assert result.failures == []
    assert result.rate > 0
    assert len(set(result.starts)) == len(result.starts) == result.statuses["200"]


def fail_over(peer: Peer, number: signal.Signals) -> FailoverResult:
    bench = PeerFailover(peer, random.Random(1))
    result = bench.measure(number, 1)
    assert len(set(bench.numbers)) == len(bench.numbers) > 1
    assert peer.find_leader() is not None, "all nodes are back"
    return result


def test_callers_of_zookeeper_take_each_block_once(zookeeper: Peer) -> None:
    raw, by_kazoo = loaded(zookeeper, 0, 4), loaded(zookeeper, 2, 4)
    assert raw.statuses["-103"] > 0, "they meet each other"
    starts = raw.starts + by_kazoo.starts
    assert sorted(starts) == list(range(1000, 1000 * len(starts) + 1, 1000)), "no block is left out either"


def test_plain_writes_to_zookeeper_are_all_made(zookeeper: Peer) -> None:
    versions = loaded(zookeeper, 1, 4).starts
    assert sorted(versions) == list(range(1, len(versions) + 1))


def test_zookeeper_elects_another_leader(zookeeper: Peer) -> None:
    fail_over(zookeeper, signal.SIGKILL)


def test_callers_of_etcd_take_each_block_once(etcd: Peer) -> None:
    result = loaded(etcd, 0, 4)
    assert result.statuses["lost"] > 0, "they meet each other"
    assert sorted(result.starts) == list(range(0, 1000 * len(result.starts), 1000))
    assert len(loaded(etcd, 1, 4).starts) > 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP])
def test_etcd_elects_another_leader(etcd: Peer, number: signal.Signals) -> None:
    old = etcd.leader()
    fail_over(etcd, number)
    assert etcd.leader() is not old


def test_kafkas_controller_gives_blocks(kafka: Peer) -> None:
    starts = loaded(kafka, 0, 4).starts
    assert all(start % 1000 == 0 for start in starts)


def test_kafka_commits_transactions(kafka: Peer) -> None:
    loaded(kafka, 1, 4)


async def test_kafkas_broker_hands_out_ids(kafka: Peer) -> None:
    assert isinstance(kafka, Kafka)
    tally = ClaimTally()
    connection = await connect(kafka.claims_address, tally)
    connection.send(3)
    await until(lambda: not connection.outstanding)
    connection.close()
    assert connection.failure is None
    assert len(set(tally.ids)) == tally.claims


def test_our_agent_commits_the_same_transactions(tmp_path: Path) -> None:
    with running_cluster(tmp_path, agents=1) as cluster:
        host, port = cluster.layout.agents[0].kafka.split(":")
        spec = TxnLoadSpec(host, int(port), "bench", "bench", 4, SECONDS, WARMUP)
        check(run_load("bench.txn_load", spec, LoadResult, 30.0))


def test_pysyncobj_counts(pysyncobj: Peer) -> None:
    ids = loaded(pysyncobj, 0, 4).starts
    assert sorted(ids) == list(range(len(ids)))
