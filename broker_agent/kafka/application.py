"""What an agent answers Kafka's clients with, put together for a listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pidkeeper.broker_agent.coordinator.caller import Caller, May, MayUse
from pidkeeper.broker_agent.kafka.dispatch import IDS_ALONE, Apis
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.resources import GROUP_DESCRIBE, TOPIC_DESCRIBE
from pidkeeper.service.access import Principal
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.problems import quoted

AskSoon = Callable[[Any, Callable[[bytes | None], None]], bool]
"""See `service.kafka.application.Application.answer_soon`."""


def _never_soon(_: Any, __: Callable[[bytes | None], None]) -> bool:
    return False


class AgentApplication:
    """`service.kafka.application.Application`: `responder` answers what the agent can, `ask` what takes the
    controllers or the store, `ask_soon` what of that takes no task. `acls`: which transactional ids, topics and groups
    clients may use. `apis`: what is served.
    """

    def __init__(
        self,
        responder: KafkaResponder,
        ask: Callable[[Any], Awaitable[bytes]],
        acls: AclList | None = None,
        *,
        apis: Apis = IDS_ALONE,
        ask_soon: AskSoon = _never_soon,
    ) -> None:
        self.served: Final = apis.advertised
        self.features: Final = responder.features
        self.respond: Final = responder.respond
        self.answer_soon: Final = ask_soon
        self._ask = ask
        self._acls = acls
        self._complaints = Complaints()

    def caller(
        self, principal: Principal, host: str, has_hung_up: Callable[[], bool], _: Callable[[float], None]
    ) -> Caller:
        """Whoever asks, with what rules say of its transactional ids, topics and groups."""
        if self._acls is None:
            return Caller(has_hung_up=has_hung_up, host=host)
        acls = self._acls
        return Caller(self._may_use(principal, host, acls), has_hung_up, self._may(principal, host, acls), host=host)

    async def answer(self, call: Any) -> bytes:
        """That of whoever is asked."""
        return await self._ask(call)

    def _may_use(self, principal: Principal, host: str, acls: AclList) -> MayUse:
        """What rules say. What they forbid is logged."""
        allowed = acls.may_use(principal.name)

        def may_use(name: str) -> bool:
            if allowed(name):
                return True
            self._complaints.about(host, f"no rule allows {principal.name} the transactional id {quoted(name)}")
            return False

        return may_use

    def _may(self, principal: Principal, host: str, acls: AclList) -> May:
        """Likewise, of topics and groups. That one is not shown among all that there are is no complaint."""
        allowed = acls.may(principal.name)

        def may(operation: str, name: str) -> bool:
            if allowed(operation, name):
                return True
            if operation not in {TOPIC_DESCRIBE, GROUP_DESCRIBE}:
                self._complaints.about(host, f"no rule allows {principal.name} {operation} of {quoted(name)}")
            return False

        return may
