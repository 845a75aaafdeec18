"""What the log and the snapshots of a quorum may hold, as one number (`metadata.version`, KIP-584 and KIP-778).

Every build knows all versions up to its own newest one. A quorum starts at the oldest and goes up when all of its
members can read the next, so that no member is ever sent what it cannot read. It never goes down. It waits for the
agents that clients are told of as well, for clients go by it too (decision 0058).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

BASE: Final = 1
"""Allocations, brokers, floors; the voters are the configured ones."""

MEMBERSHIP: Final = 2
"""VotersRecord, and a configuration in the snapshot."""

TRANSACTIONS: Final = 3
"""TransactionRecord, ForgetTransactionRecord, BrokerEndpointRecord, and the snapshot's sections for them."""

MIGRATION: Final = 4
"""MigrationRecord and ZooKeeperBlockRecord, and the snapshot's section for them."""

ADDED_PARTITIONS: Final = 5
"""AddPartitionsRecord."""

TRANSACTIONAL_BLOCKS: Final = 6
"""TransactionalBlockRecord, and the snapshot's section for what is left of these blocks."""

FOUNDING: Final = 7
"""FoundingRecord, EvidenceRecord and EvidenceDismissedRecord, and the snapshot's sections for them."""

SUCCESSION: Final = 8
"""SuccessionRecord, and the snapshot's section for it. A floor takes what is left of the quorum's own blocks."""

ENDS_AT_ONCE: Final = 9
"""The record that decides a transaction completes it, and one that initialises an id ends the transaction under way."""

PARTITION_LOGS: Final = 10
"""BrokerStoreRecord, TopicRecord, RemoveTopicRecord, ObjectRecord, ProducersExpiredRecord and ObjectsDeletedRecord, and
the snapshot's section for them. A transaction that ends leaves markers in logs."""

SEGMENTS: Final = 11
"""SegmentRecord, LogStartsRecord and CollectionReleasedRecord, and what the snapshot has of segments."""

GROUPS: Final = 12
"""GroupRecord, RemoveGroupRecord, OffsetsRecord and RemoveOffsetsRecord, and the snapshot's section for them. The
record that ends a transaction settles the offsets that it holds."""

TRANSACTION_EPOCHS: Final = 13
"""No record is new. Controllers take what producers of `transaction.version` 2 ask (KIP-890)."""

LATEST: Final = TRANSACTION_EPOCHS
"""The newest that this build reads and writes."""

UNTOLD: Final = GROUPS
"""The newest that an agent knows which does not say: those of the builds before agents said so."""

MetadataVersion = Annotated[int, msgspec.Meta(ge=BASE, le=2**15 - 1)]
"""An int16, as KIP-584 has it."""
