"""The leader raises the metadata version as far as everybody knows it: members, and agents that clients are told of.

A member could not read what the log holds otherwise. Clients of an agent go by the version too: one that learned of
`transaction.version` 2 from one agent meets all the others with it (KIP-584; docs/decisions/0058). An agent that is
fenced holds up nobody, and one that comes later than the version is let in. Soft state of the leader; the outcome is a
FeatureLevelRecord. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.controller.node.transaction_duties import Ask
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import RaiseMetadataVersion

logger = logging.getLogger(__name__)

MAX_NAMED: Final = 8
"""Members and brokers that a text names. Of more it says how many they are."""


class VersionDuty:
    """The duty of one member while it leads. `members()`: the newest version that each member reads, by id; BASE for
    one that is not connected. `patience_ticks`: how long agents are waited for before the log says so. Those that live
    have registered once more with a new leader by then, and the others are fenced.
    """

    def __init__(
        self,
        machine: StateMachine,
        sessions: BrokerSessions,
        ask: Ask,
        *,
        members: Callable[[], Mapping[int, int]],
        patience_ticks: int,
    ) -> None:
        self._machine = machine
        self._sessions = sessions
        self._ask = ask
        self._members = members
        self._patience_ticks = patience_ticks
        self.lead()

    def lead(self) -> None:
        """This member leads from now on, and knows of no agent what it knows."""
        self._waits_since: int | None = None
        self._said = False

    def known_to(self, broker_id: int) -> int | None:
        """The newest version that a registered broker counts as knowing; None while no version waits for anybody."""
        registration = self._machine.brokers.get(broker_id)
        if registration is None or not self._may_rise():
            return None
        return self._sessions.version(broker_id, registration.incarnation_id)

    def waits(self) -> list[str]:
        """Whom the newest version that this build knows waits for, in words; empty if for nobody."""
        if not self._may_rise():
            return []
        newest = self._machine.supported
        late = [f"member {one}" for one, known in sorted(self._members().items()) if known < newest]
        late += [f"broker {one}" for one, known in self._agents().items() if known < newest]
        if not late:
            return []
        named = ", ".join(late[:MAX_NAMED]) + (f" and {len(late) - MAX_NAMED} more" if len(late) > MAX_NAMED else "")
        remedy = "bring them to the build of the leader, and stop or remove who is not needed"
        return [f"metadata version {newest} waits for {named}: {remedy}"]

    def tick(self, ticks: int) -> None:
        """Raise the version as far as everybody knows it; called now and then while this member serves."""
        if not self._may_rise():
            return
        in_force = self._machine.metadata_version
        readable = min([self._machine.supported, *self._members().values()])
        agreed = min([readable, *self._agents().values()]) if readable > in_force else in_force
        if agreed > in_force:
            logger.info("all members and agents know metadata version %d", agreed)
            self._ask(RaiseMetadataVersion(agreed), _nothing)
        self._mind(ticks, waiting=max(agreed, in_force) < readable)

    def _may_rise(self) -> bool:
        return self._machine.metadata_version < self._machine.supported

    def _agents(self) -> dict[int, int]:
        """What those know that agents name to clients, by broker id."""
        return {
            one.broker_id: self._sessions.version(one.broker_id, one.incarnation_id)
            for one in self._machine.brokers.all()
            if one.kafka is not None and not one.fenced
        }

    def _mind(self, ticks: int, *, waiting: bool) -> None:
        """Say once that agents are waited for."""
        if not waiting:
            self._waits_since = None
            return
        self._waits_since = ticks if self._waits_since is None else self._waits_since
        if not self._said and ticks - self._waits_since >= self._patience_ticks:
            self._said = True
            logger.warning("%s", *self.waits())


def _nothing() -> None:
    """The next look asks again."""
