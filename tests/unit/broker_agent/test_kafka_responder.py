"""Responses are read back by two other codecs, in every version."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka import answers
from pidkeeper.broker_agent.kafka import responder as kafka_responder
from pidkeeper.broker_agent.kafka.dispatch import DISPATCH, WITH_DATA, TransactionalCall
from pidkeeper.broker_agent.kafka.features import features_at
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.messages import BrokerDescription, InitProducerIdRequest
from pidkeeper.protocol.metadata_version import BASE, TRANSACTION_EPOCHS
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError
from pidkeeper.service.kafka.wire.versions import END_TXN, INIT_PRODUCER_ID, PRODUCE, TXN_OFFSET_COMMIT
from tests.support.kafka_oracles import (
    KAFKA_PYTHON,
    kafka_python_request,
    kafka_python_response,
    kio_response,
)
from tests.support.sasl_users import authenticate, handshake

FIRST = 2**40
INIT: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 2**31 - 1}


def make(ids: int = 1000) -> tuple[KafkaResponder, BlockReserve]:
    reserve = BlockReserve()
    if ids:
        reserve.offer(ProducerIdBlock(FIRST, ids))
    return KafkaResponder(reserve, directory(), lambda: "cluster-x"), reserve


def directory(*others: int) -> Directory:
    """Agent 7's, once it knows of `others` too."""
    known = Directory(Node(7, "agent.example", 9092))
    if others:
        nodes = [(7, "agent.example:9092"), *((other, f"agent-{other}:{9000 + other}") for other in others)]
        known.update([BrokerDescription(number, 1, False, kafka) for number, kafka in nodes])
    return known


def answer(responder: KafkaResponder, data: bytes) -> tuple[bytes, int]:
    """What is answered without the controllers."""
    response, used = responder.respond(data)
    assert isinstance(response, bytes)
    return response, used


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def init(version: int, correlation_id: int = 1, client_id: str | None = "c", **fields: Any) -> bytes:
    return framed(kafka_python_request("init_producer_id", version, correlation_id, client_id, **(INIT | fields)))


def ask(responder: KafkaResponder, request: bytes) -> bytes:
    """One response without its length field."""
    response, used = answer(responder, request)
    assert used == len(request)
    (length,) = struct.unpack_from(">i", response)
    assert length == len(response) - 4
    return response[4:]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("time", [1, 2], ids=["decoded", "remembered"])
def test_init_producer_id_in_every_version(version: int, time: int) -> None:
    responder, _ = make()
    for _ in range(time - 1):
        ask(responder, init(version, 99))
    frame = ask(responder, init(version, -77))
    response = kafka_python_response("init_producer_id", version, frame)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, FIRST + time - 1, 0)
    correlation_id, kio = kio_response("init_producer_id", version, frame)
    assert (correlation_id, kio.producer_id, kio.producer_epoch) == (-77, FIRST + time - 1, 0)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("time", [1, 2], ids=["decoded", "remembered"])
def test_with_no_id_at_hand_the_answer_is_14(version: int, time: int) -> None:
    responder, _ = make(ids=0)
    for _ in range(time - 1):
        ask(responder, init(version))
    response = kafka_python_response("init_producer_id", version, ask(responder, init(version)))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (14, -1, -1)


@pytest.mark.parametrize("version", range(6))
def test_where_no_id_will_ever_be_at_hand_the_answer_is_not_one_to_come_again_on(version: int) -> None:
    """Kafka's UNKNOWN_SERVER_ERROR, at once and for a frame that is known already; and only for as long as it holds."""
    responder, reserve = make(ids=0)
    codes = []
    for exhausted in (False, True, True):
        if exhausted:
            reserve.exhaust()
        frame = ask(responder, init(version))
        codes.append(kafka_python_response("init_producer_id", version, frame).error_code)
    reserve.offer(ProducerIdBlock(FIRST, 1))
    response = kafka_python_response("init_producer_id", version, ask(responder, init(version)))
    assert (codes, response.error_code, response.producer_id) == ([14, -1, -1], 0, FIRST)
    frame = ask(responder, init(version))
    assert kafka_python_response("init_producer_id", version, frame).error_code == 14


def test_producer_id_and_epoch_are_ignored_without_a_transactional_id() -> None:
    responder, _ = make()
    response = kafka_python_response(
        "init_producer_id", 4, ask(responder, init(4, producer_id=55, producer_epoch=2, transaction_timeout_ms=-1))
    )
    assert (response.error_code, response.producer_id) == (0, FIRST)


