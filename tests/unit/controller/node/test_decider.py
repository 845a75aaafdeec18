"""Group commit: one batch in flight, answers released by (term, index) alone, and never a block for another's entry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pidkeeper.controller.answers import not_controller
from pidkeeper.controller.node import decider as decider_module
from pidkeeper.controller.node.decider import Decider
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry
from pidkeeper.controller.raft.refusals import NotLeader
from pidkeeper.controller.state.decide import RECORD_BYTES, REGISTRATION_BYTES
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    AddPartitionsToTxn,
    AllocateProducerIds,
    BrokerHeartbeat,
    EndTxn,
    InitProducerId,
    RaiseFloor,
    RegisterBroker,
    Request,
    UnregisterBroker,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.records import (
    MAX_BATCH_RECORDS,
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    VotersRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import TopicPartitions

ALLOCATE = AllocateProducerIds(1, 0)


class Leader:
    """The parts that decide, over a log that is a list whose entries the test commits."""

    def __init__(self, machine: StateMachine) -> None:
        self.node_id = 1
        self.term = 3
        self.machine = machine
        self.log: list[Entry] = []
        self.is_settled = True
        self.refuses = False
        self.pumps = 0
        self.proposals = Proposals(self)
        self.wrong = self.unwanted = False
        self.decider = Decider(
            machine,
            self.proposals,
            wall_clock=lambda: 1.5,
            prepared=self._prepare,
            checked=self._check,
        )
        self._scheduled = False

    def _prepare(self, request: Request) -> Request:
        if self.unwanted and isinstance(request, AllocateProducerIds):
            raise RequestError(ErrorCode.FOUNDING_UNDER_WAY)
        return request

    def _check(self, records: Sequence[Record]) -> None:
        assert not self.wrong, f"X1: {records} are not to be"

    @property
    def applied(self) -> int:
        return self.last_index if self.is_settled else self.last_index - 1

    @property
    def last_index(self) -> int:
        return len(self.log)

    def propose(self, data: bytes) -> tuple[int, int]:
        if self.refuses:
            raise NotLeader(2)
        assert len(data) <= MAX_ENTRY_BYTES, f"an entry of {len(data)} bytes"
        self.log.append(Entry(self.term, len(self.log) + 1, data))
        return self.term, len(self.log)

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        return self.propose(encode_batch([record]))

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """As the member does: what arrives in one turn of the event loop is decided together."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.decider.add(request, answer)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.pump)
        return answer

    def pump(self) -> None:
        self._scheduled = False
        self.pumps += 1
        self.decider.decide()

    def apply(self, entry: Entry) -> None:
        """What the driver does with a committed entry."""
        self.machine.replay(self.proposals.records_of(entry) or decode_batch(entry.data))
        self.proposals.applied(entry)
        self.decider.decide()

    def fail(self, refusal: RequestError) -> None:
        """Leadership is lost, or the member stops."""
        self.proposals.fail(refusal)
        self.decider.fail(refusal)


@pytest.fixture
async def leader() -> Leader:
    machine = StateMachine("c", 10)
    machine.replay([RegisterBrokerRecord(1, 0, "a")])
    return Leader(machine)


async def turn() -> None:
    """Let everything that is scheduled run."""
    for _ in range(3):
        await asyncio.sleep(0)


def code_of(answer: asyncio.Future[Any]) -> ErrorCode:
    error = answer.exception()
    assert isinstance(error, RequestError)
    return error.code


async def test_requests_of_one_turn_become_one_batch(leader: Leader) -> None:
    answers = [leader.submit(ALLOCATE) for _ in range(5)]
    assert leader.log == []
    await turn()
    assert len(leader.log) == leader.pumps == 1
    assert not any(answer.done() for answer in answers)
    leader.apply(leader.log[0])
    assert [answer.result().producer_id_start for answer in answers] == [0, 10, 20, 30, 40]
    assert (leader.decider.batches, leader.decider.requests) == (1, 5)
    assert (leader.decider.batch_requests.count, leader.decider.batch_requests._sum) == (1, 5)
    assert leader.decider.idle()


