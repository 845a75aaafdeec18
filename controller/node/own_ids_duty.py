"""Filling ahead while ZooKeeper counts: the leader asks for the next own block before the one in use is used up.

A block takes a ZooKeeper claim, and no transactional producer is to wait for that. Elsewhere a block costs one record,
which the request that needs it brings along. Soft state of the leader; the outcome is a record in the log. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pidkeeper.controller.answers import Answer, Callback
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.metadata_version import TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import CLAIMING

logger = logging.getLogger(__name__)

RETRY_LOOKS: Final = 10
"""Looks at the duty after one that failed, until the next attempt: a second. Each may be a write of the znode."""


class OwnIdsDuty:
    """The duty of one member while it leads. `fill(answer)` claims a block and has it decided; it may raise a refusal.

    `trouble`: why the newest attempt failed, None once one succeeds.
    """

    def __init__(self, machine: StateMachine, fill: Callable[[Answer], None]) -> None:
        self._machine = machine
        self._fill = fill
        self.trouble: str | None = None
        self.lead(0)

    def lead(self, term: int) -> None:
        """This member leads `term` from now on; what it asked for before is nobody's concern."""
        self._term = term
        self._wanted = self._busy = False
        self._rest = 0
        self.trouble = None

    def wanted(self) -> None:
        """Somebody uses transactional ids. Whoever wants IDs alone burns no block."""
        self._wanted = True

    def tick(self) -> None:
        """Look whether a block is due, and ask for it; one at a time."""
        if self._rest:
            self._rest -= 1
        elif not self._busy and self._due():
            self._ask()

    def _ask(self) -> None:
        self._busy = True
        answer = Callback(partial(self._answered, self._term))
        try:
            self._fill(answer)
        except RequestError as refusal:
            answer.set_exception(refusal)

    def _due(self) -> bool:
        machine = self._machine
        claims = machine.metadata_version >= TRANSACTIONAL_BLOCKS and machine.migration.phase in CLAIMING
        in_use = self._wanted or len(machine.transactions) > 0 or machine.own_ids.next_id is not None
        return claims and in_use and not machine.own_ids.full

    def _answered(self, term: int, _: Any, refusal: RequestError | None) -> None:
        if term != self._term:
            return
        self._busy = False
        trouble = None if refusal is None else str(refusal)
        if trouble is not None and trouble != self.trouble:
            logger.warning("no block for transactional producers: %s", trouble)
        self.trouble = trouble
        self._rest = 0 if refusal is None else RETRY_LOOKS
