from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from pidkeeper.broker_agent.controllers.aiohttp_transport import MAX_RESPONSE_BYTES, AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient, InitOutcome
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerDescription,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EndTxnRequest,
    InitProducerIdResponse,
    Problem,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TransactionalInitRequest,
    TransactionResponse,
    TransactionTopic,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.service.refreshing import Refreshed
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.support.whole_agent import controller_client

REGISTER = RegisterBrokerRequest("incarnation")


@pytest.fixture
async def quorum() -> AsyncIterator[StubQuorum]:
    async with StubQuorum(3) as running:
        yield running


def client_of(quorum: StubQuorum, **options: Any) -> AbstractAsyncContextManager[ControllerClient]:
    return controller_client(quorum.urls, **options)


async def test_all_four_calls(quorum: StubQuorum) -> None:
    async with client_of(quorum) as client:
        assert await client.register(7, REGISTER) == RegisterBrokerResponse(1, "stub-cluster")
        assert quorum.queries == [f"metadata_version={LATEST}"]
        assert await client.heartbeat(7, BrokerHeartbeatRequest(1)) == BrokerHeartbeatResponse(fenced=False)
        assert await client.heartbeat(7, BrokerHeartbeatRequest(1), 2500) == BrokerHeartbeatResponse(fenced=False)
        assert quorum.queries[-2:] == ["", "reserve_ids=2500"]
        first = await client.allocate(AllocateProducerIdsRequest(7, 1, "stub-cluster"))
        assert first == AllocateProducerIdsResponse(0, 0, 1000)
        assert await client.unregister(7, UnregisterBrokerRequest(1)) == UnregisterBrokerResponse(7)
    assert quorum.incarnations == {7: "incarnation"}


async def test_a_member_that_hangs_is_not_asked_again_on_the_word_of_its_followers(quorum: StubQuorum) -> None:
    paused = quorum.members[0]
    paused.hangs = True
    async with client_of(quorum) as client:
        asking = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: quorum.members[1].requests + quorum.members[2].requests >= 3)
        assert paused.requests == 1, "both others named it"
        quorum.leader = quorum.members[2]
        assert await asking == RegisterBrokerResponse(1, "stub-cluster")
        assert client.leader == quorum.members[2].url


async def test_follows_the_named_leader_and_stays_with_it(quorum: StubQuorum) -> None:
    quorum.leader = quorum.members[2]
    async with client_of(quorum, attempt_seconds=PATIENCE_SECONDS) as client:
        for _ in range(3):
            await client.register(7, REGISTER)
        assert client.leader == quorum.members[2].url
    assert [member.requests for member in quorum.members] == [1, 0, 3]


class Watched(random.Random):
    """Chance for back-offs, which says how many requests each of them came behind."""

    def __init__(self, quorum: StubQuorum) -> None:
        super().__init__(1)
        self.rests: list[int] = []
        self._quorum = quorum

    def uniform(self, a: float, b: float) -> float:
        self.rests.append(sum(member.requests for member in self._quorum.members))
        return super().uniform(a, b)


async def test_a_leader_that_is_named_after_an_election_is_asked_at_once(quorum: StubQuorum) -> None:
    rng = Watched(quorum)
    quorum.leader = None
    async with AiohttpTransport() as transport:
        client = ControllerClient(quorum.urls, transport, rng, attempt_seconds=PATIENCE_SECONDS)
        asking = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: len(rng.rests) == 3)
        # The next one to be asked is the first member again, and names it.
        quorum.leader = quorum.members[2]
        await asking
    assert rng.rests == [1, 2, 3]
    assert [member.requests for member in quorum.members] == [2, 1, 2]


async def test_members_that_name_each_other_are_asked_twice_between_two_rests(quorum: StubQuorum) -> None:
    rng = Watched(quorum)
    first, second, third = quorum.members
    quorum.leader = third
    first.names, second.names = second.url, first.url
    async with AiohttpTransport() as transport:
        client = ControllerClient(quorum.urls[:2], transport, rng, attempt_seconds=PATIENCE_SECONDS)
        asking = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: len(rng.rests) == 3)
        first.names = second.names = None
        quorum.leader = first
        await asking
    assert rng.rests[:3] == [2, 4, 6]


