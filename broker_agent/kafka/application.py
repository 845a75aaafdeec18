"""What an agent answers Kafka's clients with, put together for a listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller, MayUse, anything
from pidkeeper.broker_agent.kafka.dispatch import SERVED, TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.service.access import Principal
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.problems import quoted


class AgentApplication:
    """`service.kafka.application.Application`: `responder` answers what the agent can, `ask` what takes the
    controllers. `acls`: which transactional ids clients may use.
    """

    served: Final = SERVED

    def __init__(
        self,
        responder: KafkaResponder,
        ask: Callable[[TransactionalCall], Awaitable[bytes]],
        acls: AclList | None = None,
    ) -> None:
        self.respond: Final = responder.respond
        self._ask = ask
        self._acls = acls
        self._complaints = Complaints()

    def caller(self, principal: Principal, host: str, has_hung_up: Callable[[], bool]) -> Caller:
        """Whoever asks, with what rules say of its transactional ids."""
        return Caller(self._may_use(principal, host), has_hung_up)

    def answer_soon(self, _: TransactionalCall, __: Callable[[bytes | None], None]) -> bool:
        """None: what is no bytes at once is asked of the controllers."""
        return False

    async def answer(self, call: TransactionalCall) -> bytes:
        """That of the controllers."""
        return await self._ask(call)

    def _may_use(self, principal: Principal, host: str) -> MayUse:
        """What rules say. What they forbid is logged."""
        if self._acls is None:
            return anything
        allowed = self._acls.may_use(principal.name)

        def may_use(name: str) -> bool:
            if allowed(name):
                return True
            self._complaints.about(host, f"no rule allows {principal.name} the transactional id {quoted(name)}")
            return False

        return may_use
