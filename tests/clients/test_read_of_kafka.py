"""What `pidkeeper log read` fetches from a real Kafka broker, as librdkafka wrote it there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.records import Header, LogRecord
from pidkeeper.cli.kafka_client import KafkaClient
from pidkeeper.cli.log_source import Source
from pidkeeper.protocol.addresses import HostPort
from tests.support.kafka_broker import KafkaBroker, why_unavailable

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
EACH: Final = 50
WRITTEN: Final = len(COMPRESSIONS) * EACH
SECONDS: Final = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    one = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        one.start()
        one.create_topic("t")
        write(one.bootstrap)
        yield one
    finally:
        one.close()


def write(bootstrap: str) -> None:
    """Records in every compression; then three transactions of one record each, of which the second is aborted."""
    for compression in COMPRESSIONS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 50})
        for number in range(EACH):
            producer.produce("t", key=f"{compression}{number}", value=b"v" * 500, headers=[("h", b"x"), ("n", None)])
        assert producer.flush(SECONDS) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(SECONDS)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce("t", key=b"tx", value=str(number))
        assert producer.flush(SECONDS) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)


def read(broker: KafkaBroker, level: IsolationLevel) -> list[LogRecord]:
    client = KafkaClient.connect(HostPort.parse(broker.bootstrap, "bootstrap"), None, SECONDS)
    with contextlib.closing(client):
        client.negotiate()
        return list(Source(client, "t", 0, level, SECONDS).records(0, WRITTEN + 6))


def test_every_record_is_read_as_it_was_written(broker: KafkaBroker) -> None:
    found = read(broker, IsolationLevel.READ_UNCOMMITTED)
    assert [one.offset for one in found] == list(range(WRITTEN + 6))
    keys = [f"{compression}{number}".encode() for compression in COMPRESSIONS for number in range(EACH)]
    assert [one.key for one in found[:WRITTEN]] == keys
    assert {one.value for one in found[:WRITTEN]} == {b"v" * 500}
    assert all(one.headers == [Header(b"h", b"x"), Header(b"n", None)] for one in found[:WRITTEN])
    assert [one.type for one in found[WRITTEN:]] == ["RECORD", "COMMIT", "RECORD", "ABORT", "RECORD", "COMMIT"]
    assert all(one.transactional for one in found[WRITTEN:])


def test_what_was_aborted_is_left_out(broker: KafkaBroker) -> None:
    found = read(broker, IsolationLevel.READ_COMMITTED)[WRITTEN:]
    assert [one.value for one in found if one.type == "RECORD"] == [b"0", b"2"]
