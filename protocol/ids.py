"""Producer IDs and the blocks they are handed out in (KIP-730, "Public Interfaces")."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_PRODUCER_ID: Final = 2**63 - 1
"""Kafka's Int64.MAX. The next id must stay representable, so this value itself is never handed out."""

DEFAULT_BLOCK_SIZE: Final = 1000
"""IDs in a block unless configured otherwise (KIP-730, "Controller")."""

MAX_BLOCK_SIZE: Final = 1_000_000
"""A broker that dies loses its blocks, so a block is bounded: a million IDs is a 10^-13 part of the space."""

MAX_FLOOR_JUMP: Final = 10**12
"""IDs that one call may skip without force: two days of 5,000 blocks of 1000 a second, the default quota of a cluster,
and a nine-millionth of the space."""

MAX_BROKER_ID: Final = 2**31 - 1

OWN: Final = -1
"""In place of broker id and broker epoch, of a block that the quorum took for its transactional producers."""


MAX_BLOCKS_AT_ONCE: Final = 64
"""Blocks that one request for blocks may ask for."""


class ProducerIdBlock(msgspec.Struct, frozen=True, order=True):
    """A run of consecutive producer IDs, given to one broker.

    Fields: `first`, the lowest ID; `length`, how many there are. Raises ValueError for a negative first ID, an empty
    block, or one that reaches MAX_PRODUCER_ID.
    """

    first: int
    length: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(f"a block cannot start at {self.first}: producer IDs are not negative")
        if self.length < 1:
            raise ValueError(f"a block of {self.length} IDs is not a block")
        if self.first > MAX_PRODUCER_ID - self.length:
            raise ValueError(f"a block of {self.length} IDs from {self.first} would pass {MAX_PRODUCER_ID}")

    @property
    def last(self) -> int:
        """The highest ID in the block (inclusive, as in KIP-730's `ProducerIdEnd`)."""
        return self.first + self.length - 1

    @property
    def next(self) -> int:
        """The first ID above the block."""
        return self.first + self.length

    def __contains__(self, producer_id: int) -> bool:
        return self.first <= producer_id <= self.last

    def overlaps(self, other: ProducerIdBlock) -> bool:
        """Whether any ID is in both blocks."""
        return self.first < other.next and other.first < self.next
