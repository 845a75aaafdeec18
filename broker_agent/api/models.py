"""Values of the interface that no other part needs."""

from __future__ import annotations

import uuid

import msgspec


class AgentStatus(msgspec.Struct, frozen=True):
    """Answer of /v1/status. `leader`: base URL that the next call goes to; `claim_rate`: IDs a second.

    `founding_id`: that of the quorum, as of its newest answer; null before it has told any. `version`: of the build,
    null from one that does not tell it. `users_fingerprint`, `acls_fingerprint`, `quotas_fingerprint`: the same where
    users, rules and quotas in force are the same, "000000000000" without a file; null from a build that does not tell.
    """

    broker_id: int
    broker_epoch: int | None
    cluster_id: str | None
    founding_id: uuid.UUID | None
    incarnation_id: str
    ready: bool
    reasons: list[str]
    fenced: bool
    leader: str
    reserve_ids: int
    reserve_blocks: int
    reserve_target_ids: int
    highest_held: int
    claimed: int
    claim_errors: int
    claim_rate: float
    blocks_received: int
    version: str | None = None
    users_fingerprint: str | None = None
    acls_fingerprint: str | None = None
    quotas_fingerprint: str | None = None
