"""What the checks of rates compare with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Defaults, and why these.

    `storm_blocks_per_minute`: an agent keeps 100 blocks of 1,000 IDs at hand, and takes as many anew whenever it
    starts. Two starts within a minute happen; a third is a restart loop, and without any restart four blocks a second
    are 4,000 new producers a second. `storm_ratio`: times as many blocks as the mean of the other brokers, from
    `storm_least_blocks` on, below which chance decides. `quota_per_second`, `quota_burst`: the members'
    `broker_allocations`, whose defaults these are. `quota_share`: of the burst; the clock of a decision is not that of
    its admission, so a broker that is refused may seem to stay a little below. `horizon_days`: ten years, the time to
    move to another cluster.
    """

    storm_blocks_per_minute: int = 250
    storm_ratio: float = 10.0
    storm_least_blocks: int = 100
    quota_per_second: float = 500.0
    quota_burst: int = 1000
    quota_share: float = 0.9
    horizon_days: int = 3650


DEFAULT: Limits = Limits()
