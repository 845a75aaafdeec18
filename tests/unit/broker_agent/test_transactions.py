"""Whole flows of transactional producers, against a stub whose decisions are the controllers' own."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pidkeeper.broker_agent.controllers.client import MAX_TRANSACTIONAL_CALLS
from pidkeeper.broker_agent.coordinator import transactions as module
from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.requests import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn
from pidkeeper.broker_agent.coordinator.transactions import MAX_CANDIDATES
from pidkeeper.broker_agent.ids.reserve import NO_ID
from pidkeeper.controller.state import requests as asked
from pidkeeper.controller.state.own_ids import NO_OWN_IDS
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import MAX_EPOCH, TransactionStatus
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import HeldIds, InitProducerIdRequest, InitProducerIdResponse, TransactionTopic
from pidkeeper.protocol.metadata_version import BASE, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.transactions import MAX_TIMEOUT_MS, ForgetTransactionRecord, TransactionRecord
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until
from tests.support.whole_agent import WholeAgent, direct_agent, whole_agent

NO_PAIR = (-1, -1)
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"


@pytest.fixture
async def quorum() -> AsyncIterator[StubQuorum]:
    async with StubQuorum(3) as running:
        yield running


async def init(whole: WholeAgent, name: str = "t", pair: tuple[int, int] = NO_PAIR) -> tuple[int, int]:
    answer = await whole.transactions.init_producer_id(InitProducerIdRequest(name, 60_000, *pair))
    assert answer == InitProducerIdResponse(0, answer.producer_id, answer.producer_epoch)
    return answer.producer_id, answer.producer_epoch


async def add(whole: WholeAgent, pair: tuple[int, int], *partitions: int, name: str = "t") -> None:
    await whole.transactions.step(AddPartitionsToTxn(name, *pair, [TransactionTopic("orders", list(partitions))]))


async def end(whole: WholeAgent, pair: tuple[int, int], *, committed: bool = True, name: str = "t") -> None:
    await whole.transactions.step(EndTxn(name, *pair, committed))


def refused(code: str) -> Any:
    return pytest.raises(RequestError, match=f"^{code}:")


def state(quorum: StubQuorum, name: str = "t") -> tuple[TransactionStatus, int, int]:
    record = quorum.machine.transactions.get(name)
    assert record is not None
    return TransactionStatus(record.status), record.producer_id, record.producer_epoch


async def test_a_transactional_id_gets_an_id_and_then_rising_epochs(quorum: StubQuorum) -> None:
    async with whole_agent(quorum) as whole:
        first = await init(whole)
        assert first == (0, 0)
        assert [await init(whole) for _ in range(3)] == [(0, 1), (0, 2), (0, 3)]
        assert await init(whole, "u") == (1, 0), "the candidate that three bumps did not need"
        assert whole.agent.reserve.claim() == 2
        assert (whole.agent.candidates.taken, whole.agent.candidates.lost) == (2, 0)


async def test_no_candidate_goes_along_once_the_quorum_takes_the_ids_itself(quorum: StubQuorum) -> None:
    """It is heard by a heartbeat while the agent is registered, and no answer of an older build takes it back."""
    async with whole_agent(quorum) as whole:
        assert await init(whole) == (0, 0)
        quorum.machine.metadata_version = quorum.tells = TRANSACTIONAL_BLOCKS
        await until(lambda: whole.agent.session.metadata_version == TRANSACTIONAL_BLOCKS)
        heard, quorum.tells = quorum.heartbeats, BASE
        await until(lambda: quorum.heartbeats > heard + 1)
        first = quorum.next_producer_id
        assert [await init(whole, name) for name in ("u", "v")] == [(first, 0), (first + 1, 0)]
        assert [request.candidate for request in quorum.transactional] == [0, -1, -1]
        assert whole.agent.reserve.claim() == 1, "none was burnt"


async def test_the_quorum_hears_of_the_highest_id_that_a_transactional_producer_was_told(quorum: StubQuorum) -> None:
    """One that lost its disks would give it a second time, as it comes from a block that no agent ever held."""
    quorum.machine.metadata_version = quorum.tells = TRANSACTIONAL_BLOCKS
    quorum.founding_id = uuid.UUID(int=1)
    async with whole_agent(quorum) as whole:
        agent = whole.agent
        await until(lambda: agent.session.founding_id == quorum.founding_id)
        given, _ = await init(whole)
        assert given > agent.reserve.highest_held
        await until(lambda: HeldIds(uuid.UUID(int=1), given) in quorum.held)
        held = agent.reserve.highest_held
        # Another quorum took the place of this one, and had answered the producer before the agent heard of it.
        agent.session.meet(uuid.UUID(int=2), Succession(uuid.UUID(int=1), held + 1))
        assert agent.reserve.remaining > 0, "its own IDs lie below the floor"
        assert NO_ID not in [agent.reserve.claim() for _ in range(1500)]
        await until(lambda: agent.reserve.highest_held > held)


async def test_a_candidate_that_the_quorum_did_not_need_is_kept(quorum: StubQuorum) -> None:
    """The agent has not heard yet that the quorum takes the IDs itself."""
    quorum.machine.metadata_version = TRANSACTIONAL_BLOCKS
    async with whole_agent(quorum) as whole:
        first = quorum.next_producer_id
        assert [await init(whole, name) for name in ("u", "v")] == [(first, 0), (first + 1, 0)]
        assert [request.candidate for request in quorum.transactional] == [0, 0]
        candidates = whole.agent.candidates
        assert (len(candidates), candidates.taken, candidates.lost) == (1, 0, 0)


async def test_an_older_instance_is_fenced(quorum: StubQuorum) -> None:
    async with whole_agent(quorum) as whole, whole_agent(quorum, 8) as other:
        old = await init(whole)
        await add(whole, old, 0)
        await end(whole, old)
        new = await init(other)
        assert new == (old[0], 1)
        with refused("PRODUCER_FENCED"):
            await add(whole, old, 1)
        with refused("PRODUCER_FENCED"):
            await end(whole, old)
        with refused("PRODUCER_FENCED"):
            await init(whole, pair=(old[0], 7))
        await add(other, new, 1)
        await end(other, new)


async def test_a_transaction_from_begin_to_end(quorum: StubQuorum) -> None:
    quorum.completes = False
    async with whole_agent(quorum) as whole:
        pair = await init(whole)
        await add(whole, pair, 3, 1)
        await whole.transactions.step(AddOffsetsToTxn("t", *pair, "my-group"))
        record = quorum.machine.transactions.get("t")
        assert record is not None
        assert sorted(record.each_partition()) == [("__consumer_offsets", 36), ("orders", 1), ("orders", 3)]
        await end(whole, pair)
        assert state(quorum)[0] is TransactionStatus.PREPARE_COMMIT
        with refused("CONCURRENT_TRANSACTIONS"):
            await end(whole, pair)
        with refused("CONCURRENT_TRANSACTIONS"):
            await init(whole)
        with refused("INVALID_TXN_STATE"):
            await end(whole, pair, committed=False)
        quorum.complete("t")
        await end(whole, pair)
        assert await init(whole) == (pair[0], 1)


async def test_whoever_comes_while_a_transaction_is_under_way_aborts_it_and_asks_again(quorum: StubQuorum) -> None:
    async with whole_agent(quorum) as whole:
        pair = await init(whole)
        await add(whole, pair, 0)
        with refused("CONCURRENT_TRANSACTIONS"):
            await init(whole)
        assert state(quorum) == (TransactionStatus.COMPLETE_ABORT, pair[0], 1)
        assert await init(whole) == (pair[0], 2)
        with refused("PRODUCER_FENCED"):
            await end(whole, pair)


async def test_a_pair_of_another_id_is_refused(quorum: StubQuorum) -> None:
    async with whole_agent(quorum) as whole:
        pair = await init(whole)
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            await end(whole, (pair[0] + 1, 0))
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            await end(whole, pair, name="unknown")
        with refused("INVALID_TXN_STATE"):
            await end(whole, pair)


async def test_after_a_lost_answer_the_same_question_gets_the_same_pair(quorum: StubQuorum) -> None:
    """KIP-360: the agent itself asks twice, and then the producer does."""
    async with whole_agent(quorum) as whole:
        pair = await init(whole)
        quorum.faults.append("answer-lost")
        bumped = await init(whole, pair=pair)
        assert bumped == (pair[0], 1)
        assert await init(whole, pair=pair) == bumped
        assert [type(one) for one in quorum.transactional] == [asked.InitProducerId] * 4


@pytest.mark.parametrize("fault", ["answer-lost", "never-arrived", "late"])
async def test_the_candidate_of_a_request_that_took_two_attempts_is_never_used_again(
    quorum: StubQuorum, fault: Any
) -> None:
    async with whole_agent(quorum) as whole:
        quorum.faults.append(fault)
        first = await init(whole)
        assert first[1] == (1 if fault == "answer-lost" else 0)
        quorum.faults.append(fault)
        second = await init(whole)
        assert (whole.agent.candidates.taken, len(whole.agent.candidates)) == (1, 0)
        lost = whole.agent.candidates.lost
        assert lost >= 2, "both attempts of the second request had one, and needed none"
        while quorum.late:
            quorum.carry_out_late()
        assert second[0] == first[0] <= lost
        assert await init(whole, "u") == (1 + lost, 0), "the first that no attempt had"
        assert whole.agent.reserve.claim() == 2 + lost


async def test_an_attempt_that_comes_after_its_id_was_forgotten_brings_no_pair_back(quorum: StubQuorum) -> None:
    """A leader whose clock is ahead forgets at once. With one candidate for both attempts (0, 0) came back, and with
    the next instance (0, 1), which somebody has."""
    async with whole_agent(quorum) as whole:
        quorum.faults.append("late")
        given = [await init(whole), await init(whole)]
        quorum.machine.replay([ForgetTransactionRecord("t")])
        quorum.carry_out_late()
        _, *late = state(quorum)
        given += [(late[0], late[1]), await init(whole), await init(whole)]
        assert len(set(given)) == len(given), given


async def test_with_the_quorum_away_the_answer_is_14_and_the_candidate_is_given_up(quorum: StubQuorum) -> None:
    async with whole_agent(quorum, call_seconds=0.3) as whole:
        quorum.leader = None
        for request in (init(whole), add(whole, (0, 0), 1), end(whole, (0, 0))):
            with refused(LOADING):
                await request
        lost = whole.agent.candidates.lost
        assert len(whole.agent.candidates) == 0
        assert 1 <= lost <= MAX_CANDIDATES
        quorum.leader = quorum.members[1]
        given, epoch = await init(whole)
        assert (lost <= given < lost + MAX_CANDIDATES, epoch) == (True, 0), "by whichever attempt"
    assert whole.transactions.under_way == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
    ],
)
async def test_the_controllers_troubles_are_14_to_a_producer(code: ErrorCode) -> None:
    whole = direct_agent(quorum := StubQuorum())
    for request in (init(whole), add(whole, (0, 0), 1), end(whole, (0, 0))):
        quorum.refusals.append(RequestError(code, "a secret of the controllers"))
        with refused(LOADING) as caught:
            await request
        assert "secret" not in str(caught.value)
    kept = code is not ErrorCode.INVALID_REQUEST
    assert (len(whole.agent.candidates), whole.agent.candidates.lost) == (int(kept), int(not kept))


async def test_without_any_id_left_who_needs_one_is_told_so_for_good_and_all_others_go_on() -> None:
    """It was 14 until the end of time: every client came again, and no producer ever failed."""
    whole = direct_agent(quorum := StubQuorum())
    quorum.machine.metadata_version = TRANSACTIONAL_BLOCKS
    pair = await init(whole)
    quorum.machine.own_ids, quorum.next_producer_id = NO_OWN_IDS, MAX_PRODUCER_ID
    for _ in range(2):
        with refused("PRODUCER_IDS_EXHAUSTED") as caught:
            await init(whole, "u")
        assert not caught.value.code.retriable
    await add(whole, pair, 0)
    await end(whole, pair)
    assert await init(whole) == (pair[0], 1)
    exhausted = TransactionRecord("t", pair[0], MAX_EPOCH, -1, -1, 60_000, TransactionStatus.EMPTY, 1)
    quorum.machine.transactions = TransactionsState([exhausted])
    with refused("PRODUCER_IDS_EXHAUSTED"):
        await init(whole, pair=(pair[0], MAX_EPOCH))
    assert whole.transactions.outcomes["init_producer_id", "PRODUCER_IDS_EXHAUSTED"] == 3


async def test_a_candidate_that_the_controllers_do_not_take_is_not_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = direct_agent(quorum := StubQuorum())
    quorum.next_producer_id = 0
    with refused(LOADING):
        await init(whole)
    assert "was never allocated" in caplog.text
    quorum.next_producer_id = 1000
    assert await init(whole) == (1, 0)


async def test_a_stale_epoch_is_14_and_makes_the_agent_register_anew(quorum: StubQuorum) -> None:
    """Long before the next heartbeat is due, and with no block to ask for either."""
    async with whole_agent(quorum, heartbeat_seconds=600.0) as whole:
        quorum.epochs[7] += 100
        with refused(LOADING):
            await end(whole, (0, 0))
        await until(lambda: whole.agent.session.registrations == 2)
        quorum.epochs[7] += 100
        with refused(LOADING):
            await init(whole)
        await until(lambda: whole.agent.session.registrations == 3)
        assert await init(whole) == (0, 0), "the refusal was certain, so the candidate was kept"


async def test_before_the_registration_nobody_is_asked() -> None:
    whole = direct_agent(quorum := StubQuorum())
    whole.agent.session.broker_epoch = None
    with refused(LOADING):
        await init(whole)
    with refused(LOADING):
        await end(whole, (0, 0))
    assert (quorum.transactional, whole.agent.reserve.claimed) == ([], 0)


async def test_without_an_id_at_hand_a_known_id_is_bumped_and_a_new_one_asks_again() -> None:
    whole = direct_agent(StubQuorum(), ids=1)
    assert await init(whole) == (0, 0)
    assert await init(whole) == (0, 1)
    with refused(LOADING):
        await init(whole, "u")
    assert await init(whole) == (0, 2)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5}, "INVALID_REQUEST"),
        ({"producer_epoch": 5}, "INVALID_REQUEST"),
        ({"transactional_id": "", "producer_epoch": 5}, "INVALID_REQUEST"),
        ({"transactional_id": "", "transaction_timeout_ms": 0}, "INVALID_REQUEST"),
        ({"transactional_id": "x" * 250, "transaction_timeout_ms": 0}, "INVALID_REQUEST"),
        ({"transaction_timeout_ms": 0, "producer_id": 5}, "INVALID_REQUEST"),
        ({"transaction_timeout_ms": 0}, "INVALID_TRANSACTION_TIMEOUT"),
        ({"transaction_timeout_ms": -1}, "INVALID_TRANSACTION_TIMEOUT"),
        ({"transaction_timeout_ms": MAX_TIMEOUT_MS + 1}, "INVALID_TRANSACTION_TIMEOUT"),
        ({"producer_id": -2, "producer_epoch": -2}, "INVALID_REQUEST"),
    ],
)
async def test_what_is_out_of_order_is_refused_without_the_controllers(fields: dict[str, Any], code: str) -> None:
    whole = direct_agent(quorum := StubQuorum())
    in_order: dict[str, Any] = {"transactional_id": "t", "transaction_timeout_ms": 60_000}
    with refused(code):
        await whole.transactions.init_producer_id(InitProducerIdRequest(**(in_order | fields)))
    assert (quorum.transactional, whole.agent.reserve.claimed) == ([], 0)


@pytest.mark.parametrize(("timeout_ms", "name"), [(1, "t"), (MAX_TIMEOUT_MS, "x" * 249)])
async def test_what_is_just_in_order_is_served(timeout_ms: int, name: str) -> None:
    whole = direct_agent(StubQuorum())
    answer = await whole.transactions.init_producer_id(InitProducerIdRequest(name, timeout_ms))
    assert answer.error_code == 0


@pytest.mark.parametrize(
    "request_",
    [
        EndTxn("", 0, 0, True),
        EndTxn("x" * 250, 0, 0, True),
        EndTxn("t", -2, 0, True),
        EndTxn("t", 0, -2, True),
        AddOffsetsToTxn("", 0, 0, "g"),
        AddPartitionsToTxn("t", 0, 0, [TransactionTopic("", [1])]),
        AddPartitionsToTxn("t", 0, 0, [TransactionTopic("x" * 250, [1])]),
        AddPartitionsToTxn("t", 0, 0, [TransactionTopic("a", [1]), TransactionTopic("b", [1, -1])]),
    ],
)
async def test_a_step_out_of_order_is_refused_without_the_controllers(request_: Any) -> None:
    whole = direct_agent(quorum := StubQuorum())
    with refused("INVALID_REQUEST"):
        await whole.transactions.step(request_)
    assert quorum.transactional == []


@pytest.mark.parametrize(
    "request_",
    [
        InitProducerIdRequest("t", 60_000),
        InitProducerIdRequest("t", 0),
        EndTxn("t", 0, 0, True),
        AddOffsetsToTxn("t", 0, 0, "g"),
        AddPartitionsToTxn("t", 0, 0, [TransactionTopic("orders", [1])]),
    ],
)
async def test_whoever_may_not_use_a_transactional_id_learns_nothing_of_it(request_: Any) -> None:
    whole = direct_agent(quorum := StubQuorum())
    asked: list[str] = []
    serve = (
        whole.transactions.init_producer_id if isinstance(request_, InitProducerIdRequest) else whole.transactions.step
    )
    with refused("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await serve(request_, Caller(lambda name: bool(asked.append(name))))  # type: ignore[func-returns-value]
    assert (asked, quorum.transactional, whole.agent.reserve.claimed) == (["t"], [], 0)
    ((_, outcome),) = whole.transactions.outcomes
    assert outcome == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


async def test_a_transaction_without_partitions_is_not_begun() -> None:
    whole = direct_agent(quorum := StubQuorum())
    pair = await init(whole)
    await whole.transactions.step(AddPartitionsToTxn("t", *pair, [TransactionTopic("orders", [])]))
    await whole.transactions.step(AddPartitionsToTxn("t", *pair, []))
    assert state(quorum)[0] is TransactionStatus.EMPTY
    await whole.transactions.step(
        AddPartitionsToTxn("t", *pair, [TransactionTopic("orders", []), TransactionTopic("b", [1])])
    )
    assert state(quorum)[0] is TransactionStatus.ONGOING


async def test_a_transaction_that_is_too_large_is_refused() -> None:
    whole = direct_agent(StubQuorum())
    pair = await init(whole)
    with refused("MESSAGE_TOO_LARGE"):
        await add(whole, pair, *range(14_000))


async def test_requests_under_way_are_bounded(quorum: StubQuorum) -> None:
    async with whole_agent(quorum, attempt_seconds=5.0, call_seconds=10.0) as whole:
        quorum.members[0].answers_after = 0.3
        waiting = [asyncio.create_task(init(whole, f"id-{number}")) for number in range(MAX_TRANSACTIONAL_CALLS)]
        await until(lambda: whole.transactions.under_way == MAX_TRANSACTIONAL_CALLS)
        with refused(LOADING):
            await init(whole, "one-too-many")
        assert "one-too-many" not in {one.transactional_id for one in quorum.transactional}
        pairs = await asyncio.gather(*waiting)
        assert len(set(pairs)) == MAX_TRANSACTIONAL_CALLS
        assert {epoch for _, epoch in pairs} == {0}
        assert await init(whole, "one-too-many") == (MAX_TRANSACTIONAL_CALLS, 0)


async def test_a_cancelled_request_takes_its_candidate_along(quorum: StubQuorum) -> None:
    async with whole_agent(quorum) as whole:
        quorum.members[0].hangs = True
        asking = asyncio.create_task(init(whole))
        await until(lambda: whole.transactions.under_way == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert (whole.transactions.under_way, whole.agent.candidates.lost) == (0, 1)


async def test_outcomes_are_counted_by_kind_and_code() -> None:
    whole = direct_agent(StubQuorum())
    pair = await init(whole)
    await add(whole, pair, 0)
    await end(whole, pair)
    for request in (init(whole, ""), end(whole, (pair[0], 9)), end(whole, pair, committed=False)):
        with pytest.raises(RequestError):
            await request
    assert whole.transactions.outcomes == {
        ("init_producer_id", "NONE"): 1,
        ("init_producer_id", "INVALID_REQUEST"): 1,
        ("add_partitions", "NONE"): 1,
        ("end", "NONE"): 1,
        ("end", "PRODUCER_FENCED"): 1,
        ("end", "INVALID_TXN_STATE"): 1,
    }


async def persist(ask: Any, *, final: frozenset[str] = frozenset()) -> Any:
    """Ask as a producer does: again and again, until the answer is none that says so. `final`: refusals to expect."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await ask()
            except RequestError as error:
                if error.code.name in final:
                    return error.code.name
                if error.code.name not in {LOADING, "CONCURRENT_TRANSACTIONS"}:
                    raise