async def test_requests_that_come_meanwhile_form_the_next_batch(leader: Leader) -> None:
    first = leader.submit(ALLOCATE)
    await turn()
    more = [leader.submit(ALLOCATE) for _ in range(3)]
    await turn()
    leader.pump()
    assert len(leader.log) == 1
    assert leader.decider.waiting() == 3
    leader.apply(leader.log[0])
    assert first.result().producer_id_start == 0
    assert len(leader.log) == 2
    assert len(decode_batch(leader.log[1].data)) == 3
    assert not any(answer.done() for answer in more)
    leader.apply(leader.log[1])
    assert [answer.result().producer_id_start for answer in more] == [10, 20, 30]


async def test_records_carry_the_leaders_wall_clock(leader: Leader) -> None:
    leader.submit(ALLOCATE)
    await turn()
    (record,) = decode_batch(leader.log[0].data)
    assert isinstance(record, AllocateProducerIdsRecord)
    assert record.timestamp_ms == 1500


async def test_an_earlier_entry_releases_nothing(leader: Leader) -> None:
    leader.log.append(Entry(3, 1, encode_batch([LeaderChangeRecord(1)])))
    answer = leader.submit(ALLOCATE)
    await turn()
    leader.proposals.applied(leader.log[0])
    assert not answer.done()
    leader.apply(leader.log[1])
    assert answer.result().producer_id_start == 0


@pytest.mark.parametrize(("term", "index"), [(4, 1), (2, 1), (4, 2), (3, 2)])
async def test_another_entry_in_its_place_gives_no_block(leader: Leader, term: int, index: int) -> None:
    answer = leader.submit(ALLOCATE)
    await turn()
    other = Entry(term, index, encode_batch([LeaderChangeRecord(2)]))
    assert leader.proposals.records_of(other) is None
    leader.apply(other)
    assert code_of(answer) is ErrorCode.NOT_CONTROLLER
    assert leader.machine.producer_ids.next_producer_id == 0
    assert leader.decider.idle()


async def test_losing_leadership_answers_unknown_to_everybody(leader: Leader) -> None:
    in_flight = leader.submit(ALLOCATE)
    await turn()
    waiting = leader.submit(ALLOCATE)
    leader.fail(not_controller())
    assert code_of(in_flight) is code_of(waiting) is ErrorCode.NOT_CONTROLLER
    # The entry may still be committed; its answers are gone, and the block with them.
    leader.apply(leader.log[0])
    assert leader.machine.producer_ids.next_producer_id == 10
    answer = leader.submit(ALLOCATE)
    await turn()
    leader.apply(leader.log[-1])
    assert answer.result().producer_id_start == 10


async def test_a_refused_proposal_refuses_the_batch(leader: Leader) -> None:
    leader.refuses = True
    answers = [leader.submit(ALLOCATE), leader.submit(AllocateProducerIds(9, 9))]
    await turn()
    assert [code_of(answer) for answer in answers] == [ErrorCode.NOT_CONTROLLER] * 2
    leader.refuses = False
    good = leader.submit(ALLOCATE)
    await turn()
    leader.apply(leader.log[0])
    assert good.result().producer_id_start == 0


async def test_an_entry_of_the_cores_own_in_between_is_waited_for(leader: Leader) -> None:
    leader.is_settled = False
    answer = leader.submit(RegisterBroker(2, "b"))
    await turn()
    leader.pump()
    assert leader.log == []
    assert leader.decider.waiting() == 1
    own = Entry(3, 1, encode_batch([LeaderChangeRecord(1)]))
    leader.log.append(own)
    leader.is_settled = True
    leader.apply(own)
    leader.apply(leader.log[1])
    # The leader's own record took offset 1.
    assert answer.result().broker_epoch == 2
    registration = leader.machine.brokers.get(2)
    assert registration is not None
    assert registration.broker_epoch == 2


async def test_a_registration_in_a_batch_gets_the_offset_of_its_record(leader: Leader) -> None:
    answers = [
        leader.submit(request)
        for request in (ALLOCATE, RegisterBroker(2, "b"), ALLOCATE, RegisterBroker(3, "c"), RaiseFloor(500))
    ]
    await turn()
    leader.apply(leader.log[0])
    assert [answers[1].result().broker_epoch, answers[3].result().broker_epoch] == [2, 4]
    assert {b.broker_id: b.broker_epoch for b in leader.machine.brokers.all()} == {1: 0, 2: 2, 3: 4}
    assert answers[4].result().next_producer_id == 500


