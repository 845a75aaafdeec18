"""What a member is at one moment."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """Raft paper, figure 4, and the pre-vote phase of the dissertation's section 9.6."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


FOLLOWER = Role.FOLLOWER
PRE_CANDIDATE = Role.PRE_CANDIDATE
CANDIDATE = Role.CANDIDATE
LEADER = Role.LEADER
