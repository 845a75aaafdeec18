"""Operators' orders: begin the migration, end it for good, hand back to ZooKeeper; and whether each is possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pidkeeper.controller.answers import Answer, Loop, release
from pidkeeper.controller.migration.live_brokers import describe_brokers, why_not_seal
from pidkeeper.controller.migration.znode import ZnodeBlock, ZnodeError, parse
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH, BlockZnode, Cause, Failure, LiveBrokers, Znode
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.migration_decisions import STARTED
from pidkeeper.controller.state.requests import OrderMigration, Request, StartMigration
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import MigrationDescription, ZnodeDescription
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase

MAX_ATTEMPTS: Final = 100
"""Times that `start` looks at a znode which brokers go on writing meanwhile."""

LOOKING_FIRST: Final = {MigrationPhase.IMPORT, MigrationPhase.DUAL_WRITE}
"""Phases in which an order to finalise looks at ZooKeeper. One that is given in IMPORT may be decided in DUAL_WRITE."""

REMEDIES: Final = {
    Cause.ABSENT: f"there is no znode {BLOCK_PATH}: a broker makes it when it starts; is the chroot right?",
    Cause.DENIED: f"ZooKeeper does not permit it: let this user read and write {BLOCK_PATH}",
}


class MigrationOrders:
    """Looks at the znode for whoever asks, and has orders decided. `submit` raises RequestError if it cannot.

    `new_name` makes a name for this quorum's claims that nobody ever had.
    """

    def __init__(
        self,
        machine: StateMachine,
        znode: BlockZnode,
        loop: Loop,
        submit: Callable[[Request, Answer], None],
        new_name: Callable[[], str],
    ) -> None:
        self._machine = machine
        self._znode = znode
        self._loop = loop
        self._submit = submit
        self._new_name = new_name

    def start(self) -> Any:
        """Begin the migration. The returned future gives the phase then, or raises MIGRATION_REFUSED."""
        answer = self._loop.create_future()
        draft = Draft(self._machine, 0)
        try:
            # By the phase alone; only then is the znode touched.
            decide(draft, StartMigration("", MAX_PRODUCER_ID))
        except RequestError as refusal:
            release(answer, refusal)
            return answer
        if draft.records:
            self._look(answer, MAX_ATTEMPTS)
        else:
            self._decide(StartMigration(self._new_name(), 0), answer)
        return answer

    def order(self, phase: MigrationPhase, *, forced: bool = False) -> Any:
        """Have FINALIZING or ROLLING_BACK begin. The returned future gives the phase then, or MIGRATION_REFUSED.

        FINALIZING begins while brokers live in ZooKeeper, or while nobody can tell, only if it is `forced`.
        """
        answer = self._loop.create_future()
        if phase is MigrationPhase.FINALIZING and self._machine.migration.phase in LOOKING_FIRST:
            # Allocation pauses until the znode is sealed: not begun while ZooKeeper is away.
            self._znode.read(partial(self._read_for_seal, answer, forced))
        else:
            self._decide(OrderMigration(phase), answer)
        return answer

    def describe(self, trouble: str | None) -> Any:
        """A future of MigrationDescription, with the znode as it is now. `trouble`: why a step cannot go on."""
        answer = self._loop.create_future()
        # The znode at last: what it holds and the phase belong together.
        self._znode.brokers(partial(self._describe, answer, trouble))
        return answer

    def _describe(self, answer: Answer, trouble: str | None, brokers: LiveBrokers | Failure) -> None:
        self._znode.read(lambda outcome: release(answer, describe(self._machine, outcome, brokers, trouble)))

    def _look(self, answer: Answer, attempts: int) -> None:
        self._znode.read(partial(self._read, answer, attempts))

    def _read(self, answer: Answer, attempts: int, outcome: Znode | Failure) -> None:
        block, reason = judge(outcome)
        if isinstance(outcome, Failure) or reason is not None:
            release(answer, RequestError(ErrorCode.MIGRATION_REFUSED, reason or ""))
            return
        # What was read is written back: so it shows before anything begins whether this member may write.
        self._znode.write(outcome.data, outcome.version, partial(self._permitted, answer, attempts, block))

    def _permitted(self, answer: Answer, attempts: int, block: ZnodeBlock | None, outcome: Znode | Failure) -> None:
        if isinstance(outcome, Znode):
            self._decide(StartMigration(self._new_name(), 0 if block is None else block.last + 1), answer)
        elif outcome.cause is Cause.CONFLICT and attempts > 1:
            self._look(answer, attempts - 1)
        else:
            release(answer, RequestError(ErrorCode.MIGRATION_REFUSED, _explain(outcome)))

    def _read_for_seal(self, answer: Answer, forced: bool, outcome: Znode | Failure) -> None:
        _, reason = judge(outcome)
        if reason is None and not forced:
            self._znode.brokers(lambda brokers: self._finalize(answer, why_not_seal(brokers)))
        else:
            self._finalize(answer, reason)

    def _finalize(self, answer: Answer, reason: str | None) -> None:
        if reason is None:
            self._decide(OrderMigration(MigrationPhase.FINALIZING), answer)
        else:
            release(answer, RequestError(ErrorCode.MIGRATION_REFUSED, f"not now: {reason}"))

    def _decide(self, request: Request, answer: Answer) -> None:
        try:
            self._submit(request, answer)
        except RequestError as refusal:
            release(answer, refusal)


def describe(
    machine: StateMachine, outcome: Znode | Failure, brokers: LiveBrokers | Failure, trouble: str | None
) -> MigrationDescription:
    """The migration and the znode; `refusals` says why each order would be refused now, None where it would not."""
    block, reason = judge(outcome)
    return MigrationDescription(
        phase=machine.migration.phase.name.lower(),
        claimed_by=machine.migration.claimed_by,
        next_producer_id=machine.producer_ids.next_producer_id,
        block_size=machine.block_size,
        metadata_version=machine.metadata_version,
        znode=None if isinstance(outcome, Failure) else _describe_znode(outcome, block, reason),
        zookeeper=_explain(outcome) if isinstance(outcome, Failure) else None,
        trouble=trouble,
        refusals={
            "start": _why_not_start(machine, block, reason),
            "finalize": _why_not_finalize(machine, reason, brokers),
            "rollback": refusal(machine, OrderMigration(MigrationPhase.ROLLING_BACK)),
        },
        brokers=describe_brokers(brokers),
    )


def refusal(machine: StateMachine, request: Request) -> str | None:
    """Why `request` would be refused now, None if it would not."""
    try:
        decide(Draft(machine, 0), request)
    except RequestError as error:
        return error.detail
    return None


def judge(outcome: Znode | Failure) -> tuple[ZnodeBlock | None, str | None]:
    """The block in the znode, and why nothing can begin with it; None if it can."""
    if isinstance(outcome, Failure):
        return None, _explain(outcome)
    try:
        block = parse(outcome.data)
    except ZnodeError as error:
        return None, f"the znode cannot be used: {error}"
    if block is not None and block.sealed:
        return block, f"the znode was sealed by {block.claimed_by}: that quorum hands out the IDs now"
    if block is not None and block.last == MAX_PRODUCER_ID:
        return block, f"no producer ID is left above block_end {block.last}"
    return block, None


def _why_not_start(machine: StateMachine, block: ZnodeBlock | None, reason: str | None) -> str | None:
    """As `MigrationOrders.start` finds it: by the phase alone first, and one that has begun never asks the znode."""
    if machine.migration.phase in STARTED:
        return None
    by_phase = refusal(machine, StartMigration("", MAX_PRODUCER_ID))
    return by_phase or reason or refusal(machine, StartMigration("", 0 if block is None else block.last + 1))


def _why_not_finalize(machine: StateMachine, reason: str | None, brokers: LiveBrokers | Failure) -> str | None:
    """As `MigrationOrders.order` finds it without force."""
    if machine.migration.phase is not MigrationPhase.DUAL_WRITE:
        return refusal(machine, OrderMigration(MigrationPhase.FINALIZING))
    reason = reason or why_not_seal(brokers)
    return None if reason is None else f"not now: {reason}"


def _describe_znode(znode: Znode, block: ZnodeBlock | None, problem: str | None) -> ZnodeDescription:
    owner = None
    if block is not None:
        owner = block.claimed_by or ("a controller" if block.broker_id == CONTROLLER else f"broker {block.broker_id}")
    return ZnodeDescription(
        path=BLOCK_PATH,
        version=znode.version,
        data=None if znode.data is None else znode.data.decode(errors="replace"),
        next_producer_id=None if problem is not None else 0 if block is None else block.last + 1,
        written_by=owner,
        problem=problem,
    )


def _explain(failure: Failure) -> str:
    return REMEDIES.get(failure.cause, failure.detail)
