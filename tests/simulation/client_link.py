"""The way from those who ask to the members, and back: what is lost, comes late, or finds nobody.

A member that is paused answers when it goes on. An answer that nobody waits for any more is thrown away by whoever
does not wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.simulation.history import Operation
from tests.simulation.process import Process, listen
from tests.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

LATE: Final = (1.7, 3.7)
"""A request or an answer that got stuck: 10 to the power of this, in milliseconds; a third of them within the deadline
of the attempt."""

ELSEWHERE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})
"""Another member may serve the request."""

_MAY_HAVE_DONE: Final = ELSEWHERE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""That answer goes with the record that aborts a transaction."""

Answered = Callable[[int | None, Any, RequestError | None], None]


class ClientLink:
    """The links of one client with all members."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = rng

    def ask(self, node: int, operation: Operation, answered: Answered) -> None:
        """Put an operation to a member.

        `answered(leader, result, error)` is called once or never: with the leader as that member knows it, and with
        neither result nor error where no member runs.
        """
        self.travel(self._arrive, node, operation, answered)

    def look(self, node: int, look: Callable[[Process], Any], seen: Callable[[Any], None]) -> None:
        """Read something off a member; `seen` gets it, or None where no member runs."""
        self.travel(self._look, node, look, seen)

    def travel(self, arrive: Callable[..., None], *args: Any) -> None:
        """Let `arrive` happen at the other end: in a while, late or never."""
        delay = int(self._cluster.swarm.delay * (0.5 + self._rng.random()))
        drop = self._cluster.swarm.drop
        if drop and not self._cluster.healed:
            chance = self._rng.random()
            if chance < drop / 2:
                self._world.fault("request_or_answer_lost")
                return
            if chance < drop:
                self._world.fault("request_or_answer_late")
                delay += int(MILLISECOND * 10 ** self._rng.uniform(*LATE))
        self._world.at(delay, arrive, *args)

    def _arrive(self, node: int, operation: Operation, answered: Answered) -> None:
        process = self._cluster.members[node].process
        if process is None:
            operation.refused = True
            self.travel(answered, None, None, None)
            return
        if not process.runs(self._arrive, node, operation, answered):
            return

        def respond(result: Any, error: RequestError | None) -> None:
            if error is not None and error.code not in _MAY_HAVE_DONE:
                operation.refused = True
            self.travel(answered, process.core.leader_id, result, error)

        try:
            listen(process.submit(operation.request), respond)
        except RequestError as refusal:
            operation.refused = True
            self.travel(answered, process.core.leader_id, None, refusal)

    def _look(self, node: int, look: Callable[[Process], Any], seen: Callable[[Any], None]) -> None:
        process = self._cluster.members[node].process
        if process is None:
            self.travel(seen, None)
        elif process.runs(self._look, node, look, seen):
            self.travel(seen, look(process))
