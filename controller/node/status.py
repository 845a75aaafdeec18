"""What a member says of itself and of the quorum: description, liveness, readiness."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.operator_warnings import warnings
from pidkeeper.controller.raft.core import RaftCore, Role
from pidkeeper.controller.state.foundings import is_open, said_of
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transactions import MAX_PARTITION_BYTES, MAX_TRANSACTIONAL_IDS
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import EvidenceDescription, QuorumDescription, VoterStatus
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.snapshots.image import Evidence

MAX_READY_LAG: Final = 1000
"""Entries that a ready member may be behind what it knows to be committed: some ten milliseconds of work."""

SPARE_SHARE: Final = 10
"""Health tells of a bound once less than a tenth of it is left, while an operator still has room to act in."""


def liveness(member: ClusterMember) -> list[HealthCheck]:
    """Local conditions alone: a lost quorum is no reason to be restarted."""
    return [
        HealthCheck("storage", not member.writer.failed, "a write or sync of the log failed"),
        HealthCheck("fault", not member.driver.faulted, "an invariant was violated; see the log"),
    ]


def readiness(member: ClusterMember) -> list[HealthCheck]:
    """This member's place in the quorum."""
    core = member.core
    leads = core.role is Role.LEADER
    behind = core.commit - core.applied
    if member.gate.founding is None:
        # Nothing else can be said of it, and all else follows from this.
        return [HealthCheck("founded", False, member.gate.waits_for)]
    return [
        HealthCheck(
            "member", core.node_id in core.membership.members, "not in the quorum: add this member, or stop it"
        ),
        HealthCheck("running", not member.stopping, "this member is being stopped"),
        HealthCheck("leader", core.leader_id is not None, "no leader is known"),
        HealthCheck("serving", core.serving or not leads, "the leader has not yet applied its own term's first entry"),
        HealthCheck("caught_up", behind <= MAX_READY_LAG, f"{behind} committed entries are not applied yet"),
        HealthCheck("disk", (full := member.writer.no_room) is None, full or ""),
        # A leader leads on only where nobody is faster: without it nobody would be ready where all disks are slow.
        HealthCheck("disk_pace", leads or (slow := member.disk_watch.trouble()) is None, "" if leads else slow or ""),
        HealthCheck("zookeeper", (trouble := member.leadership.migration.trouble()) is None, trouble or ""),
        HealthCheck("voting", not core.recovering, "the disk was lost or cut: catching up before it votes again"),
    ]


class KnownLeader:
    """Who leads, as far as this member knows. Asked with every request, so addresses are kept until members change."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._known: dict[int, tuple[int, str]] = {}
        self._version = -1

    def find(self) -> tuple[int, str] | None:
        """The leader's id and base URL; None if nobody is known to lead, or its address has not arrived yet."""
        core = self._core
        if core.memberships_version != self._version:
            self._version = core.memberships_version
            self._known = {member.id: (member.id, member.http) for member in core.contacts()}
        leader_id = core.leader_id
        return None if leader_id is None else self._known.get(leader_id)


def describe(member: ClusterMember) -> QuorumDescription:
    """The quorum as `member` sees it; lag and contact are known to the leader alone."""
    core = member.core
    leader = KnownLeader(core).find()
    voters = [_status(member, one) for one in core.members if one.voting]
    tolerance, reasons = _judge(member, voters)
    next_id = member.machine.producer_ids.next_producer_id
    return QuorumDescription(
        cluster_id=member.settings.cluster_id,
        node_id=member.node_id,
        role=core.role.value,
        term=core.term,
        leader_id=None if leader is None else leader[0],
        leader_http=None if leader is None else leader[1],
        commit_index=core.commit,
        applied_index=core.applied,
        log_end_index=core.last_index,
        snapshot_index=core.snapshot.index,
        next_producer_id=next_id,
        block_size=member.machine.block_size,
        metadata_version=member.machine.metadata_version,
        voters=voters,
        failure_tolerance=tolerance,
        healthy=not reasons,
        reasons=reasons,
        learners=[_status(member, one) for one in core.members if not one.voting],
        warnings=warnings(member.settings, core, member.machine, member.leadership.version_waits()),
        founding_id=member.links.identity.founding_id,
        succession=member.links.identity.succession,
        evidence=[_described(one, next_id) for one in member.machine.foundings.evidence],
    )


