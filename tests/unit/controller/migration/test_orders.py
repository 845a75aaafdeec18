"""Orders of operators: what begins, what is refused and why, and the description that says so beforehand."""

from __future__ import annotations

import msgspec
import pytest

from pidkeeper.controller.migration.orders import MAX_ATTEMPTS, REMEDIES
from pidkeeper.controller.migration.znode import ZnodeBlock, encode, parse, seal
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH, Cause, Failure, LiveBrokers
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import MigrationDescription, ZnodeDescription, ZookeeperBrokers
from pidkeeper.protocol.metadata_version import LATEST, TRANSACTIONS
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase
from tests.support.memory_leader import NAME, MemoryQuorum
from tests.support.memory_znode import MemoryAnswer, kafka_block

P = MigrationPhase
STARTED = [P.IMPORT, P.DUAL_WRITE, P.FINALIZING, P.FINALIZED]


def in_phase(phase: MigrationPhase, *, data: bytes | None = None) -> MemoryQuorum:
    quorum = MemoryQuorum()
    quorum.znode.put(data)
    quorum.enter(phase)
    return quorum


def refused(quorum: MemoryQuorum, order: str | MigrationPhase, code: ErrorCode = ErrorCode.MIGRATION_REFUSED) -> str:
    record, data = quorum.leader.machine.migration.record, quorum.znode.data
    with pytest.raises(RequestError) as refusal:
        quorum.order(order)
    assert refusal.value.code is code
    assert quorum.znode.data == data
    assert quorum.leader.machine.migration.record is record
    return refusal.value.detail


def describe(quorum: MemoryQuorum, trouble: str | None = None) -> MigrationDescription:
    answer = quorum.leader.migration.orders.describe(trouble)
    quorum.settle()
    description: MigrationDescription = answer.result()
    # It can be answered with, and leaves everything as it is.
    assert msgspec.json.decode(msgspec.json.encode(description), type=MigrationDescription) == description
    return description


@pytest.mark.parametrize("phase", [P.NONE, P.BRIDGE, P.ROLLED_BACK])
def test_the_migration_begins(phase: MigrationPhase) -> None:
    quorum = in_phase(phase, data=kafka_block(3, 0, 999))
    version, reads = quorum.znode.version, quorum.znode.reads
    assert describe(quorum).refusals["start"] is None
    assert quorum.order("start") is P.IMPORT
    # Read, and written back as it was: it may be written.
    assert (quorum.znode.version, quorum.znode.reads) == (version + 1, reads + 2)
    assert quorum.znode.data == kafka_block(3, 0, 999)
    assert quorum.leader.machine.migration.claimed_by == NAME


def test_a_name_is_taken_once_and_for_all() -> None:
    quorum = in_phase(P.ROLLED_BACK)
    quorum.order("start")
    assert quorum.names == 2
    assert quorum.leader.machine.migration.claimed_by == NAME


