"""Claims in ZooKeeper: one write for all that wait, nothing handed out before its acknowledgement, and no ID twice."""

from __future__ import annotations

import pytest

from pidkeeper.controller.migration import claims as claims_module
from pidkeeper.controller.migration.claims import MAX_CLAIMED, MAX_CONFLICTS
from pidkeeper.controller.migration.znode import MAX_ZNODE_BLOCK, ZnodeBlock, encode, seal
from pidkeeper.controller.migration.zookeeper import NOT_CONFIGURED, Cause, Failure, NoZookeeper
from pidkeeper.controller.state.requests import RaiseFloor, Request
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase, ZooKeeperBlockRecord
from pidkeeper.protocol.records import MAX_BATCH_RECORDS, AllocateProducerIdsRecord, decode_batch
from tests.support.memory_leader import (
    ALLOCATE,
    NAME,
    SIZE,
    STALE,
    MemoryQuorum,
    code_of,
    granted,
    ours,
    reach,
    stands,
    start_of,
)
from tests.support.memory_znode import kafka_block


@pytest.fixture
def quorum() -> MemoryQuorum:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.BRIDGE)
    return quorum


def test_one_write_for_all_that_arrived_and_none_before_its_acknowledgement(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    answers = [leader.ask() for _ in range(30)]
    assert not znode.calls
    assert len(leader.migration.claims) == 30
    leader.settle()
    znode.answer()
    leader.settle()
    znode.carry_out()
    leader.settle()
    assert leader.machine.producer_ids.next_producer_id == 0
    assert not any(answer.done() for answer in answers)
    assert stands(quorum) == ours(0, 299)
    znode.answer()
    leader.settle()
    assert [start_of(answer) for answer in answers] == [10 * at for at in range(30)]
    assert (znode.reads, znode.writes) == (1, 1)
    claims = leader.migration.claims
    assert (claims.claims, claims.conflicts, claims.failures, claims.setbacks) == (1, 0, 0, 0)
    assert (claims.zookeeper_next, len(claims)) == (300, 0)


def test_the_next_claim_needs_no_read(quorum: MemoryQuorum) -> None:
    assert granted(quorum, 2) == [0, 10]
    assert granted(quorum, 2) == [20, 30]
    assert (quorum.znode.reads, quorum.znode.writes) == (1, 2)


def test_the_claim_is_in_the_log_before_its_blocks(quorum: MemoryQuorum) -> None:
    quorum.znode.allocate(5)
    assert granted(quorum, 2) == [1000, 1010]
    records = decode_batch(quorum.log[-1])
    assert records[0] == ZooKeeperBlockRecord(1000, 5, 1, 1500)
    assert [type(record) for record in records[1:]] == [AllocateProducerIdsRecord] * 2
    assert granted(quorum) == [1020]
    assert [type(record) for record in decode_batch(quorum.log[-1])] == [AllocateProducerIdsRecord]


def test_a_claim_of_a_controller_is_named_so_in_the_log(quorum: MemoryQuorum) -> None:
    quorum.znode.put(encode(ZnodeBlock(CONTROLLER, 5, 9, "another")))
    assert granted(quorum) == [10]
    assert decode_batch(quorum.log[-1])[0] == ZooKeeperBlockRecord(10, CONTROLLER, 1, 1500)


def test_a_floor_in_an_empty_znode_is_claimed(quorum: MemoryQuorum) -> None:
    quorum.leader.floor(0)
    answer = quorum.leader.floor(25)
    quorum.settle()
    assert answer.result().next_producer_id == 25
    assert stands(quorum) == ours(0, 24)


def test_what_arrives_meanwhile_joins_the_next_claim(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    first = leader.ask()
    leader.settle()
    znode.answer()
    more = [leader.ask() for _ in range(3)]
    leader.settle()
    assert len(znode.calls) == 1
    quorum.settle()
    assert start_of(first) == 0
    assert [start_of(answer) for answer in more] == [10, 20, 30]
    assert (znode.reads, znode.writes) == (1, 2)


def test_the_next_claim_waits_until_all_of_the_last_are_decided(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    answers = [leader.ask() for _ in range(2)]
    leader.settle()
    znode.answer()
    znode.answer()
    later = leader.ask()
    assert not leader.core.proposed
    leader.loop.run()
    assert leader.core.proposed
    assert not znode.calls
    assert not any(answer.done() for answer in answers)
    leader.commit()
    assert [start_of(answer) for answer in answers] == [0, 10]
    leader.loop.run()
    assert len(znode.calls) == 1
    quorum.settle()
    assert start_of(later) == 20


def test_what_arrives_between_two_claims_begins_no_third(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    answers = [leader.ask()]
    reach(leader, "proposed")
    answers.append(leader.ask())
    leader.commit()
    answers.append(leader.ask())
    leader.loop.run()
    assert len(znode.calls) == 1
    quorum.settle()
    assert [start_of(answer) for answer in answers] == [0, 10, 20]
    assert (znode.reads, znode.writes) == (1, 2)


def test_a_conflict_is_answered_by_a_claim_behind_the_brokers_block(quorum: MemoryQuorum) -> None:
    assert granted(quorum) == [0]
    taken = quorum.znode.allocate()
    assert taken == range(10, 1010)
    assert granted(quorum, 2) == [1010, 1020]
    claims = quorum.leader.migration.claims
    assert (claims.claims, claims.conflicts, claims.failures) == (2, 1, 0)
    assert stands(quorum) == ours(1010, 1029)


def conflict(quorum: MemoryQuorum, times: int) -> None:
    """So often the write that comes next is too late."""
    for _ in range(times):
        quorum.leader.settle()
        quorum.znode.answer()
        quorum.znode.allocate(size=SIZE)
        quorum.leader.settle()
        quorum.znode.answer()


def test_conflicts_are_bounded(quorum: MemoryQuorum) -> None:
    answers = [quorum.leader.ask() for _ in range(2)]
    conflict(quorum, MAX_CONFLICTS)
    assert not any(answer.done() for answer in answers)
    conflict(quorum, 1)
    assert [code_of(answer) for answer in answers] == [ErrorCode.ZOOKEEPER_UNAVAILABLE] * 2
    claims = quorum.leader.migration.claims
    assert (claims.claims, claims.conflicts, claims.failures) == (0, MAX_CONFLICTS, 1)


def test_conflicts_are_counted_anew_after_a_success_and_after_a_failure(quorum: MemoryQuorum) -> None:
    leader = quorum.leader
    for success in (True, False):
        if success:
            later = leader.ask()
            conflict(quorum, MAX_CONFLICTS)
            quorum.settle()
            assert start_of(later) == MAX_CONFLICTS * SIZE
            # What is remembered is out of date, which costs a conflict.
            quorum.znode.allocate(size=SIZE)
            refused = leader.ask()
            leader.settle()
            quorum.znode.answer()
        else:
            refused = leader.ask()
            conflict(quorum, 1)
        conflict(quorum, MAX_CONFLICTS - 1)
        assert not refused.done()
        conflict(quorum, 1)
        assert code_of(refused) is ErrorCode.ZOOKEEPER_UNAVAILABLE
    assert leader.migration.claims.failures == 2


@pytest.mark.parametrize("landed", ["before", "never", "later"])
def test_an_unknown_outcome_gives_nothing_and_the_next_claim_goes_on_without_a_gap(
    quorum: MemoryQuorum, landed: str
) -> None:
    leader, znode = quorum.leader, quorum.znode
    assert granted(quorum) == [0]
    lost = [leader.ask() for _ in range(3)]
    leader.settle()
    if landed == "before":
        znode.carry_out()
    znode.fail()
    assert [code_of(answer) for answer in lost] == [ErrorCode.ZOOKEEPER_UNAVAILABLE] * 3
    assert all("no answer in time" in str(answer.refusal) for answer in lost)
    assert leader.migration.claims.failures == 1
    later = leader.ask()
    leader.settle()
    if landed == "later":
        znode.land()
    quorum.settle()
    assert start_of(later) == 10
    assert leader.machine.producer_ids.next_producer_id == 20
    # A claim never lowers the znode; what stands there unused is handed out without another write.
    block = stands(quorum)
    assert block is not None
    assert block.last == (19 if landed == "never" else 39)
    assert (znode.reads, znode.writes) == (2, 2)
    if landed != "never":
        assert granted(quorum) == [20]
        assert (znode.reads, znode.writes) == (3, 2)


def test_an_unknown_outcome_below_a_brokers_block_is_left_behind(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    leader.ask()
    leader.settle()
    znode.answer()
    znode.carry_out()
    znode.fail()
    assert znode.allocate() == range(10, 1010)
    assert granted(quorum) == [1010]


def test_a_lost_write_that_comes_later_cannot_land(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    leader.ask()
    leader.settle()
    znode.answer()
    znode.fail()
    assert granted(quorum) == [0]
    znode.land()
    assert stands(quorum) == ours(0, 9)
    assert granted(quorum) == [10]


def test_a_read_that_fails_refuses_all_that_wait(quorum: MemoryQuorum) -> None:
    leader, znode = quorum.leader, quorum.znode
    answers = [leader.ask() for _ in range(2)]
    leader.settle()
    znode.fail(Failure(Cause.DENIED, "not for you"))
    assert [code_of(answer) for answer in answers] == [ErrorCode.ZOOKEEPER_UNAVAILABLE] * 2
    assert "not for you" in str(answers[0].refusal)
    assert len(leader.migration.claims) == 0
    assert granted(quorum) == [0]


def test_a_znode_that_cannot_be_used_refuses_and_stays_as_it_is(quorum: MemoryQuorum) -> None:
    quorum.znode.put(b"[1]")
    answer = quorum.leader.ask()
    quorum.settle()
    assert code_of(answer) is ErrorCode.ZOOKEEPER_UNAVAILABLE
    assert "the znode cannot be used: bad JSON: [1] is not an object" in str(answer.refusal)
    assert quorum.znode.data == b"[1]"
    assert quorum.leader.migration.claims.failures == 1
    quorum.znode.put(kafka_block(3, 0, 999))
    assert granted(quorum) == [1000]


def test_what_a_refused_request_was_claimed_for_goes_to_the_next(quorum: MemoryQuorum) -> None:
    requests = [ALLOCATE, STALE, ALLOCATE, STALE]
    answers = [quorum.leader.ask(request) for request in requests]
    quorum.settle()
    assert [start_of(answers[at]) for at in (0, 2)] == [0, 10]
    assert [code_of(answers[at]) for at in (1, 3)] == [ErrorCode.STALE_BROKER_EPOCH] * 2
    assert stands(quorum) == ours(0, 39)
    assert granted(quorum, 2) == [20, 30]
    assert quorum.znode.writes == 1
    assert granted(quorum) == [40]
    assert stands(quorum) == ours(40, 49)


def test_what_is_left_of_a_claim_is_not_enough(quorum: MemoryQuorum) -> None:
    for request in (ALLOCATE, STALE):
        quorum.leader.ask(request)
    quorum.settle()
    assert granted(quorum, 2) == [10, 20]
    assert stands(quorum) == ours(10, 29)
    assert quorum.znode.writes == 2


def test_the_last_id_of_a_claim_is_the_last_without_a_write(quorum: MemoryQuorum) -> None:
    for request in (ALLOCATE, STALE):
        quorum.leader.ask(request)
    quorum.settle()
    quorum.leader.floor(11)
    quorum.settle()
    assert (stands(quorum), quorum.znode.writes) == (ours(0, 19), 1)
    # Of 11 to 20 the last one is not claimed yet.
    assert granted(quorum) == [11]
    assert (stands(quorum), quorum.znode.writes) == (ours(11, 20), 2)


def test_all_refused_requests_leave_no_record(quorum: MemoryQuorum) -> None:
    before = len(quorum.log)
    answer = quorum.leader.ask(STALE)
    quorum.settle()
    assert code_of(answer) is ErrorCode.STALE_BROKER_EPOCH
    assert len(quorum.log) == before
    assert granted(quorum) == [0]
    assert quorum.znode.writes == 1


@pytest.mark.parametrize(("at_least", "after", "writes"), [(500, 1000, 0), (1000, 1000, 0), (1001, 1001, 1)])
def test_a_floor_that_zookeeper_has_passed_needs_no_write(at_least: int, after: int, writes: int) -> None:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.BRIDGE)
    quorum.znode.allocate()
    answer = quorum.leader.floor(at_least)
    quorum.settle()
    assert answer.result().next_producer_id == after
    assert quorum.leader.machine.producer_ids.next_producer_id == after
    assert (quorum.znode.reads, quorum.znode.writes) == (1, writes)
    assert granted(quorum) == [after]


def test_a_floor_below_what_was_handed_out_changes_nothing(quorum: MemoryQuorum) -> None:
    assert granted(quorum, 3) == [0, 10, 20]
    before = len(quorum.log)
    answer = quorum.leader.floor(30)
    quorum.settle()
    assert (answer.result().next_producer_id, answer.result().raised) == (30, False)
    assert len(quorum.log) == before
    assert quorum.znode.writes == 1


def test_floors_among_blocks_of_one_claim(quorum: MemoryQuorum) -> None:
    requests: list[Request] = [ALLOCATE, RaiseFloor(15), ALLOCATE, RaiseFloor(20), RaiseFloor(5000), ALLOCATE]
    answers = [quorum.leader.ask(request) for request in requests]
    quorum.settle()
    assert [start_of(answers[at]) for at in (0, 2, 5)] == [0, 15, 5000]
    assert [answers[at].result().next_producer_id for at in (1, 3, 4)] == [15, 25, 5000]
    assert [answers[at].result().raised for at in (1, 3, 4)] == [True, False, True]
    assert stands(quorum) == ours(0, 5009)
    assert quorum.znode.writes == 1


def test_a_high_floor_is_claimed_in_a_block_that_brokers_can_read(quorum: MemoryQuorum) -> None:
    answer = quorum.leader.floor(2**39)
    quorum.settle()
    assert answer.result().next_producer_id == 2**39
    assert stands(quorum) == ours(2**39 - MAX_ZNODE_BLOCK, 2**39 - 1)
    assert quorum.znode.allocate() == range(2**39, 2**39 + 1000)


def test_a_claim_takes_a_bounded_number_of_requests(quorum: MemoryQuorum) -> None:
    answers = [quorum.leader.ask() for _ in range(MAX_CLAIMED + 3)]
    quorum.leader.settle()
    quorum.znode.answer()
    quorum.znode.answer()
    quorum.leader.settle()
    assert sum(answer.done() for answer in answers) == MAX_CLAIMED == MAX_BATCH_RECORDS // 2
    assert stands(quorum) == ours(0, MAX_CLAIMED * SIZE - 1)
    quorum.settle()
    assert [start_of(answer) for answer in answers] == [10 * at for at in range(MAX_CLAIMED + 3)]
    # Each of the two in one batch.
    assert [len(decode_batch(data)) for data in quorum.log[-2:]] == [MAX_CLAIMED, 3]


def test_waiting_is_bounded(quorum: MemoryQuorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "MAX_WAITING", 3)
    answers = [quorum.leader.ask() for _ in range(3)]
    with pytest.raises(RequestError, match="3 requests wait already") as refused:
        quorum.leader.ask()
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    quorum.settle()
    assert [start_of(answer) for answer in answers] == [0, 10, 20]


def test_without_a_session_nothing_waits(quorum: MemoryQuorum) -> None:
    quorum.znode.trouble = "no session since noon"
    with pytest.raises(RequestError, match="no session since noon") as refused:
        quorum.leader.ask()
    assert refused.value.code is ErrorCode.ZOOKEEPER_UNAVAILABLE
    assert len(quorum.leader.migration.claims) == 0
    quorum.znode.trouble = None
    assert granted(quorum) == [0]


def test_a_member_without_zookeeper_says_so(quorum: MemoryQuorum) -> None:
    outcomes: list[object] = []
    NoZookeeper().read(outcomes.append)
    NoZookeeper().write(b"", 1, outcomes.append)
    assert outcomes == [Failure(Cause.UNAVAILABLE, NOT_CONFIGURED)] * 2
    assert NoZookeeper().disconnected() == NOT_CONFIGURED


TOP = MAX_PRODUCER_ID


@pytest.mark.parametrize(
    ("last", "given"),
    [(TOP - 11, [TOP - 10]), (TOP - 10, []), (TOP - 21, [TOP - 20, TOP - 10]), (TOP - 1, []), (TOP, [])],
)
def test_the_end_of_the_space(quorum: MemoryQuorum, last: int, given: list[int]) -> None:
    quorum.znode.put(kafka_block(3, last - 99, last))
    answers = [quorum.leader.ask() for _ in range(3)]
    quorum.settle()
    assert [start_of(answer) for answer in answers[: len(given)]] == given
    for answer in answers[len(given) :]:
        assert code_of(answer) is ErrorCode.PRODUCER_IDS_EXHAUSTED
        free = given[-1] + SIZE if given else last + 1
        assert f"the next producer ID is {free}: no block is left below {TOP}" in str(answer.refusal)
    # It goes on answering.
    answer = quorum.leader.ask()
    quorum.settle()
    assert code_of(answer) is ErrorCode.PRODUCER_IDS_EXHAUSTED


def test_a_sealed_znode_refuses(quorum: MemoryQuorum) -> None:
    quorum.znode.put(encode(seal("another")))
    answer = quorum.leader.ask()
    quorum.settle()
    assert code_of(answer) is ErrorCode.PRODUCER_IDS_EXHAUSTED
    assert "the znode was sealed by another: that quorum hands out the IDs now" in str(answer.refusal)
    assert quorum.znode.data == encode(seal("another"))
    # Read anew each time: once it is opened again, IDs flow.
    quorum.znode.put(kafka_block(3, 0, 99))
    assert granted(quorum) == [100]


def test_a_znode_that_this_quorum_sealed_is_the_next_leaders(quorum: MemoryQuorum) -> None:
    """This member leads no more without knowing it, so the agent shall look for the one that does."""
    quorum.znode.put(encode(seal(NAME)))
    answer = quorum.leader.ask()
    quorum.settle()
    assert code_of(answer) is ErrorCode.MIGRATION_UNDER_WAY
    assert "another leader of this quorum has sealed the znode" in str(answer.refusal)
    assert quorum.znode.data == encode(seal(NAME))


def test_a_znode_that_was_set_back_is_seen_and_harms_nobody(quorum: MemoryQuorum) -> None:
    assert granted(quorum, 3) == [0, 10, 20]
    quorum.znode.put(kafka_block(3, 0, 19))
    assert granted(quorum) == [30]
    assert quorum.leader.migration.claims.setbacks == 1
    assert stands(quorum) == ours(30, 39)
    quorum.znode.put(None)
    assert granted(quorum) == [40]
    assert quorum.leader.migration.claims.setbacks == 2


def test_d7_a_claim_never_lowers_the_end_of_the_znode(quorum: MemoryQuorum, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum.znode.put(kafka_block(3, 5000, 5999))
    monkeypatch.setattr(claims_module, "next_free", lambda block, name, quorum_next: quorum_next)
    quorum.leader.ask()
    with pytest.raises(AssertionError, match=r"D7: a claim up to 9 would lower the znode from .*5999"):
        quorum.settle()
    assert quorum.znode.writes == 0
