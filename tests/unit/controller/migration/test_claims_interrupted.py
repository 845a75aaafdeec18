"""Claims in ZooKeeper that a deposition, a phase that pauses, or a caller who hangs up interrupts."""

from __future__ import annotations

import pytest

from pidkeeper.controller.answers import not_controller
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.migration import MigrationPhase
from tests.support.memory_leader import (
    ALLOCATE,
    CLAIM_STATES,
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


@pytest.fixture
def quorum() -> MemoryQuorum:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.BRIDGE)
    return quorum


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("state", CLAIM_STATES)
def test_deposed_in_any_state(quorum: MemoryQuorum, state: str, carried_out: bool) -> None:
    before, znode = quorum.leader, quorum.znode
    answer = before.ask()
    reach(before, state)
    behind = before.ask()
    if carried_out:
        znode.carry_out()
    quorum.succeed()
    assert code_of(answer) is code_of(behind) is ErrorCode.NOT_CONTROLLER
    assert len(before.migration.claims) == 0
    entries, writes = len(quorum.log), len([call for call in znode.calls if call.version is not None])
    while znode.calls:
        znode.answer()
        before.loop.run()
    before.loop.run()
    assert len(quorum.log) == entries
    assert znode.writes <= writes + 1, "an answer that came late made it write again"
    assert not before.decider.waiting()
    assert granted(quorum) == [0]


@pytest.mark.parametrize("state", CLAIM_STATES)
def test_who_leads_again_starts_anew(quorum: MemoryQuorum, state: str) -> None:
    """Answers from before count for nothing, even if they come in the middle of the next claim."""
    leader, znode = quorum.leader, quorum.znode
    leader.ask()
    reach(leader, state)
    proposed = len(leader.core.proposed)
    leader.migration.deposed()
    leader.decider.fail(not_controller())
    answers = [leader.ask() for _ in range(2)]
    for _ in range(proposed):
        leader.commit()
    quorum.settle()
    assert [start_of(answer) for answer in answers] == ([10, 20] if state == "proposed" else [0, 10])
    assert not znode.calls
    assert znode.reads == (1 if state == "waiting" else 2)
    assert znode.writes == (1 if state in {"waiting", "reading"} else 2)
    assert leader.migration.claims.failures == 0


@pytest.mark.parametrize("phase", [MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK])
@pytest.mark.parametrize("state", CLAIM_STATES)
def test_a_phase_that_pauses_begins_while_a_claim_is_under_way(state: str, phase: MigrationPhase) -> None:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.DUAL_WRITE)
    leader = quorum.leader
    answers = [leader.ask()]
    if state != "waiting":
        reach(leader, state)
    order = leader.migration.orders.order(phase, forced=True)
    answers.append(leader.ask())
    leader.settle()
    while quorum.znode.calls:
        quorum.znode.answer()
        leader.settle()
    assert order.result() is phase
    given = [start_of(answer) for answer in answers if answer.refusal is None]
    # An order to finalise looks at the znode first, after the write that is under way.
    early = {"writing"} if phase is MigrationPhase.FINALIZING else set()
    assert given == ([0] if state in early | {"handed over", "proposed"} else [])
    refused = [code_of(answer) for answer in answers if answer.refusal is not None]
    assert refused == [ErrorCode.MIGRATION_UNDER_WAY] * (2 - len(given))
    quorum.run()
    assert leader.machine.producer_ids.next_producer_id >= (SIZE if given else 0)


def test_what_was_claimed_before_a_rollback_is_not_handed_out_after_it() -> None:
    """The rollback gave it back to ZooKeeper's brokers."""
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.DUAL_WRITE)
    quorum.znode.put(None)
    for request in (ALLOCATE, STALE, STALE):
        quorum.leader.ask(request)
    quorum.settle()
    assert stands(quorum) == ours(0, 29)
    quorum.order(MigrationPhase.ROLLING_BACK)
    quorum.run()
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    taken = quorum.znode.allocate(size=SIZE)
    assert taken == range(10, 20)
    assert granted(quorum) == [20]


def test_callers_that_hang_up_harm_nobody(quorum: MemoryQuorum) -> None:
    answers = [quorum.leader.ask() for _ in range(3)]
    answers[0].cancel()
    quorum.leader.settle()
    quorum.znode.answer()
    answers[1].cancel()
    quorum.settle()
    assert start_of(answers[2]) == 20
    assert granted(quorum) == [30]
    gone = quorum.leader.ask()
    gone.cancel()
    quorum.leader.settle()
    quorum.znode.fail()
    assert granted(quorum) == [40]


def test_a_decider_that_takes_nothing_more_refuses_its_share(quorum: MemoryQuorum) -> None:
    answers = [quorum.leader.ask() for _ in range(3)]
    reach(quorum.leader, "writing")
    quorum.leader.core.serving = False
    quorum.znode.answer()
    assert [code_of(answer) for answer in answers] == [ErrorCode.NOT_CONTROLLER] * 3
    quorum.leader.core.serving = True
    assert granted(quorum) == [0]
    assert quorum.znode.writes == 1
