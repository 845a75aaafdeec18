"""The value of a snapshot: the replicated state as of one log entry.

It holds nothing of the member that took it and no time of taking, so that members with the same applied index write the
same bytes.
"""

from __future__ import annotations

import itertools
import uuid
from typing import Annotated, Final

import msgspec

from pidkeeper.protocol.founding import EvidentBroker, FoundingRecord, HighestId, SuccessionRecord
from pidkeeper.protocol.ids import MAX_BROKER_ID, OWN
from pidkeeper.protocol.metadata_version import (
    FOUNDING,
    GROUPS,
    MEMBERSHIP,
    MIGRATION,
    PARTITION_LOGS,
    SEGMENTS,
    SUCCESSION,
    TRANSACTIONAL_BLOCKS,
    TRANSACTIONS,
    MetadataVersion,
)
from pidkeeper.protocol.migration import MigrationRecord
from pidkeeper.protocol.records import BrokerId, IncarnationId, Offset, PeerAddress, ProducerId, VotersRecord
from pidkeeper.protocol.transactions import TransactionRecord
from pidkeeper.snapshots.groups_image import GroupsImage
from pidkeeper.snapshots.logs_image import LogsImage

MAX_EVIDENCE: Final = 256
"""Brokers of whom evidence is kept: one is enough to stop the quorum, and a record of each takes 80 bytes."""

MAX_OWN_RANGES: Final = 2
"""Ranges of own IDs: the one in use, and one that was filled ahead."""


class BrokerRegistration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One broker id. `superseded`: the incarnations that were registered before the current one and may not return.

    `kafka`: host:port where Kafka clients reach it, None if it did not say. `store_id`: of the store where it keeps
    objects, None if it keeps none.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    incarnation_id: IncarnationId
    fenced: bool
    superseded: tuple[IncarnationId, ...]
    kafka: PeerAddress | None = None
    store_id: uuid.UUID | None = None


class LastBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest block that was allocated; `offset` is its record's, `timestamp_ms` the leader's clock.

    `broker_id`, `broker_epoch`: both OWN for a block that the quorum took for its transactional producers.
    """

    first: ProducerId
    length: Annotated[int, msgspec.Meta(ge=1)]
    broker_id: Annotated[int, msgspec.Meta(ge=OWN, le=MAX_BROKER_ID)]
    broker_epoch: Annotated[int, msgspec.Meta(ge=OWN)]
    offset: Offset
    timestamp_ms: int


class IdRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Producer IDs `first` to `last`, inclusive. Raises ValueError for an empty range."""

    first: ProducerId
    last: ProducerId

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"IDs {self.first} to {self.last} are not a range")


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A broker's word that it holds IDs which this quorum had not handed out; see `EvidenceRecord`.

    `offset`: of the record. `dismissed`: an operator has judged it wrong.
    """

    broker_id: EvidentBroker
    founding_id: uuid.UUID
    highest_producer_id: HighestId
    offset: Offset
    dismissed: bool = False


class StateImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The state after the entry `index` of `term` was applied.

    `version` is the metadata version in force, which says what a state may hold. `next_offset` is the offset of the
    next record, `next_producer_id` the lowest ID never handed out. `brokers` ascend by broker id. `voters`: the
    configuration of the quorum, None while it is the configured one. `transactions` ascend by transactional id.
    `migration`: the newest record of the migration from ZooKeeper, if any. `own_ids`: what is left of the quorum's own
    blocks, at most MAX_OWN_RANGES, ascending. `founding`: of the quorum, None if no record of it is applied yet.
    `evidence` ascends by broker id. `succession`: that by which the quorum came to its founding, if it took the place
    of another. Raises ValueError if brokers, transactions or evidence do not ascend, if a section is newer than
    `version`, if IDs of `own_ids` are taken or not allocated, or if `succession` is of another founding.
    `logs`: partition logs, None where there never were any. `groups`: consumer groups, None where there are none.
    """

    version: MetadataVersion
    index: Annotated[int, msgspec.Meta(ge=0)]
    term: Annotated[int, msgspec.Meta(ge=0)]
    next_offset: Offset
    next_producer_id: ProducerId
    last_block: LastBlock | None
    brokers: list[BrokerRegistration]
    voters: VotersRecord | None = None
    transactions: list[TransactionRecord] = []
    migration: MigrationRecord | None = None
    own_ids: Annotated[tuple[IdRange, ...], msgspec.Meta(max_length=MAX_OWN_RANGES)] = ()
    founding: FoundingRecord | None = None
    evidence: Annotated[tuple[Evidence, ...], msgspec.Meta(max_length=MAX_EVIDENCE)] = ()
    succession: SuccessionRecord | None = None
    logs: LogsImage | None = None
    groups: GroupsImage | None = None

    def __post_init__(self) -> None:
        if self.voters is not None and self.version < MEMBERSHIP:
            raise ValueError(f"a state image of version {self.version} with voters {self.voters}")
        if self.transactions and self.version < TRANSACTIONS:
            raise ValueError(f"a state image of version {self.version} with {len(self.transactions)} transactions")
        if self.migration is not None and self.version < MIGRATION:
            raise ValueError(f"a state image of version {self.version} with migration {self.migration}")
        if self.version < PARTITION_LOGS and (self.logs is not None or any(one.store_id for one in self.brokers)):
            raise ValueError(f"a state image of version {self.version} with partition logs")
        if self.version < SEGMENTS and self.logs is not None and self.logs.collected:
            raise ValueError(f"a state image of version {self.version} with segments")
        if self.version < GROUPS and self.groups is not None:
            raise ValueError(f"a state image of version {self.version} with consumer groups")
        names = [record.transactional_id for record in self.transactions]
        if any(one >= other for one, other in itertools.pairwise(names)):
            raise ValueError("the transactions do not ascend by transactional id")
        ids = [broker.broker_id for broker in self.brokers]
        if any(one >= other for one, other in itertools.pairwise(ids)):
            raise ValueError("the broker registrations do not ascend by broker id")
        block = self.last_block
        if block is not None and block.first + block.length > self.next_producer_id:
            raise ValueError(
                f"the last block, {block.length} IDs from {block.first}, "
                f"reaches above the next producer ID {self.next_producer_id}"
            )
        self._check_own()
        self._check_founding()

    def _check_founding(self) -> None:
        if self.version < FOUNDING and (self.founding is not None or self.evidence):
            raise ValueError(f"a state image of version {self.version} with founding {self.founding}")
        ids = [one.broker_id for one in self.evidence]
        if any(one >= other for one, other in itertools.pairwise(ids)):
            raise ValueError("the evidence does not ascend by broker id")
        if (succession := self.succession) is None:
            return
        if self.version < SUCCESSION:
            raise ValueError(f"a state image of version {self.version} with {succession}")
        founding_id = None if self.founding is None else self.founding.founding_id
        if succession.founding_id != founding_id or succession.floor > self.next_producer_id:
            raise ValueError(f"a state image of founding {founding_id}, next ID {self.next_producer_id}: {succession}")

    def _check_own(self) -> None:
        block, own = self.last_block, self.own_ids
        ours = block is not None and OWN in {block.broker_id, block.broker_epoch}
        if self.version < TRANSACTIONAL_BLOCKS and (own or ours):
            raise ValueError(f"a state image of version {self.version} with own IDs {own}, last block {block}")
        if block is not None and ours and block.broker_id != block.broker_epoch:
            raise ValueError(f"the last block has broker {block.broker_id} with epoch {block.broker_epoch}")
        free = 1 + max((record.producer_id for record in self.transactions if own), default=-1)
        for one in own:
            if one.first < free:
                raise ValueError(f"own IDs {own} do not ascend, or transactional ids have some below {free}")
            free = one.last + 1
        if own and free > self.next_producer_id:
            raise ValueError(f"own IDs {own} reach above the next producer ID {self.next_producer_id}")
