"""A batch of decisions under way: the applied state, with what the batch makes of it on top."""

from __future__ import annotations

from controller.state.brokers import check_epoch
from controller.state.machine import StateMachine
from controller.state.transactions import MAX_PARTITION_BYTES, MAX_TRANSACTIONAL_IDS
from protocol.errors import ErrorCode, RequestError
from protocol.records import Record
from protocol.transactions import ForgetTransactionRecord, TransactionRecord
from snapshots.image import BrokerRegistration


class Draft:
    """What the next batch will make of the applied state, which stays untouched.

    `records` is what to commit before any answer may leave. `timestamp_ms`, the leader's wall clock, labels them and
    decides nothing. `next_producer_id` and `metadata_version` include the batch.
    """

    __slots__ = (
        "_brokers",
        "_partition_bytes",
        "_transactions",
        "_users",
        "machine",
        "metadata_version",
        "next_producer_id",
        "records",
        "timestamp_ms",
    )

    def __init__(self, machine: StateMachine, timestamp_ms: int) -> None:
        self.machine = machine
        self.timestamp_ms = timestamp_ms
        self.next_producer_id = machine.producer_ids.next_producer_id
        self.metadata_version = machine.metadata_version
        self._brokers: dict[int, BrokerRegistration | None] = {}
        self._transactions: dict[str, TransactionRecord | None] = {}
        self._users: dict[int, str] = {}
        self._partition_bytes = machine.transactions.partition_bytes
        self.records: list[Record] = []

    def require(self, metadata_version: int) -> None:
        """Raise UNSUPPORTED_VERSION if records of `metadata_version` may not be written yet."""
        if self.metadata_version < metadata_version:
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this needs metadata version {metadata_version}, the quorum has {self.metadata_version}: "
                "see that all members run, as the newest build",
            )

    # Brokers.

    @property
    def next_offset(self) -> int:
        """The offset of the next record of the batch."""
        return self.machine.next_offset + len(self.records)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of a broker, if any."""
        if broker_id in self._brokers:
            return self._brokers[broker_id]
        return self.machine.brokers.get(broker_id)

    def check_broker(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The registration with just this epoch. Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH."""
        return check_epoch(self.broker(broker_id), broker_id, broker_epoch)

    def put_broker(self, broker_id: int, registration: BrokerRegistration | None) -> None:
        """The registration after the records written so far; None if there is none any more."""
        self._brokers[broker_id] = registration

    def most_brokers(self) -> int:
        """Registrations after this batch, at most."""
        return len(self.machine.brokers) + len(self._brokers)

    # Transactional ids.

    def transaction(self, transactional_id: str) -> TransactionRecord | None:
        """The newest record of a transactional id, if it is known."""
        if transactional_id in self._transactions:
            return self._transactions[transactional_id]
        return self.machine.transactions.get(transactional_id)

    def user_of(self, producer_id: int) -> str | None:
        """The transactional id that has or last had `producer_id`, if any; one that this batch forgets counts still."""
        return self._users.get(producer_id) or self.machine.transactions.user_of(producer_id)

    def write_transaction(self, record: TransactionRecord | ForgetTransactionRecord) -> None:
        """Add the next record of a transactional id. Raises THROTTLING_QUOTA_EXCEEDED if too much is kept already."""
        name = record.transactional_id
        before = self.transaction(name)
        added = 0 if before is None else -before.partition_bytes
        if isinstance(record, ForgetTransactionRecord):
            self._transactions[name] = None
        else:
            added += record.partition_bytes
            self._check_room(added, new=before is None)
            self._transactions[name] = record
            self._users[record.producer_id] = name
        self._partition_bytes += added
        self.records.append(record)

    def _check_room(self, added: int, *, new: bool) -> None:
        known = len(self.machine.transactions) + len(self._transactions)
        full = new and known >= MAX_TRANSACTIONAL_IDS
        if full or (added > 0 and self._partition_bytes + added > MAX_PARTITION_BYTES):
            raise RequestError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{known} transactional ids with {self._partition_bytes} bytes of partitions are kept, "
                f"{MAX_TRANSACTIONAL_IDS} and {MAX_PARTITION_BYTES} are the bounds: ask later",
            )
