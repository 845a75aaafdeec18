"""Whether the blocks of both worlds go together. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import msgspec

BLOCK: Final = 1000
"""IDs in a block of either world."""


class OverlapError(AssertionError):
    """Two blocks have an ID in common, or one was given twice."""


class GapError(AssertionError):
    """After a rollback ZooKeeper would not go on with just the next free ID."""


class Moment(msgspec.Struct, frozen=True):
    """The znode while nobody writes it: the ID after its block, and its dataVersion."""

    free: int
    version: int
    sealed: bool


class Evidence(msgspec.Struct):
    """Blocks as first and last ID, claimed ones with their broker.

    `old` and `claimed` were acknowledged to somebody; `ledger` is what the quorum committed; `unknown` are the first
    IDs of blocks that an old broker asked for without hearing of them.
    """

    old: list[tuple[int, int]] = []
    unknown: list[int] = []
    claimed: list[tuple[int, int, int]] = []
    ledger: list[dict[str, Any]] = []
    refusals: dict[int, dict[str, int]] = {}
    znode: str = ""
    exact_moments: int = 0


def check_blocks(evidence: Evidence, end: Moment, *, finalized: bool) -> None:
    """Every block of both worlds in one set, without overlap; every acknowledged one is in the ledger."""
    _check_overlaps(evidence)
    _check_ledger(evidence)
    assert end.sealed is finalized, f"the phase is {'' if finalized else 'not '}final, and the znode: {end}"
    highest = _highest(evidence)
    if not finalized and end.free <= highest:
        raise OverlapError(f"ZooKeeper goes on with {end.free}, but {highest} was handed out")


def check_moment(evidence: Evidence, moment: Moment) -> None:
    """The phase is rolled_back and nobody writes: ZooKeeper goes on with exactly the next free ID."""
    _check_overlaps(evidence)
    free = _highest(evidence) + 1
    if moment.free < free:
        raise OverlapError(f"ZooKeeper goes on with {moment.free}, but the next free ID is {free}")
    # A block that an old broker wrote without hearing of it is lost to all, so it ends where ZooKeeper goes on.
    if moment.free != free and moment.free not in {first + BLOCK for first in evidence.unknown}:
        raise GapError(f"ZooKeeper goes on with {moment.free}, but the next free ID is {free}: {moment}")


def _check_overlaps(evidence: Evidence) -> None:
    old = [(first, last, "an old broker") for first, last in evidence.old]
    new = [(block["first"], block["last"], f"broker {block['broker_id']}") for block in evidence.ledger]
    for one, other in pairwise(sorted(old + new)):
        if one[1] >= other[0]:
            raise OverlapError(f"{one} and {other} overlap")


def _check_ledger(evidence: Evidence) -> None:
    committed = {(block["first"], block["last"], block["broker_id"]) for block in evidence.ledger}
    acknowledged = set(evidence.claimed)
    if len(acknowledged) != len(evidence.claimed):
        raise OverlapError("a block was acknowledged twice")
    assert acknowledged <= committed, f"acknowledged, but not in the ledger: {sorted(acknowledged - committed)}"
    assert evidence.old and acknowledged, "a world got no block at all"


def _highest(evidence: Evidence) -> int:
    """The highest ID that was handed out."""
    return max([last for _, last in evidence.old] + [block["last"] for block in evidence.ledger], default=-1)
