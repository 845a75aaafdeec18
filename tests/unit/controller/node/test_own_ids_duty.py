"""Blocks for transactional producers while ZooKeeper counts: claimed one by one and ahead, and nobody else waits."""

from __future__ import annotations

import logging

import pytest

from pidkeeper.controller.answers import Answer
from pidkeeper.controller.migration.znode import encode, seal
from pidkeeper.controller.node.leadership import DUTY_TICKS
from pidkeeper.controller.node.own_ids_duty import RETRY_LOOKS, OwnIdsDuty
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import ForgetTransactionalId, InitProducerId
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, LATEST, TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import CLAIMING, MigrationPhase
from pidkeeper.protocol.records import decode_batch
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.snapshots.image import IdRange
from tests.support.memory_leader import SIZE, MemoryQuorum, code_of, granted, ours, stands
from tests.support.memory_znode import MemoryAnswer, kafka_block

P = MigrationPhase


def quorum_in(phase: MigrationPhase, last: int = -1, version: int = LATEST) -> MemoryQuorum:
    """In `phase`; brokers have what is below and with `last`."""
    quorum = MemoryQuorum(version=version)
    if last >= 0:
        quorum.znode.put(kafka_block(7, 0, last))
    quorum.enter(phase)
    return quorum


def ask(quorum: MemoryQuorum, name: str = "tx") -> MemoryAnswer:
    return quorum.leader.ask(InitProducerId(1, 0, name, 60_000, -1, -1, -1))


def init(quorum: MemoryQuorum, name: str = "tx") -> int | ErrorCode:
    answer = ask(quorum, name)
    quorum.settle()
    if answer.refusal is not None:
        return answer.refusal.code
    given: int = answer.result().producer_id
    return given


def look(quorum: MemoryQuorum, times: int = 1) -> None:
    for _ in range(times):
        quorum.leader.leadership.own_ids.tick()
        quorum.settle()


def left(quorum: MemoryQuorum) -> tuple[IdRange, ...]:
    return quorum.leader.machine.own_ids.ranges


@pytest.mark.parametrize("phase", sorted(CLAIMING))
def test_the_first_to_need_an_id_is_told_to_come_again_and_sets_off_a_claim(phase: MigrationPhase) -> None:
    quorum = quorum_in(phase, 999)
    look(quorum)
    assert left(quorum) == (), "who wants IDs alone burns no block"
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look(quorum)
    assert stands(quorum) == ours(1000, 1009)
    assert init(quorum) == 1000
    look(quorum, 5)
    assert left(quorum) == (IdRange(1001, 1009), IdRange(1010, 1019)), "one ahead, and no more"
    assert [init(quorum, f"tx-{number}") for number in range(10)] == list(range(1001, 1011)), "nobody waits"


def test_each_block_is_claimed_before_it_is_decided() -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999)
    init(quorum)
    quorum.leader.leadership.own_ids.tick()
    quorum.leader.settle()
    quorum.znode.answer()
    quorum.leader.settle()
    assert (left(quorum), len(quorum.znode.calls)) == ((), 1), "the write"
    quorum.znode.answer()
    assert quorum.leader.loop.run()
    quorum.leader.commit()
    assert left(quorum) == (IdRange(1000, 1009),)
    blocks = [record for data in quorum.log for record in decode_batch(data)]
    assert sum(isinstance(record, TransactionalBlockRecord) for record in blocks) == 1


def test_a_claim_is_shared_with_brokers_that_want_blocks() -> None:
    quorum = quorum_in(P.BRIDGE, 999)
    init(quorum)
    quorum.leader.leadership.own_ids.tick()
    writes = quorum.znode.writes
    assert granted(quorum) == [1010]
    assert (left(quorum), quorum.znode.writes) == ((IdRange(1000, 1009),), writes + 1)


def test_transactional_ids_in_use_are_reason_enough_also_for_the_next_leader() -> None:
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    look(quorum)
    assert init(quorum) == 0
    quorum.succeed()
    look(quorum)
    assert len(left(quorum)) == 2
    quorum.leader.machine.own_ids = StateMachine("c").own_ids
    look(quorum)
    assert len(left(quorum)) == 1, "an id is known"


