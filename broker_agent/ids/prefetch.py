"""When to ask the controller for blocks, and for how many (KIP-730, "Broker"). Pure: time and chance are arguments.

One *round* is one request for n blocks, whose answer has n of them or fewer: a quota may end within it, and earlier
builds give one. Rounds never overlap, so every block of a round was allocated after every block of the rounds before,
as the reserve wants it, which takes rising blocks only. An answer that was given up on is never offered: its blocks are
gaps.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.ids.reserve import ASK_FRACTION, BlockReserve
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_BLOCKS_AT_ONCE

RESERVE_SECONDS: Final = 5.0
"""Supply at the measured rate. A leader election took < 0.9 s when measured, finding the new leader up to 0.5 s more
(one attempt's deadline of 0.3 s and one back-off of 0.2 s): three of these in a row still cost no client an error."""

MIN_RESERVE_IDS: Final = 100_000
"""Standing supply, for a load that the measured rate has not seen yet. 50,000 claims/s that begin at the moment the
leader dies use 50,000/s x (0.9 s + 0.5 s) = 70,000 IDs before the next block arrives; the rest is margin (2 s in all).
100 blocks of 1000 are a tenth of the controller's burst; a restart that loses them costs 10^-14 of the ID space."""

MAX_RESERVE_BLOCKS: Final = 1000
"""The controller's default burst for one broker: a larger reserve could not be filled without being throttled. Of
1000 IDs each they last 1.1 s at 900,000 claims/s, the fastest that one process serves."""

MAX_BURST: Final = 64
"""Blocks asked for in one round, by one request. At 800,000 claims/s one of 64 took 2.5 ms of the leader's CPU time
and four of 16 took 6 ms; claims over TLS, 16 in flight on each connection, were faster by a twelfth. An attempt whose
answer is lost leaks as many."""

ROUND_SHARE: Final = 0.1
"""The least share of the supply that a round asks for, up to MAX_BURST blocks: an agent that asked for each block as
soon as it was missing had 1.7 of them a request. So up to a tenth more may be at hand than the target says."""

MIN_BLOCKS: Final = 2
"""Blocks of the first fill: the current one, and one behind it."""

RATE_FALL_SECONDS: Final = 10.0
"""Time constant with which the measured rate falls. It rises at once: a reserve too large costs nothing, one too small
costs errors."""

RATE_WINDOW_SECONDS: Final = 0.05
"""Least time over which a rate is measured; shorter samples are gathered until they reach it."""

BACKOFF_BASE_SECONDS: Final = 0.05
"""Kafka's fixed back-off between allocation requests (`RetryBackoffMs`); here it grows and is jittered."""

BACKOFF_MAX_SECONDS: Final = 1.0
"""The client below has already tried every member for its whole deadline, so a second between rounds is not idle."""

MIN_THROTTLE_MS: Final = 5
"""Least wait after a refusal by quota, should the controller name none: about one answer time."""

THROTTLE_JITTER: Final = 1.1
"""The wait after a refusal by quota is stretched by up to this, so that agents do not come back in step."""


class PrefetchSettings(msgspec.Struct, frozen=True):
    """The bounds of the policy; see the constants of this module for units and derivations. Raises ValueError."""

    ask_fraction: float = ASK_FRACTION
    reserve_seconds: float = RESERVE_SECONDS
    min_reserve_ids: int = MIN_RESERVE_IDS
    min_blocks: int = MIN_BLOCKS
    max_reserve_blocks: int = MAX_RESERVE_BLOCKS
    max_burst: int = MAX_BURST

    def __post_init__(self) -> None:
        if not 1 <= self.min_blocks <= self.max_reserve_blocks:
            raise ValueError(f"min_blocks must lie in 1 to max_reserve_blocks ({self.max_reserve_blocks})")
        if self.max_burst < 1:
            raise ValueError(f"max_burst must be at least 1, not {self.max_burst}")
        if self.reserve_seconds < 0 or self.min_reserve_ids < 0:
            raise ValueError("reserve_seconds and min_reserve_ids cannot be negative")


class PrefetchPolicy:
    """Decides how many blocks to ask for now. `now` is seconds on any clock that never goes back."""

    def __init__(self, settings: PrefetchSettings, rng: Random) -> None:
        self.settings = settings
        self._rng = rng
        self._window_claimed = 0
        self._window_seconds = 0.0
        self._not_before = -math.inf
        self.claim_rate = 0.0
        self.failures_in_a_row = 0

    def observe(self, claimed: int, elapsed: float) -> None:
        """Feed the claim rate: `claimed` IDs in the last `elapsed` seconds."""
        self._window_claimed += claimed
        self._window_seconds += elapsed
        if self._window_seconds < RATE_WINDOW_SECONDS:
            return
        sample = self._window_claimed / self._window_seconds
        keep = math.exp(-self._window_seconds / RATE_FALL_SECONDS)
        self.claim_rate = max(sample, keep * self.claim_rate + (1.0 - keep) * sample)
        self._window_claimed = 0
        self._window_seconds = 0.0

    def is_filled(self, reserve: BlockReserve) -> bool:
        """Whether the first fill is done."""
        return reserve.blocks_accepted >= self.settings.min_blocks

    def target_ids(self) -> int:
        """The supply to keep."""
        return max(self.settings.min_reserve_ids, math.ceil(self.claim_rate * self.settings.reserve_seconds))

    def blocks_to_ask(self, reserve: BlockReserve, now: float) -> int:
        """How many blocks the next round asks for; 0 when none is wanted or the back-off runs."""
        settings = self.settings
        if now < self._not_before:
            return 0
        block_length = reserve.last_block_length or DEFAULT_BLOCK_SIZE
        wanted = math.ceil((self.target_ids() - reserve.remaining) / block_length)
        if reserve.used_fraction >= settings.ask_fraction and reserve.blocks_behind == 0:
            wanted = max(wanted, 1)
        if not self.is_filled(reserve):
            wanted = max(wanted, settings.min_blocks - reserve.blocks_accepted)
        if wanted <= 0:
            return 0
        supply = min(self.target_ids() / block_length, settings.max_reserve_blocks)
        least = max(1, min(settings.max_burst, MAX_BLOCKS_AT_ONCE, math.floor(ROUND_SHARE * supply)))
        room = settings.max_reserve_blocks - reserve.blocks_held
        if room < least:
            return 0
        # After a failure a single block finds out whether the controller is back: what is lost then is one block.
        most = 1 if self.failures_in_a_row else min(settings.max_burst, MAX_BLOCKS_AT_ONCE)
        return min(max(wanted, least), most, room)

    def seconds_to_wait(self, now: float) -> float:
        """Seconds left of the back-off; 0 when none runs."""
        return max(0.0, self._not_before - now)

    def round_succeeded(self) -> None:
        """Note a round whose blocks the reserve took."""
        self.failures_in_a_row = 0
        self._not_before = -math.inf

    def round_failed(self, now: float) -> None:
        """Note a round that failed; the next one waits for the back-off."""
        self.failures_in_a_row += 1
        self._not_before = now + backoff_seconds(
            self.failures_in_a_row, self._rng, base=BACKOFF_BASE_SECONDS, maximum=BACKOFF_MAX_SECONDS
        )

    def round_throttled(self, now: float, throttle_time_ms: int) -> None:
        """Note a round that was refused by quota; the next one waits as long as the controller said.

        No failure: a back-off on top would leave granted quota unused, and starve a load that the quota carries.
        """
        self.failures_in_a_row = 0
        throttle = max(throttle_time_ms, MIN_THROTTLE_MS) / 1000
        self._not_before = now + self._rng.uniform(throttle, THROTTLE_JITTER * throttle)
