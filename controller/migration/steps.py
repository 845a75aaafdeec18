"""What the leader does about the migration by itself: it goes from phase to phase, each step after a look at the znode.

Every step may be repeated, by this leader or the next: what was read is committed together with the phase, and a write
replaces just the version that was read. So a write that is still under way from before cannot land any more once the
next one was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pidkeeper.controller.answers import Answer, Callback
from pidkeeper.controller.migration.znode import ZnodeBlock, ZnodeError, claim, encode, lowers, next_free, parse, seal
from pidkeeper.controller.migration.zookeeper import BlockZnode, Cause, Failure, Znode
from pidkeeper.controller.state.foundings import check_open
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AdvanceMigration, Request
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import CONTROLLER, MigrationPhase

logger = logging.getLogger(__name__)

LOOKING: Final = {MigrationPhase.IMPORT, MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK}
"""Phases that end by themselves, as soon as the znode was read or written."""


class MigrationSteps:
    """The steps of the leader. `submit` has a request decided, and raises RequestError if that cannot be."""

    def __init__(self, machine: StateMachine, znode: BlockZnode, submit: Callable[[Request, Answer], None]) -> None:
        self._machine = machine
        self._znode = znode
        self._submit = submit
        self._busy = False
        self._leadership = 0
        self.trouble: str | None = None

    def deposed(self) -> None:
        """This member leads no more: the next leader goes on."""
        self._leadership += 1
        self._busy = False
        self.trouble = None

    def tick(self) -> None:
        """Begin the next step, unless one is under way or none is due."""
        if self._busy or self._machine.migration.phase not in LOOKING or self._kept_back():
            return
        self._busy = True
        self._znode.read(partial(self._read, self._leadership))

    def _kept_back(self) -> bool:
        """Whether the brokers of ZooKeeper could hand out again what some broker of this quorum holds.

        Looked at before anything is asked: a refusal is an entry in the log, and the next tick would add another.
        """
        if self._machine.migration.phase is not MigrationPhase.ROLLING_BACK:
            return False
        try:
            check_open(self._machine.foundings.evidence, self._machine.producer_ids.next_producer_id)
        except RequestError as refusal:
            self._stuck(refusal.detail)
            return True
        return False

    def _read(self, leadership: int, outcome: Znode | Failure) -> None:
        if leadership != self._leadership:
            return
        if isinstance(outcome, Failure):
            self._stuck(outcome.detail)
            return
        try:
            block = parse(outcome.data)
        except ZnodeError as error:
            self._stuck(f"the znode cannot be used: {error}")
            return
        self._go_on(self._machine.migration.phase, outcome, block)

    def _go_on(self, phase: MigrationPhase, znode: Znode, block: ZnodeBlock | None) -> None:
        name = self._machine.migration.claimed_by
        if block is not None and block.sealed and block.claimed_by != name:
            self._stuck(f"the znode was sealed by {block.claimed_by}")
        elif phase is MigrationPhase.IMPORT:
            self._advance(phase, MigrationPhase.DUAL_WRITE, znode, block, self._settled)
        elif phase is MigrationPhase.FINALIZING and block is not None and block.sealed:
            # The version that the seal replaced was committed before, and with it the IDs that were claimed until then.
            self._finish(phase, MigrationPhase.FINALIZED)
        elif phase is MigrationPhase.FINALIZING:
            self._advance(phase, phase, znode, block, partial(self._seal, znode))
        elif phase is MigrationPhase.ROLLING_BACK:
            self._advance(phase, phase, znode, block, partial(self._set_back, znode, block))
        else:
            self._settled()

    def _advance(
        self,
        phase: MigrationPhase,
        to: MigrationPhase,
        znode: Znode,
        block: ZnodeBlock | None,
        then: Callable[[], None],
    ) -> None:
        """Commit `to` together with what was read, then go on. Committed means: nobody else led since the read."""
        free = next_free(block, self._machine.migration.claimed_by, self._machine.producer_ids.next_producer_id)
        if free > MAX_PRODUCER_ID:
            self._stuck(f"no producer ID is left: the znode ends at {free - 1}")
            return
        owner = CONTROLLER if block is None else block.broker_id
        self._ask(AdvanceMigration(phase, to, znode.version, free, owner), then)

    def _seal(self, znode: Znode) -> None:
        name = self._machine.migration.claimed_by
        assert name is not None, "a migration under way has a name for its claims"
        then = partial(self._finish, MigrationPhase.FINALIZING, MigrationPhase.FINALIZED)
        self._write(encode(seal(name)), znode, then)

    def _set_back(self, znode: Znode, block: ZnodeBlock | None) -> None:
        """Leave ZooKeeper at the next free ID. Also where it is there already: then no older write can land."""
        if self._kept_back():
            return
        name, quorum_next = self._machine.migration.claimed_by, self._machine.producer_ids.next_producer_id
        assert name is not None, "a migration under way has a name for its claims"
        free = next_free(block, name, quorum_next)
        data = znode.data
        if free == 0:
            data = None
        elif block is None or block.last + 1 != free:
            data = encode(claim(max(0, free - self._machine.block_size), free - 1, name))
        self._write(data, znode, partial(self._finish, MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK, free))

    def _write(self, data: bytes | None, znode: Znode, then: Callable[[], None]) -> None:
        before, after = parse(znode.data), parse(data)
        assert not lowers(before, after) or self._may_set_back(znode.version), (
            f"D7: {after} would lower version {znode.version} of the znode from {before}, with "
            f"{self._machine.migration.record} committed"
        )
        self._znode.write(data, znode.version, partial(self._written, self._leadership, then))

    def _may_set_back(self, version: int) -> bool:
        """Whether it is committed that a rollback replaces `version`: no leader claims anything behind that."""
        record = self._machine.migration.record
        return record is not None and record.phase is MigrationPhase.ROLLING_BACK and record.znode_version == version

    def _written(self, leadership: int, then: Callable[[], None], outcome: Znode | Failure) -> None:
        if leadership != self._leadership:
            return
        if isinstance(outcome, Znode):
            then()
        elif outcome.cause is Cause.CONFLICT:
            # A broker was faster: look again.
            self._settled()
            self.tick()
        else:
            self._stuck(outcome.detail)

    def _finish(self, after: MigrationPhase, phase: MigrationPhase, left_at: int = -1) -> None:
        self._ask(AdvanceMigration(after, phase, left_at=left_at), self._settled)

    def _ask(self, request: AdvanceMigration, then: Callable[[], None]) -> None:
        answer = Callback(partial(self._answered, self._leadership, request.phase, then))
        try:
            self._submit(request, answer)
        except RequestError as refusal:
            answer.set_exception(refusal)

    def _answered(
        self,
        leadership: int,
        phase: MigrationPhase,
        then: Callable[[], None],
        _: Any,
        refusal: RequestError | None,
    ) -> None:
        if leadership != self._leadership:
            return
        if refusal is not None:
            self._stuck(str(refusal))
            return
        logger.info("the migration from ZooKeeper is in the phase %s", self._machine.migration.phase.name)
        if self._machine.migration.phase is phase:
            then()
        else:
            # An order that was decided in the same batch has ended it: what this step was to write is not wanted now.
            self._settled()

    def _settled(self) -> None:
        self._busy = False
        self.trouble = None

    def _stuck(self, trouble: str) -> None:
        """Try again at the next tick."""
        if trouble != self.trouble:
            logger.warning("the migration cannot go on from %s: %s", self._machine.migration.phase.name, trouble)
        self._busy = False
        self.trouble = trouble
