"""The blocks that a broker holds, and the claiming of IDs from them (KIP-730, "Broker"). Pure: no clock, no I/O.

Blocks live in memory only. A broker that stops loses what it had left, which is a gap and never a repeat.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import ProducerIdBlock

NO_ID: Final = -1
"""What `claim` returns when no ID is at hand; Kafka's own "no producer ID"."""

ASK_FRACTION: Final = 0.9
"""Used part of the current block from which the next one must be on its way (`PidPrefetchThreshold` in Kafka)."""


class RejectedBlockError(ValueError):
    """A block that is not wholly above every ID ever held. Nothing was changed; the block must be thrown away."""


class BlockReserve:
    """A queue of blocks and the next ID to claim.

    `on_low()` is called when the current block's used part reaches `ask_fraction` with no block behind it, when a
    block is used up, and at every claim that fails. It must not claim or offer. `exhausted`: no block will come.

    Invariants, asserted where the state changes:
    A1  claimed IDs strictly rise;
    A2  no ID outside of an accepted block is ever claimed, and each at most once;
    A3  `highest_held` never falls, and no block is accepted that does not lie wholly above it.
    """

    __slots__ = (
        "_ask_fraction",
        "_blocks",
        "_claimed_before",
        "_current",
        "_held_behind",
        "_last_claimed",
        "_next",
        "_on_low",
        "_stop",
        "blocks_accepted",
        "exhausted",
        "failed_claims",
        "highest_held",
        "last_block_length",
    )

    def __init__(self, on_low: Callable[[], None] = lambda: None, *, ask_fraction: float = ASK_FRACTION) -> None:
        if not 0.0 <= ask_fraction <= 1.0:
            raise ValueError(f"ask_fraction must lie in 0 to 1, not {ask_fraction}")
        self._on_low = on_low
        self._ask_fraction = ask_fraction
        self._blocks: deque[ProducerIdBlock] = deque()
        self._current: ProducerIdBlock | None = None
        self._next = 0
        # IDs in [_next, _stop) may be claimed by the short way; at _stop there is something to decide first.
        self._stop = 0
        self._claimed_before = 0
        self._held_behind = 0
        self._last_claimed = NO_ID
        self.highest_held = NO_ID
        self.blocks_accepted = 0
        self.failed_claims = 0
        self.last_block_length = 0
        self.exhausted = False

    def claim(self) -> int:
        """Return the next ID, or NO_ID when none is at hand. No lock, no await: one thread owns the reserve."""
        claimed = self._next
        if claimed < self._stop:
            self._next = claimed + 1
            return claimed
        return self._claim_at_stop()

    def claim_run(self, count: int) -> int:
        """Claim `count` consecutive IDs and return the first, or NO_ID where `claim` has to be asked one by one."""
        claimed = self._next
        if claimed + count <= self._stop:
            self._next = claimed + count
            return claimed
        return NO_ID

    def offer(self, block: ProducerIdBlock) -> None:
        """Put a block behind those held. Raises RejectedBlockError unless it lies wholly above every ID ever held."""
        # A block that *starts at* the highest ID would repeat exactly that one (KAFKA-20031), hence <= and not <.
        if block.first <= self.highest_held:
            raise RejectedBlockError(
                f"block {block.first}-{block.last} is not above {self.highest_held}, the highest ID ever held here"
            )
        self._blocks.append(block)
        self._held_behind += block.length
        self.highest_held = block.last
        self.blocks_accepted += 1
        self.last_block_length = block.length
        self.exhausted = False

    def discard(self) -> None:
        """Throw away all IDs at hand. They become a gap; `highest_held` stays what it is."""
        self._blocks.clear()
        self._held_behind = 0
        current = self._current
        if current is not None:
            used = self._next - current.first
            self._last_claimed = max(self._last_claimed, self._next - 1)
            self._claimed_before += used
            self._current = None
        self._next = self._stop = 0

    def exhaust(self) -> None:
        """The quorum says that it has no block left. One that it gives all the same says otherwise."""
        self.exhausted = True

    @property
    def refusal(self) -> ErrorCode:
        """What a caller is told for whom `claim` has no ID: to come again, unless there will never be one."""
        return ErrorCode.PRODUCER_IDS_EXHAUSTED if self.exhausted else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def remaining(self) -> int:
        """IDs that can be claimed right now."""
        current = self._current
        return self._held_behind + (current.next - self._next if current is not None else 0)

    @property
    def claimed(self) -> int:
        """IDs claimed since the start."""
        current = self._current
        return self._claimed_before + (self._next - current.first if current is not None else 0)

    @property
    def used_fraction(self) -> float:
        """Used part of the current block, 0 to 1; 1 when there is none."""
        current = self._current
        if current is None:
            return 0.0 if self._blocks else 1.0
        return (self._next - current.first) / current.length

    @property
    def blocks_behind(self) -> int:
        """Untouched blocks behind the current one."""
        return len(self._blocks) - (1 if self._current is None and self._blocks else 0)

    @property
    def blocks_held(self) -> int:
        """Blocks with at least one ID left."""
        current = self._current
        return len(self._blocks) + (1 if current is not None and self._next < current.next else 0)

    def _claim_at_stop(self) -> int:
        current = self._current
        if current is None or self._next == current.next:
            if not self._blocks:
                self.failed_claims += 1
                self._on_low()
                return NO_ID
            current = self._advance()
        claimed = self._next
        assert claimed in current, f"A2: ID {claimed} is outside of the block {current.first}-{current.last}"
        assert claimed > self._last_claimed, f"A1: ID {claimed} does not rise above {self._last_claimed}"
        self._last_claimed = claimed
        self._next = claimed + 1
        threshold = self._threshold(current)
        self._stop = threshold if claimed < threshold else current.next
        self._on_low()
        return claimed

    def _advance(self) -> ProducerIdBlock:
        previous, current = self._current, self._blocks.popleft()
        if previous is not None:
            assert current.first >= previous.next, f"A1: block at {current.first} follows one that ends {previous.last}"
            self._claimed_before += previous.length
            self._last_claimed = previous.last
        assert current.last <= self.highest_held, f"A3: block to {current.last}, highest held {self.highest_held}"
        self._held_behind -= current.length
        self._current = current
        self._next = current.first
        return current

    def _threshold(self, block: ProducerIdBlock) -> int:
        """The first ID of `block` whose claim is to call `on_low`; past the block's end with another one behind it."""
        if self._blocks:
            return block.next
        return block.first + max(0, math.ceil(self._ask_fraction * block.length) - 1)
