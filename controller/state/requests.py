"""What may be asked of the replicated state, once the edge has validated it. Each is decided by `decide`."""

from __future__ import annotations

import msgspec

from protocol.transactions import TopicPartitions


class RegisterBroker(msgspec.Struct, frozen=True):
    """Answered with RegisterBrokerResponse. `kafka`: host:port where Kafka clients reach it, if it said."""

    broker_id: int
    incarnation_id: str
    kafka: str | None = None


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


class InitProducerId(msgspec.Struct, frozen=True):
    """KIP-360's InitProducerId for a transactional id, asked by a broker's agent. Answered with InitProducerIdResponse.

    `producer_id`, `producer_epoch`: the pair that the producer has, or -1 and -1. `candidate`: an ID of the agent's
    reserve that nobody has, for the decision that needs a new one; -1 if it has none.
    """

    broker_id: int
    broker_epoch: int
    transactional_id: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    candidate: int


class AddPartitionsToTxn(msgspec.Struct, frozen=True):
    """Partitions join a producer's transaction, which begins with the first. Answered with TransactionResponse."""

    broker_id: int
    broker_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TopicPartitions, ...]


class EndTxn(msgspec.Struct, frozen=True):
    """A producer commits or aborts its transaction. Answered with TransactionResponse."""

    broker_id: int
    broker_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class CompleteTransaction(msgspec.Struct, frozen=True):
    """Asked by the leader itself when all markers are written. Answered with TransactionResponse."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AbortTransaction(msgspec.Struct, frozen=True):
    """Asked by the leader itself when a transaction's time is up, or by an operator. Answered with TransactionResponse.

    With a pair of -1 and -1 it concerns whatever transaction is under way.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ForgetTransactionalId(msgspec.Struct, frozen=True):
    """Asked by the leader itself when nothing was heard for long. Answered with TransactionResponse."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


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
    | InitProducerId
    | AddPartitionsToTxn
    | EndTxn
    | CompleteTransaction
    | AbortTransaction
    | ForgetTransactionalId
)