@pytest.mark.parametrize(("producer_id", "epoch"), [(55, -1), (-1, 0), (-2, -2)])
def test_half_a_pair_is_refused_though_nothing_else_of_it_matters(producer_id: int, epoch: int) -> None:
    """Kafka compares the two before it looks for a transactional id."""
    responder, reserve = make()
    for _ in range(2):
        frame = ask(responder, init(4, producer_id=producer_id, producer_epoch=epoch))
        response = kafka_python_response("init_producer_id", 4, frame)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (42, -1, -1)
    assert (reserve.claimed, responder._memo) == (0, {})


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_is_for_the_controllers_and_claims_nothing_here(version: int) -> None:
    responder, reserve = make()
    frame = init(version, 5, transactional_id="t", transaction_timeout_ms=60_000)
    for _ in range(2):
        call, used = responder.respond(frame + init(version))
        assert used == len(frame)
        assert isinstance(call, TransactionalCall)
        assert call.header == RequestHeader(22, version, 5, "c")
        assert call.request == InitProducerIdRequest("t", 60_000, -1, -1)
    assert (reserve.claimed, responder._memo) == (0, {})


def test_what_is_before_a_transactional_request_is_answered_first_and_what_is_behind_it_is_not() -> None:
    responder, reserve = make()
    before, waiting, behind = init(4, 1) + init(4, 2), init(4, 3, transactional_id="t"), init(4, 4)
    for _ in range(2):
        _, used = answer(responder, before + waiting + behind)
        assert used == len(before)
        call, used = responder.respond(waiting + behind)
        assert isinstance(call, TransactionalCall)
        assert used == len(waiting)
    assert reserve.claimed == 4


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_exactly_what_is_served(version: int) -> None:
    responder, _ = make()
    fields = {"client_software_name": "n", "client_software_version": "1"} if version >= 3 else {}
    frame = ask(responder, framed(kafka_python_request("api_versions", version, 5, "c", **fields)))
    response = kafka_python_response("api_versions", version, frame)
    expected = {3: (0, 13), 10: (0, 6), 17: (1, 1), 18: (0, 4), 22: (0, 5)}
    expected |= {24: (0, 3), 25: (0, 3), 26: (0, 4), 36: (0, 2)}
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == expected
    correlation_id, kio = kio_response("api_versions", version, frame)
    assert {key.api_key: (key.min_version, key.max_version) for key in kio.api_keys} == expected
    assert (correlation_id, response.error_code) == (5, 0)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("metadata_version", [BASE, TRANSACTION_EPOCHS - 1, TRANSACTION_EPOCHS, TRANSACTION_EPOCHS + 1])
def test_the_level_of_transactions_is_told_once_the_quorum_is_known_to_take_it(
    version: int, metadata_version: int
) -> None:
    known = BASE
    responder = KafkaResponder(
        BlockReserve(), directory(), lambda: "cluster-x", apis=WITH_DATA, features=lambda: features_at(known)
    )
    known = metadata_version
    fields = {"client_software_name": "n", "client_software_version": "1"}
    frame = ask(responder, framed(kafka_python_request("api_versions", version, 5, "c", **fields)))
    assert {key.api_key for key in kafka_python_response("api_versions", version, frame).api_keys} == set(
        WITH_DATA.advertised
    )
    _, told = kio_response("api_versions", version, frame)
    finalized = {one.name: (one.min_version_level, one.max_version_level) for one in told.finalized_features}
    if metadata_version < TRANSACTION_EPOCHS:
        assert (finalized, told.finalized_features_epoch) == ({}, -1)
    else:
        assert (finalized, told.finalized_features_epoch) == ({"transaction.version": (2, 2)}, metadata_version)
    # Clients that ask in version 3 refuse a feature whose lowest level is 0.
    supported = {one.name: (one.min_version, one.max_version) for one in told.supported_features}
    assert supported == ({"transaction.version": (0, 2)} if version >= 4 else {})


