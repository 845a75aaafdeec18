"""When a broker's heartbeats count as stopped. Soft state of the leader; the outcome is a record in the log.

Pure: ticks come in as arguments. Fencing is information for operators, never a safety decision: a fenced broker may
still allocate, as in Kafka, because its epoch is what protects the IDs.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidkeeper.protocol.metadata_version import UNTOLD
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


class BrokerSessions:
    """The tick of every broker's last sign of life, how many IDs it had then, and what its registration said."""

    def __init__(self, timeout_ticks: int) -> None:
        self._timeout_ticks = timeout_ticks
        self._seen: dict[int, int] = {}
        self._unheard: set[int] = set()
        self._reserves: dict[int, int] = {}
        self._versions: dict[int, tuple[str, int]] = {}

    def restart(self, broker_ids: Iterable[int], tick: int) -> None:
        """A new leader gives every broker a full timeout: it does not know when each was last heard."""
        self._seen = dict.fromkeys(broker_ids, tick)
        self._unheard = set(self._seen)
        self._reserves.clear()
        self._versions.clear()

    def heard(self, broker_id: int, tick: int) -> None:
        """The broker registered, allocated or sent a heartbeat."""
        self._seen[broker_id] = tick
        self._unheard.discard(broker_id)

    def has_at_hand(self, broker_id: int, reserve_ids: int | None) -> None:
        """What a heartbeat said of the IDs that the broker has; None if it said nothing."""
        if reserve_ids is None:
            self._reserves.pop(broker_id, None)
        else:
            self._reserves[broker_id] = reserve_ids

    def reserve(self, broker_id: int) -> int | None:
        """IDs that the broker had with its last heartbeat; None if it has no session, or did not say."""
        return self._reserves.get(broker_id) if broker_id in self._seen else None

    def knows(self, broker_id: int, incarnation_id: str, metadata_version: int | None) -> None:
        """What a registration said of the metadata versions that the process knows; None if it said nothing."""
        if metadata_version is None:
            self._versions.pop(broker_id, None)
        else:
            self._versions[broker_id] = incarnation_id, metadata_version

    def version(self, broker_id: int, incarnation_id: str) -> int:
        """The newest metadata version that this process of the broker counts as knowing.

        None knows less than UNTOLD, whatever it says: a faulty agent is not to keep the quorum from what it needs.
        """
        incarnation, version = self._versions.get(broker_id, ("", UNTOLD))
        return max(version, UNTOLD) if incarnation == incarnation_id else UNTOLD

    def silent(self, broker_id: int, tick: int) -> int | None:
        """Ticks since the broker was heard; None if it has no session, or was not heard by this leader."""
        seen = None if broker_id in self._unheard else self._seen.get(broker_id)
        return None if seen is None else tick - seen

    def applied(self, records: Iterable[Record], tick: int) -> None:
        """These were committed: who is registered and not fenced by them has a session, who unregistered has none.

        What is only asked for may be refused: to unregister an epoch that another one has replaced ends no session.
        And whoever was silent for the whole timeout while the record was on its way has lost the one that it had.
        """
        for record in records:
            # The commonest, told before all patterns are tried.
            if type(record) is AllocateProducerIdsRecord:
                continue
            match record:
                case RegisterBrokerRecord() | BrokerRegistrationChangeRecord(fenced=False):
                    if isinstance(record, RegisterBrokerRecord):
                        self._reserves.pop(record.broker_id, None)
                    self._seen.setdefault(record.broker_id, tick)
                case UnregisterBrokerRecord():
                    self._seen.pop(record.broker_id, None)
                    self._reserves.pop(record.broker_id, None)
                    self._versions.pop(record.broker_id, None)
                case _:
                    pass

    def expired(self, tick: int) -> list[int]:
        """The brokers that were silent for the whole timeout, sorted; each is named once until heard again."""
        late = sorted(broker for broker, seen in self._seen.items() if tick - seen >= self._timeout_ticks)
        for broker_id in late:
            del self._seen[broker_id]
            self._versions.pop(broker_id, None)
        return late
