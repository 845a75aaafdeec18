"""The quorum takes the IDs of transactional producers itself: where they come from, and when there are none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import draft as draft_module
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import RECORD_BYTES, decide, most_bytes, most_records, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine, owners
from pidkeeper.controller.state.own_ids import OwnIds
from pidkeeper.controller.state.transitions import MAX_EPOCH, TransactionStatus
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.messages import BrokerHeartbeatResponse, InitProducerIdResponse, RegisterBrokerResponse
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import (
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionalBlockRecord,
    TransactionRecord,
)
from pidkeeper.snapshots.image import IdRange, LastBlock
from pidkeeper.snapshots.owner_format import Owner

S = TransactionStatus
SIZE = 10
EPOCH = 2
NOW = 1_700_000_000_000
ALLOCATE = requests.AllocateProducerIds(1, EPOCH)
FILL = requests.FillOwnIds()
PHASES = {
    MigrationPhase.NONE: (),
    MigrationPhase.BRIDGE: (1,),
    MigrationPhase.IMPORT: (2,),
    MigrationPhase.DUAL_WRITE: (2, 3),
    MigrationPhase.FINALIZING: (2, 3, 4),
    MigrationPhase.FINALIZED: (2, 3, 4, 5),
    MigrationPhase.ROLLING_BACK: (2, 3, 6),
    MigrationPhase.ROLLED_BACK: (2, 3, 6, 7),
}


def init(name: str = "tx", candidate: int = -1, pair: tuple[int, int] = (-1, -1), **more: Any) -> Any:
    return requests.InitProducerId(1, EPOCH, name, 60_000, *pair, candidate, **{"may_take_block": True, **more})


def make(
    version: int = TRANSACTIONAL_BLOCKS, next_id: int = 0, phase: MigrationPhase = MigrationPhase.NONE
) -> StateMachine:
    machine = StateMachine("c", SIZE)
    floor = [ProducerIdFloorRecord(next_id, 0)] if next_id else [FeatureLevelRecord(version)]
    machine.replay([FeatureLevelRecord(version), *floor, RegisterBrokerRecord(1, EPOCH, "a")])
    machine.replay([MigrationRecord(MigrationPhase(one), "q", -1, 0) for one in PHASES[phase]])
    return machine


def batch(machine: StateMachine, *asked: requests.Request) -> list[Any]:
    """Decide these in one batch, replay it as followers do; the answers, and the codes of refusals."""
    draft = Draft(machine, NOW)
    answers: list[Any] = []
    for request in asked:
        before, kept_free = list(draft.records), most_bytes(draft, request)
        own, next_id = draft.own_ids, draft.next_producer_id
        try:
            answer = decide(draft, request)
            added = draft.records[len(before) :]
            assert len(added) <= most_records(request)
            assert not added or len(encode_batch(added)) <= kept_free
        except RequestError as refusal:
            answer = refusal.code
            assert (draft.records, draft.own_ids, draft.next_producer_id) == (before, own, next_id), (
                "it changed nothing"
            )
        answers.append(answer)
    if draft.records:
        machine.replay(decode_batch(encode_batch(draft.records)))
    assert (machine.own_ids, machine.producer_ids.next_producer_id) == (draft.own_ids, draft.next_producer_id)
    return answers


def one(machine: StateMachine, request: requests.Request) -> Any:
    (answer,) = batch(machine, request)
    return answer


def claimed(machine: StateMachine, first: int, end: int) -> requests.Claimed:
    assert machine.migration.record is not None
    return requests.Claimed(first, end, 5, OWN, machine.migration.record)


def ranges(*bounds: tuple[int, int]) -> tuple[IdRange, ...]:
    return tuple(IdRange(first, last) for first, last in bounds)


# Whose IDs they are.


def test_no_candidate_is_believed() -> None:
    """Candidate 0 was given to a producer without a transactional id; no block ever held the highest one."""
    machine = make()
    assert one(machine, ALLOCATE).producer_id_start == 0
    candidates = (0, 9, 10, MAX_PRODUCER_ID, -1)
    answers = batch(machine, *[init(f"tx-{candidate}", candidate) for candidate in candidates])
    assert answers == [InitProducerIdResponse(0, 10 + number, 0) for number in range(len(candidates))]
    assert one(machine, ALLOCATE).producer_id_start == 20


def test_before_the_version_the_candidate_still_counts() -> None:
    """Members of the build before would give out no other; agents send it until they are told."""
    machine = make(ADDED_PARTITIONS, 10)
    assert batch(machine, init("tx", 3), init("other", -1)) == [
        InitProducerIdResponse(0, 3, 0),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    raised = [requests.RaiseMetadataVersion(TRANSACTIONAL_BLOCKS), init("other", 4), init("tx", 5)]
    assert batch(machine, *raised)[1:] == [InitProducerIdResponse(0, 10, 0), InitProducerIdResponse(0, 3, 1)]


def test_agents_are_told_of_the_version_by_heartbeats_and_registrations() -> None:
    machine = make(ADDED_PARTITIONS)
    heartbeat, register = requests.BrokerHeartbeat(1, EPOCH), requests.RegisterBroker(1, "a")
    for version in (ADDED_PARTITIONS, TRANSACTIONAL_BLOCKS):
        batch(machine, requests.RaiseMetadataVersion(version))
        assert batch(machine, heartbeat, register) == [
            BrokerHeartbeatResponse(False, version),
            RegisterBrokerResponse(EPOCH, "c", version),
        ]


def test_ids_are_taken_one_by_one_from_one_block_after_the_other() -> None:
    machine = make()
    answers = batch(machine, *[init(f"tx-{number:02}") for number in range(25)])
    assert [answer.producer_id for answer in answers] == list(range(25))
    assert machine.own_ids.ranges == ranges((25, 29))
    assert machine.producer_ids.next_producer_id == 30
    assert machine.producer_ids.last_block == LastBlock(20, 10, OWN, OWN, machine.next_offset - 6, NOW)


def test_blocks_of_brokers_and_of_the_quorum_alternate_in_one_batch() -> None:
    machine = make()
    answers = batch(machine, init("a"), ALLOCATE, init("b"), ALLOCATE, init("c"))
    assert [answer.producer_id for answer in answers[::2]] == [0, 1, 2]
    assert [answer.producer_id_start for answer in answers[1::2]] == [10, 20]


def test_what_is_filled_ahead_is_used_after_what_was_there() -> None:
    machine = make()
    assert batch(machine, init("a"), FILL, FILL) == [InitProducerIdResponse(0, 0, 0), True, False]
    assert machine.own_ids.ranges == ranges((1, 9), (10, 19))
    batch(machine, *[init(f"tx-{number}") for number in range(9)])
    assert machine.own_ids.ranges == ranges((10, 19))
    assert batch(machine, FILL, init("z"))[1] == InitProducerIdResponse(0, 10, 0)
    assert machine.own_ids.ranges == ranges((11, 19), (20, 29))


def test_an_id_whose_epochs_are_used_up_gets_a_new_one_and_no_other_request_does() -> None:
    machine = make()
    batch(machine, init())
    exhausted = TransactionRecord("tx", 0, MAX_EPOCH, -1, -1, 60_000, S.EMPTY, 1)
    machine.restore(replace(machine.image(1, 1), transactions=[exhausted]))
    rotated = InitProducerIdResponse(0, 1, 0)
    answers = batch(machine, init(pair=(0, MAX_EPOCH)), init(pair=(0, MAX_EPOCH)), init(), init(pair=(0, 3)))
    assert answers == [rotated, rotated, InitProducerIdResponse(0, 1, 1), ErrorCode.PRODUCER_FENCED]
    assert machine.own_ids.next_id == 2


def test_a_forgotten_id_comes_back_with_another_producer_id() -> None:
    machine = make()
    batch(machine, init(), requests.ForgetTransactionalId("tx", 0, 0))
    assert one(machine, init(pair=(0, 0))) == InitProducerIdResponse(0, 1, 0)


# When there is none.


@pytest.mark.parametrize("phase", list(PHASES))
def test_who_needs_an_id_waits_only_where_a_block_must_be_claimed_or_none_may_be_given(phase: MigrationPhase) -> None:
    machine = make(phase=phase)
    waits = phase in CLAIMING | PAUSED
    assert one(machine, init()) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if waits else InitProducerIdResponse(0, 0, 0)
    )
    assert machine.producer_ids.next_producer_id == (0 if waits else 10)


def test_no_block_is_taken_while_the_leader_knows_that_brokers_may_have_its_ids() -> None:
    """ZooKeeper is configured and the migration has not begun, which the state cannot know."""
    machine = make()
    assert one(machine, init(may_take_block=False)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    batch(machine, FILL)
    assert one(machine, init(may_take_block=False)) == InitProducerIdResponse(0, 0, 0)


@pytest.mark.parametrize("version", [TRANSACTIONAL_BLOCKS, TRANSACTIONAL_BLOCKS - 1])
def test_no_id_that_is_new_to_it_is_given_to_a_transactional_id_while_the_leader_says_so(version: int) -> None:
    """Not even what is left of an own block, or an agent's candidate."""
    machine = make(version, next_id=5)
    assert one(machine, init("known", candidate=1)).error_code == 0
    assert one(machine, init("new", candidate=2, may_get_id=False)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert one(machine, init("known", candidate=2, may_get_id=False)).producer_epoch == 1
    assert one(machine, init("new", candidate=2)).error_code == 0


@pytest.mark.parametrize("phase", sorted(CLAIMING | PAUSED))
def test_transactions_under_way_go_on_while_the_block_is_used_up(phase: MigrationPhase) -> None:
    machine = make()
    batch(machine, *[init(f"tx-{number}") for number in range(SIZE)])
    machine.replay([MigrationRecord(MigrationPhase(one), "q", -1, 0) for one in PHASES[phase]])
    assert machine.own_ids.next_id is None
    add = requests.AddPartitionsToTxn(1, EPOCH, "tx-3", 3, 0, ())
    end = requests.EndTxn(1, EPOCH, "tx-3", 3, 0, True)
    answers = batch(machine, init("tx-3"), init("tx-3", pair=(3, 0)), init("new"), replace(add, producer_epoch=1), end)
    assert answers[0] == InitProducerIdResponse(0, 3, 1)
    assert answers[1:3] == [ErrorCode.PRODUCER_FENCED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert not isinstance(answers[3], ErrorCode)


@pytest.mark.parametrize("phase", sorted(CLAIMING))
def test_while_zookeeper_counts_a_block_is_taken_only_as_claimed(phase: MigrationPhase) -> None:
    machine = make(phase=phase)
    short = claimed(machine, 40, 49)
    before = replace(claimed(machine, 40, 50), begun_in=MigrationRecord(phase, "q", -1, 0))
    refused = [FILL, replace(FILL, claimed=short), replace(FILL, claimed=before)]
    assert batch(machine, *refused) == [ErrorCode.MIGRATION_UNDER_WAY] * 3
    assert one(machine, replace(FILL, claimed=claimed(machine, 40, 50))) is True
    assert machine.own_ids.ranges == ranges((40, 49))
    assert one(machine, init()) == InitProducerIdResponse(0, 40, 0)


@pytest.mark.parametrize("phase", sorted(PAUSED))
def test_in_a_pause_no_block_is_taken_but_what_is_left_is_used(phase: MigrationPhase) -> None:
    machine = make(phase=MigrationPhase.DUAL_WRITE)
    batch(machine, replace(FILL, claimed=claimed(machine, 0, 10)))
    machine.replay([MigrationRecord(phase, "q", -1, 0)])
    assert batch(machine, FILL, init()) == [ErrorCode.MIGRATION_UNDER_WAY, InitProducerIdResponse(0, 0, 0)]


def test_a_migration_does_not_begin_once_the_quorum_has_taken_a_block_by_itself() -> None:
    """Brokers of ZooKeeper may have the same IDs."""
    machine = make()
    start = requests.StartMigration("q", 10_000)
    begun = requests.AdvanceMigration(MigrationPhase.NONE, MigrationPhase.BRIDGE, claimed_by="q")
    assert batch(machine, init(), start, begun)[1:] == [ErrorCode.MIGRATION_REFUSED] * 2
    assert batch(machine, start, begun) == [ErrorCode.MIGRATION_REFUSED] * 2


def test_the_last_block_is_used_up_and_then_there_is_none() -> None:
    machine = make(next_id=MAX_PRODUCER_ID - SIZE)
    answers = batch(machine, *[init(f"tx-{number:02}") for number in range(SIZE + 1)], FILL, ALLOCATE)
    assert answers[SIZE - 1] == InitProducerIdResponse(0, MAX_PRODUCER_ID - 1, 0)
    assert answers[SIZE:] == [ErrorCode.PRODUCER_IDS_EXHAUSTED] * 3
    assert one(machine, init("tx-00")) == InitProducerIdResponse(0, MAX_PRODUCER_ID - SIZE, 1)


def test_a_refusal_for_want_of_room_takes_no_id_and_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_module, "MAX_TRANSACTIONAL_IDS", 0)
    machine = make()
    assert one(machine, init()) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (machine.own_ids.ranges, machine.producer_ids.next_producer_id) == ((), 0)


def test_bounds_of_what_a_fill_adds() -> None:
    machine = make(phase=MigrationPhase.BRIDGE)
    held = replace(FILL, claimed=claimed(machine, 40, 50))
    draft = Draft(machine, NOW)
    assert [(most_records(one), most_bytes(draft, one)) for one in (FILL, held)] == [
        (1, RECORD_BYTES),
        (2, 2 * RECORD_BYTES),
    ]
    assert not must_be_confirmed(FILL)
    assert one(make(ADDED_PARTITIONS), FILL) is ErrorCode.UNSUPPORTED_VERSION


# Replay.


def block(first: int, last: int) -> TransactionalBlockRecord:
    return TransactionalBlockRecord(first, last, 0)


def fresh(name: str, producer_id: int) -> TransactionRecord:
    return TransactionRecord(name, producer_id, 0, -1, -1, 60_000, S.EMPTY, 1)


BROKEN: list[tuple[str, list[Record]]] = [
    ("S1: offset 3 takes a block from 10, .* is 0", [block(10, 19)]),
    ("S1: offset 4 takes a block from 0, .* is 10", [block(0, 9), block(0, 9)]),
    ("S1: offset 4 allocates from 0, .* is 10", [block(0, 9), AllocateProducerIdsRecord(1, EPOCH, 9, 0, 10, 0)]),
    ("S2: offset 3 takes a block that ends at -1", [TransactionalBlockRecord(0, -1, 0)]),
    ("T6: offset 5 takes a block, but", [block(0, 9), block(10, 19), block(20, 29)]),
    ("T5: offset 3 gives .* ID 0, but the next one is None", [fresh("tx", 0)]),
    ("T5: offset 4 gives .* ID 1, but the next one is 0", [block(0, 9), fresh("tx", 1)]),
    ("T5: offset 5 gives .* ID 0, but the next one is 1", [block(0, 9), fresh("tx", 0), fresh("other", 0)]),
    (
        "T5: offset 6 gives .* ID 0, but the next one is 1",
        [block(0, 9), fresh("tx", 0), ForgetTransactionRecord("tx"), fresh("tx", 0)],
    ),
    ("T1: offset 4 begins 'tx' with ", [block(0, 9), replace(fresh("tx", 0), producer_epoch=8)]),
    ("T5: offset 4 gives .* ID 10, but the next one is None", [ProducerIdFloorRecord(20, 0), fresh("tx", 10)]),
]


@pytest.mark.parametrize(("violation", "records"), BROKEN)
def test_a_log_that_no_leader_writes_stops_the_member(violation: str, records: list[Record]) -> None:
    machine = make()
    machine.replay(records[:-1])
    before = machine.image(1, 1)
    with pytest.raises(AssertionError, match=f"^{violation}"):
        machine.replay(records[-1:])
    assert machine.image(1, 1) == before, "what stops a member changes nothing"


@pytest.mark.parametrize("phase", sorted(PAUSED))
def test_no_block_is_replayed_in_a_pause(phase: MigrationPhase) -> None:
    with pytest.raises(AssertionError, match=r"^M3: "):
        make(phase=phase).replay([block(0, 9)])


def test_the_record_needs_the_version() -> None:
    with pytest.raises(AssertionError, match=r"^S7: "):
        make(ADDED_PARTITIONS).replay([block(0, 9)])


def test_a_record_without_a_new_id_takes_none() -> None:
    machine = make()
    machine.replay([block(0, 9), fresh("tx", 0), replace(fresh("tx", 0), producer_epoch=1)])
    assert machine.own_ids.next_id == 1


def test_what_is_left_survives_a_snapshot() -> None:
    machine = make()
    batch(machine, *[init(f"tx-{number}") for number in range(9)], FILL)
    assert machine.own_ids.ranges == ranges((9, 9), (10, 19))
    other = StateMachine("c", SIZE)
    other.restore(machine.image(7, 2))
    assert other.image(7, 2) == machine.image(7, 2)
    assert [one(other, init(name)).producer_id for name in ("x", "y")] == [9, 10]


def test_the_value_itself_is_never_changed() -> None:
    empty = OwnIds()
    full = empty.filled(3, 4).filled(5, 5)
    assert (empty.next_id, full.next_id, full.full) == (None, 3, True)
    assert full.taken(3, 2).taken(4, 3).ranges == ranges((5, 5))
    assert full.ranges == ranges((3, 4), (5, 5))


def test_who_was_given_an_id_is_told_from_the_records_alone() -> None:
    """Not by those of before the version, which name IDs in no order, nor by any other record of an id."""
    machine = make(ADDED_PARTITIONS, 10)
    told: list[Owner] = []
    raised = requests.RaiseMetadataVersion(TRANSACTIONAL_BLOCKS)
    batches: tuple[list[Any], ...] = (
        [init("old", 3), raised, init("new"), init("new")],
        [init("other"), init("old"), requests.ForgetTransactionalId("new", 10, 1)],
        [init("new"), requests.AddPartitionsToTxn(1, EPOCH, "other", 11, 0, (TopicPartitions("t", (1,)),))],
        [requests.EndTxn(1, EPOCH, "other", 11, 0, True), requests.CompleteTransaction("other", 11, 0)],
    )
    for asked in batches:
        draft = Draft(machine, NOW)
        for request in asked:
            decide(draft, request)
        told += owners(draft.records, machine.next_offset, machine.metadata_version)
        machine.replay(draft.records)
    assert [(one.producer_id, one.transactional_id) for one in told] == [(10, "new"), (11, "other"), (12, "new")]
    assert [one.offset for one in told] == sorted({one.offset for one in told})
    assert [number for number in range(22) if machine.own_ids.holds(number)] == list(range(13, 20))
