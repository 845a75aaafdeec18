"""The leader's steps: each with every outcome, and with another leader taking over between any two calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pidkeeper.controller.answers import not_controller
from pidkeeper.controller.migration import steps as steps_module
from pidkeeper.controller.migration.znode import ZnodeBlock, encode, parse, seal
from pidkeeper.controller.migration.zookeeper import Cause, Failure, Znode
from pidkeeper.controller.node import decider as decider_module
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import Record, decode_batch
from tests.support.memory_leader import ALLOCATE, NAME, STALE, MemoryLeader, MemoryQuorum, stands
from tests.support.memory_znode import kafka_block

LOOKING = [MigrationPhase.IMPORT, MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK]
AFTER = {
    MigrationPhase.IMPORT: MigrationPhase.DUAL_WRITE,
    MigrationPhase.FINALIZING: MigrationPhase.FINALIZED,
    MigrationPhase.ROLLING_BACK: MigrationPhase.ROLLED_BACK,
}
WRITING = LOOKING[1:]


def in_phase(phase: MigrationPhase, *, data: bytes | None = None) -> MemoryQuorum:
    quorum = MemoryQuorum()
    quorum.znode.put(data)
    quorum.enter(phase)
    return quorum


def with_claim(phase: MigrationPhase) -> MemoryQuorum:
    """0 to 999 are a broker's, 1000 to 1009 the quorum's, 1010 to 1019 claimed and given to nobody."""
    quorum = MemoryQuorum()
    quorum.znode.allocate()
    quorum.enter(MigrationPhase.IMPORT if phase is MigrationPhase.IMPORT else MigrationPhase.DUAL_WRITE)
    for request in (ALLOCATE, STALE):
        quorum.leader.ask(request)
    quorum.settle()
    if phase is not MigrationPhase.IMPORT:
        quorum.order(phase)
    assert quorum.leader.machine.producer_ids.next_producer_id == 1010
    assert parse(quorum.znode.data) == ZnodeBlock(CONTROLLER, 1000, 1019, NAME)
    return quorum


def trouble(quorum: MemoryQuorum) -> str | None:
    return quorum.leader.migration.steps.trouble


def records(quorum: MemoryQuorum, entries: int) -> list[Record]:
    return [record for data in quorum.log[-entries:] for record in decode_batch(data)]


def test_the_import_takes_the_znodes_block_and_one_more() -> None:
    """KAFKA-15552: not the block itself."""
    quorum = in_phase(MigrationPhase.IMPORT, data=kafka_block(3, 5000, 5999))
    quorum.run()
    # `start` wrote back what it had read.
    assert records(quorum, 1) == [
        ZooKeeperBlockRecord(6000, 3, 2, 1500),
        MigrationRecord(MigrationPhase.DUAL_WRITE, NAME, 2, 1500),
    ]
    assert quorum.znode.data == kafka_block(3, 5000, 5999)
    assert quorum.leader.phase() is MigrationPhase.DUAL_WRITE
    assert trouble(quorum) is None


def test_the_import_of_an_empty_znode() -> None:
    quorum = in_phase(MigrationPhase.IMPORT)
    quorum.run()
    assert records(quorum, 1) == [MigrationRecord(MigrationPhase.DUAL_WRITE, NAME, 2, 1500)]
    assert quorum.leader.machine.producer_ids.next_producer_id == 0


def test_finalizing_commits_the_end_before_it_seals() -> None:
    quorum = in_phase(MigrationPhase.DUAL_WRITE, data=kafka_block(3, 0, 999))
    quorum.znode.allocate(4)
    quorum.order(MigrationPhase.FINALIZING)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    leader.loop.run()
    assert not znode.calls, "nothing is written before the version that it replaces is committed"
    leader.settle()
    assert records(quorum, 1) == [
        ZooKeeperBlockRecord(2000, 4, 3, 1500),
        MigrationRecord(MigrationPhase.FINALIZING, NAME, 3, 1500),
    ]
    assert [call.data for call in znode.calls] == [encode(seal(NAME))]
    quorum.settle()
    assert records(quorum, 1) == [MigrationRecord(MigrationPhase.FINALIZED, NAME, -1, 1500)]
    assert znode.data == encode(seal(NAME))
    with pytest.raises(ArithmeticError):
        znode.allocate()
    answer = leader.ask()
    quorum.settle()
    assert answer.result().producer_id_start == 2000
    assert znode.writes == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Written again in any case, so that no older write lands.
        (kafka_block(3, 0, 999), kafka_block(3, 0, 999)),
        (None, None),
        (encode(ZnodeBlock(CONTROLLER, 0, 99, NAME)), None),
        (encode(ZnodeBlock(CONTROLLER, 100, 199, NAME)), encode(ZnodeBlock(CONTROLLER, 90, 99, NAME))),
        (encode(ZnodeBlock(CONTROLLER, 4, 199, NAME)), encode(ZnodeBlock(CONTROLLER, 0, 3, NAME))),
        (encode(ZnodeBlock(CONTROLLER, 0, 99, "another")), encode(ZnodeBlock(CONTROLLER, 0, 99, "another"))),
    ],
    ids=["a broker's", "empty", "an unused claim", "claim above", "claim low above", "another quorum's"],
)
def test_a_rollback_leaves_zookeeper_at_the_next_free_id(before: bytes | None, after: bytes | None) -> None:
    quorum = in_phase(MigrationPhase.ROLLING_BACK)
    quorum.znode.put(before)
    version = quorum.znode.version
    quorum.run()
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    assert (quorum.znode.data, quorum.znode.version) == (after, version + 1)
    following = quorum.leader.machine.producer_ids.next_producer_id
    assert quorum.znode.allocate(size=5) == range(following, following + 5)


def test_a_rollback_lowers_what_was_claimed_and_given_to_nobody() -> None:
    quorum = with_claim(MigrationPhase.ROLLING_BACK)
    quorum.run()
    assert parse(quorum.znode.data) == ZnodeBlock(CONTROLLER, 1000, 1009, NAME)
    assert records(quorum, 2) == [
        MigrationRecord(MigrationPhase.ROLLING_BACK, NAME, 3, 1500),
        MigrationRecord(MigrationPhase.ROLLED_BACK, NAME, -1, 1500),
    ]


def test_a_rollback_raises_a_znode_that_was_set_back() -> None:
    quorum = with_claim(MigrationPhase.ROLLING_BACK)
    quorum.znode.put(kafka_block(3, 0, 999))
    quorum.run()
    assert parse(quorum.znode.data) == ZnodeBlock(CONTROLLER, 1000, 1009, NAME)


def test_a_seal_that_a_rollback_overtakes_is_opened_again() -> None:
    quorum = with_claim(MigrationPhase.FINALIZING)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    leader.settle()
    znode.carry_out()
    order = leader.migration.orders.order(MigrationPhase.ROLLING_BACK)
    leader.settle()
    assert order.result() is MigrationPhase.ROLLING_BACK
    assert znode.data == encode(seal(NAME))
    quorum.settle()
    assert leader.phase() is MigrationPhase.ROLLING_BACK
    assert "no longer in FINALIZING" in str(trouble(quorum))
    quorum.run()
    assert leader.phase() is MigrationPhase.ROLLED_BACK
    assert parse(znode.data) == ZnodeBlock(CONTROLLER, 1000, 1009, NAME)
    assert trouble(quorum) is None


@pytest.mark.parametrize("phase", [one for one in MigrationPhase if one not in LOOKING])
def test_no_step_is_due_in_other_phases(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    version = quorum.znode.version
    quorum.leader.migration.steps.tick()
    assert not quorum.znode.calls
    assert quorum.znode.version == version


@pytest.mark.parametrize("phase", LOOKING)
def test_ticks_while_a_step_is_under_way_do_nothing(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    leader, znode = quorum.leader, quorum.znode
    calls = 0
    for _ in range(200):
        leader.migration.tick()
        assert len(znode.calls) <= 1
        if znode.calls:
            calls += 1
            znode.answer()
            leader.migration.tick()
        leader.loop.run()
        leader.migration.tick()
        leader.commit()
        if leader.phase() is AFTER[phase]:
            break
    assert leader.phase() is AFTER[phase]
    assert calls == (1 if phase is MigrationPhase.IMPORT else 2)


FAILURES = [Failure(cause, f"{cause.value}: say") for cause in Cause]


@pytest.mark.parametrize("phase", LOOKING)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.cause.name)
def test_a_read_that_fails_is_tried_again_at_the_next_tick(phase: MigrationPhase, failure: Failure) -> None:
    quorum = in_phase(phase)
    for _ in range(2):
        quorum.leader.migration.tick()
        quorum.znode.fail(failure)
        assert not quorum.znode.calls
        assert trouble(quorum) == failure.detail
    quorum.run()
    assert quorum.leader.phase() is AFTER[phase]
    assert trouble(quorum) is None


@pytest.mark.parametrize("phase", WRITING)
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("failure", FAILURES[1:], ids=lambda failure: failure.cause.name)
def test_a_write_that_fails_is_tried_again_at_the_next_tick(
    phase: MigrationPhase, failure: Failure, landed: bool
) -> None:
    quorum = with_claim(phase)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    leader.settle()
    if landed and failure.cause is Cause.UNAVAILABLE:
        znode.carry_out()
    znode.fail(failure)
    leader.settle()
    assert leader.phase() is phase
    assert trouble(quorum) == failure.detail
    assert not znode.calls
    quorum.run()
    assert leader.phase() is AFTER[phase]
    assert trouble(quorum) is None
    assert leader.machine.producer_ids.next_producer_id == 1010


@pytest.mark.parametrize("phase", WRITING)
def test_a_broker_that_is_faster_is_looked_at_at_once(phase: MigrationPhase) -> None:
    quorum = with_claim(phase)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    for _ in range(3):
        znode.answer()
        leader.settle()
        znode.allocate()
        znode.answer()
        assert len(znode.calls) == 1
    quorum.settle()
    assert leader.phase() is AFTER[phase]
    assert leader.machine.producer_ids.next_producer_id == 4020


@pytest.mark.parametrize("phase", LOOKING)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "the znode cannot be used: unknown version null: only version 1 is known"),
        (encode(seal("another")), "the znode was sealed by another"),
        (kafka_block(3, 0, MAX_PRODUCER_ID), f"no producer ID is left: the znode ends at {MAX_PRODUCER_ID}"),
    ],
    ids=["unparsable", "foreign seal", "exhausted"],
)
def test_a_znode_that_a_step_cannot_use(phase: MigrationPhase, data: bytes, reason: str) -> None:
    quorum = in_phase(phase)
    quorum.znode.put(data)
    entries = len(quorum.log)
    quorum.run(ticks=2)
    assert quorum.leader.phase() is phase
    assert trouble(quorum) == reason
    assert (quorum.znode.data, len(quorum.log)) == (data, entries)
    quorum.znode.put(None)
    quorum.run()
    assert quorum.leader.phase() is AFTER[phase]


@pytest.mark.parametrize("phase", LOOKING)
def test_the_last_id_that_a_znode_may_leave(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    quorum.znode.put(kafka_block(3, MAX_PRODUCER_ID - 9, MAX_PRODUCER_ID - 1))
    quorum.run()
    assert quorum.leader.phase() is AFTER[phase]
    assert quorum.leader.machine.producer_ids.next_producer_id == MAX_PRODUCER_ID


@pytest.mark.parametrize("phase", LOOKING)
def test_a_decider_that_takes_nothing_is_asked_again(phase: MigrationPhase, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = in_phase(phase)
    with monkeypatch.context() as patch:
        patch.setattr(decider_module, "MAX_WAITING", 0)
        quorum.run()
    assert quorum.leader.phase() is phase
    assert "0 requests wait already" in str(trouble(quorum))
    quorum.run()
    assert quorum.leader.phase() is AFTER[phase]


def test_a_phase_that_is_over_when_the_znode_was_read_is_left_alone() -> None:
    quorum = in_phase(MigrationPhase.IMPORT)
    leader = quorum.leader
    leader.migration.tick()
    order = leader.migration.orders.order(MigrationPhase.ROLLING_BACK)
    leader.settle()
    assert order.result() is MigrationPhase.ROLLING_BACK
    quorum.settle()
    assert leader.phase() is MigrationPhase.ROLLED_BACK, "it goes on with the phase that is in force"


def test_a_rollback_in_the_batch_of_a_step_that_was_to_seal_leaves_the_znode_unsealed() -> None:
    quorum = with_claim(MigrationPhase.FINALIZING)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    order = leader.migration.orders.order(MigrationPhase.ROLLING_BACK)
    leader.settle()
    assert order.result() is MigrationPhase.ROLLING_BACK
    assert not znode.calls, "the seal is not written"
    quorum.run()
    assert leader.phase() is MigrationPhase.ROLLED_BACK
    left = stands(quorum)
    assert left is not None
    assert (left.sealed, left.last + 1) == (False, leader.machine.producer_ids.next_producer_id)


def test_what_was_read_for_a_phase_that_needs_nothing() -> None:
    quorum = in_phase(MigrationPhase.IMPORT)
    other = MemoryLeader(quorum)
    leader = quorum.leader
    leader.migration.tick()
    other.migration.tick()
    quorum.znode.answer()
    leader.settle()
    assert leader.phase() is MigrationPhase.DUAL_WRITE
    # The other one has replayed it by the time its read is answered.
    for data in quorum.log[-1:]:
        other.machine.replay(decode_batch(data))
    quorum.znode.answer()
    other.settle()
    assert not other.core.proposed
    assert other.migration.steps.trouble is None
    other.migration.steps.tick()
    assert not quorum.znode.calls
    other.migration.orders.order(MigrationPhase.FINALIZING)
    other.settle()
    for _ in ("the znode", "the brokers"):
        quorum.znode.answer()
    other.settle()
    assert (other.phase(), len(quorum.znode.calls)) == (MigrationPhase.FINALIZING, 0)
    other.migration.steps.tick()
    assert len(quorum.znode.calls) == 1


def test_phases_and_trouble_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pidkeeper.controller.migration")
    quorum = in_phase(MigrationPhase.IMPORT)
    for detail in ("first", "first", "second", "first"):
        quorum.leader.migration.tick()
        quorum.znode.fail(Failure(Cause.UNAVAILABLE, detail))
    quorum.run()
    assert caplog.messages == [
        "the migration cannot go on from IMPORT: first",
        "the migration cannot go on from IMPORT: second",
        "the migration cannot go on from IMPORT: first",
        "the migration from ZooKeeper is in the phase DUAL_WRITE",
    ]


def step(quorum: MemoryQuorum, *, serve: bool = True) -> bool:
    """The next single thing that happens; whether there was any."""
    leader, znode = quorum.leader, quorum.znode
    if leader.loop.run() or leader.commit():
        return True
    if not znode.calls:
        return False
    if serve and znode.calls[0].outcome is None:
        znode.carry_out()
    else:
        znode.answer()
    return True


Cut = Callable[[MemoryQuorum], None]


def end_of(quorum: MemoryQuorum, phase: MigrationPhase, taken: range | None) -> None:
    """The end is the same wherever the leaders changed, and nothing was given twice."""
    leader, znode = quorum.leader, quorum.znode
    assert leader.phase() is AFTER[phase]
    assert trouble(quorum) is None
    following = leader.machine.producer_ids.next_producer_id
    if phase is MigrationPhase.FINALIZING:
        assert znode.data == encode(seal(NAME))
        assert following == (1010 if taken is None else 2020)
        return
    assert following in {1010, 1020, 2010, 2020}
    answer = leader.ask()
    quorum.settle()
    start = answer.result().producer_id_start
    assert start == (1010 if taken is None else taken.stop)
    more = znode.allocate(size=10)
    assert more == range(start + 10, start + 20)


@pytest.mark.parametrize("phase", LOOKING)
@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("broker", [True, False])
def test_another_leader_takes_over_at_any_point(phase: MigrationPhase, aware: bool, broker: bool) -> None:
    cut = 0
    while True:
        quorum = with_claim(phase)
        quorum.leader.migration.tick()
        more = all(step(quorum) for _ in range(cut))
        taken = None
        if broker:
            with contextlib.suppress(ArithmeticError):
                taken = quorum.znode.allocate()
        before = quorum.succeed(aware=aware)
        for _ in range(3):
            quorum.run()
            before.loop.run()
        end_of(quorum, phase, taken)
        if not more:
            break
        cut += 1
    assert cut >= 5, "the step has fewer points than that?"


@pytest.mark.parametrize("phase", WRITING)
def test_a_write_of_the_leader_before_that_lands_at_any_point(phase: MigrationPhase) -> None:
    """What it sent before its session broke; its answer never comes."""
    landed = 0
    for late in range(20):
        quorum = with_claim(phase)
        leader, znode = quorum.leader, quorum.znode
        leader.migration.tick()
        znode.answer()
        leader.settle()
        quorum.succeed()
        assert len(znode.calls) == 1
        znode.fail()
        quorum.leader.migration.tick()
        for _ in range(late):
            step(quorum)
        version = znode.version
        znode.land()
        landed += znode.version > version
        for _ in range(3):
            quorum.run()
        end_of(quorum, phase, None)
    assert 0 < landed < 20


def test_a_leader_that_was_deposed_has_no_trouble_and_hears_nothing() -> None:
    quorum = in_phase(MigrationPhase.FINALIZING)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.fail()
    assert trouble(quorum) is not None
    leader.migration.deposed()
    assert trouble(quorum) is None
    # The same member leads again while an old read is under way still.
    leader.migration.tick()
    leader.migration.deposed()
    leader.migration.tick()
    assert len(znode.calls) == 2
    znode.answer()
    assert not leader.loop.run(), "the first answer is of an earlier leadership"
    znode.answer()
    assert leader.loop.run()
    leader.commit()
    assert len(znode.calls) == 1
    leader.migration.deposed()
    leader.decider.fail(not_controller())
    znode.answer()
    assert not leader.loop.run()
    assert trouble(quorum) is None


@pytest.mark.parametrize("commit", [True, False])
def test_an_answer_of_the_decider_from_before_counts_for_nothing(commit: bool) -> None:
    quorum = in_phase(MigrationPhase.FINALIZING)
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    leader.loop.run()
    leader.migration.deposed()
    if commit:
        leader.commit()
    else:
        leader.decider.fail(not_controller())
    assert not znode.calls
    assert trouble(quorum) is None


def test_d7_a_seal_never_lowers_the_end_of_the_znode(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = in_phase(MigrationPhase.FINALIZING, data=kafka_block(3, 5000, 5999))
    monkeypatch.setattr(steps_module, "seal", lambda name: ZnodeBlock(CONTROLLER, 0, 9, name))
    with pytest.raises(AssertionError, match=r"D7: .* would lower version . of the znode from .*5999"):
        quorum.run()
    assert quorum.znode.data == kafka_block(3, 5000, 5999)


def test_d7_a_rollback_lowers_the_end_only_of_the_version_that_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = with_claim(MigrationPhase.ROLLING_BACK)
    steps = quorum.leader.migration.steps
    write = steps._write

    def write_behind(data: bytes | None, znode: Znode, then: Callable[[], None]) -> None:
        write(data, replace(znode, version=znode.version + 1), then)

    monkeypatch.setattr(steps, "_write", write_behind)
    with pytest.raises(AssertionError, match=r"D7: .* would lower version . of the znode from .*1019"):
        quorum.run()
    monkeypatch.undo()
    quorum.succeed()
    quorum.run()
    assert parse(quorum.znode.data) == ZnodeBlock(CONTROLLER, 1000, 1009, NAME)
