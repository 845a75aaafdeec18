"""Decisions about transactional ids: the order of the checks, what a batch sees of itself, bounds, encoded sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES
from pidkeeper.controller.state import draft as draft_module
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import (
    EVIDENCE_BYTES,
    RECORD_BYTES,
    REGISTRATION_BYTES,
    decide,
    most_bytes,
    most_records,
    must_be_confirmed,
)
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import MAX_EPOCH, MAX_TRANSACTION_BYTES, TransactionStatus
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, MEMBERSHIP, TRANSACTIONS
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import (
    MAX_TIMEOUT_MS,
    MAX_TOPIC_LENGTH,
    MAX_TRANSACTIONAL_ID_LENGTH,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionRecord,
)

S = TransactionStatus
NEXT_ID = 1000
EPOCH = 2
NOW = 1_700_000_000_000
INIT = requests.InitProducerId(1, EPOCH, "tx", 60_000, -1, -1, 7)
ADD = requests.AddPartitionsToTxn(1, EPOCH, "tx", 7, 0, (TopicPartitions("t", (0, 3)),))
COMMIT = requests.EndTxn(1, EPOCH, "tx", 7, 0, True)
COMPLETE = requests.CompleteTransaction("tx", 7, 0)
ABORT = requests.AbortTransaction("tx", -1, -1)
FORGET = requests.ForgetTransactionalId("tx", 7, 0)


def make(version: int = TRANSACTIONS) -> StateMachine:
    """Broker 1 has registered with epoch 2, and the IDs below 1000 are allocated."""
    machine = StateMachine("c")
    machine.replay(
        [FeatureLevelRecord(version), ProducerIdFloorRecord(NEXT_ID, 0), RegisterBrokerRecord(1, EPOCH, "a")]
    )
    return machine


@pytest.fixture(params=[TRANSACTIONS, ADDED_PARTITIONS])
def machine(request: pytest.FixtureRequest) -> StateMachine:
    """Partitions that join are logged with all others of their transaction, or alone."""
    return make(request.param)


def batch(machine: StateMachine, *asked: requests.Request) -> list[Any]:
    """Decide these in one batch, replay it as followers do; the answers, and the codes of refusals."""
    draft = Draft(machine, NOW)
    answers: list[Any] = []
    for request in asked:
        before = list(draft.records)
        try:
            answer = decide(draft, request)
        except RequestError as refusal:
            answer = refusal.code
        assert len(draft.records) - len(before) <= (0 if isinstance(answer, ErrorCode) else most_records(request))
        answers.append(answer)
    if draft.records:
        machine.replay(decode_batch(encode_batch(draft.records)))
    return answers


def one(machine: StateMachine, request: requests.Request) -> Any:
    (answer,) = batch(machine, request)
    return answer


def state(machine: StateMachine, name: str = "tx") -> tuple[str, int, int]:
    record = machine.transactions.get(name)
    assert record is not None
    return S(record.status).name, record.producer_id, record.producer_epoch


def restored(record: TransactionRecord) -> StateMachine:
    machine = make()
    machine.restore(replace(machine.image(1, 1), transactions=[record]))
    return machine


# InitProducerId.


def test_a_new_id_gets_the_candidate_and_each_new_instance_the_next_epoch(machine: StateMachine) -> None:
    """shouldInitPidWithEpochZeroForNewTransactionalId."""
    assert one(machine, INIT) == InitProducerIdResponse(0, 7, 0)
    assert one(machine, replace(INIT, candidate=-1)) == InitProducerIdResponse(0, 7, 1)
    assert machine.transactions.get("tx") == TransactionRecord("tx", 7, 1, -1, -1, 60_000, S.EMPTY, NOW)


def test_a_repetition_of_a_bump_adds_no_record(machine: StateMachine) -> None:
    """testInitProducerIdWithCurrentEpochProvided, over a change of leader too: the last pair is in the record."""
    one(machine, INIT)
    bump = replace(INIT, producer_id=7, producer_epoch=0)
    assert batch(machine, bump, bump) == [InitProducerIdResponse(0, 7, 1)] * 2
    offset = machine.next_offset
    other = make()
    other.restore(machine.image(5, 2))
    assert one(other, bump) == InitProducerIdResponse(0, 7, 1)
    assert other.next_offset == offset


IN_ORDER: list[tuple[ErrorCode, requests.InitProducerId]] = [
    (ErrorCode.BROKER_ID_NOT_REGISTERED, INIT.__class__(9, 1, "", 0, 7, -1, NEXT_ID)),
    (ErrorCode.STALE_BROKER_EPOCH, INIT.__class__(1, 1, "", 0, 7, -1, NEXT_ID)),
    (ErrorCode.INVALID_REQUEST, INIT.__class__(1, EPOCH, "", 0, 7, -1, NEXT_ID)),
    (ErrorCode.INVALID_REQUEST, INIT.__class__(1, EPOCH, "", 0, -1, 0, NEXT_ID)),
    (ErrorCode.INVALID_REQUEST, INIT.__class__(1, EPOCH, "", 0, -1, -1, NEXT_ID)),
    (ErrorCode.INVALID_REQUEST, INIT.__class__(1, EPOCH, "x" * 250, 0, -1, -1, NEXT_ID)),
    (ErrorCode.INVALID_TRANSACTION_TIMEOUT, INIT.__class__(1, EPOCH, "x" * 249, 0, -1, -1, NEXT_ID)),
    (ErrorCode.INVALID_TRANSACTION_TIMEOUT, replace(INIT, timeout_ms=-1)),
    (ErrorCode.INVALID_TRANSACTION_TIMEOUT, replace(INIT, timeout_ms=MAX_TIMEOUT_MS + 1)),
    (ErrorCode.PRODUCER_FENCED, INIT.__class__(1, EPOCH, "known", 60_000, 20, 5, NEXT_ID)),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, replace(INIT, candidate=-1)),
    (ErrorCode.INVALID_REQUEST, replace(INIT, producer_id=7)),
    (ErrorCode.INVALID_REQUEST, replace(INIT, producer_epoch=0)),
    (ErrorCode.INVALID_REQUEST, replace(INIT, candidate=NEXT_ID)),
    (ErrorCode.INVALID_REQUEST, replace(INIT, candidate=20)),
]


@pytest.mark.parametrize(("code", "request_"), IN_ORDER)
def test_the_checks_come_in_kafkas_order(
    machine: StateMachine, code: ErrorCode, request_: requests.InitProducerId
) -> None:
    """shouldReturnInvalidRequestWhenTransactionalIdIsEmpty, testFenceProducerWhenMappingExistsWithDifferentProducerId.

    Each request is wrong in whatever would be looked at later, too."""
    one(machine, replace(INIT, transactional_id="known", candidate=20))
    before = machine.image(1, 1)
    assert one(machine, request_) is code
    assert machine.image(1, 1) == before


def test_the_least_and_the_longest_timeout_are_allowed(machine: StateMachine) -> None:
    answers = batch(machine, replace(INIT, timeout_ms=1), replace(INIT, timeout_ms=MAX_TIMEOUT_MS))
    assert answers == [InitProducerIdResponse(0, 7, 0), InitProducerIdResponse(0, 7, 1)]


@pytest.mark.parametrize("request_", [INIT, ADD, COMMIT])
def test_nothing_is_decided_before_all_members_read_it(request_: requests.Request) -> None:
    assert one(make(MEMBERSHIP), request_) is ErrorCode.UNSUPPORTED_VERSION


def test_a_batch_that_raises_the_version_may_use_it_at_once() -> None:
    answers = batch(make(MEMBERSHIP), requests.RaiseMetadataVersion(TRANSACTIONS), INIT)
    assert answers == [TRANSACTIONS, InitProducerIdResponse(0, 7, 0)]


def test_one_batch_gives_a_candidate_to_one_id_only(machine: StateMachine) -> None:
    answers = batch(machine, INIT, replace(INIT, transactional_id="other"), replace(INIT, candidate=8))
    assert answers == [InitProducerIdResponse(0, 7, 0), ErrorCode.INVALID_REQUEST, InitProducerIdResponse(0, 7, 1)]
    assert one(machine, replace(INIT, transactional_id="other")) is ErrorCode.INVALID_REQUEST


def test_a_rotation_takes_no_id_that_belongs_to_somebody() -> None:
    exhausted = TransactionRecord("tx", 7, MAX_EPOCH, -1, -1, 60_000, S.EMPTY, 1)
    machine = restored(exhausted)
    one(machine, replace(INIT, transactional_id="other", candidate=8))
    retry = replace(INIT, producer_id=7, producer_epoch=MAX_EPOCH)
    answers = batch(
        machine,
        replace(retry, candidate=8),
        replace(retry, candidate=7),
        replace(retry, candidate=9),
        replace(retry, candidate=-1),
        replace(INIT, transactional_id="third", candidate=7),
    )
    rotated = InitProducerIdResponse(0, 9, 0)
    refused = ErrorCode.INVALID_REQUEST
    assert answers == [refused, refused, rotated, rotated, refused]


def test_several_instances_in_one_batch_are_told_apart(machine: StateMachine) -> None:
    """testInitProducerIdStaleCurrentEpochProvided, within a batch."""
    bump = replace(INIT, producer_id=7, producer_epoch=0)
    answers = batch(machine, INIT, bump, INIT, bump, ADD, replace(ADD, producer_epoch=2), INIT)
    assert [answer if isinstance(answer, ErrorCode) else type(answer) for answer in answers] == [
        InitProducerIdResponse,
        InitProducerIdResponse,
        InitProducerIdResponse,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.PRODUCER_FENCED,
        TransactionResponse,
        RequestError,
    ]
    assert state(machine) == ("PREPARE_ABORT", 7, 3)


def test_the_answer_of_a_fenced_transaction_comes_with_its_record(machine: StateMachine) -> None:
    """shouldAbortTransactionOnHandleInitPidWhenExistingTransactionInOngoingState,
    shouldNotRepeatedlyBumpEpochDueToInitPidDuringOngoingTxnIfAppendToLogFails: asked once more before the markers are
    written, it is refused and bumps nothing."""
    batch(machine, INIT, ADD)
    draft = Draft(machine, NOW)
    answer = decide(draft, INIT)
    assert isinstance(answer, RequestError)
    assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert [record.producer_epoch for record in draft.records if isinstance(record, TransactionRecord)] == [1]
    with pytest.raises(RequestError, match=r"^CONCURRENT_TRANSACTIONS: "):
        decide(draft, INIT)
    assert len(draft.records) == 1
    machine.replay(draft.records)
    assert batch(machine, replace(COMPLETE, producer_epoch=1), INIT)[1] == InitProducerIdResponse(0, 7, 2)


def test_a_zombie_aborts_nothing(machine: StateMachine) -> None:
    batch(machine, INIT, INIT, replace(ADD, producer_epoch=1))
    assert one(machine, replace(INIT, producer_id=7, producer_epoch=0)) is ErrorCode.PRODUCER_FENCED
    assert state(machine) == ("ONGOING", 7, 1)


# A transaction from its beginning to its end.


@pytest.mark.parametrize(("committed", "end"), [(True, "COMMIT"), (False, "ABORT")])
def test_a_transaction(machine: StateMachine, committed: bool, end: str) -> None:
    ending = replace(COMMIT, committed=committed)
    assert batch(machine, INIT, ADD, ADD, ending)[1:] == [TransactionResponse(0)] * 3
    assert state(machine) == (f"PREPARE_{end}", 7, 0)
    assert batch(machine, ending, ADD) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert batch(machine, COMPLETE, COMPLETE, ending) == [TransactionResponse(0)] * 3
    assert state(machine) == (f"COMPLETE_{end}", 7, 0)
    assert one(machine, replace(ending, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert one(machine, ADD) == TransactionResponse(0)


@pytest.mark.parametrize("request_", [ADD, COMMIT])
def test_who_may_add_and_end(machine: StateMachine, request_: Any) -> None:
    batch(machine, INIT, ADD)
    for wrong, code in (
        ({"broker_id": 9}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"broker_epoch": 1, "transactional_id": ""}, ErrorCode.STALE_BROKER_EPOCH),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 250}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "nobody"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": 8}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 1}, ErrorCode.PRODUCER_FENCED),
    ):
        assert one(machine, replace(request_, **wrong)) is code, wrong


def test_an_abort_over_the_producers_head_fences_it(machine: StateMachine) -> None:
    assert one(machine, ABORT) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    batch(machine, INIT)
    assert one(machine, ABORT) is ErrorCode.INVALID_TXN_STATE
    batch(machine, ADD)
    for pair, code in (
        ((7, 1), ErrorCode.INVALID_TXN_STATE),
        ((8, 0), ErrorCode.INVALID_TXN_STATE),
        ((7, -1), ErrorCode.INVALID_REQUEST),
        ((-1, 0), ErrorCode.INVALID_REQUEST),
    ):
        assert one(machine, replace(ABORT, producer_id=pair[0], producer_epoch=pair[1])) is code
    assert one(machine, replace(ABORT, producer_id=7, producer_epoch=0)) == TransactionResponse(0)
    assert state(machine) == ("PREPARE_ABORT", 7, 1)
    assert one(machine, COMMIT) is ErrorCode.PRODUCER_FENCED


def test_an_operator_need_not_know_the_pair(machine: StateMachine) -> None:
    assert batch(machine, INIT, ADD, ABORT)[2] == TransactionResponse(0)
    assert state(machine) == ("PREPARE_ABORT", 7, 1)


def test_only_an_idle_id_with_the_pair_that_was_seen_is_forgotten(machine: StateMachine) -> None:
    assert one(machine, FORGET) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    batch(machine, INIT)
    assert one(machine, replace(FORGET, producer_epoch=1)) is ErrorCode.INVALID_TXN_STATE
    batch(machine, ADD)
    assert one(machine, FORGET) is ErrorCode.INVALID_TXN_STATE
    batch(machine, COMMIT)
    assert one(machine, FORGET) is ErrorCode.INVALID_TXN_STATE
    batch(machine, COMPLETE)
    assert batch(machine, FORGET, ADD, replace(INIT, candidate=8)) == [
        TransactionResponse(0),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        InitProducerIdResponse(0, 8, 0),
    ]
    assert state(machine) == ("EMPTY", 8, 0)


# Bounds.


def test_ids_are_bounded_and_known_ones_go_on(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_module, "MAX_TRANSACTIONAL_IDS", 3)
    inits = [replace(INIT, transactional_id=f"tx-{number}", candidate=number) for number in range(5)]
    answers = batch(machine, *inits)
    assert answers[3:] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert one(machine, inits[3]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert one(machine, inits[0]) == InitProducerIdResponse(0, 0, 1)
    one(machine, requests.ForgetTransactionalId("tx-1", 1, 0))
    assert one(machine, inits[3]) == InitProducerIdResponse(0, 3, 0)


def test_the_partitions_of_all_are_bounded_within_a_batch_too(
    machine: StateMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ADD.topics[0].kept_bytes
    monkeypatch.setattr(draft_module, "MAX_PARTITION_BYTES", 2 * size)
    names = [("a", 1), ("b", 2), ("c", 3)]
    batch(machine, *[replace(INIT, transactional_id=name, candidate=number) for name, number in names])
    adds = [replace(ADD, transactional_id=name, producer_id=number) for name, number in names]
    assert batch(machine, *adds)[2] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert machine.transactions.partition_bytes == 2 * size
    assert one(machine, adds[2]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert one(machine, adds[0]) == TransactionResponse(0), "nothing is added"
    # A transaction that ends makes room, within its batch too.
    batch(machine, replace(COMMIT, transactional_id="a", producer_id=1))
    answers = batch(machine, requests.CompleteTransaction("a", 1, 0), adds[2], adds[0])
    assert answers[1:] == [TransactionResponse(0), ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_all_partitions_together_reach_just_the_bound(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new id takes no part of it, nor gives any."""
    other = replace(INIT, transactional_id="other", candidate=8)
    added = replace(ADD, transactional_id="other", producer_id=8)
    size = ADD.topics[0].kept_bytes
    monkeypatch.setattr(draft_module, "MAX_PARTITION_BYTES", size)
    assert batch(machine, INIT, ADD, other, added) == [
        InitProducerIdResponse(0, 7, 0),
        TransactionResponse(0),
        InitProducerIdResponse(0, 8, 0),
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    batch(machine, COMMIT, COMPLETE)
    monkeypatch.setattr(draft_module, "MAX_PARTITION_BYTES", size - 1)
    third = replace(INIT, transactional_id="third", candidate=9)
    add_third = replace(ADD, transactional_id="third", producer_id=9)
    assert batch(machine, third, add_third)[1] is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_what_is_above_a_bound_already_can_still_end(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade to a build that keeps less."""
    batch(machine, INIT, ADD)
    monkeypatch.setattr(draft_module, "MAX_PARTITION_BYTES", 1)
    monkeypatch.setattr(draft_module, "MAX_TRANSACTIONAL_IDS", 0)
    assert batch(machine, COMMIT, COMPLETE) == [TransactionResponse(0)] * 2
    assert one(machine, INIT) == InitProducerIdResponse(0, 7, 1)


def test_a_request_for_more_than_an_entry_holds_is_refused_and_not_kept_waiting(machine: StateMachine) -> None:
    """The decider waits for room for the request at the head of its queue: it has to fit into an empty batch."""
    batch(machine, INIT)
    huge = replace(ADD, topics=tuple(TopicPartitions(f"t{n}", tuple(range(16_384))) for n in range(4)))
    assert sum(topic.encoded_bytes for topic in huge.topics) > MAX_ENTRY_BYTES
    assert most_bytes(Draft(machine, NOW), huge) < MAX_ENTRY_BYTES
    assert one(machine, huge) is ErrorCode.MESSAGE_TOO_LARGE
    nameless = replace(ADD, transactional_id="x" * 2 * MAX_ENTRY_BYTES)
    assert most_bytes(Draft(machine, NOW), nameless) < MAX_ENTRY_BYTES
    assert one(machine, nameless) is ErrorCode.INVALID_REQUEST


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_TRANSACTIONAL_ID_LENGTH)
topics = st.builds(
    TopicPartitions,
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_TOPIC_LENGTH),
        st.sampled_from(["\N{GRINNING FACE}" * MAX_TOPIC_LENGTH, "t"]),
    ),
    st.one_of(
        st.lists(st.integers(0, 2**31 - 1), max_size=30).map(tuple),
        st.integers(1, 12_000).map(lambda count: tuple(range(2**31 - count, 2**31))),
    ),
)
epochs = st.integers(0, MAX_EPOCH)


@settings(max_examples=60, deadline=None)
@given(
    name=st.one_of(names, st.just("\N{GRINNING FACE}" * MAX_TRANSACTIONAL_ID_LENGTH)),
    known=st.lists(topics, max_size=3),
    added=st.lists(topics, min_size=1, max_size=3),
    epoch=epochs,
    now_ms=st.sampled_from([NOW, 0, -(2**63), 2**63 - 1]),
    committed=st.booleans(),
    version=st.sampled_from([TRANSACTIONS, ADDED_PARTITIONS]),
)
def test_no_record_takes_more_bytes_than_were_kept_free(
    name: str,
    known: list[TopicPartitions],
    added: list[TopicPartitions],
    epoch: int,
    now_ms: int,
    committed: bool,
    version: int,
) -> None:
    machine = restored(TransactionRecord(name, 999, epoch, 998, MAX_EPOCH, MAX_TIMEOUT_MS, S.EMPTY, now_ms))
    machine.metadata_version = version

    def add(partitions: Iterable[TopicPartitions]) -> requests.AddPartitionsToTxn:
        return requests.AddPartitionsToTxn(1, EPOCH, name, 999, epoch, tuple(partitions))

    for request in (
        add(known),
        add(added),
        requests.EndTxn(1, EPOCH, name, 999, epoch, committed),
        requests.CompleteTransaction(name, 999, epoch),
        requests.InitProducerId(1, EPOCH, name, MAX_TIMEOUT_MS, 999, epoch, 997),
        add(added),
        requests.InitProducerId(1, EPOCH, name, MAX_TIMEOUT_MS, -1, -1, 996),
        requests.AbortTransaction(name, -1, -1),
        requests.ForgetTransactionalId(name, 999, epoch),
    ):
        draft = Draft(machine, now_ms)
        kept_free = most_bytes(draft, request)
        assert kept_free <= 40 + 128 + 4 * MAX_TRANSACTIONAL_ID_LENGTH + MAX_TRANSACTION_BYTES
        try:
            decide(draft, request)
        except RequestError:
            continue
        if draft.records:
            assert len(encode_batch(draft.records)) <= kept_free
            machine.replay(decode_batch(encode_batch(draft.records)))
            assert all(
                record.partition_bytes <= MAX_TRANSACTION_BYTES
                for record in draft.records
                if not isinstance(record, ForgetTransactionRecord) and isinstance(record, TransactionRecord)
            )


def test_a_partition_that_joins_many_adds_only_itself_to_the_log() -> None:
    sizes = {}
    for version in (TRANSACTIONS, ADDED_PARTITIONS):
        machine = make(version)
        batch(machine, INIT, replace(ADD, topics=(TopicPartitions("t", tuple(range(9000))),)))
        draft = Draft(machine, NOW)
        decide(draft, replace(ADD, topics=(TopicPartitions("t", (1, 9000)),)))
        sizes[version] = len(encode_batch(draft.records))
        most = most_bytes(draft, replace(ADD, topics=(TopicPartitions("t", (1, 9000)),)))
        assert sizes[version] <= most
        assert (most < 200) == (version == ADDED_PARTITIONS), "nor is more kept free than that"
        machine.replay(draft.records)
        record = machine.transactions.get("tx")
        assert record is not None
        assert record.partitions == (TopicPartitions("t", tuple(range(9001))),)
    assert sizes[TRANSACTIONS] > 9000 > 100 > sizes[ADDED_PARTITIONS]


def test_bounds_of_records_and_bytes_are_those_of_the_kind(machine: StateMachine) -> None:
    draft = Draft(machine, NOW)
    register, allocate = requests.RegisterBroker(3, "c"), requests.AllocateProducerIds(1, EPOCH)
    assert [most_records(one) for one in (register, allocate, INIT)] == [5, 1, 1]
    assert (most_bytes(draft, register), most_bytes(draft, allocate)) == (
        RECORD_BYTES + REGISTRATION_BYTES + EVIDENCE_BYTES,
        RECORD_BYTES,
    )
    assert most_bytes(draft, INIT) == 40 + 128 + len("tx")
    assert most_records(replace(INIT, may_take_block=True)) == 2
    assert most_bytes(draft, ADD) == 128 + len("tx") + ADD.topics[0].encoded_bytes
    batch(machine, INIT, ADD)
    assert most_bytes(Draft(machine, NOW), COMMIT) == 128 + len("tx") + ADD.topics[0].encoded_bytes


@pytest.mark.parametrize("request_", [INIT, ADD, COMMIT, COMPLETE, ABORT, FORGET])
def test_whatever_is_said_of_a_transactional_id_must_be_confirmed(request_: requests.Request) -> None:
    assert must_be_confirmed(request_) is True
    assert must_be_confirmed(requests.BrokerHeartbeat(1, EPOCH)) is False
