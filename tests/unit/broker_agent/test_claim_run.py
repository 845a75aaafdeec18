"""A run of pipelined requests gets just the answers that its requests would get one by one."""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka import responder as kafka_responder
from pidkeeper.broker_agent.kafka.claim_run import MAX_RUN, ClaimRun
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.protocol.ids import ProducerIdBlock
from tests.support.kafka_oracles import kafka_python_request, kafka_python_response

INIT: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 2**31 - 1}
BLOCKS = (ProducerIdBlock(100, 20), ProducerIdBlock(500, 7), ProducerIdBlock(2**40, 300))


def request(version: int, correlation_id: int, client_id: str = "c") -> bytes:
    frame = kafka_python_request("init_producer_id", version, correlation_id, client_id, **INIT)
    return struct.pack(">i", len(frame)) + frame


def responder() -> tuple[KafkaResponder, BlockReserve]:
    reserve = BlockReserve()
    for block in BLOCKS:
        reserve.offer(block)
    return KafkaResponder(reserve, Directory(Node(7, "agent.example", 9092)), lambda: "cluster-x"), reserve


def answers(responder: KafkaResponder, data: bytes) -> bytes:
    """All answers to `data`, asked for as the listener does."""
    collected = b""
    while data:
        response, used = responder.respond(data)
        assert used, "whole frames are always used"
        assert isinstance(response, bytes)
        collected, data = collected + response, data[used:]
    return collected


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 4, 5]), st.sampled_from(["c", "d", "longer"]), st.integers(1, MAX_RUN + 9)),
        max_size=8,
    ),
    st.booleans(),
)
def test_chunks_and_single_frames_get_the_same_answers(pieces: list[tuple[int, str, int]], together: bool) -> None:
    chunks = [
        [request(version, number, client) for number in range(1000 * piece, 1000 * piece + count)]
        for piece, (version, client, count) in enumerate(pieces)
    ]
    whole, reserve = responder()
    single, expected = responder()
    for version, client, _ in pieces:
        # A frame that is not remembered makes no run, and what is behind it in the chunk is not compared with one.
        assert answers(whole, request(version, 1, client)) == answers(single, request(version, 1, client))
    for chunk in [list(chain.from_iterable(chunks))] if together else chunks:
        assert answers(whole, b"".join(chunk)) == b"".join(answers(single, frame) for frame in chunk)
    assert (reserve.claimed, reserve.remaining) == (expected.claimed, expected.remaining)
    assert len(whole._runs) <= kafka_responder.MAX_RUNS


@pytest.mark.parametrize("version", [1, 4])
def test_a_run_is_answered_at_once_and_another_codec_reads_it(version: int) -> None:
    asked, reserve = responder()
    answers(asked, request(version, 0))
    run = b"".join(request(version, number) for number in range(1, 9))
    response, used = asked.respond(run)
    assert used == len(run)
    assert isinstance(response, bytes)
    assert len(asked._runs) == 1
    length = len(response) // 8
    for number in range(8):
        answer = kafka_python_response(
            "init_producer_id", version, response[number * length + 4 : (number + 1) * length]
        )
        assert (answer.producer_id, answer.producer_epoch, answer.error_code) == (101 + number, 0, 0)
    assert reserve.claimed == 9


def test_every_byte_but_the_correlation_id_has_to_be_equal() -> None:
    frame = request(4, 5)
    run = ClaimRun(frame, 3, flexible=True)
    for position in range(3 * len(frame)):
        data = bytearray(frame * 3)
        data[position] ^= 0x40
        assert run.matches(bytes(data)) == (8 <= position % len(frame) < 12), position


def test_the_memory_of_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_responder, "MAX_RUNS", 3)
    asked, _ = responder()
    answers(asked, request(4, 0))
    for count in range(2, 10):
        asked.respond(b"".join(request(4, number) for number in range(count)))
        assert len(asked._runs) <= 3
