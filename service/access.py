"""Who calls, and what the caller may do."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Access(enum.StrEnum):
    """The role that a caller needs for a route. PUBLIC needs none; no role includes another."""

    PUBLIC = "public"
    VIEWER = "viewer"
    """Reads what the service knows."""
    PRODUCER = "producer"
    """Asks an agent for producer IDs, and takes steps of its transactions."""
    BROKER = "broker"
    """An agent that acts for a broker: registration, blocks, its producers' transactions."""
    OPERATOR = "operator"
    """Changes the cluster: floor, quorum, migration, aborted transactions."""
    OVERRIDE = "override"
    """Goes beyond a bound that keeps one mistaken call from harming the cluster for good. Only who proves to be an
    operator has it: neither everybody nor whoever has the common token."""


class Principal(msgspec.Struct, frozen=True):
    """A caller: `name` for logs, and the roles that it has. `brokers`: for whom it is a broker; None for any."""

    name: str
    roles: frozenset[Access]
    brokers: frozenset[int] | None = None

    def may_act_for(self, broker_id: int) -> bool:
        """Whether it may be taken for this broker."""
        return self.brokers is None or broker_id in self.brokers


EVERY_ROLE: Final = frozenset(Access) - {Access.PUBLIC, Access.OVERRIDE}
"""What everybody may do where nobody has to prove anything, and the holder of the only token."""

WITHOUT_OPERATOR: Final = EVERY_ROLE - {Access.OPERATOR}
"""The same where operators have a token of their own."""

ANONYMOUS: Final = Principal("anonymous", frozenset())
"""Whoever calls a public route: nobody asked for a name."""