def peer_states(member: ClusterMember) -> dict[int, str]:
    """The state of every other member, as the leader sees it; nothing where another member leads."""
    core = member.core
    if core.role is not Role.LEADER:
        return {}
    return {one.id: _status(member, one).state for one in core.members if one.id != core.node_id}


def _described(one: Evidence, next_id: int) -> EvidenceDescription:
    return EvidenceDescription(one.broker_id, one.founding_id, one.highest_producer_id, is_open(one, next_id))


def _status(member: ClusterMember, one: QuorumMember) -> VoterStatus:
    core = member.core
    links = member.links
    of_build = links.identity if one.id == member.node_id else links.peers.get(one.id)
    release = None if of_build is None else of_build.release or None
    status = VoterStatus(one.id, one.http, directory_id=one.directory_id, release=release)
    if one.id == member.node_id:
        return replace(status, match_index=core.last_index, lag=0, last_contact_ms=0, state=core.role.value)
    progress = core.progress.get(one.id) if core.role is Role.LEADER else None
    if progress is None:
        return replace(status, state="leader" if one.id == core.leader_id else "unknown")
    silent_ms = core.silent_ticks(one.id) * member.settings.timing.tick_ms
    late = silent_ms > member.settings.timing.election_timeout_ms
    return replace(
        status,
        match_index=progress.match,
        lag=core.last_index - progress.match,
        last_contact_ms=silent_ms,
        state="unreachable" if late else "recovering" if progress.recovery else progress.state.value,
    )


def _judge(member: ClusterMember, voters: list[VoterStatus]) -> tuple[int | None, list[str]]:
    """How many more voters may fail, and why the quorum is not healthy. Only the leader can tell the first."""
    core = member.core
    reasons = [check.detail for check in readiness(member) if not check.ok] + shortages(member.machine)
    # No matter of readiness: every member would be unready, and nobody could be asked to mend it.
    foundings, next_id = member.machine.foundings, member.machine.producer_ids.next_producer_id
    reasons += [said_of(one, next_id) for one in foundings.open(next_id)]
    # No matters of readiness: the first is tried again by entries, so without any it would keep a sound member unready;
    # the second delays a peer that has to catch up, and no caller.
    reasons += [one for one in (member.keeper.failure, member.chunk_reader.trouble()) if one is not None]
    if core.role is not Role.LEADER:
        return None, reasons
    reasons += [one for one in (member.leadership.founding.trouble(), member.disk_watch.trouble()) if one is not None]
    lost = [voter.id for voter in voters if voter.state in {"unreachable", "recovering"}]
    tolerance = len(voters) - len(lost) - (len(voters) // 2 + 1)
    reasons += [f"voter {voter} is unreachable or recovering" for voter in lost]
    if tolerance < 0:
        reasons.append("no majority of the voters is reachable")
    return max(tolerance, 0), reasons


def shortages(machine: StateMachine) -> list[str]:
    """What of the replicated state is nearly at its bound, with what to do about it."""
    transactions, next_id = machine.transactions, machine.producer_ids.next_producer_id
    bounds = (
        (
            len(transactions),
            MAX_TRANSACTIONAL_IDS,
            "transactional ids are kept: let clients use theirs again, or set a shorter transactional_id_expiration_ms",
        ),
        (
            transactions.partition_bytes,
            MAX_PARTITION_BYTES,
            "bytes are kept for the partitions of transactions: end transactions sooner, or put fewer of them in one",
        ),
        (next_id, MAX_PRODUCER_ID, "producer IDs are used: see docs/operations.md, When something is wrong"),
    )
    return [f"{used} of {bound} {rest}" for used, bound, rest in bounds if bound - used <= bound // SPARE_SHARE]
