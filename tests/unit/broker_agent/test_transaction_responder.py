"""The same request by HTTP and over the wire gets the same decision; old clients get the codes that they know."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TransactionStep
from pidkeeper.broker_agent.kafka.transaction_responder import TransactionResponder
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdRequest, TransactionTopic
from tests.support.kafka_oracles import KAFKA_PYTHON, kafka_python_request, kafka_python_response
from tests.support.served_app import served
from tests.support.stub_controller import StubQuorum
from tests.support.whole_agent import WholeAgent, direct_agent, whole_agent

Request = InitProducerIdRequest | TransactionStep
API = {
    InitProducerIdRequest: ("init_producer_id", "/v1/init-producer-id", 5),
    AddPartitionsToTxn: ("add_partitions_to_txn", "/v1/transactions/add-partitions", 3),
    AddOffsetsToTxn: ("add_offsets_to_txn", "/v1/transactions/add-offsets", 3),
    EndTxn: ("end_txn", "/v1/transactions/end", 4),
}
_correlation_ids = itertools.count(1)


def frame_of(request: Request, version: int, correlation_id: int) -> bytes:
    fields = msgspec.structs.asdict(request)
    fields.pop("new_epoch", None)  # which is the version's to say
    if isinstance(request, AddPartitionsToTxn):
        topic = KAFKA_PYTHON["add_partitions_to_txn"][0].AddPartitionsToTxnTopic
        fields["topics"] = [topic(version=version, name=one.topic, partitions=one.partitions) for one in request.topics]
        fields = {f"v3_and_below_{name}": value for name, value in fields.items()}
    if isinstance(request, InitProducerIdRequest) and version < 3:
        del fields["producer_id"], fields["producer_epoch"]
    frame = kafka_python_request(API[type(request)][0], version, correlation_id, "c", **fields)
    return struct.pack(">i", len(frame)) + frame


async def over_the_wire(
    whole: WholeAgent, request: Request, version: int | None = None, caller: Caller = ANYBODY
) -> tuple[int, int, int]:
    """Error code, producer id and epoch; -1 where the answer has none."""
    api, _, highest = API[type(request)]
    version = highest if version is None else version
    correlation_id = next(_correlation_ids)
    answer = await whole.answer(frame_of(request, version, correlation_id), caller)
    assert struct.unpack_from(">i", answer) == (len(answer) - 4,)
    response = kafka_python_response(api, version, answer[4:])
    assert struct.unpack_from(">i", answer, 4) == (correlation_id,)
    if isinstance(request, InitProducerIdRequest):
        return response.error_code, response.producer_id, response.producer_epoch
    if not isinstance(request, AddPartitionsToTxn):
        return response.error_code, -1, -1
    results = response.results_by_topic_v3_and_below
    assert [(one.name, [part.partition_index for part in one.results_by_partition]) for one in results] == [
        (one.topic, one.partitions) for one in request.topics
    ]
    (code,) = {part.partition_error_code for one in results for part in one.results_by_partition}
    return code, -1, -1


JSON_HEADERS = {"Content-Type": "application/json"}


async def by_http(client: ClientSession, request: Request) -> tuple[int, int, int]:
    response = await client.post(API[type(request)][1], data=msgspec.json.encode(request), headers=JSON_HEADERS)
    answer = await response.json()
    assert (response.status == 200) == (answer["error_code"] == 0)
    return answer["error_code"], answer.get("producer_id", -1), answer.get("producer_epoch", -1)


@contextlib.asynccontextmanager
async def http_of(whole: WholeAgent) -> AsyncIterator[ClientSession]:
    async with served(build_app(whole.agent, whole.listener)) as session:
        yield session


ids = st.sampled_from(["t", "t", "t", "u", "", "x" * 250])
pairs = st.tuples(st.integers(-2, 2), st.integers(-2, 3))
inits = st.builds(
    lambda name, timeout, pair: InitProducerIdRequest(name, timeout, pair[0], pair[1]),
    st.none() | ids,
    st.sampled_from([60_000, 60_000, 1, 900_000, 900_001, 0, -1, 2**31 - 1]),
    st.just((-1, -1)) | pairs,
)
topics = st.lists(
    st.builds(
        TransactionTopic,
        st.sampled_from(["a", "b", "", "x" * 250]),
        st.lists(st.integers(-1, 3), min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=2,
)
steps = (
    st.builds(lambda name, pair, topics: AddPartitionsToTxn(name, pair[0], pair[1], topics), ids, pairs, topics)
    | st.builds(lambda pair: AddPartitionsToTxn("t", pair[0], pair[1], [TransactionTopic("a", [1])]), pairs)
    | st.builds(lambda name, pair, group: AddOffsetsToTxn(name, pair[0], pair[1], group), ids, pairs, st.text())
    | st.builds(lambda name, pair, committed: EndTxn(name, pair[0], pair[1], committed), ids, pairs, st.booleans())
)


@given(requests=st.lists(inits | steps, min_size=1, max_size=14), at_hand=st.sampled_from([1, 1000]))
@settings(max_examples=120, deadline=None)
def test_by_http_and_over_the_wire_the_decision_is_the_same(requests: list[Request], at_hand: int) -> None:
    async def compare() -> None:
        one, other = direct_agent(StubQuorum(), at_hand), direct_agent(StubQuorum(), at_hand)
        async with http_of(one) as client:
            for request in requests:
                assert await by_http(client, request) == await over_the_wire(other, request), request
        assert one.agent.reserve.claimed == other.agent.reserve.claimed

    asyncio.run(compare())


INIT = InitProducerIdRequest("t", 60_000)


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_is_initialised_in_every_version(version: int) -> None:
    whole = direct_agent(StubQuorum())
    assert [await over_the_wire(whole, INIT, version) for _ in range(2)] == [(0, 0, 0), (0, 0, 1)]


@pytest.mark.parametrize(
    ("request_", "knows_fenced"),
    [
        (EndTxn("t", 0, 0, True), 2),
        (AddOffsetsToTxn("t", 0, 0, "g"), 2),
        (AddPartitionsToTxn("t", 0, 0, [TransactionTopic("a", [1]), TransactionTopic("b", [1, 2])]), 2),
        (InitProducerIdRequest("t", 60_000, 0, 9), 4),
    ],
)
async def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(request_: Request, knows_fenced: int) -> None:
    whole = direct_agent(StubQuorum())
    for _ in range(2):
        await over_the_wire(whole, INIT)
    lowest = 3 if isinstance(request_, InitProducerIdRequest) else 0
    for version in range(lowest, API[type(request_)][2] + 1):
        code, _, _ = await over_the_wire(whole, request_, version)
        assert code == (90 if version >= knows_fenced else 47), version


async def test_where_no_id_is_left_every_version_is_told_so() -> None:
    whole = direct_agent(quorum := StubQuorum())
    for version in range(6):
        quorum.refusals.append(RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED))
        assert await over_the_wire(whole, INIT, version) == (-1, -1, -1)
    async with http_of(whole) as client:
        quorum.refusals.append(RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED))
        assert await by_http(client, INIT) == (-1, -1, -1)


@pytest.mark.parametrize("kind", list(API))
async def test_no_version_is_told_of_an_error_that_it_does_not_know(kind: Any) -> None:
    """Neither TRANSACTION_ABORTABLE (120), nor any code of the controllers' own, but UNKNOWN_SERVER_ERROR (-1)."""
    whole = direct_agent(quorum := StubQuorum())
    requests: dict[Any, Request] = {
        InitProducerIdRequest: INIT,
        AddPartitionsToTxn: AddPartitionsToTxn("t", 0, 0, [TransactionTopic("a", [1])]),
        AddOffsetsToTxn: AddOffsetsToTxn("t", 0, 0, "g"),
        EndTxn: EndTxn("t", 0, 0, True),
    }
    for code, version in itertools.product(ErrorCode, range(API[kind][2] + 1)):
        quorum.refusals.append(RequestError(code))
        told, _, _ = await over_the_wire(whole, requests[kind], version)
        assert told in {14, 51, 47, 48, 49, 90, 10} or (told, code) == (-1, ErrorCode.PRODUCER_IDS_EXHAUSTED), code
        assert told != 90 or version >= 2


