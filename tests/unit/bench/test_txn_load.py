"""The frames, read by a codec that is not ours; tests/integration/test_peers.py runs them against real servers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from kio.serial import entity_reader

from bench.txn_load import CORRELATION_ID, add_frame, end_frame, init_frame
from tests.support.kafka_oracles import KIO_NAMES

PAIR = (2**40 + 7, 32_766)


def read(api: str, version: int, frame: bytes) -> Any:
    kind = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.request"), f"{KIO_NAMES[api]}Request")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, size = entity_reader(kind.__header_schema__)(frame, 4)
    request, read_bytes = entity_reader(kind)(frame, 4 + size)
    assert 4 + size + read_bytes == len(frame)
    assert (header.request_api_version, header.correlation_id) == (version, CORRELATION_ID)
    return request


def test_a_producer_asks_for_its_pair() -> None:
    request = read("init_producer_id", 4, init_frame("bench-7"))
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("bench-7", -1, -1)


def test_a_partition_is_added() -> None:
    request = read("add_partitions_to_txn", 3, add_frame("bench-7", PAIR, "topic"))
    (topic,) = request.v3_and_below_topics
    pair = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    assert (request.v3_and_below_transactional_id, pair) == ("bench-7", PAIR)
    assert (topic.name, list(topic.partitions)) == ("topic", [0])


@pytest.mark.parametrize("transactional_id", ["x", "y" * 300])
def test_it_ends_by_a_commit(transactional_id: str) -> None:
    request = read("end_txn", 3, end_frame(transactional_id, PAIR))
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == (transactional_id, *PAIR)
    assert request.committed
