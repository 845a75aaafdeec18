"""The stand-in for old brokers does what Kafka's `ProducerIdManagerTest` asks of the real ones, on a real ZooKeeper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, ProducerIdBlock
from tests.support.cluster import wait_until
from tests.support.old_broker import Exhausted, OldBroker, OldBrokerThread
from tests.support.zookeeper import Ensemble, zookeeper_client

Brokers = tuple[OldBroker, OldBroker]


def _stored(end: int, start: int = 0) -> bytes:
    return json.dumps({"version": 1, "broker": 0, "block_start": str(start), "block_end": str(end)}).encode()


@pytest.fixture
def brokers(zookeeper: Ensemble, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Two brokers; the znode holds the test's parameter."""
    connect = zookeeper.chroot(f"old-{abs(hash(request.node.name))}", getattr(request, "param", None))
    both = OldBroker(connect, 0), OldBroker(connect, 1)
    yield both
    for broker in both:
        broker.close()


def test_two_brokers_interleave(zookeeper: Ensemble, brokers: Brokers) -> None:
    """`testGetProducerIdZk`."""
    one, other = brokers
    taken = [broker.allocate() for broker in (one, other, one, other)]
    assert taken == [ProducerIdBlock(first, 1000) for first in (0, 1000, 2000, 3000)]
    data, stat = other._client.get(BLOCK_PATH)
    assert data == b'{"version":1,"broker":1,"block_start":"3000","block_end":"3999"}'
    assert stat.version == 4


@pytest.mark.parametrize("brokers", [_stored(MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID - 1998)], indirect=True)
def test_end_of_the_space(brokers: Brokers) -> None:
    """`testExceedProducerIdLimitZk`."""
    with pytest.raises(Exhausted, match=str(MAX_PRODUCER_ID - 999)):
        brokers[0].allocate()


@pytest.mark.parametrize("brokers", [_stored(MAX_PRODUCER_ID - 2000, MAX_PRODUCER_ID - 2999)], indirect=True)
def test_last_blocks(brokers: Brokers) -> None:
    """The last block that a broker can use; the topmost is written, and rejected; then there is none."""
    assert brokers[0].allocate().last == MAX_PRODUCER_ID - 1000
    with pytest.raises(ValueError, match="would pass"):
        brokers[0].allocate()
    with pytest.raises(Exhausted):
        brokers[1].allocate()


@pytest.mark.parametrize(
    ("brokers", "error"),
    [
        (_stored(2**31 - 1), ArithmeticError),
        (b'{"version":1,"broker":0,"block_start":0,"block_end":999}', ValueError),
        (_stored(2**63), ValueError),
        (b"", ValueError),
    ],
    indirect=["brokers"],
)
def test_unreadable(brokers: Brokers, error: type[Exception]) -> None:
    with pytest.raises(error):
        brokers[0].allocate()
    assert brokers[0]._client.get(BLOCK_PATH)[1].version == 0


@pytest.mark.parametrize("brokers", [_stored(2**31 - 2)], indirect=True)
def test_largest_stored_block(brokers: Brokers) -> None:
    assert brokers[0].allocate().first == 2**31 - 1


def test_threads_through_an_election(zookeeper_ensemble: Ensemble) -> None:
    """No ID twice while the leader dies, and both brokers go on after it."""
    connect = zookeeper_ensemble.chroot("old-threads")
    threads = [OldBrokerThread(connect, broker) for broker in (0, 1)]
    _wait_for_blocks(threads, after=time.monotonic())
    leader = zookeeper_ensemble.wait_for_quorum()
    zookeeper_ensemble.kill(leader)
    _wait_for_blocks(threads, after=time.monotonic())
    for thread in threads:
        thread.stop()
    firsts = [block.first for thread in threads for _, block in thread.blocks]
    assert len(set(firsts)) == len(firsts) and all(first % 1000 == 0 for first in firsts)
    assert sum(thread.failed_requests for thread in threads) > 0, "the election was not noticed"
    _written(connect, at_least=max(firsts))


def test_thread_tells_exhaustion(zookeeper: Ensemble) -> None:
    connect = zookeeper.chroot("old-exhausted", _stored(MAX_PRODUCER_ID - 10_000, MAX_PRODUCER_ID - 10_999))
    thread = OldBrokerThread(connect, 7)
    wait_until(lambda: not thread._thread.is_alive(), "the end of the loop")
    assert [block.length for _, block in thread.blocks] == [1000] * 9
    with pytest.raises(ValueError, match="would pass"):
        thread.stop()
    again = OldBrokerThread(connect, 7)
    wait_until(lambda: again.exhausted, "exhaustion")
    again.stop()
    assert again.blocks == []


def _wait_for_blocks(threads: list[OldBrokerThread], after: float) -> None:
    wait_until(lambda: all(thread.blocks and thread.blocks[-1][0] > after for thread in threads), "blocks for both")


def _written(connect: str, at_least: int) -> None:
    client = zookeeper_client(connect)
    data, _ = client.get(BLOCK_PATH)
    client.stop()
    client.close()
    assert int(json.loads(data)["block_start"]) >= at_least
