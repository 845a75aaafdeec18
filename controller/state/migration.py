"""The migration from ZooKeeper as the quorum agrees on it: its phase, and the name under which it claims.

NONE ----> BRIDGE ----> IMPORT ----> DUAL_WRITE ----> FINALIZING ----> FINALIZED
  |                     ^  |  |          |              |
  `---------------------'  |  |          v              |
            ROLLED_BACK <--|--+-- ROLLING_BACK <--------'
                 `---------'
"""

from __future__ import annotations

from typing import Final

from pidkeeper.protocol.migration import PAUSED, MigrationPhase, MigrationRecord

TRANSITIONS: Final = {
    MigrationPhase.NONE: {MigrationPhase.BRIDGE, MigrationPhase.IMPORT},
    MigrationPhase.BRIDGE: {MigrationPhase.IMPORT},
    MigrationPhase.IMPORT: {MigrationPhase.DUAL_WRITE, MigrationPhase.ROLLING_BACK},
    MigrationPhase.DUAL_WRITE: {MigrationPhase.FINALIZING, MigrationPhase.ROLLING_BACK},
    # A pausing phase is entered again with the version of the znode that its write may replace.
    MigrationPhase.FINALIZING: {MigrationPhase.FINALIZING, MigrationPhase.FINALIZED, MigrationPhase.ROLLING_BACK},
    MigrationPhase.FINALIZED: set(),
    MigrationPhase.ROLLING_BACK: {MigrationPhase.ROLLING_BACK, MigrationPhase.ROLLED_BACK},
    MigrationPhase.ROLLED_BACK: {MigrationPhase.IMPORT},
}
"""What may follow each phase."""


class MigrationState:
    """The newest record of the migration; None while there is none."""

    __slots__ = ("record",)

    def __init__(self, record: MigrationRecord | None = None) -> None:
        self.record = record

    @property
    def phase(self) -> MigrationPhase:
        """The phase in force."""
        return MigrationPhase.NONE if self.record is None else self.record.phase

    @property
    def claimed_by(self) -> str | None:
        """The name under which this quorum claims; None before its first record."""
        return None if self.record is None else self.record.claimed_by

    def replay(self, record: MigrationRecord, offset: int) -> None:
        """Go to the record's phase. Only committed records get here, so a mismatch stops the process."""
        assert record.phase in TRANSITIONS[self.phase], (
            f"M1: offset {offset} takes the migration from {self.phase.name} to {record.phase.name}"
        )
        assert self.claimed_by in {None, record.claimed_by}, (
            f"M2: offset {offset} changes the name of the claims from {self.claimed_by} to {record.claimed_by}"
        )
        self.record = record

    def check_allocation(self, offset: int) -> None:
        """No ID is handed out while the znode is being sealed or set back."""
        assert self.phase not in PAUSED, f"M3: offset {offset} hands out IDs in the phase {self.phase.name}"
