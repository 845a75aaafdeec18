"""What may be asked of the replicated state, once the edge has validated it. Each is decided by `decide`."""

from __future__ import annotations

import msgspec


class RegisterBroker(msgspec.Struct, frozen=True):
    """Answered with RegisterBrokerResponse."""

    broker_id: int
    incarnation_id: str


class UnregisterBroker(msgspec.Struct, frozen=True):
    """Answered with UnregisterBrokerResponse."""

    broker_id: int
    broker_epoch: int


class BrokerHeartbeat(msgspec.Struct, frozen=True):
    """Answered with BrokerHeartbeatResponse."""

    broker_id: int
    broker_epoch: int


class FenceBroker(msgspec.Struct, frozen=True):
    """Asked by the leader itself when a broker's heartbeats stopped. Answered with BrokerHeartbeatResponse."""

    broker_id: int
    broker_epoch: int


class AllocateProducerIds(msgspec.Struct, frozen=True):
    """Answered with AllocateProducerIdsResponse."""

    broker_id: int
    broker_epoch: int


class RaiseFloor(msgspec.Struct, frozen=True):
    """Answered with RaiseFloorResponse."""

    at_least: int


class RaiseMetadataVersion(msgspec.Struct, frozen=True):
    """Asked by the leader itself when all members can read `version`. Answered with the version in force then."""

    version: int


SignOfLife = RegisterBroker | BrokerHeartbeat | AllocateProducerIds
"""Whoever asks for one of these is a broker that lives."""

Request = (
    RegisterBroker
    | UnregisterBroker
    | BrokerHeartbeat
    | FenceBroker
    | AllocateProducerIds
    | RaiseFloor
    | RaiseMetadataVersion
)
