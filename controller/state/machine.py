"""The state machine: replays committed batches, and becomes and comes from the value of a snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, get_args

import msgspec

from pidkeeper.controller.state.brokers import BrokersState, RegistrationRecord
from pidkeeper.controller.state.foundings import NOT_FOUNDED, Foundings
from pidkeeper.controller.state.groups.state import GroupsState
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.controller.state.migration import MigrationState
from pidkeeper.controller.state.own_ids import NO_OWN_IDS, OwnIds
from pidkeeper.controller.state.producer_ids import ProducerIdsState
from pidkeeper.controller.state.transactions import TransactionsState, gets_new_id
from pidkeeper.controller.state.transitions import TransactionStatus, ends_at_once
from pidkeeper.protocol.founding import EvidenceDismissedRecord, EvidenceRecord, FoundingRecord, SuccessionRecord
from pidkeeper.protocol.groups import GroupRecord, GroupsRecord, OffsetsRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.logs import BrokerStoreRecord, LogRecord, ObjectId, ObjectRecord, RemoveTopicRecord
from pidkeeper.protocol.metadata_version import (
    BASE,
    ENDS_AT_ONCE,
    LATEST,
    SEGMENTS,
    SUCCESSION,
    TRANSACTIONAL_BLOCKS,
)
from pidkeeper.protocol.migration import MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    Record,
    UnregisterBrokerRecord,
    VotersRecord,
    needed_version,
)
from pidkeeper.protocol.segments import RolledRecord, SegmentRecord
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionalBlockRecord,
    TransactionRecord,
)
from pidkeeper.snapshots.groups_image import GroupsImage, OffsetRow, PendingRow
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import Owner

Allocation = AllocateProducerIdsRecord | TransactionalBlockRecord
"""A block was given to a broker, or taken by the quorum."""


Jump = ProducerIdFloorRecord | ZooKeeperBlockRecord | SuccessionRecord
"""The next producer ID goes on without a block."""

_JUMPS: Final = frozenset(get_args(Jump))


class UnsupportedMetadataVersion(Exception):  # noqa: N818 - what the operator reads
    """The quorum uses records that this build cannot read: the member must stop, and be started as a newer build."""


class CapturedState(msgspec.Struct, frozen=True):
    """The state after the entry `index` of `term` was applied, whatever is applied meanwhile.

    `image` makes a snapshot's value of it, on any thread.
    """

    index: int
    term: int
    next_offset: int
    image: Callable[[], StateImage]


class StateMachine:
    """Everything that the quorum agrees on. `next_offset` numbers the next record.

    `voters`: the newest applied configuration of the quorum; None while it is the configured one. `metadata_version` is
    in force; `supported` the newest that this build reads. `own_ids`: for transactional producers.
    `foundings`: of the quorum, with the evidence that brokers have left.
    """

    def __init__(self, cluster_id: str, block_size: int = DEFAULT_BLOCK_SIZE, supported: int = LATEST) -> None:
        self.cluster_id: Final = cluster_id
        self._configured_block_size: Final = block_size
        self.next_offset = 0
        self.producer_ids = ProducerIdsState()
        self.brokers = BrokersState()
        self.voters: VotersRecord | None = None
        self.transactions = TransactionsState()
        self.own_ids = NO_OWN_IDS
        self.foundings = NOT_FOUNDED
        self.migration = MigrationState()
        self.logs = LogsState()
        self.groups = GroupsState()
        self.metadata_version = BASE
        self.supported: Final = supported

    @property
    def block_size(self) -> int:
        """IDs in a block: what the founding says, or this member's setting before that is in the log."""
        founding = self.foundings.founding
        return self._configured_block_size if founding is None else founding.block_size

    def replay(self, records: Iterable[Record]) -> None:
        """Apply one committed batch. Total and deterministic: a violated assertion means this member must stop.

        Raises UnsupportedMetadataVersion.
        """
        for record in records:
            offset = self.next_offset
            assert needed_version(record) <= self.metadata_version, (
                f"S7: offset {offset} holds {record}, but the metadata version is {self.metadata_version}"
            )
            self._replay(record, offset)
            self.next_offset = offset + 1

    def _replay(self, record: Record, offset: int) -> None:
        match record:
            case ObjectRecord():
                # First, for where there are any most are these.
                self._check_committer(record.object, offset)
                self.logs.replay(record, offset, self.foundings.founding_id)
            case AllocateProducerIdsRecord() | TransactionalBlockRecord():
                self._hand_out(record, offset)
            case ProducerIdFloorRecord() | ZooKeeperBlockRecord():
                self._jump(record, offset)
            case MigrationRecord():
                self.migration.replay(record, offset)
            case LeaderChangeRecord():
                pass
            case VotersRecord():
                self.voters = record
            case TransactionRecord() | AddPartitionsRecord() | ForgetTransactionRecord():
                self._transact(record, offset)
            case FoundingRecord() | SuccessionRecord() | EvidenceRecord() | EvidenceDismissedRecord():
                self._found(record, offset)
            case FeatureLevelRecord():
                self._raise_version(record.metadata_version)
            case _:
                self._serve(record, offset)

    def _hand_out(self, record: AllocateProducerIdsRecord | TransactionalBlockRecord, offset: int) -> None:
        self.migration.check_allocation(offset)
        held = self.foundings.open(self.producer_ids.next_producer_id)
        assert not held, f"F4: offset {offset} hands out, but there is {held}"
        if isinstance(record, TransactionalBlockRecord):
            self.own_ids.check_room(offset)
            self.producer_ids.replay_own_block(record, offset)
            self.own_ids = self.own_ids.filled(record.producer_id_start, record.producer_id_end)
            return
        registration = self.brokers.get(record.broker_id)
        assert registration is not None and registration.broker_epoch == record.broker_epoch, (
            f"S5: offset {offset} allocates for epoch {record.broker_epoch} of broker {record.broker_id}, "
            f"which has {registration}"
        )
        self.producer_ids.replay_allocation(record, offset)

    def _jump(self, record: ProducerIdFloorRecord | ZooKeeperBlockRecord, offset: int) -> None:
        self.producer_ids.replay_jump(record, offset)
        if isinstance(record, ProducerIdFloorRecord) and self.metadata_version >= SUCCESSION:
            # The floor may be raised because the quorum has forgotten what it gave, also out of its own blocks.
            self.own_ids = NO_OWN_IDS

    def _found(
        self, record: FoundingRecord | SuccessionRecord | EvidenceRecord | EvidenceDismissedRecord, offset: int
    ) -> None:
        before, last_block = self.foundings, self.producer_ids.last_block
        self.foundings = before.after(record, offset, self.producer_ids.next_producer_id)
        if before.founding_id is None:
            self._collect_own()
        if isinstance(record, SuccessionRecord):
            # What a founding hands out before its floor may be what brokers of the predecessor still hold.
            begun = before.founding_id == record.founding_id and last_block is not None
            assert not begun, f"F6: offset {offset} has {record}, but {last_block} was handed out before"
            self.producer_ids.replay_succession(record)
            self.own_ids = NO_OWN_IDS

    def _transact(self, record: TransactionRecord | AddPartitionsRecord | ForgetTransactionRecord, offset: int) -> None:
        self._check_end(record, offset)
        own_ids = self._own_ids_after(record, offset)
        before = self.transactions.get(record.transactional_id)
        self.transactions.replay(record, offset, self.producer_ids.next_producer_id)
        self.own_ids = own_ids
        if isinstance(record, TransactionRecord) and before is not None:
            if ends_at_once(before, record):
                self.logs.end_transaction(before, record)
                committed = record.status == TransactionStatus.COMPLETE_COMMIT
                self.groups.end_transaction(before.producer_id, committed=committed)
            held = 0 if record.status == TransactionStatus.ONGOING else self.groups.held_by(before.producer_id)
            assert not held, f"G4: offset {offset} turns {before} into {record}, with {held} offsets pending"

    def _serve(self, record: RegistrationRecord | LogRecord | RolledRecord | GroupsRecord, offset: int) -> None:
        if isinstance(record, RegistrationRecord | BrokerStoreRecord):
            self.brokers.replay(record, offset)
            if isinstance(record, BrokerStoreRecord):
                self._pin(record.store_id, offset)
            elif isinstance(record, UnregisterBrokerRecord):
                self.logs.unregistered(record.broker_id)
            return
        if isinstance(record, GroupsRecord):
            self._check_group(record, offset)
            self.groups.replay(record, offset)
            return
        if isinstance(record, SegmentRecord):
            self._check_committer(record.object, offset)
        topic = self.logs.topics.of_id(record.topic_id) if isinstance(record, RemoveTopicRecord) else None
        self.logs.replay(record, offset, self.foundings.founding_id)
        if topic is not None:
            self.groups.drop_topic(topic.name)

    def _pin(self, store_id: uuid.UUID, offset: int) -> None:
        first = self.logs.store_id is None
        self.logs.pin(store_id, f"offset {offset}")
        if first:
            self._collect_own()

    def _collect_own(self) -> None:
        """What this founding put into the store is collected, unless it took the place of another that had put some."""
        own = self.foundings.founding_id
        if self.metadata_version >= SEGMENTS and own is not None and self.logs.store_id is not None:
            known = set(self.logs.objects.foundings) | set(self.logs.collected)
            self.logs.collect((own,) if known <= {own} else self.logs.collected)

    def _raise_version(self, version: int) -> None:
        before = self.metadata_version
        self._take_version(version)
        if before < SEGMENTS <= version:
            self._collect_own()

    def _check_committer(self, name: ObjectId, offset: int) -> None:
        registration = self.brokers.get(name.broker_id)
        assert registration is not None and registration.broker_epoch == name.broker_epoch, (
            f"L3: offset {offset} commits {name}, but the broker has {registration}"
        )
        assert registration.store_id == self.logs.store_id is not None, (
            f"L3: offset {offset} commits {name}, but the cluster's store is {self.logs.store_id}: {registration}"
        )

    def _check_group(self, record: GroupsRecord, offset: int) -> None:
        """What a record says of a coordinator, of partitions and of a transaction."""
        if isinstance(record, GroupRecord):
            registration = self.brokers.get(record.broker_id)
            assert registration is not None and registration.broker_epoch == record.broker_epoch, (
                f"S5: offset {offset} has {record}, but the broker has {registration}"
            )
        elif isinstance(record, OffsetsRecord):
            for one in record.topics:
                known = self.logs.topics.get(one.topic)
                highest = max((told.partition for told in one.partitions), default=-1)
                assert known is not None and highest < known.partitions, (
                    f"G3: offset {offset} commits offsets of {one.topic}-{highest}, which there is not: {known}"
                )
            plain = record.producer_id == NO_PRODUCER_ID
            epoch = NO_PRODUCER_EPOCH if plain else self._epoch_under_way(record.producer_id)
            assert epoch == record.producer_epoch, f"G4: offset {offset} has {record}, under way is epoch {epoch}"

    def _epoch_under_way(self, producer_id: int) -> int | None:
        """The epoch with which a producer has a transaction under way."""
        user = self.transactions.user_of(producer_id)
        record = None if user is None else self.transactions.get(user)
        if record is None or record.producer_id != producer_id or record.status != TransactionStatus.ONGOING:
            return None
        return record.producer_epoch

    def _check_end(self, record: Record, offset: int) -> None:
        if self.metadata_version < ENDS_AT_ONCE and isinstance(record, TransactionRecord):
            before = self.transactions.get(record.transactional_id)
            assert not ends_at_once(before, record), f"S7: offset {offset} turns {before} into {record}"

    def _own_ids_after(self, record: Record, offset: int) -> OwnIds:
        """Without the new producer ID that a transactional id gets by `record`, if any, once all members read that."""
        if not isinstance(record, TransactionRecord) or self.metadata_version < TRANSACTIONAL_BLOCKS:
            return self.own_ids
        known = self.transactions.get(record.transactional_id)
        return self.own_ids.taken(record.producer_id, offset) if gets_new_id(known, record) else self.own_ids

    def _take_version(self, version: int) -> None:
        assert version >= self.metadata_version, (
            f"S8: the metadata version would fall from {self.metadata_version} to {version}"
        )
        if version > self.supported:
            raise UnsupportedMetadataVersion(
                f"the quorum has the metadata version {version}, this build reads {self.supported} at most: upgrade it"
            )
        self.metadata_version = version

    def image(self, index: int, term: int) -> StateImage:
        """The state as a snapshot's value; `index` and `term` name the last applied entry."""
        return self.capture(index, term).image()

    def capture(self, index: int, term: int) -> CapturedState:
        """Likewise, but of what takes long only as much is done as must be before the next entry is applied."""
        transactions, logs, groups = self.transactions.copied(), self.logs.captured(), self.groups.captured()
        image = partial(
            StateImage,
            version=self.metadata_version,
            index=index,
            term=term,
            next_offset=self.next_offset,
            next_producer_id=self.producer_ids.next_producer_id,
            last_block=self.producer_ids.last_block,
            brokers=self.brokers.all(),
            voters=self.voters,
            migration=self.migration.record,
            own_ids=self.own_ids.ranges,
            founding=self.foundings.founding,
            evidence=self.foundings.evidence,
            succession=self.foundings.succeeded,
        )
        return CapturedState(
            index, term, self.next_offset, lambda: image(transactions=transactions(), logs=logs(), groups=groups())
        )

    def restore(self, image: StateImage) -> None:
        """Replace the state by a snapshot's. The next ID never goes back: an older image stops the process.

        Raises UnsupportedMetadataVersion.
        """
        assert image.next_producer_id >= self.producer_ids.next_producer_id, (
            f"S6: a snapshot at index {image.index} would move the next producer ID back from "
            f"{self.producer_ids.next_producer_id} to {image.next_producer_id}"
        )
        self._take_version(image.version)
        self.next_offset = image.next_offset
        self.producer_ids = ProducerIdsState(image.next_producer_id, image.last_block)
        self.brokers = BrokersState(image.brokers)
        self.voters = image.voters
        self.transactions = TransactionsState(image.transactions)
        self.migration = MigrationState(image.migration)
        self.own_ids = OwnIds(image.own_ids)
        self.foundings = Foundings(image.founding, image.evidence, image.succession)
        self.logs = LogsState()
        if image.logs is not None:
            self.logs.restore(image.logs)
        self.groups = GroupsState()
        if image.groups is not None:
            self._restore_groups(image.groups)

    def _restore_groups(self, image: GroupsImage) -> None:
        self.groups.restore(image)
        for row in image.offsets:
            self._check_restored(row)
        for held in image.pending:
            self._check_restored(held)
            if self._epoch_under_way(held.producer_id) is None:
                raise ValueError(f"{held} is pending, and producer {held.producer_id} has no transaction under way")

    def _check_restored(self, row: OffsetRow | PendingRow) -> None:
        topic = self.logs.topics.get(row.topic)
        if topic is None or row.partition >= topic.partitions:
            raise ValueError(f"{row} is of a partition that there is not")