async def test_a_refusal_is_released_with_its_batch(leader: Leader) -> None:
    """Not before: what it rests on, an unregistration earlier in the batch, is not committed yet."""
    answers = [leader.submit(request) for request in (UnregisterBroker(1, 0), ALLOCATE)]
    await turn()
    assert not answers[1].done()
    leader.apply(leader.log[0])
    assert answers[0].result().broker_id == 1
    assert code_of(answers[1]) is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_what_needs_no_record_is_answered_without_an_entry(leader: Leader) -> None:
    requests: list[Request] = [BrokerHeartbeat(1, 0), RegisterBroker(1, "a"), AllocateProducerIds(1, 77)]
    answers = [leader.submit(request) for request in requests]
    await turn()
    assert leader.log == []
    assert answers[0].result().fenced is False
    assert answers[1].result().broker_epoch == 0
    assert code_of(answers[2]) is ErrorCode.STALE_BROKER_EPOCH


INIT = InitProducerId(1, 0, "tx", 60_000, -1, -1, 7)
PAIR = msgspec.structs.replace(INIT, producer_id=7, producer_epoch=0)
ADD = AddPartitionsToTxn(1, 0, "tx", 7, 1, (TopicPartitions("t", (0,)),))


async def transactional(leader: Leader) -> None:
    """Producer 7 has epoch 1 of "tx", with a transaction under way."""
    leader.machine.replay([FeatureLevelRecord(TRANSACTIONS), ProducerIdFloorRecord(100, 0)])
    for request in (INIT, PAIR, ADD):
        leader.submit(request)
    await turn()
    leader.apply(leader.log.pop())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ADD, None),
        (EndTxn(1, 0, "tx", 7, 0, True), ErrorCode.PRODUCER_FENCED),
        (PAIR, ErrorCode.PRODUCER_FENCED),
        (EndTxn(1, 0, "other", 7, 0, True), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (msgspec.structs.replace(INIT, transactional_id="other"), ErrorCode.INVALID_REQUEST),
        (AbortTransaction("other", -1, -1), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ],
)
async def test_what_is_said_of_a_transactional_id_waits_until_this_member_is_known_to_lead(
    leader: Leader, request_: Request, code: ErrorCode | None
) -> None:
    """Deposed without knowing it, it would fence the newest producer, or grant what an older one asks for."""
    await transactional(leader)
    before = leader.machine.image(1, 1)
    answer = leader.submit(request_)
    await turn()
    assert not answer.done()
    (entry,) = leader.log
    assert decode_batch(entry.data) == [LeaderChangeRecord(1)]
    leader.apply(entry)
    assert (None if code is None else code_of(answer)) == code
    after = leader.machine.image(1, 1)
    assert after == msgspec.structs.replace(before, next_offset=before.next_offset + 1)


async def test_a_member_that_leads_no_more_says_nothing_of_a_transactional_id(leader: Leader) -> None:
    await transactional(leader)
    answers = [leader.submit(request) for request in (ADD, PAIR)]
    await turn()
    leader.proposals.applied(Entry(4, 1, encode_batch([LeaderChangeRecord(2)])))
    assert [code_of(answer) for answer in answers] == [ErrorCode.NOT_CONTROLLER] * 2
    leader.refuses = True
    answer = leader.submit(ADD)
    await turn()
    assert code_of(answer) is ErrorCode.NOT_CONTROLLER


async def test_a_decision_says_whether_it_appended_an_entry(leader: Leader) -> None:
    def decided(*wanted: Request) -> bool:
        for request in wanted:
            leader.decider.add(request, asyncio.get_running_loop().create_future())
        return leader.decider.decide()

    assert decided() is False, "nothing waits"
    assert decided(BrokerHeartbeat(1, 0)) is False, "it needs no record"
    leader.refuses = True
    assert decided(ALLOCATE) is False, "it leads no more"
    leader.refuses = False
    assert decided(ALLOCATE) is True
    assert decided(ALLOCATE) is False, "a batch is in flight"


async def test_it_is_idle_when_nothing_waits_and_nothing_is_in_flight(leader: Leader) -> None:
    leader.is_settled = False
    leader.submit(ALLOCATE)
    await turn()
    assert not leader.decider.idle(), "it waits for an entry of the core's own"
    leader.is_settled = True
    leader.pump()
    assert leader.decider.waiting() == 0
    assert not leader.decider.idle(), "it is in flight"
    leader.apply(leader.log[0])
    assert leader.decider.idle()


async def test_a_caller_that_hung_up_harms_nobody(leader: Leader) -> None:
    gone, stays = leader.submit(ALLOCATE), leader.submit(ALLOCATE)
    await turn()
    gone.cancel()
    leader.apply(leader.log[0])
    assert stays.result().producer_id_start == 10


