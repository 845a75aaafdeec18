"""What a member tells of itself as it happens: the events of `GET /v1/events`. Times are Unix milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from pidkeeper.protocol.messages import AllocatedBlock

Change = Literal["registered", "fenced", "unfenced", "unregistered"]
Reach = Literal["reachable", "unreachable", "recovering"]


class AllocationsEvent(msgspec.Struct, frozen=True):
    """Blocks that were given out, in order of ID. `left_out`: so many more between them, which the history has."""

    blocks: list[AllocatedBlock]
    left_out: int = 0


class LeaderEvent(msgspec.Struct, frozen=True):
    """Another member leads, or none: `leader_id` is null. `cause`: why the one before was lost, if one was."""

    leader_id: int | None
    term: int
    cause: str | None
    timestamp_ms: int


class BrokerEvent(msgspec.Struct, frozen=True):
    """What became of the registration of a broker."""

    broker_id: int
    change: Change
    timestamp_ms: int


class MemberEvent(msgspec.Struct, frozen=True):
    """How the leader sees another member now; the leader alone tells it."""

    id: int
    state: Reach
    timestamp_ms: int


Event = AllocationsEvent | LeaderEvent | BrokerEvent | MemberEvent

EVENT_NAMES: Final[Mapping[type[Event], str]] = {
    AllocationsEvent: "allocations",
    LeaderEvent: "leader",
    BrokerEvent: "broker",
    MemberEvent: "member",
}