def allocations(records: Sequence[Record], first_offset: int) -> list[tuple[int, Allocation]]:
    """The blocks that a batch gives away, each with its record's offset; the first record has `first_offset`."""
    return [
        (offset, record)
        for offset, record in enumerate(records, first_offset)
        if type(record) is AllocateProducerIdsRecord or type(record) is TransactionalBlockRecord
    ]


def jumps(records: Sequence[Record], first_offset: int) -> list[tuple[int, Jump]]:
    """The jumps in a batch, each with its record's offset; the first record has `first_offset`."""
    if _JUMPS.isdisjoint(map(type, records)):
        return []
    return [(offset, record) for offset, record in enumerate(records, first_offset) if isinstance(record, Jump)]


def reached(jump: Jump) -> int:
    """The next producer ID after a jump, unless it was there before."""
    return jump.floor if isinstance(jump, SuccessionRecord) else jump.next_producer_id


def owners(records: Sequence[Record], first_offset: int, version: int) -> list[Owner]:
    """Who is given a producer ID of the quorum's own by a batch; `version`: the metadata version before it.

    The record that gives one is the only one that leaves its id empty with epoch 0.
    """
    found: list[Owner] = []
    if TransactionRecord not in map(type, records):
        return found
    for offset, record in enumerate(records, first_offset):
        if isinstance(record, FeatureLevelRecord):
            version = record.metadata_version
        elif version >= TRANSACTIONAL_BLOCKS and isinstance(record, TransactionRecord) and _begins(record):
            found.append(Owner(record.producer_id, offset, record.update_ms, record.transactional_id))
    return found


def _begins(record: TransactionRecord) -> bool:
    return record.status == TransactionStatus.EMPTY and record.producer_epoch == 0
