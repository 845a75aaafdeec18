"""The records of a quorum's founding, and of what brokers hold that it cannot have given them.

A founding is the act that made blank members a quorum, known by a uuid. A broker that remembers an ID which this quorum
has not handed out yet proves that the quorum lost what it knew, or that it took another one's place. A quorum that was
meant to take the place of another says so itself.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar, Final, Protocol

import msgspec

from pidkeeper.protocol.ids import MAX_BLOCK_SIZE, MAX_BROKER_ID, MAX_PRODUCER_ID

EvidentBroker = Annotated[int, msgspec.Meta(ge=0, le=MAX_BROKER_ID)]
HighestId = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID - 1)]
Floor = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRODUCER_ID)]

UNKNOWN_FOUNDING: Final = uuid.UUID(int=0)
"""The predecessor, where nobody knows any more which it was: no agent is of it, so each lets go of what it holds."""


def founding_name(founding_id: uuid.UUID) -> str:
    """What people are told of the founding whose place another took."""
    return "unknown" if founding_id == UNKNOWN_FOUNDING else str(founding_id)


class Succession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This quorum takes the place of the one of founding `predecessor`, whose IDs all lie below `floor`.

    Nothing below `floor` is handed out here, so that a broker of the predecessor keeps what it holds below it.
    """

    predecessor: uuid.UUID
    floor: Floor


class Founded(Protocol):
    """What a member says of its founding.

    `founding_id`: None where its directory is blank, or of a build without foundings. `succession`: whose place the
    founding takes, if it takes any. `metadata_version`: the newest that the member reads.
    """

    @property
    def founding_id(self) -> uuid.UUID | None: ...

    @property
    def succession(self) -> Succession | None: ...

    @property
    def metadata_version(self) -> int: ...


class FoundingRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The founding of this quorum, and the settings that hold for all of its members from then on; committed once.

    `block_size`: IDs in a block. `bridge`: a quorum that has handed out nothing yet begins in ZooKeeper (KIP-730).
    `timestamp_ms`: the leader's wall clock when it was recorded.
    """

    TYPE: ClassVar[int] = 16
    VERSION: ClassVar[int] = 0
    founding_id: uuid.UUID
    block_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCK_SIZE)]
    bridge: bool
    timestamp_ms: int


class EvidenceRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A broker holds IDs up to `highest_producer_id`, of founding `founding_id`, which lie above all that was given.

    Nothing is handed out from this record on, until the next producer ID lies above them, or an operator dismisses it.
    """

    TYPE: ClassVar[int] = 17
    VERSION: ClassVar[int] = 0
    broker_id: EvidentBroker
    founding_id: uuid.UUID
    highest_producer_id: HighestId
    timestamp_ms: int


class EvidenceDismissedRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An operator has judged that what broker `broker_id` said is wrong."""

    TYPE: ClassVar[int] = 18
    VERSION: ClassVar[int] = 0
    broker_id: EvidentBroker
    timestamp_ms: int


class SuccessionRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From this record on the quorum is of founding `founding_id`, which takes the place of `predecessor`.

    The log before it is that of the predecessor, as far as an operator restored it, or a FoundingRecord alone. The next
    producer ID is raised to `floor`, and what was left below it of the quorum's own blocks is never given.
    """

    TYPE: ClassVar[int] = 19
    VERSION: ClassVar[int] = 0
    founding_id: uuid.UUID
    predecessor: uuid.UUID
    floor: Floor
    timestamp_ms: int

    @property
    def succession(self) -> Succession:
        """What brokers are told of it."""
        return Succession(self.predecessor, self.floor)
