"""What is done to whom, and when: drawn from a seed alone, so the same seed injects the same faults.

A plan is a row of acts. In some a single fault is under way, and what it costs those who ask is measured; in the others
several overlap. Between two acts the cluster becomes whole again.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Container, Mapping, Sequence
from typing import Final

import msgspec

TOGETHER: Final = (9, 12)
"""How many faults overlap in an act that is not measured, fewest and most."""

OVERLAP_SECONDS: Final = 10.0
"""The faults of such an act begin within this time."""

SETTLING_SECONDS: Final = 1.0
"""From the moment when all is whole to the next act."""

MEASURED_SHARE: Final = 0.33
"""Of all acts."""

LEADER_SHARE: Final = 0.6
"""Of the faults that are measured and may strike a leader: it is what a service waits for."""


class Target(enum.StrEnum):
    """Who is meant. Who leads is known only when the fault begins, and so is who coordinates the copiers; `pick` then
    chooses among those who are meant.
    """

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    AGENT = "agent"
    COORDINATOR = "coordinator"
    CLUSTER = "cluster"


class Draw(msgspec.Struct, frozen=True):
    """What a plan needs to know of a kind of fault. `per_hour`: how many are wanted, against the other kinds.

    The rest as in `FaultKind`.
    """

    name: str
    targets: tuple[Target, ...]
    seconds: tuple[float, float]
    takes_down: bool
    loses: bool
    per_hour: float

    @property
    def needs_the_others(self) -> bool:
        """Whether no other member may be down meanwhile: the others have what this one loses, or each has its turn."""
        return self.loses or (self.takes_down and Target.CLUSTER in self.targets)


class Planned(msgspec.Struct, frozen=True):
    """One fault. `begin` is in seconds from the start of its act. `pick` is 0 to 2^32 - 1 and `strength` 0 to 1: what
    the kind of fault still has to choose comes from these two, nothing else. `alone`: no other fault is under way, and
    the gap in service is measured.
    """

    kind: str
    target: Target
    begin: float
    seconds: float
    pick: int
    strength: float
    alone: bool


Act = tuple[Planned, ...]


def draw_plan(seed: int, kinds: Sequence[Draw], acts: int) -> list[Act]:
    """So many acts. Each kind comes as often as it is wanted, as nearly as whole numbers allow.

    `kinds` are those that this machine can do: on another one the same seed gives another plan. Raises ValueError if
    there is none.
    """
    if not kinds:
        raise ValueError("no kind of fault can be had here: nothing to plan")
    chance = random.Random(seed)
    by_name = {kind.name: kind for kind in kinds}
    weights = {kind.name: kind.per_hour for kind in kinds}
    alone, together = Shares(weights, chance), Shares(weights, chance)
    measured = Shares({"yes": MEASURED_SHARE, "no": 1 - MEASURED_SHARE}, chance)
    return [
        _alone(chance, by_name, alone) if measured.take() == "yes" else _together(chance, by_name, together)
        for _ in range(acts)
    ]


class Shares:
    """Gives out names in turn, each as often as its weight says against the others (stride scheduling)."""

    def __init__(self, weights: Mapping[str, float], chance: random.Random) -> None:
        self._strides = {name: 1 / weight for name, weight in weights.items()}
        # Where each one begins is drawn: else every run began with the same row.
        self._passes = {name: chance.random() * stride for name, stride in self._strides.items()}

    def take(self, among: Container[str] | None = None) -> str:
        """The one whose turn it is, or of those in `among`."""
        chosen = min((at, name) for name, at in self._passes.items() if among is None or name in among)[1]
        self._passes[chosen] += self._strides[chosen]
        return chosen


def _alone(chance: random.Random, kinds: Mapping[str, Draw], wanted: Shares) -> Act:
    fault = _draw_fault(chance, kind := kinds[wanted.take()], begin=0.0, alone=True)
    if Target.LEADER in kind.targets and chance.random() < LEADER_SHARE:
        fault = msgspec.structs.replace(fault, target=Target.LEADER)
    return (fault,)


def _together(chance: random.Random, kinds: Mapping[str, Draw], wanted: Shares) -> Act:
    harmless = frozenset(name for name, kind in kinds.items() if not kind.takes_down)
    modest = frozenset(name for name, kind in kinds.items() if not kind.needs_the_others)
    among = frozenset(kinds)
    act: list[Planned] = []
    for _ in range(chance.randint(*TOGETHER)):
        if not among:
            break
        kind = kinds[wanted.take(among)]
        if kind.needs_the_others:
            among &= harmless
        elif kind.takes_down:
            among &= modest
        act.append(_draw_fault(chance, kind, begin=chance.uniform(0, OVERLAP_SECONDS), alone=False))
    return tuple(sorted(act, key=lambda planned: planned.begin))


def _draw_fault(chance: random.Random, kind: Draw, *, begin: float, alone: bool) -> Planned:
    return Planned(
        kind=kind.name,
        target=chance.choice(kind.targets),
        begin=round(begin, 3),
        seconds=round(_duration(chance, *kind.seconds), 3),
        pick=chance.getrandbits(32),
        strength=round(chance.random(), 6),
        alone=alone,
    )


def _duration(chance: random.Random, shortest: float, longest: float) -> float:
    """As often below the geometric middle as above: most are short, and many fit into a run."""
    return math.exp(chance.uniform(math.log(shortest), math.log(longest)))
