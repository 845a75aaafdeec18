"""How far the migration from ZooKeeper is, and whether ZooKeeper holds it up."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import GREEN, GREY, ORANGE, RED, Query, Row, graph, tile, timeline


def board() -> Dashboard:
    """The dashboard of the migration."""
    return panels.board(
        "migration",
        "pidkeeper: migration",
        "From ZooKeeper to the quorum. All but the phase is empty on members without [zookeeper].",
        [NOW, PHASES, CLAIMS],
    )


NOW = Row(
    "Now",
    6,
    [
        tile(
            "Allocation stopped",
            "1 while the leader can hand out nothing because ZooKeeper cannot be used.",
            "max(pidkeeper_zookeeper_stops_allocation{$where} and pidkeeper_raft_is_leader{$where} == 1)",
            steps=[(1, RED)],
        ),
        tile(
            "Members without ZooKeeper",
            "Members that are configured for ZooKeeper and have no session with it.",
            "count(pidkeeper_zookeeper_connected{$where}) - sum(pidkeeper_zookeeper_connected{$where})",
            steps=[(1, ORANGE)],
        ),
        tile(
            "Set back",
            "Times within a day that the znode was found behind the quorum.",
            "sum(increase(pidkeeper_zookeeper_setbacks_total{$where}[1d]))",
            steps=[(1, RED)],
        ),
        tile(
            "Claims that wait",
            "Requests that wait for a conditional write of the znode.",
            "sum(pidkeeper_zookeeper_claims_waiting{$where})",
            steps=[(100, ORANGE)],
        ),
    ],
)

PHASES = Row(
    "Phases",
    12,
    [
        timeline(
            "Phase",
            "Bridge and dual write may last for weeks; import, finalizing and rolling back are over within seconds.",
            Query("max by (phase) (pidkeeper_migration_phase_info{$where})", "{{phase}}"),
            {0: ("no", GREY), 1: ("now", GREEN)},
        ),
        timeline(
            "Sessions with ZooKeeper",
            "A member without one cannot lead the migration.",
            Query("max by (cluster, instance) (pidkeeper_zookeeper_connected{$where})", "{{instance}}"),
            {0: ("disconnected", RED), 1: ("connected", GREEN)},
        ),
    ],
)

CLAIMS = Row(
    "Claims",
    12,
    [
        graph(
            "Conditional writes",
            "A second. Conflicts with brokers are ordinary; failures mean that ZooKeeper did not answer or refused.",
            Query("sum(rate(pidkeeper_zookeeper_claims_total{$where}[$__rate_interval]))", "claims"),
            Query("sum(rate(pidkeeper_zookeeper_claim_conflicts_total{$where}[$__rate_interval]))", "conflicts"),
            Query("sum(rate(pidkeeper_zookeeper_claim_failures_total{$where}[$__rate_interval]))", "failures"),
            unit="ops",
        ),
        graph(
            "Next ID in ZooKeeper and in the quorum",
            "ZooKeeper is ahead by what is claimed and not handed out yet. It must never be behind.",
            Query("max(pidkeeper_zookeeper_next_id{$where})", "ZooKeeper"),
            Query('max(cluster:pidkeeper_ids_next_id:leader{cluster=~"$cluster"})', "quorum"),
        ),
    ],
)
