"""A batch of decisions under way: the applied state, with what the batch makes of it on top."""

from __future__ import annotations

from pidkeeper.controller.state.brokers import check_epoch
from pidkeeper.controller.state.foundings import check_open
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.controller.state.logs.draft import LogsDraft
from pidkeeper.controller.state.machine import Allocation, StateMachine
from pidkeeper.controller.state.producer_ids import check_block_left
from pidkeeper.controller.state.requests import Claimed
from pidkeeper.controller.state.transactions import MAX_PARTITION_BYTES, MAX_TRANSACTIONAL_IDS, gets_new_id
from pidkeeper.controller.state.transitions import TransactionStatus, ends_at_once
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.groups import GroupsRecord
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.logs import RemoveTopicRecord, TopicRecord
from pidkeeper.protocol.metadata_version import TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionalBlockRecord,
    TransactionRecord,
)
from pidkeeper.snapshots.image import BrokerRegistration


class Draft:
    """What the next batch will make of the applied state, which stays untouched.

    `records` is what to commit before any answer may leave. `timestamp_ms`, the leader's wall clock, labels them and
    decides nothing. `next_producer_id`, `metadata_version`, `migration`, `own_ids` and `foundings` include the
    batch.
    """

    __slots__ = (
        "_brokers",
        "_groups",
        "_logs",
        "_partition_bytes",
        "_transactions",
        "_users",
        "foundings",
        "machine",
        "metadata_version",
        "migration",
        "next_producer_id",
        "own_ids",
        "records",
        "timestamp_ms",
    )

    def __init__(self, machine: StateMachine, timestamp_ms: int) -> None:
        self.machine = machine
        self.timestamp_ms = timestamp_ms
        self.next_producer_id = machine.producer_ids.next_producer_id
        self.metadata_version = machine.metadata_version
        self.migration = machine.migration.record
        self.own_ids = machine.own_ids
        self.foundings = machine.foundings
        self._brokers: dict[int, BrokerRegistration | None] = {}
        self._transactions: dict[str, TransactionRecord | None] = {}
        self._users: dict[int, str] = {}
        self._partition_bytes = machine.transactions.partition_bytes
        self._logs: LogsDraft | None = None
        self._groups: GroupsState | None = None
        self.records: list[Record] = []

    def require(self, metadata_version: int) -> None:
        """Raise UNSUPPORTED_VERSION if records of `metadata_version` may not be written yet."""
        if self.metadata_version < metadata_version:
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this needs metadata version {metadata_version}, the quorum has {self.metadata_version}: "
                "see that all members run, as the newest build",
            )

    @property
    def logs(self) -> LogsDraft:
        """Partition logs."""
        if self._logs is None:
            self._logs = LogsDraft(self.machine.logs)
        return self._logs

    @property
    def groups(self) -> GroupsState:
        """Consumer groups behind what is written so far; to be looked at only."""
        if self._groups is None:
            self._groups = GroupsState(self.machine.groups)
        return self._groups

    def write_group(self, record: GroupsRecord) -> None:
        """Add a record of a group: what the rules of replay make of it, the rest of the batch sees."""
        self.groups.replay(record, self.next_offset)
        self.records.append(record)

    # Producer IDs, and where they come from.

    @property
    def phase(self) -> MigrationPhase:
        """The phase of the migration from ZooKeeper."""
        return MigrationPhase.NONE if self.migration is None else self.migration.phase

    @property
    def last_block(self) -> ProducerIdBlock | None:
        """The newest block that this quorum handed out, if any."""
        for record in reversed(self.records):
            if isinstance(record, Allocation):
                return record.block
        last = self.machine.producer_ids.last_block
        return None if last is None else ProducerIdBlock(last.first, last.length)

    def enter(self, phase: MigrationPhase, claimed_by: str, znode_version: int = -1) -> None:
        """Go to `phase`; `claimed_by` counts only if the quorum has no name for its claims yet."""
        name = claimed_by if self.migration is None else self.migration.claimed_by
        self.migration = MigrationRecord(phase, name, znode_version, self.timestamp_ms)
        self.records.append(self.migration)

    def take_zookeeper(self, next_producer_id: int, broker_id: int, znode_version: int) -> None:
        """Leave to ZooKeeper what is below `next_producer_id`, unless it is passed already."""
        if next_producer_id > self.next_producer_id:
            record = ZooKeeperBlockRecord(next_producer_id, broker_id, znode_version, self.timestamp_ms)
            self.records.append(record)
            self.next_producer_id = next_producer_id

    def take_claim(self, claimed: Claimed | None, *, length: int = 0, floor: int = 0) -> None:
        """Go to the first ID that may be handed out from here on.

        While ZooKeeper counts, `length` IDs from there on and those below `floor` lie in or below `claimed`. Raises
        MIGRATION_UNDER_WAY if they do not, and while nothing is handed out.
        """
        if self.phase in PAUSED:
            detail = f"the migration from ZooKeeper is in the phase {self.phase.name}; ask again"
            raise RequestError(ErrorCode.MIGRATION_UNDER_WAY, detail)
        if self.phase not in CLAIMING:
            return
        first = self.next_producer_id if claimed is None else max(self.next_producer_id, claimed.first)
        # A rollback since the claim has given the rest of it back to the brokers of ZooKeeper.
        if claimed is None or claimed.begun_in is not self.migration or max(first + length, floor) > claimed.end:
            raise RequestError(ErrorCode.MIGRATION_UNDER_WAY, "the IDs were not claimed in ZooKeeper yet; ask again")
        self.take_zookeeper(first, claimed.broker_id, claimed.znode_version)

    def check_handing_out(self) -> None:
        """Raise EVIDENCE_OPEN while a broker holds what was not handed out here."""
        check_open(self.foundings.evidence, self.next_producer_id)

    def next_own_id(self, *, may_take_block: bool) -> int:
        """The producer ID that `write_transaction` takes for the next transactional id to need one.

        If no own block is left, it is the first ID of one that is taken then, if it may be and nothing has to be
        claimed first. Raises COORDINATOR_LOAD_IN_PROGRESS if not, PRODUCER_IDS_EXHAUSTED, EVIDENCE_OPEN.
        """
        self.check_handing_out()
        if (own := self.own_ids.next_id) is not None:
            return own
        check_block_left(self.next_producer_id, self.machine.block_size)
        if not may_take_block or self.phase in CLAIMING | PAUSED:
            detail = "the quorum's own block is used up, and the next one is not claimed yet; ask again"
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
        return self.next_producer_id

    def take_own_block(self) -> None:
        """Take the next block for transactional producers."""
        first, last = self.next_producer_id, self.next_producer_id + self.machine.block_size - 1
        self.own_ids = self.own_ids.filled(first, last)
        self.records.append(TransactionalBlockRecord(first, last, self.timestamp_ms))
        self.next_producer_id = last + 1

    # Topics.

    def remove_topic(self, topic: TopicRecord) -> None:
        """Delete a topic, its logs, and the offsets that groups have in it."""
        self.logs.remove(topic)
        if self._groups is not None or len(self.machine.groups):
            self.groups.drop_topic(topic.name)
        self.records.append(RemoveTopicRecord(topic.topic_id, self.timestamp_ms))

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

    def brokers(self) -> list[BrokerRegistration]:
        """All registrations after this batch: as many as there are to look through."""
        kept = {one.broker_id: one for one in self.machine.brokers.all()} | self._brokers
        return [one for one in kept.values() if one is not None]

    # Transactional ids.

    def transaction(self, transactional_id: str) -> TransactionRecord | None:
        """The newest record of a transactional id, if it is known."""
        if transactional_id in self._transactions:
            return self._transactions[transactional_id]
        return self.machine.transactions.get(transactional_id)

    def user_of(self, producer_id: int) -> str | None:
        """The transactional id that has or last had `producer_id`, if any; one that this batch forgets counts still."""
        return self._users.get(producer_id) or self.machine.transactions.user_of(producer_id)

    def write_transaction(
        self,
        record: TransactionRecord | ForgetTransactionRecord,
        logged: AddPartitionsRecord | TransactionRecord | None = None,
    ) -> None:
        """Add the next record of a transactional id, or `logged`, which leads to it.

        Raises THROTTLING_QUOTA_EXCEEDED if too much is kept already.
        """
        name = record.transactional_id
        before = self.transaction(name)
        added = 0 if before is None else -before.kept_bytes
        if isinstance(record, ForgetTransactionRecord):
            self._transactions[name] = None
        else:
            added += record.kept_bytes
            self._check_room(added, new=before is None)
            if self.metadata_version >= TRANSACTIONAL_BLOCKS and gets_new_id(before, record):
                self._take_own_id(record.producer_id)
            self._transactions[name] = record
            self._users[record.producer_id] = name
            if before is not None and ends_at_once(before, record):
                self._settle(before, record)
        self._partition_bytes += added
        self.records.append(logged or record)

    def _settle(self, before: TransactionRecord, after: TransactionRecord) -> None:
        """The transaction of `before` ended: in the logs and the groups, if they may have anything of it."""
        if self._logs is not None or self.machine.logs.open > 0:
            self.logs.end_transaction(before, after)
        if self._groups is not None or self.machine.groups.pending > 0:
            committed = after.status == TransactionStatus.COMPLETE_COMMIT
            self.groups.end_transaction(before.producer_id, committed=committed)

    def _take_own_id(self, producer_id: int) -> None:
        if self.own_ids.next_id is None:
            self.take_own_block()
        self.own_ids = self.own_ids.taken(producer_id, self.next_offset)

    def _check_room(self, added: int, *, new: bool) -> None:
        known = len(self.machine.transactions) + len(self._transactions)
        full = new and known >= MAX_TRANSACTIONAL_IDS
        if full or (added > 0 and self._partition_bytes + added > MAX_PARTITION_BYTES):
            raise RequestError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{known} transactional ids with {self._partition_bytes} bytes of partitions are kept, "
                f"{MAX_TRANSACTIONAL_IDS} and {MAX_PARTITION_BYTES} are the bounds: ask later",
            )
