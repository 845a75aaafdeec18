"""What a member says of itself and of the quorum: description, liveness, readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.node.health_check import HealthCheck
from controller.raft.core import Role
from protocol.messages import QuorumDescription, VoterStatus

if TYPE_CHECKING:
    from controller.node.member import ClusterMember

MAX_READY_LAG: Final = 1000
"""Entries that a ready member may be behind what it knows to be committed: some ten milliseconds of work."""


def liveness(member: ClusterMember) -> list[HealthCheck]:
    """Local conditions alone: a lost quorum is no reason to be restarted."""
    return [
        HealthCheck("storage", not member.worker.failed, "a write or sync of the log failed"),
        HealthCheck("fault", not member.driver.faulted, "an invariant was violated; see the log"),
    ]


def readiness(member: ClusterMember) -> list[HealthCheck]:
    """This member's place in the quorum."""
    core = member.driver.core
    leads = core.role is Role.LEADER
    behind = core.commit - core.applied
    return [
        HealthCheck("running", not member.stopping, "this member is being stopped"),
        HealthCheck("leader", core.leader_id is not None, "no leader is known"),
        HealthCheck("serving", core.serving or not leads, "the leader has not yet applied its own term's first entry"),
        HealthCheck("caught_up", behind <= MAX_READY_LAG, f"{behind} committed entries are not applied yet"),
        HealthCheck("voting", not core.recovering, "the disk was lost or cut: catching up before it votes again"),
    ]


def describe(member: ClusterMember) -> QuorumDescription:
    """The quorum as `member` sees it; lag and contact are known to the leader alone."""
    core = member.driver.core
    leader = member.leader()
    voters = _voters(member)
    tolerance, reasons = _judge(member, voters)
    return QuorumDescription(
        cluster_id=member.cluster_id,
        node_id=member.node_id,
        role=core.role.value,
        term=core.term,
        leader_id=None if leader is None else leader[0],
        leader_http=None if leader is None else leader[1],
        commit_index=core.commit,
        applied_index=core.applied,
        log_end_index=core.last_index,
        snapshot_index=core.snapshot.index,
        next_producer_id=member.driver.machine.producer_ids.next_producer_id,
        block_size=member.settings.block_size,
        voters=voters,
        failure_tolerance=tolerance,
        healthy=not reasons,
        reasons=reasons,
    )


def _voters(member: ClusterMember) -> list[VoterStatus]:
    core = member.driver.core
    tick_ms = member.settings.timing.tick_ms
    voters = []
    for voter in member.settings.voters:
        if voter.id == member.node_id:
            voters.append(VoterStatus(voter.id, voter.http, core.last_index, 0, 0, core.role.value))
            continue
        progress = core.progress.get(voter.id) if core.role is Role.LEADER else None
        if progress is None:
            state = "leader" if voter.id == core.leader_id else "unknown"
            voters.append(VoterStatus(voter.id, voter.http, state=state))
            continue
        silent_ms = core.silent_ticks(voter.id) * tick_ms
        late = silent_ms > member.settings.timing.election_timeout_ms
        state = "unreachable" if late else "recovering" if progress.recovery else progress.state.value
        voters.append(
            VoterStatus(voter.id, voter.http, progress.match, core.last_index - progress.match, silent_ms, state)
        )
    return voters


def _judge(member: ClusterMember, voters: list[VoterStatus]) -> tuple[int | None, list[str]]:
    """How many more voters may fail, and why the quorum is not healthy. Only the leader can tell the first."""
    core = member.driver.core
    reasons = [check.detail for check in readiness(member) if not check.ok]
    if core.role is not Role.LEADER:
        return None, reasons
    lost = [voter.id for voter in voters if voter.state in {"unreachable", "recovering"}]
    tolerance = len(voters) - len(lost) - (len(voters) // 2 + 1)
    reasons += [f"voter {voter} is unreachable or recovering" for voter in lost]
    if tolerance < 0:
        reasons.append("no majority of the voters is reachable")
    return max(tolerance, 0), reasons
