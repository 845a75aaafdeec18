"""How long a run of the benchmark measures, and how often."""

from __future__ import annotations

from typing import Final

import msgspec

from bench.crowd_section import CrowdPlan


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure: `repetitions` of `seconds` after `warmup`, `failover_rounds` for each signal, a crowd.

    Beside peers as many repetitions of `peer_seconds`, with each number of `peer_callers`, once they have run for
    `settle_share` of the time in which they become faster, and `peer_failover_rounds`.
    """

    seconds: float
    warmup: float
    repetitions: int
    failover_rounds: int
    crowd: CrowdPlan
    peer_seconds: float
    peer_callers: tuple[int, ...]
    settle_share: float
    peer_failover_rounds: int


FULL: Final = Plan(
    seconds=3.0,
    warmup=0.5,
    repetitions=5,
    failover_rounds=20,
    crowd=CrowdPlan(rounds=3, seconds=15.0),
    peer_seconds=2.0,
    peer_callers=(1, 8, 64, 256),
    settle_share=1.0,
    peer_failover_rounds=5,
)
QUICK: Final = Plan(
    seconds=1.0,
    warmup=0.3,
    repetitions=1,
    failover_rounds=3,
    crowd=CrowdPlan(rounds=1, seconds=2.0, idle=500, slow=100),
    peer_seconds=0.5,
    peer_callers=(1, 64),
    settle_share=0.1,
    peer_failover_rounds=1,
)