@pytest.mark.parametrize("phase", STARTED)
def test_a_migration_that_has_begun_is_answered_with_its_phase(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    reads, writes = quorum.znode.reads, quorum.znode.writes
    assert quorum.order("start") is phase
    assert (quorum.znode.reads, quorum.znode.writes) == (reads, writes)
    assert describe(quorum).refusals["start"] is None


def test_it_needs_the_metadata_version() -> None:
    quorum = MemoryQuorum(version=TRANSACTIONS)
    detail = refused(quorum, "start", ErrorCode.UNSUPPORTED_VERSION)
    assert detail.startswith("this needs metadata version 4, the quorum has 3: ")
    assert quorum.znode.reads == 0
    assert describe(quorum).refusals["start"] == detail


def test_a_quorum_that_allocated_alone_cannot_begin() -> None:
    quorum = MemoryQuorum()
    quorum.leader.ask()
    quorum.settle()
    detail = refused(quorum, "start")
    assert detail.startswith("this quorum has handed out IDs by itself, 0 to 9 at last: ")
    assert quorum.znode.reads == 0
    assert describe(quorum).refusals["start"] == detail


@pytest.mark.parametrize("phase", [P.BRIDGE, P.ROLLED_BACK])
def test_a_quorum_that_is_ahead_of_zookeeper_cannot_begin(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    for _ in range(2):
        quorum.leader.ask()
    quorum.settle()
    quorum.znode.put(kafka_block(3, 0, 18))
    detail = refused(quorum, "start")
    assert detail.startswith("the quorum is ahead of ZooKeeper: its next producer ID is 20, the znode's 19. ")
    assert "set its block_end to 19 or above" in detail
    assert describe(quorum).refusals["start"] == detail
    quorum.znode.put(kafka_block(3, 0, 19))
    assert quorum.order("start") is P.IMPORT


def test_an_empty_znode_is_behind_a_quorum_that_has_a_floor() -> None:
    quorum = MemoryQuorum()
    quorum.leader.floor(20)
    quorum.settle()
    assert "its next producer ID is 20, the znode's 0. " in refused(quorum, "start")
    quorum.znode.allocate(size=20)
    assert quorum.order("start") is P.IMPORT


def test_a_refused_order_while_rolling_back() -> None:
    quorum = in_phase(P.ROLLING_BACK)
    detail = refused(quorum, "start")
    assert detail == "start is possible in none or bridge or rolled_back only; the phase is rolling_back"
    assert describe(quorum).refusals["start"] == detail


FAILURES = {
    Cause.ABSENT: REMEDIES[Cause.ABSENT],
    Cause.DENIED: REMEDIES[Cause.DENIED],
    Cause.UNAVAILABLE: "no session",
    Cause.CONFLICT: "no session",
}


@pytest.mark.parametrize("cause", FAILURES)
@pytest.mark.parametrize("phase", [P.NONE, P.BRIDGE])
def test_a_znode_that_cannot_be_read(phase: MigrationPhase, cause: Cause) -> None:
    quorum = in_phase(phase)
    quorum.leader.floor(20)
    quorum.settle()
    orders = quorum.leader.migration.orders
    answer = orders.start()
    quorum.znode.fail(Failure(cause, "no session"))
    assert answer.refusal.code is ErrorCode.MIGRATION_REFUSED
    assert answer.refusal.detail == FAILURES[cause]
    assert not quorum.znode.calls
    answer = orders.describe("stuck")
    quorum.znode.answer()
    quorum.znode.fail(Failure(cause, "no session"))
    description = answer.result()
    assert description.znode is None
    assert description.zookeeper == description.refusals["start"] == FAILURES[cause]
    assert description.trouble == "stuck"


@pytest.mark.parametrize("cause", [Cause.ABSENT, Cause.DENIED, Cause.UNAVAILABLE])
def test_a_znode_that_cannot_be_written(cause: Cause) -> None:
    quorum = in_phase(P.NONE, data=kafka_block(3, 0, 999))
    answer = quorum.leader.migration.orders.start()
    quorum.znode.answer()
    quorum.znode.fail(Failure(cause, "no session"))
    quorum.settle()
    assert answer.refusal.code is ErrorCode.MIGRATION_REFUSED
    assert answer.refusal.detail == FAILURES[cause]
    assert quorum.leader.phase() is P.NONE


def test_remedies_name_the_znode() -> None:
    assert all(BLOCK_PATH in remedy for remedy in REMEDIES.values())


@pytest.mark.parametrize(
    ("data", "reason", "next_id", "written_by"),
    [
        (b"\xff{", "the znode cannot be used: bad JSON: ", None, None),
        (
            encode(seal("another")),
            "the znode was sealed by another: that quorum hands out the IDs now",
            None,
            "another",
        ),
        (
            kafka_block(3, 0, MAX_PRODUCER_ID),
            f"no producer ID is left above block_end {MAX_PRODUCER_ID}",
            None,
            "broker 3",
        ),
        (kafka_block(3, 0, MAX_PRODUCER_ID - 1), None, MAX_PRODUCER_ID, "broker 3"),
        (kafka_block(0, 0, 999), None, 1000, "broker 0"),
        (kafka_block(-1, 0, 999), None, 1000, "a controller"),
        (encode(ZnodeBlock(CONTROLLER, 0, 999, "another")), None, 1000, "another"),
        (None, None, 0, None),
        (kafka_block(-1, 0, 9)[:-1] + rb',"claimed_by":"\ud800"}', None, 10, "a controller"),
        (kafka_block(-1, 0, 9)[:-1] + b',"x":"\xed\xa0\x80"}', None, 10, "a controller"),
    ],
    ids=[
        "bad",
        "sealed",
        "full",
        "last",
        "broker",
        "controller",
        "quorum",
        "empty",
        "half escaped",
        "half a character",
    ],
)
def test_what_the_znode_says(data: bytes | None, reason: str | None, next_id: int | None, written_by: str) -> None:
    quorum = in_phase(P.NONE, data=data)
    description = describe(quorum)
    assert description.znode == ZnodeDescription(
        path=BLOCK_PATH,
        version=1,
        data=None if data is None else data.decode(errors="replace"),
        next_producer_id=next_id,
        written_by=written_by,
        problem=description.refusals["start"],
    )
    assert description.zookeeper is None
    if reason is None:
        assert description.refusals["start"] is None
        assert quorum.order("start") is P.IMPORT
    else:
        detail = refused(quorum, "start")
        assert detail.startswith(reason)
        assert description.refusals["start"] == detail


def conflict(quorum: MemoryQuorum, times: int) -> None:
    for _ in range(times):
        quorum.znode.answer()
        quorum.znode.allocate(size=10)
        quorum.znode.answer()


def test_brokers_that_go_on_writing_are_waited_for_a_bounded_number_of_times() -> None:
    quorum = MemoryQuorum()
    answer = quorum.leader.migration.orders.start()
    conflict(quorum, MAX_ATTEMPTS)
    assert not quorum.znode.calls
    assert answer.refusal.code is ErrorCode.MIGRATION_REFUSED
    assert answer.refusal.detail == f"version {MAX_ATTEMPTS}, not {MAX_ATTEMPTS - 1}"
    answer = quorum.leader.migration.orders.start()
    conflict(quorum, MAX_ATTEMPTS - 1)
    quorum.settle()
    assert answer.result() is P.IMPORT


def test_a_block_that_a_broker_takes_while_the_order_is_under_way_is_imported() -> None:
    quorum = in_phase(P.NONE, data=kafka_block(3, 0, 999))
    answer = quorum.leader.migration.orders.start()
    quorum.znode.answer()
    quorum.znode.answer()
    quorum.znode.allocate()
    quorum.run()
    assert answer.result() is P.IMPORT
    quorum.run()
    assert quorum.leader.machine.producer_ids.next_producer_id == 2000


@pytest.mark.parametrize("order", ["start", P.FINALIZING, P.ROLLING_BACK])
@pytest.mark.parametrize("phase", [P.NONE, P.DUAL_WRITE])
def test_a_member_that_does_not_lead_obeys_nobody(phase: MigrationPhase, order: str | MigrationPhase) -> None:
    quorum = in_phase(phase)
    quorum.leader.core.serving = False
    entries = len(quorum.log)
    with pytest.raises(RequestError) as refusal:
        quorum.order(order)
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert len(quorum.log) == entries


ALLOWED = {
    P.FINALIZING: {P.DUAL_WRITE: P.FINALIZING, P.FINALIZING: P.FINALIZING, P.FINALIZED: P.FINALIZED},
    P.ROLLING_BACK: {
        P.IMPORT: P.ROLLING_BACK,
        P.DUAL_WRITE: P.ROLLING_BACK,
        P.FINALIZING: P.ROLLING_BACK,
        P.ROLLING_BACK: P.ROLLING_BACK,
        P.ROLLED_BACK: P.ROLLED_BACK,
    },
}
NAMES = {P.FINALIZING: "finalize", P.ROLLING_BACK: "rollback"}
BEFORE = {P.FINALIZING: "dual_write", P.ROLLING_BACK: "import or dual_write or finalizing"}


@pytest.mark.parametrize("order", ALLOWED, ids=lambda phase: phase.name)
@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_orders_in_every_phase(phase: MigrationPhase, order: MigrationPhase) -> None:
    quorum = in_phase(phase)
    description = describe(quorum)
    assert description.phase == phase.name.lower()
    if phase in ALLOWED[order]:
        assert description.refusals[NAMES[order]] is None
        assert quorum.order(order) is ALLOWED[order][phase]
        assert quorum.leader.phase() is ALLOWED[order][phase]
    else:
        detail = refused(quorum, order)
        last = ", and there is no way back" if phase is P.FINALIZED else ""
        where = f"the phase is {phase.name.lower()}{last}"
        assert detail == f"{NAMES[order]} is possible in {BEFORE[order]} only; {where}"
        assert description.refusals[NAMES[order]] == detail


def test_an_order_that_changes_nothing_still_waits_for_the_quorum() -> None:
    """Who was deposed and does not know it would call a phase the current one that is over."""
    quorum = in_phase(P.FINALIZED)
    answer: MemoryAnswer = quorum.leader.migration.orders.order(P.FINALIZING)
    quorum.leader.loop.run()
    assert not answer.done()
    quorum.succeed()
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_the_description_in_every_phase(phase: MigrationPhase) -> None:
    quorum = in_phase(phase, data=kafka_block(3, 0, 999))
    description = describe(quorum)
    assert description.claimed_by == (None if phase is P.NONE else NAME)
    taken = phase not in {P.NONE, P.BRIDGE, P.IMPORT}
    assert description.next_producer_id == (1000 if taken else 0)
    assert (description.block_size, description.metadata_version) == (10, LATEST)
    assert description.trouble is None
    assert description.znode is not None
    sealed = phase is P.FINALIZED
    assert (description.znode.problem is not None) is sealed
    assert description.znode.written_by == (NAME if sealed else "broker 3")
    block = parse(quorum.znode.data)
    assert block is not None
    assert block.sealed is sealed


def test_nothing_is_finalised_while_zookeeper_is_away() -> None:
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.DUAL_WRITE)
    order = quorum.leader.migration.orders.order(MigrationPhase.FINALIZING)
    quorum.znode.fail()
    quorum.leader.settle()
    with pytest.raises(RequestError, match="not now: ") as refusal:
        order.result()
    assert refusal.value.code is ErrorCode.MIGRATION_REFUSED
    assert quorum.leader.phase() is MigrationPhase.DUAL_WRITE


LIVE = LiveBrokers((1, 7), foreign=1)


def test_nothing_is_finalised_over_brokers_that_live() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    assert describe(quorum).brokers == ZookeeperBrokers("/brokers/ids", [], 0, None)
    quorum.znode.live = LIVE
    detail = refused(quorum, P.FINALIZING)
    assert detail.startswith("not now: brokers 1, 7 are still in ZooKeeper (/brokers/ids). ")
    description = describe(quorum)
    assert description.refusals["finalize"] == detail
    assert description.brokers == ZookeeperBrokers("/brokers/ids", [1, 7], 1, None)
    quorum.znode.live = LiveBrokers((), foreign=1)
    assert describe(quorum).refusals["finalize"] is None
    assert quorum.order(P.FINALIZING) is P.FINALIZING


def test_who_cannot_tell_which_brokers_live_does_not_finalise() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    away = Failure(Cause.UNAVAILABLE, "no answer within 2000 ms")
    answer = quorum.leader.migration.orders.order(P.FINALIZING)
    quorum.znode.answer()
    quorum.znode.fail(away)
    quorum.settle()
    assert answer.refusal.code is ErrorCode.MIGRATION_REFUSED
    assert answer.refusal.detail.startswith("not now: nobody can tell which brokers are still in ZooKeeper ")
    assert quorum.leader.phase() is P.DUAL_WRITE
    described = quorum.leader.migration.orders.describe(None)
    quorum.znode.fail(away)
    quorum.settle()
    assert described.result().refusals["finalize"] == answer.refusal.detail
    assert described.result().brokers == ZookeeperBrokers("/brokers/ids", [], 0, away.detail)


def test_force_asks_for_nobody() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    quorum.znode.live = LIVE
    answer = quorum.leader.migration.orders.order(P.FINALIZING, forced=True)
    quorum.znode.answer()
    assert not quorum.znode.calls, "what nobody can read would stop it"
    quorum.settle()
    assert answer.result() is P.FINALIZING
    quorum.run()
    assert quorum.leader.phase() is P.FINALIZED


def test_force_seals_nothing_unseen() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    answer = quorum.leader.migration.orders.order(P.FINALIZING, forced=True)
    quorum.znode.fail(Failure(Cause.UNAVAILABLE, "no session"))
    assert answer.refusal.detail == "not now: no session"


def test_an_order_in_the_import_that_is_decided_behind_it_has_looked() -> None:
    """It joins the batch of the step to dual write, or the next one."""
    quorum = in_phase(P.IMPORT)
    quorum.znode.live = LIVE
    quorum.leader.migration.tick()
    quorum.znode.answer()
    answer = quorum.leader.migration.orders.order(P.FINALIZING)
    quorum.settle()
    assert quorum.leader.phase() is P.DUAL_WRITE
    assert answer.refusal.detail.startswith("not now: brokers 1, 7 are still in ZooKeeper ")


@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_brokers_that_live_are_in_no_other_orders_way(phase: MigrationPhase) -> None:
    quorum = in_phase(phase, data=kafka_block(3, 0, 999))
    before = describe(quorum).refusals
    quorum.znode.live = LIVE
    after = describe(quorum).refusals
    assert (after["start"], after["rollback"]) == (before["start"], before["rollback"])
    if phase is not P.DUAL_WRITE:
        assert after["finalize"] == before["finalize"]
    for order in (P.FINALIZING, P.ROLLING_BACK):
        if phase in ALLOWED[order] and (order, phase) != (P.FINALIZING, P.DUAL_WRITE):
            assert quorum.order(order) is ALLOWED[order][phase]
            return
