"""All that one member has to do with ZooKeeper: the way of a request for IDs, the leader's steps, operators' orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.answers import Answer, Callback, Loop
from pidkeeper.controller.migration.claims import ClaimQueue, WantsIds
from pidkeeper.controller.migration.orders import MigrationOrders, refusal
from pidkeeper.controller.migration.steps import MigrationSteps
from pidkeeper.controller.migration.zookeeper import BlockZnode, Connected
from pidkeeper.controller.state.foundings import check_open, is_news
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.producer_ids import check_floor
from pidkeeper.controller.state.requests import (
    AdvanceMigration,
    AllocateProducerIds,
    EndTxn,
    FillOwnIds,
    InitProducerId,
    RaiseFloor,
    Request,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase

NOT_STARTED: Final = (
    "ZooKeeper is configured, but the migration from it has not begun: order `migrate zookeeper start`, set "
    'mode = "zookeeper", or take [zookeeper] out of the configuration if no broker ever used it'
)


class Migration:
    """What a member does about ZooKeeper.

    The replicated phase says where IDs come from, never the configuration. That says how ZooKeeper is reached; and with
    `bridge`, as long as the founding is not in the log, that a quorum which has handed out nothing yet begins in
    ZooKeeper. `submit` has a request decided; it raises RequestError if that cannot be.
    """

    def __init__(
        self,
        machine: StateMachine,
        znode: BlockZnode,
        loop: Loop,
        submit: Callable[[Request, Answer], None],
        *,
        bridge: bool,
        new_name: Callable[[], str],
    ) -> None:
        self._machine = machine
        self._submit = submit
        self._new_name = new_name
        self.znode = znode
        self.bridge = bridge
        self.claims = ClaimQueue(machine, znode, loop, submit)
        self.steps = MigrationSteps(machine, znode, submit)
        self.orders = MigrationOrders(machine, znode, loop, submit, new_name)
        self._entering = "the quorum has not begun to allocate from ZooKeeper yet"

    def claim_for(self, request: Request) -> Any | None:
        """The future answer to a request for IDs that ZooKeeper has a say in; None for any other request.

        Only the leader asks. Raises RequestError: THROTTLING_QUOTA_EXCEEDED, ZOOKEEPER_UNAVAILABLE; MIGRATION_UNDER_WAY
        while a quorum that is to begin in ZooKeeper, or to take over from it, has not begun; EVIDENCE_OPEN; as
        `check_floor`.
        """
        if not isinstance(request, WantsIds):
            return None
        if isinstance(request, AllocateProducerIds) and is_news(
            request.held, self._machine.producer_ids.next_producer_id
        ):
            return None  # it gets none, so nothing is claimed for it
        if not isinstance(request, RaiseFloor):
            # As with a floor below: what was claimed in ZooKeeper could not be taken back.
            check_open(self._machine.foundings.evidence, self._machine.producer_ids.next_producer_id)
        if self._machine.migration.phase not in CLAIMING:
            if isinstance(request, AllocateProducerIds) and (reason := self._not_begun()) is not None:
                raise RequestError(ErrorCode.MIGRATION_UNDER_WAY, reason)
            return None
        if isinstance(request, RaiseFloor):
            # A ZooKeeper claim comes before the decision, and could not be taken back if that refuses.
            next_id, size = self._machine.producer_ids.next_producer_id, self._machine.block_size
            check_floor(next_id, request.at_least, size, forced=request.forced)
        return self.claims.add(request)

    def fill_own_ids(self, answer: Answer) -> None:
        """Claim a block for transactional producers, and have it decided. Raises RequestError as `claim_for`."""
        check_open(self._machine.foundings.evidence, self._machine.producer_ids.next_producer_id)
        self.claims.add(FillOwnIds(), answer)

    def prepared(self, request: Request) -> Request:
        """`request`, with what the state cannot know: whether IDs of this quorum alone are safe."""
        if isinstance(request, InitProducerId | EndTxn):
            return replace(request, may_take_block=self._not_begun() is None)
        return request

    def deposed(self) -> None:
        """This member leads no more."""
        self.claims.deposed()
        self.steps.deposed()

    def tick(self) -> None:
        """Go on with what is due; called now and then while this member serves."""
        if self._is_to_begin():
            self._begin_in_zookeeper()
        else:
            self.steps.tick()
            self.claims.look()

    def trouble(self) -> str | None:
        """Why this member could not hand out IDs because of ZooKeeper; None if it could, or needs no ZooKeeper."""
        if (reason := self._not_begun()) is not None:
            return self.znode.disconnected() or reason
        if self._machine.migration.phase in CLAIMING | PAUSED:
            return self.znode.disconnected() or self.steps.trouble or self.claims.trouble
        return None

    def _is_to_begin(self) -> bool:
        founding = self._machine.foundings.founding
        bridge = self.bridge if founding is None else founding.bridge
        return bridge and self._machine.migration.phase is MigrationPhase.NONE

    def _not_begun(self) -> str | None:
        """Why IDs of this quorum alone could be those of ZooKeeper's brokers; None if there is no such danger."""
        if self._is_to_begin():
            return self._entering
        fresh = self._machine.migration.phase is MigrationPhase.NONE and self._machine.producer_ids.last_block is None
        return NOT_STARTED if fresh and isinstance(self.znode, Connected) else None

    def _begin_in_zookeeper(self) -> None:
        request = AdvanceMigration(MigrationPhase.NONE, MigrationPhase.BRIDGE, claimed_by=self._new_name())
        if (reason := refusal(self._machine, request)) is not None:
            # Not decided: a refusal is confirmed by an entry, and the next tick would add another.
            self._cannot_begin(reason)
            return
        answer = Callback(self._began)
        try:
            self._submit(request, answer)
        except RequestError as refused:
            answer.set_exception(refused)

    def _began(self, _: Any, refused: RequestError | None) -> None:
        if refused is not None and refused.code is not ErrorCode.NOT_CONTROLLER:
            self._cannot_begin(refused.detail)

    def _cannot_begin(self, reason: str) -> None:
        self._entering = f"the quorum cannot begin to allocate from ZooKeeper: {reason}"
