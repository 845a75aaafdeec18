"""What happens in one run of the migration, and when, all drawn from one seed. Pure."""

from __future__ import annotations

import random
from typing import Final, Literal

import msgspec

Destination = Literal["finalize", "rollback", "rollback_then_finalize", "finalize_or_rollback"]
Order = Literal["start", "finalize", "rollback", "finalize_or_rollback"]
Target = Literal["controller", "zookeeper"]

ORDERS: Final[dict[Destination, tuple[Order, ...]]] = {
    "finalize": ("start", "finalize"),
    "rollback": ("start", "rollback"),
    "rollback_then_finalize": ("start", "rollback", "start", "finalize"),
    "finalize_or_rollback": ("start", "finalize_or_rollback"),
}
"""The last one sends `rollback` as soon as `finalize` was acknowledged: whichever commits first holds."""

REST: Final[dict[Order, str]] = {
    "start": "dual_write",
    "finalize": "finalized",
    "rollback": "rolled_back",
    "finalize_or_rollback": "finalized_or_rolled_back",
}
"""The phase in which each order ends."""

MAX_DELAY_MS: Final = 50
"""From an order to a fault. A whole order takes 10 to 100 ms."""

SINGLE_SERVER_EVERY: Final = 5
"""Every so many seeds ZooKeeper is one server, which is away altogether when it is killed."""


class Fault(msgspec.Struct, frozen=True):
    """The leader of the target dies, or is paused. `point`: index in Plan.points; `delay_ms` after that moment.

    `away_ms`: until it is started again, or goes on.
    """

    target: Target
    point: int
    paused: bool
    delay_ms: float
    away_ms: float


class Plan(msgspec.Struct, frozen=True):
    """One run. `points`: the moments at which a fault may strike, in order.

    `exact`: everybody pauses at the end of a rollback, the old brokers `pause_ms` after the order, so that the znode
    can be compared with all that was handed out. `orphan`: before that the controller is struck in dual write, while
    it claims blocks and no old broker does, so that its last claim may be left on top.
    `first_free`: the znode begins with a block below it, None with none. `dwell_ms`: in every phase at rest.
    """

    seed: int
    destination: Destination
    servers: Literal[1, 3]
    claimers: int
    first_free: int | None
    exact: bool
    orphan: bool
    pause_ms: float
    dwell_ms: float
    points: tuple[str, ...]
    faults: tuple[Fault, ...]

    def names(self) -> list[str]:
        """Each fault as `target-how point`, for the count of what was hit."""
        return [
            f"{fault.target} {'paused' if fault.paused else 'killed'} {self.points[fault.point]}"
            for fault in self.faults
        ]

    def describe(self) -> str:
        """One line."""
        what = "; ".join(
            f"{name} +{fault.delay_ms:.0f}ms" for name, fault in zip(self.names(), self.faults, strict=True)
        )
        judged = " orphan" if self.orphan else " exact" if self.exact else ""
        return f"{self.destination}{judged}, {self.servers} zk: {what}"


def points_of(destination: Destination) -> tuple[str, ...]:
    """The moments of a run: phases at rest, and each order while it is sent and once it is acknowledged."""
    points = ["bridge"]
    for order in ORDERS[destination]:
        points += [f"{order}:during", f"{order}:acknowledged", REST[order]]
    return tuple(points)


def plan_of(seed: int) -> Plan:
    """The plan of a seed: always the same."""
    chance = random.Random(seed)
    destination = chance.choice(list(ORDERS))
    points = points_of(destination)
    exact = "rollback" in destination and chance.random() < 0.7
    orphan = exact and chance.random() < 0.5
    first = points.index("dual_write") if orphan else chance.randrange(len(points) - 1)
    faults = [_fault(chance, "controller", first)]
    if chance.random() < 0.3:
        faults.append(_fault(chance, "controller", chance.randrange(first + 1, len(points))))
    faults.append(_fault(chance, "zookeeper", chance.randrange(first + 1, len(points))))
    return Plan(
        seed=seed,
        destination=destination,
        servers=1 if seed % SINGLE_SERVER_EVERY == 0 else 3,
        claimers=chance.choice([1, 2, 3]),
        first_free=chance.choice([None, 1000 * chance.randrange(1, 10**6)]),
        exact=exact,
        orphan=orphan,
        pause_ms=chance.uniform(0, MAX_DELAY_MS),
        dwell_ms=chance.uniform(20, 120),
        points=points,
        faults=tuple(sorted(faults, key=lambda fault: fault.point)),
    )


def _fault(chance: random.Random, target: Target, point: int) -> Fault:
    paused = chance.random() < 0.25
    # Long enough in half of the cases that another leader is elected meanwhile: 0.6 s and 1.5 s.
    longest = 1500.0 if target == "controller" else 3000.0
    away = chance.uniform(200, longest) if paused else chance.uniform(0, 400)
    # Squared, for more of the short ones: most orders rest after 10 ms already.
    return Fault(target, point, paused, MAX_DELAY_MS * chance.random() ** 2, away)