async def test_finds_the_leader_though_nobody_names_it(quorum: StubQuorum) -> None:
    quorum.leader = quorum.members[2]
    for member in quorum.members:
        member.names_leader = False
    async with client_of(quorum, attempt_seconds=PATIENCE_SECONDS) as client:
        await client.register(7, REGISTER)
    assert [member.requests for member in quorum.members] == [1, 1, 1]


async def test_passes_over_a_member_that_refuses_connections(quorum: StubQuorum) -> None:
    async with client_of(quorum) as client:
        await client.register(7, REGISTER)
        await quorum.members[0].stop()
        quorum.leader = quorum.members[1]
        assert (await client.register(7, REGISTER)).broker_epoch == 2


async def test_passes_over_a_member_that_hangs(quorum: StubQuorum) -> None:
    quorum.members[0].hangs = True
    quorum.leader = quorum.members[1]
    async with client_of(quorum, attempt_seconds=0.1) as client:
        assert (await client.register(7, REGISTER)).broker_epoch == 1
        await client.register(7, REGISTER)
    assert quorum.members[0].requests == 1


async def test_a_quorum_that_is_slow_throughout_is_given_more_time(quorum: StubQuorum) -> None:
    for member in quorum.members:
        member.answers_after = 0.3
    async with client_of(quorum, attempt_seconds=0.1, call_seconds=10.0) as client:
        assert await client.register(7, REGISTER)


async def test_one_block_is_asked_for_once_an_answer_did_not_come_in_time(quorum: StubQuorum) -> None:
    async with client_of(quorum) as client:
        epoch = (await client.register(7, REGISTER)).broker_epoch
        quorum.queries.clear()
        quorum.members[0].hangs = True
        asking = asyncio.create_task(client.allocate(AllocateProducerIdsRequest(7, epoch), 8))
        await until(lambda: quorum.members[1].requests > 0)
        quorum.leader = quorum.members[1]
        assert not (await asking).more
    assert quorum.queries == [""], "what the leader was asked"


async def test_as_many_blocks_are_asked_for_where_nothing_was_given_up_on(quorum: StubQuorum) -> None:
    async with client_of(quorum, attempt_seconds=PATIENCE_SECONDS) as client:
        epoch = (await client.register(7, REGISTER)).broker_epoch
        quorum.queries.clear()
        quorum.leader = quorum.members[2]
        await client.allocate(AllocateProducerIdsRequest(7, epoch), 8)
    assert quorum.queries == ["blocks=8"], "what the leader was asked, after another member"


async def test_waits_through_an_election(quorum: StubQuorum) -> None:
    quorum.leader = None
    async with client_of(quorum) as client:
        call = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: sum(member.requests for member in quorum.members) >= 5)
        assert not call.done()
        quorum.leader = quorum.members[1]
        assert (await call).broker_epoch == 1


async def test_gives_up_at_the_deadline_and_says_what_it_saw_last(quorum: StubQuorum) -> None:
    for member in quorum.members:
        await member.stop()
    async with client_of(quorum, call_seconds=0.3) as client:
        with pytest.raises(
            RequestError, match=r"within 0\.3 s; last: http://127\.0\.0\.1:\d+: Cannot connect"
        ) as caught:
            await client.register(7, REGISTER)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.PRODUCER_IDS_EXHAUSTED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_the_controllers_refusal_comes_back_with_its_code(quorum: StubQuorum, code: ErrorCode) -> None:
    quorum.refusals.append(RequestError(code, "because of this"))
    async with client_of(quorum) as client:
        with pytest.raises(RequestError, match="because of this") as caught:
            await client.allocate(AllocateProducerIdsRequest(7, 1))
    assert caught.value.code is code
    assert quorum.members[0].requests == 1, "a refusal is not asked again"


async def test_a_throttled_call_says_for_how_long(quorum: StubQuorum) -> None:
    quorum.refusals.append(RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=123))
    async with client_of(quorum) as client:
        with pytest.raises(RequestError) as caught:
            await client.allocate(AllocateProducerIdsRequest(7, 1))
    assert caught.value.throttle_time_ms == 123


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_member_that_cannot_serve_is_asked_no_second_time_in_a_row(quorum: StubQuorum, code: ErrorCode) -> None:
    quorum.refusals.append(RequestError(code))
    async with client_of(quorum) as client:
        await client.register(7, REGISTER)
    assert quorum.members[0].requests + quorum.members[1].requests >= 2