def test_what_is_left_of_a_block_is_reason_enough_when_all_ids_are_forgotten() -> None:
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    look(quorum)
    init(quorum)
    quorum.leader.ask(ForgetTransactionalId("tx", 0, 0))
    quorum.settle()
    quorum.succeed()
    look(quorum)
    assert len(left(quorum)) == 2


def test_what_one_leader_heard_is_forgotten_by_the_next() -> None:
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    quorum.succeed()
    look(quorum)
    assert left(quorum) == ()


@pytest.mark.parametrize("phase", [P.NONE, P.FINALIZED])
def test_where_zookeeper_does_not_count_nobody_waits_and_nothing_is_filled(phase: MigrationPhase) -> None:
    quorum = quorum_in(phase)
    before, reads = quorum.leader.machine.producer_ids.next_producer_id, quorum.znode.reads
    look(quorum)
    assert init(quorum) == before
    look(quorum, 3)
    assert (len(left(quorum)), quorum.znode.reads) == (1, reads)


@pytest.mark.parametrize("phase", [P.FINALIZING, P.ROLLING_BACK])
def test_in_a_pause_what_was_filled_ahead_is_used_and_nothing_is_claimed(phase: MigrationPhase) -> None:
    quorum = quorum_in(P.DUAL_WRITE)
    init(quorum)
    look(quorum, 2)
    quorum.order(phase)
    writes = quorum.znode.writes
    assert [init(quorum, f"tx-{number:02}") for number in range(20)] == list(range(20))
    assert init(quorum, "one more") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look(quorum, 3)
    assert quorum.znode.writes == writes
    quorum.run()
    look(quorum)
    assert init(quorum, "one more") == 20


def test_after_a_rollback_what_is_left_is_still_the_quorums_and_brokers_begin_above() -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999)
    init(quorum)
    look(quorum, 2)
    quorum.order(P.ROLLING_BACK)
    quorum.run()
    assert quorum.leader.phase() is P.ROLLED_BACK
    assert quorum.znode.allocate(7, 10) == range(1020, 1030)
    assert [init(quorum, f"tx-{number:02}") for number in range(20)] == list(range(1000, 1020))
    look(quorum)
    assert init(quorum, "one more") == 1030


def test_a_claim_from_before_a_rollback_gives_no_block() -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999)
    init(quorum)
    own_ids = quorum.leader.leadership.own_ids
    own_ids.tick()
    quorum.leader.settle()
    order = quorum.leader.migration.orders.order(P.ROLLING_BACK)
    quorum.settle()
    assert order.result() is P.ROLLING_BACK
    quorum.run()
    assert left(quorum) == ()
    assert quorum.znode.allocate(7, 10) == range(1000, 1010)


# Refusals.


def test_a_claim_that_failed_is_tried_again_after_a_second_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    quorum.znode.trouble = "no session"
    attempts = []
    own_ids = quorum.leader.leadership.own_ids
    fill = own_ids._fill
    own_ids._fill = lambda answer: (attempts.append(1), fill(answer))[1]  # type: ignore[func-returns-value]
    for attempt in (1, 2, 3):
        look(quorum)
        assert len(attempts) == attempt
        look(quorum, RETRY_LOOKS)
        assert len(attempts) == attempt
    assert own_ids.trouble is not None and "no session" in own_ids.trouble
    assert [one.levelname for one in caplog.records if "transactional" in one.getMessage()] == ["WARNING"]
    quorum.znode.trouble = None
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look(quorum)
    assert init(quorum) == 0
    assert own_ids.trouble is None


