"""The client's side of Fetch: its requests are those of two other codecs, and it reads what agents answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.data import fetch
from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.cli.fetch_wire import read_fetch_response, write_fetch_request
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_request
from pidkeeper.service.kafka.wire.primitives import WireError
from pidkeeper.service.kafka.wire.versions import FETCH
from tests.support.data_codecs import versions_of
from tests.support.plain_messages import CLIENT_ID, CORRELATION_ID, requests

VERSIONS = list(versions_of("fetch"))
ABORTED = [fetch.AbortedTransaction(7, 3), fetch.AbortedTransaction(2**63 - 1, 0)]
FULL = fetch.FetchedPartition(1, 0, 90, 80, 70, ABORTED, [b"0123456789"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", IsolationLevel)
def test_a_request_is_that_of_other_codecs(version: int, level: IsolationLevel) -> None:
    wanted = fetch.FetchTopic("events", [fetch.FetchPartition(3, 2**40, 1000)])
    request = fetch.FetchRequest(-1, 500, 1, 2000, level, [wanted])
    partition = {
        "partition": 3,
        "fetch_offset": 2**40,
        "partition_max_bytes": 1000,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    plain = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 2000,
        "isolation_level": int(level),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "events", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    header = RequestHeader(FETCH, version, CORRELATION_ID, CLIENT_ID)
    frame = frame_request(header, fetch.VERSIONS, write_fetch_request(version, request))
    assert frame[4:] == requests("fetch", version, plain)[0]


def answer(version: int, *partitions: fetch.FetchedPartition, topic: str = "events", error: int = 0) -> bytes:
    topics = [fetch.FetchedTopic(topic, partitions)] if partitions else []
    return b"".join(fetch.fetch_response(version, topics, error))


def read(version: int, data: bytes) -> fetch.FetchedPartition:
    return read_fetch_response(RecordsReader(data), version, "events", 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_as_it_was_written(version: int) -> None:
    found = read(version, answer(version, FULL))
    assert b"".join(found.records) == b"0123456789"
    log_start = 70 if version >= 5 else -1
    assert (found.partition, found.high_watermark, found.last_stable_offset) == (1, 90, 80)
    assert (found.log_start_offset, found.aborted_transactions) == (log_start, ABORTED)
    nothing = read(version, answer(version, fetch.FetchedPartition(1, 6)))
    assert (nothing.error_code, nothing.aborted_transactions, b"".join(nothing.records)) == (6, None, b"")


@pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 7])
def test_an_error_of_the_whole_answer_is_the_partitions(version: int) -> None:
    assert read(version, answer(version, error=70)).error_code == 70


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_about_something_else_is_none(version: int) -> None:
    other = fetch.FetchedPartition(2)
    for data in (
        answer(version),
        answer(version, other),
        answer(version, FULL, topic="u"),
        answer(version, FULL, FULL),
    ):
        with pytest.raises(WireError):
            read(version, data)
    with pytest.raises(WireError):
        read(version, answer(version, FULL) + b"x")


@given(st.sampled_from(VERSIONS), st.data())
def test_an_answer_that_is_cut_off_is_none(version: int, data: st.DataObject) -> None:
    whole = answer(version, FULL)
    with pytest.raises(WireError):
        read(version, whole[: data.draw(st.integers(0, len(whole) - 1))])