async def test_the_token_goes_along_and_the_newest_before_a_refusal_is_believed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    token = Refreshed("token_file", [str(file)], file.read_text)
    async with StubQuorum(1, token="secret") as quorum, client_of(quorum, token=token) as client:
        await client.register(7, REGISTER)
        file.write_text("the next one")
        quorum.token = "the next one"
        await client.register(7, REGISTER)
        quorum.token = "one that is not there yet"
        before = quorum.members[0].requests
        with pytest.raises(RequestError, match="bad token"):
            await client.register(7, REGISTER)
        assert quorum.members[0].requests == before + 1, "the same token is not sent twice"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"not json"),
        (200, b'{"broker_epoch": "x"}'),
        (200, b'{"broker_epoch": 1, "cluster_id": "\xff"}'),
        (409, b'{"code": "\xff"}'),
        (200, b'{"x": ' + b"[" * 60_000),
        (409, b'{"x": ' + b"[" * 60_000),
        (200, b'{"broker_epoch": 99, "cluster_id": "x"}' + b" " * MAX_RESPONSE_BYTES),
        (500, b"<html>proxy error</html>"),
        (409, b'{"code": "NO_SUCH_CODE"}'),
    ],
)
async def test_nonsense_from_one_member_is_passed_over(quorum: StubQuorum, status: int, body: bytes) -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_post("/{tail:.*}", nonsense)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        broken = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with controller_client((broken, *quorum.urls)) as client:
            assert (await client.register(7, REGISTER)).broker_epoch == 1
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("named", ["ftp://x", "http://" + "x" * 600, "http://127.0.0.1:1"])
async def test_a_leader_that_is_not_there_does_not_stop_the_search(quorum: StubQuorum, named: str) -> None:
    class Elsewhere:
        url = named

    quorum.leader = Elsewhere()  # type: ignore[assignment]
    async with client_of(quorum) as client:
        call = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: sum(member.requests for member in quorum.members) >= 2)
        quorum.leader = quorum.members[2]
        assert (await call).broker_epoch == 1


async def test_concurrent_calls_move_on_from_a_dead_leader_together(quorum: StubQuorum) -> None:
    async with client_of(quorum) as client:
        await client.register(7, REGISTER)
        await quorum.members[0].stop()
        quorum.leader = quorum.members[1]
        request = AllocateProducerIdsRequest(7, 1)
        answers = await asyncio.gather(*(client.allocate(request) for _ in range(8)))
    assert sorted(answer.producer_id_start for answer in answers) == list(range(0, 8000, 1000))


async def test_a_late_failure_does_not_pull_back_a_call_that_found_the_leader(quorum: StubQuorum) -> None:
    quorum.members[0].hangs = True
    quorum.leader = quorum.members[2]
    async with client_of(quorum, attempt_seconds=0.4) as client:
        early = asyncio.create_task(client.register(7, REGISTER))
        await until(lambda: quorum.members[0].requests == 1)
        await asyncio.sleep(0.2)
        late = asyncio.create_task(client.register(7, REGISTER))
        await asyncio.gather(early, late)
    assert [member.requests for member in quorum.members] == [2, 1, 2]


async def test_a_redirect_is_not_followed(quorum: StubQuorum) -> None:
    """The token would go along to wherever it points."""

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": quorum.urls[0] + request.path})

    app = web.Application()
    app.router.add_post("/{tail:.*}", redirect)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        broken = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with controller_client((broken,), call_seconds=0.2) as client:
            with pytest.raises(RequestError, match="HTTP 307 without a problem document"):
                await client.register(7, REGISTER)
    finally:
        await runner.cleanup()
    assert quorum.members[0].requests == 0


INIT = TransactionalInitRequest(7, 1, "t", 60_000, candidate=0)


async def ready(quorum: StubQuorum, client: ControllerClient) -> None:
    await client.register(7, REGISTER)
    await client.allocate(AllocateProducerIdsRequest(7, 1))