def test_transactions_go_on_while_zookeeper_is_away_and_the_block_is_used_up() -> None:
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    look(quorum)
    assert init(quorum) == 0
    quorum.leader.machine.own_ids = StateMachine("c").own_ids
    quorum.znode.trouble = "no session"
    look(quorum)
    again = ask(quorum)
    other = ask(quorum, "other")
    quorum.settle()
    assert again.result().producer_epoch == 1
    assert code_of(other) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_another_quorums_seal_leaves_nothing_to_claim() -> None:
    quorum = quorum_in(P.BRIDGE)
    init(quorum)
    quorum.znode.put(encode(seal("pidkeeper/other/1")))
    look(quorum)
    trouble = quorum.leader.leadership.own_ids.trouble
    assert trouble is not None and "sealed by pidkeeper/other/1" in trouble
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_quorum_that_has_not_begun_in_zookeeper_takes_no_block() -> None:
    """Brokers have the IDs from 0 on."""
    quorum = MemoryQuorum(bridge=True)
    quorum.znode.put(kafka_block(7, 0, 999))
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look(quorum)
    assert quorum.leader.machine.producer_ids.next_producer_id == 0
    quorum.run()
    assert quorum.leader.phase() is P.BRIDGE
    look(quorum)
    assert init(quorum) == 1000


def test_nothing_is_filled_before_all_members_read_the_record() -> None:
    quorum = quorum_in(P.BRIDGE, version=ADDED_PARTITIONS)
    init(quorum)
    look(quorum)
    assert stands(quorum) is None


def test_one_block_is_asked_for_at_a_time_and_late_answers_of_another_term_count_for_nothing() -> None:
    quorum = quorum_in(P.BRIDGE)
    asked: list[Answer] = []
    duty = OwnIdsDuty(quorum.leader.machine, asked.append)
    duty.lead(1)
    duty.wanted()
    duty.tick()
    duty.tick()
    assert len(asked) == 1
    duty.lead(2)
    duty.wanted()
    duty.tick()
    assert len(asked) == 2
    asked[0].set_exception(RequestError(ErrorCode.NOT_CONTROLLER))
    duty.tick()
    assert (len(asked), duty.trouble) == (2, None)
    asked[1].set_result(True)
    duty.tick()
    assert len(asked) == 3


def test_a_refusal_at_once_is_one_like_any_other() -> None:
    quorum = quorum_in(P.BRIDGE)

    def refuse(_: object) -> None:
        raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")

    duty = OwnIdsDuty(quorum.leader.machine, refuse)
    duty.wanted()
    duty.tick()
    assert duty.trouble == "THROTTLING_QUOTA_EXCEEDED: too many"
    assert SIZE == 10


def test_who_comes_to_lead_asks_at_once_and_knows_of_no_trouble() -> None:
    quorum = quorum_in(P.BRIDGE)
    asked: list[Answer] = []
    duty = OwnIdsDuty(quorum.leader.machine, asked.append)
    for term in (1, 2):
        duty.lead(term)
        duty.tick()
        assert duty.trouble is None
        duty.wanted()
        duty.tick()
        assert len(asked) == term
        asked[-1].set_exception(RequestError(ErrorCode.ZOOKEEPER_UNAVAILABLE, "away"))
        assert duty.trouble == "ZOOKEEPER_UNAVAILABLE: away"
    asked.clear()
    for _ in range(RETRY_LOOKS + 1):
        assert asked == []
        duty.tick()
    assert len(asked) == 1
    asked[0].set_result(True)
    duty.tick()
    assert len(asked) == 2, "after one that succeeded there is no rest"


def test_the_first_version_that_has_blocks_of_its_own_fills_them() -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999, TRANSACTIONAL_BLOCKS)
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look(quorum)
    assert init(quorum) == 1000


def test_the_leader_looks_now_and_then_but_not_while_it_hears_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999)
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    leadership = quorum.leader.leadership
    for hearing, expected in ((True, ()), (False, (IdRange(1000, 1009),))):
        monkeypatch.setattr(leadership.founding, "hearing", lambda hears=hearing: hears)
        for _ in range(DUTY_TICKS):
            leadership.tick()
        quorum.settle()
        assert left(quorum) == expected


def test_who_comes_to_lead_has_no_trouble_of_an_earlier_time() -> None:
    quorum = quorum_in(P.DUAL_WRITE, 999)
    leader = quorum.leader
    assert init(quorum) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    leader.leadership.own_ids.tick()
    leader.depose()
    leader.leadership.observe()
    assert leader.leadership.own_ids.trouble is not None
    leader.core.role, leader.core.serving = Role.LEADER, True
    leader.leadership.observe()
    assert leader.leadership.own_ids.trouble is None