async def test_waiting_is_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider_module, "MAX_WAITING", 3)
    leader.is_settled = False
    for _ in range(3):
        leader.submit(ALLOCATE)
    with pytest.raises(RequestError, match="3 requests wait already") as refused:
        leader.submit(ALLOCATE)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert leader.decider.waiting() == 3


async def test_a_batch_holds_at_most_its_limit_of_records(leader: Leader) -> None:
    answers = [leader.submit(ALLOCATE) for _ in range(MAX_BATCH_RECORDS + 5)]
    await turn()
    assert leader.decider.waiting() == 5
    leader.apply(leader.log[0])
    leader.apply(leader.log[1])
    starts = [answer.result().producer_id_start for answer in answers]
    assert starts == [10 * number for number in range(MAX_BATCH_RECORDS + 5)]
    assert [len(decode_batch(entry.data)) for entry in leader.log] == [MAX_BATCH_RECORDS, 5]


@pytest.mark.parametrize(("spare", "together"), [(0, 2), (-1, 1)])
async def test_a_batch_fills_its_entry_to_the_last_byte(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, spare: int, together: int
) -> None:
    monkeypatch.setattr(decider_module, "MAX_ENTRY_BYTES", 2 * RECORD_BYTES + spare)
    for _ in range(2):
        leader.submit(ALLOCATE)
    await turn()
    assert len(decode_batch(leader.log[0].data)) == together


@pytest.mark.parametrize("incarnation", ["x" * 64, "\U0001f511" * 64], ids=["ascii", "four bytes a character"])
async def test_a_flood_of_registrations_never_makes_an_entry_too_large(leader: Leader, incarnation: str) -> None:
    answers = [leader.submit(RegisterBroker(broker, incarnation)) for broker in range(2, 4000)]
    await turn()
    applied = 0
    while applied < len(leader.log):
        leader.apply(leader.log[applied])
        applied += 1
    assert [answer.result().broker_epoch for answer in answers] == list(range(1, 3999))


def test_the_sizes_of_records_are_bounded_as_stated() -> None:
    highest = 2**63 - 1
    registration = RegisterBrokerRecord(MAX_BROKER_ID, highest, "\U0001f511" * 64)
    others: list[Record] = [
        AllocateProducerIdsRecord(MAX_BROKER_ID, highest, MAX_PRODUCER_ID, MAX_PRODUCER_ID, 2**31, highest),
        ProducerIdFloorRecord(MAX_PRODUCER_ID, highest),
    ]
    assert len(encode_batch([registration])) <= REGISTRATION_BYTES
    assert max(len(encode_batch([record])) for record in others) <= RECORD_BYTES
    assert MAX_BATCH_RECORDS * RECORD_BYTES + REGISTRATION_BYTES <= MAX_ENTRY_BYTES


async def test_a_fault_answers_everything_with_its_own_error(leader: Leader) -> None:
    in_flight = leader.submit(ALLOCATE)
    await turn()
    waiting = leader.submit(ALLOCATE)
    leader.fail(RequestError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert code_of(in_flight) is code_of(waiting) is ErrorCode.KAFKA_STORAGE_ERROR
    await turn()
    assert len(leader.log) == 1


async def test_what_the_leader_does_not_want_is_refused_by_itself(leader: Leader) -> None:
    leader.unwanted = True
    answers = [leader.submit(request) for request in (ALLOCATE, RegisterBroker(2, "b"), ALLOCATE)]
    await turn()
    assert not any(answer.done() for answer in answers)
    leader.apply(leader.log[0])
    assert code_of(answers[0]) is code_of(answers[2]) is ErrorCode.FOUNDING_UNDER_WAY
    assert answers[1].result().broker_epoch == 1
    alone = leader.submit(ALLOCATE)
    await turn()
    assert code_of(alone) is ErrorCode.FOUNDING_UNDER_WAY
    assert (len(leader.log), leader.decider.idle()) == (1, True)


async def test_what_is_decided_wrongly_is_not_proposed(leader: Leader) -> None:
    leader.decider.add(ALLOCATE, asyncio.get_running_loop().create_future())
    leader.wrong = True
    with pytest.raises(AssertionError, match=r"X1: .*AllocateProducerIdsRecord"):
        leader.decider.decide()
    assert leader.log == []
