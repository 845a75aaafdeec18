"""The way from those who ask to the members, and back: what is lost, comes late, or finds nobody.

A member that is paused answers when it goes on. An answer that nobody waits for any more is thrown away by whoever
does not wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import Problem
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from tests.simulation.history import Operation
from tests.simulation.process import listen
from tests.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

LATE: Final = (1.7, 3.7)
"""A request or an answer that got stuck: 10 to the power of this, in milliseconds; a third of them within the deadline
of the attempt."""

ELSEWHERE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR})
"""Another member may serve the request."""

_MAY_HAVE_DONE: Final = ELSEWHERE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT}
"""CONCURRENT_TRANSACTIONS goes with the record that aborts a transaction; the last says that nobody knows."""

Answered = Callable[[int | None, Any, RequestError | None], None]


class ClientLink:
    """The links of one client with all members."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = rng
        transactional, data = cluster.transactional, cluster.data
        self._lost = cluster.swarm.drop / 2
        late = max(transactional.late if transactional.ids else 0.0, data.load.late if data is not None else 0.0)
        self._late = max(self._lost, late)

    def ask(self, node: int, operation: Operation, answered: Answered) -> None:
        """Put an operation to a member.

        `answered(leader, result, error)` is called once or never: with the leader as that member knows it, and with
        neither result nor error where no member runs.
        """
        self.travel(self._arrive, node, operation, answered)

    def exchange(
        self,
        node: int,
        request: HttpRequest,
        operations: Sequence[Operation],
        answered: Callable[[HttpResponse | None], None],
    ) -> None:
        """Send a request of HTTP to a member, in which `operations` are asked for.

        `answered(response)` is called once or never, with None where no member runs.
        """
        self.travel(self._deliver, node, request, operations, answered)

    def travel(self, arrive: Callable[..., None], *args: Any) -> None:
        """Let `arrive` happen at the other end: in a while, late or never."""
        delay = int(self._cluster.swarm.delay * (0.5 + self._rng.random()))
        if self._late and not self._cluster.healed:
            chance = self._rng.random()
            if chance < self._lost:
                self._world.fault("request_or_answer_lost")
                return
            if chance < self._lost + self._late:
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

    def _deliver(
        self,
        node: int,
        request: HttpRequest,
        operations: Sequence[Operation],
        answered: Callable[[HttpResponse | None], None],
    ) -> None:
        process = self._cluster.members[node].process
        if process is None:
            for operation in operations:
                operation.refused = True
            self.travel(answered, None)
            return
        if not process.runs(self._deliver, node, request, operations, answered):
            return

        def served(response: HttpResponse) -> None:
            done = response.status == ErrorCode.NONE.http_status or refusal_in(response).code in _MAY_HAVE_DONE
            for operation in operations:
                operation.refused = not operation.taken or not done
            self.travel(answered, response)

        process.serve(request, operations, served)


def refusal_in(response: HttpResponse) -> RequestError:
    """The refusal that a problem document tells of."""
    problem = msgspec.json.decode(response.body, type=Problem)
    return RequestError(ErrorCode[problem.code], problem.detail, throttle_time_ms=problem.throttle_time_ms)
