"""Which broker processes may allocate: registrations by incarnation and epoch (KIP-631's broker epochs).

The epoch of a registration is the log offset of its record, so it is unique and rises. A new incarnation of a broker id
makes the old epoch stale from its record on, and the old incarnation cannot come back: two processes that share an id
would otherwise take it from each other for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.logs import BrokerStoreRecord
from pidkeeper.protocol.records import (
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from pidkeeper.snapshots.image import BrokerRegistration

MAX_BROKERS: Final = 10_000
"""Registrations kept. Kafka clusters stay well below 1,000 brokers; the bound keeps a rogue caller out of memory."""

MAX_SUPERSEDED: Final = 8
"""Former incarnations remembered for each broker. An older one than that finds its epoch stale and registers anew."""


RegistrationRecord = (
    RegisterBrokerRecord | UnregisterBrokerRecord | BrokerRegistrationChangeRecord | BrokerEndpointRecord
)


class BrokersState:
    """Registrations by broker id."""

    __slots__ = ("_registrations",)

    def __init__(self, registrations: Iterable[BrokerRegistration] = ()) -> None:
        self._registrations = {registration.broker_id: registration for registration in registrations}

    def get(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of `broker_id`, if any."""
        return self._registrations.get(broker_id)

    def all(self) -> list[BrokerRegistration]:
        """All registrations, sorted by broker id."""
        return [self._registrations[broker_id] for broker_id in sorted(self._registrations)]

    def __len__(self) -> int:
        return len(self._registrations)

    def replay(
        self,
        record: RegistrationRecord | BrokerStoreRecord,
        offset: int,
    ) -> None:
        """Apply one registration record. Only committed records get here, so a mismatch stops the process."""
        before = self._registrations.get(record.broker_id)
        if isinstance(record, RegisterBrokerRecord):
            assert record.broker_epoch == offset, (
                f"S4: the registration at offset {offset} carries broker epoch {record.broker_epoch}"
            )
            self._registrations[record.broker_id] = registered(record, before)
            return
        assert before is not None, f"S5: offset {offset} is about broker {record.broker_id}, which is not registered"
        assert before.broker_epoch == record.broker_epoch, (
            f"S5: offset {offset} names epoch {record.broker_epoch} of broker {record.broker_id}, "
            f"which has epoch {before.broker_epoch}"
        )
        if isinstance(record, UnregisterBrokerRecord):
            del self._registrations[record.broker_id]
        elif isinstance(record, BrokerEndpointRecord):
            self._registrations[record.broker_id] = msgspec.structs.replace(before, kafka=record.kafka)
        elif isinstance(record, BrokerStoreRecord):
            self._registrations[record.broker_id] = msgspec.structs.replace(before, store_id=record.store_id)
        else:
            self._registrations[record.broker_id] = msgspec.structs.replace(before, fenced=record.fenced)


def registered(record: RegisterBrokerRecord, before: BrokerRegistration | None) -> BrokerRegistration:
    """The registration that `record` makes out of the one `before` it."""
    superseded: tuple[str, ...] = ()
    if before is not None:
        superseded = (*before.superseded, before.incarnation_id)[-MAX_SUPERSEDED:]
    return BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        fenced=False,
        superseded=superseded,
    )


def check_epoch(registration: BrokerRegistration | None, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration, if it exists with just this epoch.

    Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH; the broker should register anew on both (KIP-730).
    """
    if registration is None:
        raise RequestError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered: register it first"
        )
    if registration.broker_epoch != broker_epoch:
        raise RequestError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {registration.broker_epoch}, not {broker_epoch}: register anew",
        )
    return registration