def test_what_clients_of_version_2_send_is_told_and_served_where_records_are_kept() -> None:
    told = {key: WITH_DATA.advertised[key].highest for key in (PRODUCE, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT)}
    assert told == {PRODUCE: 12, INIT_PRODUCER_ID: 5, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
    assert all(WITH_DATA.served[key].highest >= highest for key, highest in told.items())


@pytest.mark.parametrize("version", [5, 100, 2**15 - 1])
def test_api_versions_above_ours_is_answered_in_version_0_with_every_key(version: int) -> None:
    responder, _ = make()
    frame = ask(responder, framed(struct.pack(">hhi", 18, version, 5) + b"what a later version may hold"))
    response = kafka_python_response("api_versions", 0, frame)
    assert response.error_code == 35
    assert {key.api_key for key in response.api_keys} == set(DISPATCH)
    assert kio_response("api_versions", 0, frame)[0] == 5


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("topics", [[], ["a", "b"]])
def test_metadata_names_this_broker_and_no_topic(version: int, topics: list[str]) -> None:
    responder, _ = make()
    topic = KAFKA_PYTHON["metadata"][0].MetadataRequestTopic
    request = kafka_python_request("metadata", version, 5, "c", topics=[topic(version=version, name=n) for n in topics])
    frame = ask(responder, framed(request))
    response = kafka_python_response("metadata", version, frame)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(7, "agent.example", 9092)]
    assert [(t.name, t.error_code) for t in response.topics] == [(n, 3) for n in topics]
    correlation_id, kio = kio_response("metadata", version, frame)
    assert [(b.node_id, b.host, b.port) for b in kio.brokers] == [(7, "agent.example", 9092)]
    assert [(t.name, t.error_code.value, t.partitions) for t in kio.topics] == [(n, 3, ()) for n in topics]
    assert correlation_id == 5
    assert version < 1 or (response.controller_id, kio.controller_id) == (7, 7)
    assert version < 2 or (response.cluster_id, kio.cluster_id) == ("cluster-x", "cluster-x")


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_asked_for_by_id_is_unknown_by_id(version: int) -> None:
    responder, _ = make()
    topic = KAFKA_PYTHON["metadata"][0].MetadataRequestTopic(version=version, name=None, topic_id=uuid.UUID(int=5))
    frame = ask(responder, framed(kafka_python_request("metadata", version, 5, "c", topics=[topic])))
    (answer,) = kafka_python_response("metadata", version, frame).topics
    assert (answer.name, answer.topic_id, answer.error_code) == (None, uuid.UUID(int=5), 100)


