"""Who has won, and how far a majority holds the log. Pure functions over counts.

The votes of members that lost data (`recovering`, see `elections.py`) are weak: they count only if nobody's is missing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class VoteResult(enum.Enum):
    """`PENDING`: replies that are still out can decide either way."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """The smallest number of voters of which any two sets share a member."""
    return voters // 2 + 1


def vote_result(
    voters: int,
    *,
    grants: int,
    weak_grants: int,
    rejections: int,
    others: int = 0,
    other_grants: int = 0,
    other_rejections: int = 0,
) -> VoteResult:
    """The state of an election among `voters` members; `weak_grants` come from members that are recovering.

    `others`: learners and members that are being removed. They make no majority, but where weak votes are to count,
    theirs must not be missing either.
    """
    # The majority rule, and the unanimous rule, which takes weak votes but misses nobody.
    if grants >= majority(voters) or (grants + weak_grants == voters and other_grants == others):
        return VoteResult.WON
    # Without a refusal everybody may still grant, and then the unanimous rule wins.
    unknown = voters - grants - weak_grants - rejections
    if (rejections or other_rejections) and grants + unknown < majority(voters):
        return VoteResult.LOST
    return VoteResult.PENDING


def majority_index(indexes: Sequence[int]) -> int:
    """The highest index that a majority of `indexes` (one per voter, never empty) has reached."""
    # In rising order, just a majority stands at or behind this place.
    return sorted(indexes)[(len(indexes) - 1) // 2]
