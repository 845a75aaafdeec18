"""A member's samples, made from its counters when they are scraped: the hot path counts plain integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pidkeeper.controller.migration.zookeeper import Connected
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.election_metrics import election_metrics
from pidkeeper.controller.node.group_metrics import group_metrics
from pidkeeper.controller.node.log_metrics import log_metrics
from pidkeeper.controller.node.operator_warnings import warnings_by_kind
from pidkeeper.controller.node.status import describe
from pidkeeper.controller.node.transaction_views import STATE_NAMES
from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.migration import MigrationPhase

PREFIX: Final = "pidkeeper_raft_"


def member_metrics(member: ClusterMember) -> Iterator[Metric]:
    """All metric families of one member."""
    yield from _consensus(member)
    yield from election_metrics(member)
    yield from _peers(member)
    yield from _storage(member)
    yield from _ids(member)
    yield from _transactions(member)
    yield from _migration(member)
    yield from log_metrics(member)
    yield from group_metrics(member)


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)


def _consensus(member: ClusterMember) -> Iterator[Metric]:
    core, driver, decider = member.core, member.driver, member.leadership.decider
    state = GaugeMetricFamily(PREFIX + "state_info", "1 for the current role of this member, else 0.", labels=["state"])
    for role in Role:
        state.add_metric([role.value], float(core.role is role))
    yield state
    yield _gauge(PREFIX + "term", "Current term.", core.term)
    yield _gauge(PREFIX + "is_leader", "1 if this member leads and serves.", float(member.leadership.serving()))
    yield _gauge(PREFIX + "has_leader", "1 if this member knows a leader.", float(core.leader_id is not None))
    yield _gauge(PREFIX + "leader_id", "Node id of the leader, 0 if none is known.", core.leader_id or 0)
    yield _gauge(
        PREFIX + "recovering",
        "1 while this member recovers from a loss of data and must catch up.",
        float(core.recovering),
    )
    yield _gauge(PREFIX + "commit_index", "Highest index known to be committed.", core.commit)
    yield _gauge(PREFIX + "applied_index", "Highest index that is applied.", core.applied)
    yield _gauge(PREFIX + "log_end_index", "Index of the last entry of the log.", core.last_index)
    yield _gauge(PREFIX + "snapshot_index", "Index of the newest snapshot.", core.snapshot.index)
    membership = core.membership
    learners = len(membership.members) - len(membership.voters)
    yield _gauge(PREFIX + "voters", "Number of voters in the configuration in force.", len(membership.voters))
    yield _gauge(PREFIX + "observers", "Number of learners in the configuration in force.", learners)
    version = member.machine.metadata_version
    yield _gauge(PREFIX + "metadata_version", "Metadata version in force (KIP-584).", version)
    yield _counter(PREFIX + "leader_changes", "Changes of the leader that this member observed.", driver.leader_changes)
    yield _counter(PREFIX + "batches", "Batches that this member decided as leader.", decider.batches)
    yield _counter(PREFIX + "decisions", "Requests that this member decided as leader.", decider.requests)
    yield decider.batch_requests.family(
        PREFIX + "batch_requests", "Requests that this member decided together as leader."
    )
    yield member.proposals.commit_duration.family(
        PREFIX + "commit_duration_seconds",
        "Seconds from the proposal of an entry until it was committed and applied, of the leader that proposed it.",
    )
    proposals = CounterMetricFamily(
        PREFIX + "proposals",
        "Entries that this member proposed as leader: committed, refused because it could not append them, or given up "
        "on with an unknown outcome because it leads no more.",
        labels=["outcome"],
    )
    made = member.proposals
    for outcome, count in (
        ("committed", made.commit_duration.count),
        ("refused", made.refused),
        ("unknown", made.unknown),
    ):
        proposals.add_metric([outcome], count)
    yield proposals
    yield _gauge(PREFIX + "proposals_pending", "Requests that wait for the next batch.", decider.waiting())


def _peers(member: ClusterMember) -> Iterator[Metric]:
    description = describe(member)
    lag = GaugeMetricFamily(
        PREFIX + "peer_match_lag", "Entries that a voter or learner is behind. Reported by the leader.", labels=["peer"]
    )
    contact = GaugeMetricFamily(
        PREFIX + "peer_last_contact_seconds",
        "Seconds since the last message of a voter or learner. Reported by the leader.",
        labels=["peer"],
    )
    for voter in [*description.voters, *description.learners]:
        if voter.id != member.node_id and voter.lag is not None and voter.last_contact_ms is not None:
            lag.add_metric([str(voter.id)], voter.lag)
            contact.add_metric([str(voter.id)], voter.last_contact_ms / 1000)
    yield lag
    yield contact
    if description.failure_tolerance is not None:
        yield _gauge(
            PREFIX + "failure_tolerance",
            "Voters that may fail before the quorum loses its majority. Reported by the leader.",
            description.failure_tolerance,
        )
    round_trips = HistogramMetricFamily(
        PREFIX + "peer_rtt_seconds",
        "Seconds from the first sending of a leader's entry to its acknowledgement: the way there and back, and the "
        "write and sync of the peer. One entry at a time is measured.",
        labels=["peer"],
    )
    for peer, histogram in member.driver.round_trips.durations.items():
        histogram.add_to(round_trips, str(peer))
    yield round_trips
    failures = CounterMetricFamily(
        PREFIX + "peer_failures",
        "Problems of a peer link: failed dials, refusals, malformed frames, dropped messages.",
        labels=["peer", "reason"],
    )
    for (peer, reason), count in member.links.failures.items():
        failures.add_metric([str(peer), reason], count)
    yield failures
    handshakes = CounterMetricFamily(
        PREFIX + "peer_handshakes_failed",
        "New connections at the peer port that came to no TLS, or that were refused for what they said.",
        labels=["reason"],
    )
    for reason, count in member.links.handshakes_failed.items():
        handshakes.add_metric([reason], count)
    yield handshakes
    terms = CounterMetricFamily(
        PREFIX + "terms_refused",
        "Messages of a peer whose term was implausibly far ahead, which were dropped.",
        labels=["peer"],
    )
    for peer, count in member.core.terms_refused.items():
        terms.add_metric([str(peer)], count)
    yield terms


def _storage(member: ClusterMember) -> Iterator[Metric]:
    wal = member.writer.wal
    yield _counter(PREFIX + "fsyncs", "fdatasync calls of the write-ahead log.", wal.fdatasyncs)
    yield _counter(PREFIX + "log_written_bytes", "Bytes written to the write-ahead log.", wal.bytes_written)
    yield member.writer.write_duration.family(
        PREFIX + "fsync_duration_seconds", "Seconds that a write of the log took, its fdatasync included."
    )
    yield _gauge(PREFIX + "log_writes_waiting", "Writes that wait for the disk.", member.writer.waiting())
    watch = member.disk_watch
    yield _gauge(PREFIX + "log_write_age_seconds", "How long the oldest write is under way.", watch.write_seconds)
    yield _gauge(PREFIX + "disk_slow", "1 while a write stalls, or has stalled lately.", float(member.core.disk.slow))
    yield _counter(PREFIX + "disk_stalls", "Times the disk began to stall.", watch.stalls)
    yield _counter(
        PREFIX + "disk_handovers", "Times this leader asked a voter to lead because its disk stalls.", watch.handovers
    )
    age = "How long the oldest read of a part of a snapshot for a peer is under way."
    yield _gauge(PREFIX + "chunk_read_age_seconds", age, member.chunk_reader.age)
    yield _counter(PREFIX + "snapshots_taken", "Snapshots that this member took.", member.keeper.taken)
    yield _counter(PREFIX + "snapshots_installed", "Snapshots received from a leader.", member.keeper.installed)
    end = "Producer ID after the last block that is archived; later ones are in the log."
    yield _gauge("pidkeeper_archive_end_id", end, member.ledger.archive_end)
    gap = "1 if blocks are missing from this member's history, because it was sent a snapshot in place of the log."
    yield _gauge("pidkeeper_archive_gap", gap, float(member.ledger.complete_from() > 0))
    yield _warnings(member)


def _warnings(member: ClusterMember) -> Metric:
    family = GaugeMetricFamily(
        "pidkeeper_warnings", "What an operator should mend although the quorum is healthy, by kind.", labels=["kind"]
    )
    waits = member.leadership.version_waits()
    for kind, texts in warnings_by_kind(member.settings, member.core, member.machine, waits).items():
        family.add_metric([kind.value], len(texts))
    return family


def _ids(member: ClusterMember) -> Iterator[Metric]:
    machine = member.machine
    next_id = machine.producer_ids.next_producer_id
    brokers = machine.brokers.all()
    yield _gauge("pidkeeper_ids_next_id", "Next producer ID to be allocated.", next_id)
    yield _gauge(
        "pidkeeper_ids_remaining_ratio",
        "Share of the producer ID space that is not allocated yet.",
        1 - next_id / MAX_PRODUCER_ID,
    )
    blocks = CounterMetricFamily(
        "pidkeeper_ids_blocks_allocated",
        "Blocks that this member gave to brokers as leader since its start, committed and applied; "
        '"other": brokers behind the first 256.',
        labels=["broker"],
    )
    for broker, count in member.leadership.blocks_allocated.items():
        blocks.add_metric([broker], count)
    yield blocks
    yield _gauge(
        "pidkeeper_evidence_open",
        "Brokers that hold IDs which this quorum has not handed out; while there are any, nothing is.",
        len(machine.foundings.open(next_id)),
    )
    yield _gauge("pidkeeper_founded", "0 while it waits for a founding.", float(member.gate.founding is not None))
    yield _gauge("pidkeeper_brokers_registered", "Registered brokers.", len(brokers))
    fenced = sum(broker.fenced for broker in brokers)
    yield _gauge("pidkeeper_brokers_fenced", "Registered brokers whose heartbeats stopped.", fenced)


def _transactions(member: ClusterMember) -> Iterator[Metric]:
    duties = member.leadership.transactions
    by_status = member.machine.transactions.by_status
    ids = GaugeMetricFamily("pidkeeper_transactional_ids", "Transactional ids by state.", labels=["state"])
    for status in TransactionStatus:
        if status is not TransactionStatus.DEAD:
            ids.add_metric([STATE_NAMES[status]], by_status[status])
    yield ids
    fenced = "Transactions aborted with their producer fenced, while this member led."
    yield _counter("pidkeeper_transactions_fenced", fenced, duties.fenced)
    timed_out = "Transactions aborted because they timed out, while this member led."
    yield _counter("pidkeeper_transactions_timed_out", timed_out, duties.timed_out)
    forgotten = "Transactional ids removed because they were idle, while this member led."
    yield _counter("pidkeeper_transactional_ids_forgotten", forgotten, duties.forgotten)


def _migration(member: ClusterMember) -> Iterator[Metric]:
    migration, prefix = member.leadership.migration, "pidkeeper_zookeeper_"
    phases = GaugeMetricFamily(
        "pidkeeper_migration_phase_info",
        "1 for the current phase of the migration from ZooKeeper, else 0.",
        labels=["phase"],
    )
    for phase in MigrationPhase:
        phases.add_metric([phase.name.lower()], float(phase is member.machine.migration.phase))
    yield phases
    if not isinstance(migration.znode, Connected):
        return
    connected = migration.znode.disconnected() is None
    yield _gauge(prefix + "connected", "1 while this member has a session with ZooKeeper.", float(connected))
    stopped = float(migration.trouble() is not None)
    yield _gauge(
        prefix + "stops_allocation", "1 while no block can be allocated because ZooKeeper cannot be used.", stopped
    )
    claims = migration.claims
    yield _counter(prefix + "claims", "Conditional writes that claimed blocks in the znode.", claims.claims)
    conflicts = "Conditional writes that failed because a broker had written the znode first."
    yield _counter(prefix + "claim_conflicts", conflicts, claims.conflicts)
    yield _counter(
        prefix + "claim_failures",
        "Conditional writes that ZooKeeper did not answer or did not permit.",
        claims.failures,
    )
    setbacks = "Times the znode was found behind the quorum: somebody has set it back."
    yield _counter(prefix + "setbacks", setbacks, claims.setbacks)
    yield _gauge(prefix + "claims_waiting", "Requests that wait for a conditional write of the znode.", len(claims))
    if claims.zookeeper_next is not None:
        yield _gauge(
            prefix + "next_id",
            "First ID after the range that this member claimed last in ZooKeeper.",
            claims.zookeeper_next,
        )