def find(version: int, keys: list[str], key_type: int) -> bytes:
    fields: dict[str, Any] = {"key_type": key_type} if version >= 1 else {}
    fields |= {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    return framed(kafka_python_request("find_coordinator", version, 5, "c", **fields))


@pytest.mark.parametrize("version", range(7))
def test_no_coordinator_is_found_for_a_group(version: int) -> None:
    responder, _ = make()
    frame = ask(responder, find(version, ["k", "l"], 0))
    response = kafka_python_response("find_coordinator", version, frame)
    correlation_id, kio = kio_response("find_coordinator", version, frame)
    assert correlation_id == 5
    if version >= 4:
        assert [(c.key, c.error_code, c.node_id) for c in response.coordinators] == [("k", 30, -1), ("l", 30, -1)]
        assert [c.error_code.value for c in kio.coordinators] == [30, 30]
        assert "no consumer groups" in response.coordinators[0].error_message
    else:
        assert (response.error_code, response.node_id, kio.error_code.value) == (30, -1, 30)


@pytest.mark.parametrize("version", range(7))
def test_where_groups_are_served_the_directory_names_their_coordinator(version: int) -> None:
    known = directory(2, 9)
    responder = KafkaResponder(BlockReserve(), known, lambda: "cluster-x", apis=WITH_DATA)
    keys = ["g", "", "long" * 70]
    expected = [(0, *astuple(known.group_coordinator(key))) for key in keys[:2]] + [(30, -1, "", -1)]
    batches = [keys] if version >= 4 else [[key] for key in keys]
    told: list[Any] = []
    for batch in batches:
        frame = ask(responder, find(version, batch, 0))
        response = kafka_python_response("find_coordinator", version, frame)
        told += response.coordinators if version >= 4 else [response]
    assert [(one.error_code, one.node_id, one.host, one.port) for one in told] == expected


def test_whoever_may_not_describe_a_group_is_told_no_coordinator() -> None:
    responder = KafkaResponder(BlockReserve(), directory(), lambda: "cluster-x", apis=WITH_DATA)
    caller = Caller(may=lambda operation, name: (operation, name) == ("group-describe", "mine"))
    response, _ = responder.respond(find(4, ["mine", "other"], 0), caller)
    assert isinstance(response, bytes)
    found = kafka_python_response("find_coordinator", 4, response[4:]).coordinators
    assert [(one.key, one.error_code) for one in found] == [("mine", 0), ("other", 30)]


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("others", [(), (2, 9)])
def test_the_coordinator_of_a_transactional_id_is_the_one_of_the_directory(
    version: int, others: tuple[int, ...]
) -> None:
    known = directory(*others)
    responder = KafkaResponder(BlockReserve(), known, lambda: "cluster-x")
    keys = [f"id-{number}" for number in range(20)]
    expected = [known.coordinator(key) for key in keys]
    assert len({node.id for node in expected}) == 1 + len(others)
    for key, node in zip(keys, expected, strict=True):
        frame = ask(responder, find(version, [key], 1))
        response = kafka_python_response("find_coordinator", version, frame)
        _, kio = kio_response("find_coordinator", version, frame)
        if version >= 4:
            (response,), (kio,) = response.coordinators, kio.coordinators
            assert (response.key, kio.key) == (key, key)
        assert (response.error_code, response.node_id, response.host, response.port) == (0, *astuple(node))
        assert (kio.error_code.value, kio.node_id, kio.host, kio.port) == (0, *astuple(node))
    if version >= 4:
        frame = ask(responder, find(version, keys, 1))
        found = kafka_python_response("find_coordinator", version, frame).coordinators
        assert [(one.key, one.node_id) for one in found] == [(k, n.id) for k, n in zip(keys, expected, strict=True)]


@pytest.mark.parametrize("key", ["", "x" * 250])
def test_what_cannot_be_a_transactional_id_has_no_coordinator(key: str) -> None:
    responder, _ = make()
    response = kafka_python_response("find_coordinator", 2, ask(responder, find(2, [key], 1)))
    assert (response.error_code, response.node_id) == (53, -1)


def test_whoever_may_not_use_a_transactional_id_is_told_no_coordinator() -> None:
    responder, _ = make()
    response, _ = responder.respond(find(4, ["shop-1", "bank-1"], 1), Caller(lambda name: name.startswith("shop-")))
    assert isinstance(response, bytes)
    found = kafka_python_response("find_coordinator", 4, response[4:]).coordinators
    assert [(one.key, one.error_code) for one in found] == [("shop-1", 0), ("bank-1", 53)]
    assert found[1].node_id == -1


def test_a_call_carries_what_its_own_client_may_use_although_frames_are_remembered() -> None:
    responder, _ = make()
    frame = init(4, 5, transactional_id="t", transaction_timeout_ms=60_000)
    for may_use in ("t".startswith, "u".startswith):
        call, _ = responder.respond(frame, Caller(may_use))
        assert isinstance(call, TransactionalCall)
        assert call.caller.may_use("t") is may_use("t")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_sasl_where_nobody_has_to_authenticate_is_an_illegal_state(version: int) -> None:
    responder, _ = make()
    assert kafka_python_response("sasl_handshake", 1, ask(responder, handshake("PLAIN"))).error_code == 34
    frame = ask(responder, authenticate(b"x", version=version))
    assert kafka_python_response("sasl_authenticate", version, frame).error_code == 34


def test_one_request_looks_up_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_LOOKUPS", 3)
    responder = KafkaResponder(BlockReserve(), directory(1, 2), lambda: "cluster-x")
    frame = ask(responder, find(4, [f"id-{number}" for number in range(5)], 1))
    found = kafka_python_response("find_coordinator", 4, frame).coordinators
    assert [one.error_code for one in found] == [0, 0, 0, 15, 15]
    assert "ask again" in found[3].error_message


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_every_agent_that_lives_this_one_first(version: int) -> None:
    responder = KafkaResponder(BlockReserve(), directory(3, 12), lambda: "cluster-x")
    frame = ask(responder, framed(kafka_python_request("metadata", version, 5, "c", topics=[])))
    expected = [(7, "agent.example", 9092), (3, "agent-3", 9003), (12, "agent-12", 9012)]
    response = kafka_python_response("metadata", version, frame)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == expected
    _, kio = kio_response("metadata", version, frame)
    assert [(b.node_id, b.host, b.port) for b in kio.brokers] == expected
    assert version < 1 or (response.controller_id, kio.controller_id) == (7, 7)


@given(st.lists(st.integers(0, 5), max_size=40), st.data())
def test_any_cut_of_a_pipeline_gives_the_same_responses(versions: list[int], data: st.DataObject) -> None:
    """Frames cut anywhere: what was not used is offered again with more, as the listener does."""
    stream = b"".join(init(version, number) for number, version in enumerate(versions))
    whole, _ = make()
    expected, used = answer(whole, stream)
    assert used == len(stream)
    pieces, _ = make()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    responses, rest = b"", b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        rest += stream[start:end]
        used = 1
        while used:
            got, used = answer(pieces, rest)
            responses, rest = responses + got, rest[used:]
    assert (responses, rest) == (expected, b"")


def test_one_call_makes_no_more_than_its_bound_and_the_next_goes_on() -> None:
    """65 kB of one-byte keys would be a response of megabytes, were each of them explained."""
    responder, _ = make()
    keys = ["k"] * 4096
    request = framed(kafka_python_request("find_coordinator", 6, 5, "c", key_type=0, coordinator_keys=keys))
    stream, calls = request * 20, 0
    while stream:
        responses, used = answer(responder, stream)
        assert used > 0
        assert len(responses) <= kafka_responder.MAX_RESPONSE_BYTES + 120 * 1024
        stream, calls = stream[used:], calls + 1
    assert calls == 10, "60 kB each: the second one passes the bound"


def test_a_frame_before_a_malformed_one_is_answered_and_then_it_is_refused() -> None:
    responder, reserve = make()
    good, bad = init(4), framed(init(4)[4:] + b"\x00")
    _, used = responder.respond(good + bad + good)
    assert (used, reserve.claimed) == (len(good), 1)
    with pytest.raises(WireError, match="left over"):
        responder.respond(bad + good)
    assert reserve.claimed == 1


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31 - 1, 2**32 - 1])
def test_a_giant_length_is_refused_before_its_bytes_come(length: int) -> None:
    responder, _ = make()
    with pytest.raises(WireError, match="larger than"):
        responder.respond(struct.pack(">I", length))