@pytest.mark.parametrize("seed", range(4))
async def test_random_producers_at_two_agents_over_a_bad_network(quorum: StubQuorum, seed: int) -> None:
    """No ID is at two transactional ids or at one and a claim, and of two instances the older one never goes on."""
    chance = random.Random(seed)
    options: dict[str, Any] = {"attempt_seconds": 1.0, "call_seconds": 5.0}
    async with whole_agent(quorum, **options) as one, whole_agent(quorum, 8, **options) as other:
        owners: dict[int, str] = {}
        claims: list[int] = []
        newest: dict[str, tuple[int, int]] = {}
        for _ in range(120):
            whole, name = chance.choice([one, other]), f"id-{chance.randrange(6)}"
            quorum.faults.extend(
                chance.choices(["none", "answer-lost", "never-arrived", "late"], [6, 2, 1, 1], k=chance.randrange(3))
            )
            if chance.random() < 0.2:
                quorum.leader = chance.choice(quorum.members)
            if quorum.late and chance.random() < 0.5:
                quorum.carry_out_late()
            action = chance.randrange(4)
            if action == 0:
                claims.append(whole.agent.reserve.claim())
            elif action == 1 or name not in newest:
                old = newest.get(name)
                newest[name] = await persist(lambda whole=whole, name=name: init(whole, name))
                assert owners.setdefault(newest[name][0], name) == name
                assert newest[name] != old
                if old is not None:
                    fenced = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"})
                    assert await persist(
                        lambda whole=whole, name=name, old=old: end(whole, old, name=name), final=fenced
                    )
            else:
                pair = newest[name]
                # A late attempt may be a newer instance's, or end what has just begun.
                late = frozenset({"PRODUCER_FENCED", "INVALID_TXN_STATE"})
                await persist(lambda whole=whole, pair=pair, name=name: add(whole, pair, 1, name=name), final=late)
                await persist(lambda whole=whole, pair=pair, name=name: end(whole, pair, name=name), final=late)
        used = claims + list(owners)
        assert len(set(used)) == len(used)
        assert not set(claims) & {record.producer_id for record in quorum.machine.transactions.all()}


def test_every_kind_of_request_has_a_name() -> None:
    assert set(module.KINDS) == {InitProducerIdRequest, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn}
