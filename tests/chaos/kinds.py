"""All kinds of faults, how often each is wanted, and which of them can be had on a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tests.chaos.fault import FaultKind
from tests.chaos.faults import (
    certificates,
    clocks,
    configuration,
    disks,
    full_disks,
    groups,
    links,
    lost_disks,
    memory,
    operators,
    packets,
    processes,
    stores,
)
from tests.chaos.plan import Draw
from tests.chaos.stage import Stage

ALL: Final[tuple[FaultKind, ...]] = tuple(
    kind
    for module in (
        processes,
        links,
        disks,
        full_disks,
        lost_disks,
        clocks,
        memory,
        configuration,
        certificates,
        packets,
        operators,
        stores,
        groups,
    )
    for kind in module.KINDS
)

RARE: Final = 6.0
"""In an hour: of what is not named in WANTED."""

WANTED: Final[dict[str, float]] = {
    "kill": 255,
    "kill_several": 14,
    "kill_all": 6,
    "pause": 150,
    "pause_several": 6,
    "rolling_restart": 30,
    "clock_jump": 30,
    "clock_leap": 20,
    "full_disk": 118,
    "fsync_fails": 110,
    "fsync_stalls": 110,
    "fsync_hangs": 100,
    "voter_replaced": 6,
    "store_away": 14,
    "killed_before_commit": 14,
    "member_paused": 12,
    **dict.fromkeys(("coordinator_killed", "coordinator_paused", "coordinator_without_quorum"), 50),
    "coordinator_without_half": 40,
    **dict.fromkeys(("store_fails", "store_full", "store_slow", "store_hangs"), 40),
    **dict.fromkeys(("partition", "deaf", "mute", "cut", "cut_one_way"), 64),
}
"""Of the other kinds. A run has fewer or more of all, as its time allows; of those that take nobody down more, since
they fit in beside any other."""


def possible(stage: Stage, kinds: Iterable[FaultKind] = ALL) -> tuple[list[FaultKind], dict[str, str]]:
    """The kinds that can be had here, and why the others cannot, by name."""
    why = {kind.name: kind.why_not(stage) for kind in kinds}
    missing = {name: reason for name, reason in why.items() if reason is not None}
    return [kind for kind in kinds if kind.name not in missing], missing


def draws(kinds: Sequence[FaultKind]) -> list[Draw]:
    """What a plan needs to know of them."""
    return [
        Draw(kind.name, kind.targets, kind.seconds, kind.takes_down, kind.loses, WANTED.get(kind.name, RARE))
        for kind in kinds
    ]