@pytest.mark.parametrize("length", range(8))
def test_a_dwarf_frame_is_refused_even_with_a_remembered_frame_behind(length: int) -> None:
    responder, reserve = make()
    ask(responder, init(4))
    with pytest.raises(WireError):
        responder.respond(struct.pack(">i", length) + init(4))
    assert reserve.claimed == 1


@given(st.integers(0, 60), st.integers(0, 255))
def test_a_remembered_frame_with_one_byte_changed_claims_only_if_it_decodes(position: int, value: int) -> None:
    responder, reserve = make()
    fresh, fresh_reserve = make()
    request = init(4, client_id="abc")
    ask(responder, request)
    mutated = bytearray(request)
    mutated[position % len(mutated)] = value
    outcomes: list[Any] = []
    for one in (responder, fresh):
        try:
            response, _ = one.respond(bytes(mutated))
        except WireError:
            outcomes.append(None)
        else:
            outcomes.append(len(response) if isinstance(response, bytes) else response)
    assert outcomes[0] == outcomes[1]
    assert reserve.claimed - 1 == fresh_reserve.claimed


@pytest.mark.parametrize("version", range(6))
def test_a_remembered_frame_is_answered_once_it_is_whole_and_not_before(version: int) -> None:
    responder, reserve = make()
    frame = init(version)
    ask(responder, frame)
    for cut in range(len(frame)):
        assert answer(responder, frame[:cut]) == (b"", 0)
        assert answer(responder, frame + frame[:cut])[1] == len(frame)
    assert reserve.claimed == 1 + len(frame)


def test_remembered_frames_of_two_kinds_in_turn_take_one_call() -> None:
    """One by one, with what is left copied each time, a chunk of 256 KiB would cost as much as a gigabyte."""
    responder, reserve = make()
    pair = init(4, 1) + init(1, 2, "another")
    responder.respond(pair)
    assert answer(responder, pair * 50)[1] == len(pair * 50)
    assert reserve.claimed == 102


def test_the_memo_is_bounded_in_frames_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_responder, "MAX_MEMO_KEYS", 10)
    responder, reserve = make()
    for number in range(35):
        ask(responder, init(4, client_id=f"client-{number}"))
        assert len(responder._memo) <= 10
    remembered = len(responder._memo)
    ask(responder, init(4, client_id="x" * 600))
    assert (len(responder._memo), reserve.claimed) == (remembered, 36)