@pytest.mark.parametrize("version", range(4))
async def test_where_groups_are_served_only_who_may_read_one_commits_its_offsets(version: int) -> None:
    """READ of the group, which is asked for behind the transactional id (`KafkaApis.handleAddOffsetsToTxnRequest`)."""
    whole = direct_agent(StubQuorum())
    caller = Caller(lambda name: name == "t", may=lambda operation, name: (operation, name) == ("group-read", "mine"))
    asked = [AddOffsetsToTxn(*place) for place in (("t", 9, 0, "mine"), ("t", 9, 0, "other"), ("u", 9, 0, "other"))]
    assert [(await over_the_wire(whole, one, version, caller))[0] for one in asked] == [49, 49, 53]
    whole.waiting_responder = TransactionResponder(whole.transactions, serves_groups=True)
    assert [(await over_the_wire(whole, one, version, caller))[0] for one in asked] == [49, 30, 53]


async def test_a_whole_transaction_over_sockets_with_null_requests_in_between() -> None:
    """Eight connections pipeline everything at once; each gets its own answers, in its own order."""
    async with StubQuorum(3) as quorum, whole_agent(quorum) as whole:
        port = whole.agent.directory.own.port

        async def producer(name: str) -> tuple[int, list[int]]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                return await transaction(name, reader, writer)

        async def transaction(
            name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> tuple[int, list[int]]:
            async def answers(count: int) -> list[bytes]:
                return [
                    await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0]) for _ in range(count)
                ]

            null = InitProducerIdRequest(None, 60_000)
            ask = InitProducerIdRequest(name, 60_000)
            writer.write(frame_of(null, 4, 1) + frame_of(ask, 4, 2) + frame_of(null, 4, 3) + frame_of(null, 4, 4))
            got = [kafka_python_response("init_producer_id", 4, frame) for frame in await answers(4)]
            assert [one.error_code for one in got] == [0] * 4
            pair = (got[1].producer_id, got[1].producer_epoch)
            add = AddPartitionsToTxn(name, *pair, [TransactionTopic("orders", [1, 2])])
            writer.write(
                frame_of(add, 3, 5)
                + frame_of(AddOffsetsToTxn(name, *pair, "g"), 0, 6)
                + frame_of(null, 4, 7)
                + frame_of(EndTxn(name, *pair, True), 4, 8)
                + frame_of(EndTxn(name, pair[0], 99, True), 1, 9)
            )
            frames = await answers(5)
            assert [struct.unpack_from(">i", frame)[0] for frame in frames] == [5, 6, 7, 8, 9]
            assert kafka_python_response("end_txn", 4, frames[3]).error_code == 0
            assert kafka_python_response("end_txn", 1, frames[4]).error_code == 47
            nulls = [got[0].producer_id, got[2].producer_id, got[3].producer_id]
            return pair[0], [*nulls, kafka_python_response("init_producer_id", 4, frames[2]).producer_id]

        async with asyncio.timeout(20):
            results = await asyncio.gather(*(producer(f"id-{number}") for number in range(8)))
        used = [pid for pid, _ in results] + [one for _, nulls in results for one in nulls]
        assert len(set(used)) == len(used) == 40
        for number, (pid, _) in enumerate(results):
            record = quorum.machine.transactions.get(f"id-{number}")
            assert record is not None
            assert (record.producer_id, record.status) == (pid, 4)
