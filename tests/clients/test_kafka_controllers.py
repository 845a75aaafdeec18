"""Kafka's own controller and ours, asked the same by a broker of another system, and by the codec of our agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from pidkeeper.service.kafka.wire import allocate_producer_ids, broker_heartbeat, own_field
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_request, read_response_header
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import ALLOCATE_PRODUCER_IDS, BROKER_HEARTBEAT, Versions
from tests.support.cluster import running_cluster
from tests.support.foreign_broker import ForeignBroker
from tests.support.kafka_broker import CLUSTER_ID, KafkaBroker, why_unavailable

BROKER: Final = 5
AGENT: Final = 6
NO_TAGS: Final = b"\x00"
DIFFERENT: Final = {"allocate unregistered": (77, 102), "heartbeat unregistered": (77, 102)}
"""Kafka's code and ours. We say what ZooKeeper's controller said, which names the remedy (decision 0004's table)."""


class Asked(NamedTuple):
    """Who is asked, and of which cluster."""

    address: str
    cluster_id: str


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    try:
        yield Asked(broker.controller, CLUSTER_ID)
    finally:
        broker.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with running_cluster(tmp_path_factory.mktemp("ours"), controllers=1) as cluster:
        (controller,) = cluster.layout.controllers
        assert controller.kafka is not None
        yield Asked(controller.kafka, cluster.layout.cluster_id)


def by_another_codec(asked: Asked) -> dict[str, Any]:
    """What a broker's life is answered: error codes, and the blocks."""
    with ForeignBroker(asked.address) as broker:
        said: dict[str, Any] = {
            "heartbeat unregistered": int(broker.heartbeat(BROKER, 1).error_code),
            "allocate unregistered": int(broker.allocate(BROKER, 1).error_code),
            "another cluster": int(broker.register(BROKER, "another").error_code),
        }
        registered = broker.register(BROKER, asked.cluster_id)
        epoch = registered.broker_epoch
        said["registered"] = int(registered.error_code)
        said["alive"] = int(broker.heartbeat(BROKER, epoch).error_code)
        said["alive, of another epoch"] = int(broker.heartbeat(BROKER, epoch + 100).error_code)
        said["block of another epoch"] = int(broker.allocate(BROKER, epoch + 100).error_code)
        blocks = [broker.allocate(BROKER, epoch) for _ in range(3)]
        said["blocks"] = [(int(one.error_code), one.producer_id_len) for one in blocks]
        starts = [one.producer_id_start for one in blocks]
        said["starts"] = [start - starts[0] for start in starts]
        return said


def test_a_broker_lives_the_same_life_at_both(kafka: Asked, ours: Asked) -> None:
    at_kafkas, at_ours = by_another_codec(kafka), by_another_codec(ours)
    for what, (theirs, own) in DIFFERENT.items():
        assert (at_kafkas.pop(what), at_ours.pop(what)) == (theirs, own), what
    assert at_ours == at_kafkas
    assert at_ours["blocks"] == [(0, 1000)] * 3
    assert at_ours["starts"] == [0, 1000, 2000]


def test_kafkas_controller_takes_what_our_agents_say(kafka: Asked) -> None:
    """The tagged field of ours too, which it skips."""
    with ForeignBroker(kafka.address) as broker:
        registered = broker.register(AGENT, kafka.cluster_id)
        assert int(registered.error_code) == 0, registered
        epoch = registered.broker_epoch

        def ask(key: int, versions: Versions, version: int, body: bytes) -> Reader:
            header = RequestHeader(key, version, 77, "pidkeeper")
            broker.send(frame_request(header, versions, body)[4:])
            reader = Reader(broker.receive())
            read_response_header(reader, header, versions)
            return reader

        for tags in (NO_TAGS, own_field.tagged(own_field.Asked(blocks=3, reserve_ids=7))):
            beat = broker_heartbeat.write_request(AGENT, epoch, tags)
            heard = broker_heartbeat.read_response(ask(BROKER_HEARTBEAT, broker_heartbeat.VERSIONS, 1, beat))
            assert (heard.error_code, heard.own) == (0, None)
            wanted = allocate_producer_ids.write_request(AGENT, epoch, tags)
            answer = ask(ALLOCATE_PRODUCER_IDS, allocate_producer_ids.VERSIONS, 0, wanted)
            block = allocate_producer_ids.read_response(answer)
            assert (block.error_code, block.producer_id_len, block.own) == (0, 1000, None)