async def test_the_calls_of_a_transaction(quorum: StubQuorum) -> None:
    async with client_of(quorum) as client:
        await client.register(7, RegisterBrokerRequest("incarnation", kafka="agent:9092"))
        await client.allocate(AllocateProducerIdsRequest(7, 1))
        assert (await client.brokers()).brokers == [BrokerDescription(7, 1, False, "agent:9092")]
        assert await client.init_producer_id(lambda: INIT) == InitOutcome(InitProducerIdResponse(0, 0, 0), certain=True)
        topics = [TransactionTopic("orders", [1])]
        added = await client.add_partitions_to_txn(lambda: AddPartitionsToTxnRequest(7, 1, "t", 0, 0, topics))
        ended = await client.end_txn(lambda: EndTxnRequest(7, 1, "t", 0, 0, True))
        assert (added, ended) == (TransactionResponse(0), TransactionResponse(0))


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INVALID_REQUEST])
async def test_a_refusal_of_the_first_attempt_is_certain(quorum: StubQuorum, code: ErrorCode) -> None:
    async with client_of(quorum) as client:
        quorum.refusals.append(RequestError(code))
        outcome = await client.init_producer_id(lambda: INIT)
        assert isinstance(outcome.answer, RequestError)
        assert (outcome.answer.code, outcome.certain) == (code, True)


@pytest.mark.parametrize("trouble", ["answer-lost", "never-arrived", "late", "not-the-leader", "gone", "slow"])
async def test_an_answer_that_took_more_than_one_attempt_is_not_certain(quorum: StubQuorum, trouble: Any) -> None:
    async with client_of(quorum, attempt_seconds=0.15) as client:
        await ready(quorum, client)
        if trouble == "not-the-leader":
            quorum.leader = quorum.members[1]
        elif trouble == "gone":
            await quorum.members[0].stop()
            quorum.leader = quorum.members[1]
        elif trouble == "slow":
            quorum.delays.append(0.25)
        else:
            quorum.faults.append(trouble)
        outcome = await client.init_producer_id(lambda: INIT)
        assert isinstance(outcome.answer, InitProducerIdResponse)
        assert not outcome.certain


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
async def test_an_error_that_leaves_the_outcome_open_is_not_certain(quorum: StubQuorum, code: ErrorCode) -> None:
    async with client_of(quorum, call_seconds=0.2) as client:
        quorum.refusals.extend(RequestError(code) for _ in range(50))
        outcome = await client.init_producer_id(lambda: INIT)
        assert isinstance(outcome.answer, RequestError)
        assert (outcome.answer.code, outcome.certain) == (code, False)


async def test_without_any_answer_nothing_is_certain(quorum: StubQuorum) -> None:
    quorum.members[0].hangs = True
    async with client_of(quorum, attempt_seconds=5.0, call_seconds=0.1) as client:
        outcome = await client.init_producer_id(lambda: INIT)
        assert isinstance(outcome.answer, RequestError)
        assert (outcome.answer.code, outcome.certain) == (ErrorCode.REQUEST_TIMED_OUT, False)


class Naming:
    """A transport to members who all name the same leader."""

    def __init__(self, leader: str) -> None:
        self.asked: list[str] = []
        self._leader = leader

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        self.asked.append(base_url)
        code = ErrorCode.NOT_CONTROLLER
        refusal = Problem(
            "about:blank", "x", code.http_status, "x", code.name, code.kafka_code, True, leader=self._leader
        )
        return code.http_status, msgspec.json.encode(refusal)


@pytest.mark.parametrize(
    ("members", "follows"), [(("https://a:1", "https://b:1"), False), (("https://a:1", "http://b:1"), True)]
)
async def test_a_token_is_not_told_to_a_leader_without_tls(members: tuple[str, ...], follows: bool) -> None:
    transport = Naming("http://leader:1")
    client = ControllerClient(members, transport, random.Random(1), call_seconds=0.2)
    with pytest.raises(RequestError):
        await client.register(7, REGISTER)
    assert len(transport.asked) > 2
    assert ("http://leader:1" in transport.asked) == follows


def test_at_least_one_member_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ControllerClient((), AiohttpTransport(), random.Random())
