"""The value of a snapshot: the replicated state as of one log entry.

It holds nothing of the member that took it and no time of taking, so that members with the same applied index write the
same bytes.
"""

from __future__ import annotations

import itertools
from typing import Annotated

import msgspec

from pidkeeper.protocol.metadata_version import MEMBERSHIP, MIGRATION, TRANSACTIONS, MetadataVersion
from pidkeeper.protocol.migration import MigrationRecord
from pidkeeper.protocol.records import BrokerId, IncarnationId, Offset, PeerAddress, ProducerId, VotersRecord
from pidkeeper.protocol.transactions import TransactionRecord


class BrokerRegistration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One broker id. `superseded`: the incarnations that were registered before the current one and may not return.

    `kafka`: host:port where Kafka clients reach it, None if it did not say.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    incarnation_id: IncarnationId
    fenced: bool
    superseded: tuple[IncarnationId, ...]
    kafka: PeerAddress | None = None


class LastBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest block that was allocated; `offset` is its record's, `timestamp_ms` the leader's clock."""

    first: ProducerId
    length: Annotated[int, msgspec.Meta(ge=1)]
    broker_id: BrokerId
    broker_epoch: Offset
    offset: Offset
    timestamp_ms: int


class StateImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The state after the entry `index` of `term` was applied.

    `version` is the metadata version in force, which says what a state may hold. `next_offset` is the offset of the
    next record, `next_producer_id` the lowest ID never handed out. `brokers` ascend by broker id. `voters`: the
    configuration of the quorum, None while it is the configured one. `transactions` ascend by transactional id.
    `migration`: the newest record of the migration from ZooKeeper, if any. Raises ValueError if brokers or transactions
    do not ascend, or if a section is newer than `version`.
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

    def __post_init__(self) -> None:
        if self.voters is not None and self.version < MEMBERSHIP:
            raise ValueError(f"a state image of version {self.version} with voters {self.voters}")
        if self.transactions and self.version < TRANSACTIONS:
            raise ValueError(f"a state image of version {self.version} with {len(self.transactions)} transactions")
        if self.migration is not None and self.version < MIGRATION:
            raise ValueError(f"a state image of version {self.version} with migration {self.migration}")
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
