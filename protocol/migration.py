"""The records of the migration from ZooKeeper (KIP-730, "Upgrade from ZK"; KIP-866 for the phases)."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Final

import msgspec

from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID

CONTROLLER: Final = -1
"""The broker id in a znode that a controller wrote, for several brokers at once; as in Kafka's dual write."""

MAX_CLAIMED_BY_LENGTH: Final = 128
"""Characters of the name under which a quorum claims: `pidkeeper/`, a cluster id of 64, a slash, 32 hexadecimal."""

ClaimedBy = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CLAIMED_BY_LENGTH)]


class MigrationPhase(enum.IntEnum):
    """Where a quorum is on its way from ZooKeeper; the numbers are on disk.

    NONE: the quorum allocates alone, as it always did. BRIDGE: every block is claimed in ZooKeeper, beside brokers that
    write the znode themselves. IMPORT: an operator began the migration. DUAL_WRITE: ZooKeeper's blocks are in the log;
    every block is claimed in ZooKeeper still, so there is a way back. FINALIZING: allocation pauses while the znode is
    sealed. FINALIZED: the quorum allocates alone. ROLLING_BACK: allocation pauses while the znode is set to the next
    free ID. ROLLED_BACK: as BRIDGE.
    """

    NONE = 0
    BRIDGE = 1
    IMPORT = 2
    DUAL_WRITE = 3
    FINALIZING = 4
    FINALIZED = 5
    ROLLING_BACK = 6
    ROLLED_BACK = 7


CLAIMING: Final = frozenset(
    {MigrationPhase.BRIDGE, MigrationPhase.IMPORT, MigrationPhase.DUAL_WRITE, MigrationPhase.ROLLED_BACK}
)
"""Phases in which no ID is handed out that was not claimed in ZooKeeper before."""

PAUSED: Final = frozenset({MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK})
"""Phases in which no ID is handed out at all."""


class MigrationRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The migration is in `phase` from this record on.

    `claimed_by`: the name under which this quorum claims, for good from its first record on. `znode_version`: the only
    version of the znode that the write of a pausing phase may replace, -1 without one. `timestamp_ms`: the leader's
    wall clock.
    """

    TYPE: ClassVar[int] = 12
    VERSION: ClassVar[int] = 0
    phase: MigrationPhase
    claimed_by: ClaimedBy
    znode_version: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    timestamp_ms: int


class ZooKeeperBlockRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All IDs below `next_producer_id` belong to blocks that were claimed in ZooKeeper.

    It is KIP-730's "equivalent record": the last ID of ZooKeeper's newest block *plus one* (KAFKA-15552). `broker_id`:
    who wrote the znode last, CONTROLLER for a controller or for nobody. `znode_version`: the version that was read.
    """

    TYPE: ClassVar[int] = 13
    VERSION: ClassVar[int] = 0
    next_producer_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]
    broker_id: Annotated[int, msgspec.Meta(ge=CONTROLLER, le=MAX_BROKER_ID)]
    znode_version: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    timestamp_ms: int
