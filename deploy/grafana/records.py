"""Are records taken and given, what do producers and consumers wait for, and how near are the bounds?"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import GREEN, ORANGE, RED, Query, Row, graph, quantiles, tile, timeline


def board() -> Dashboard:
    """The dashboard of partition logs, at agents and at the quorum."""
    return panels.board(
        "records",
        "pidkeeper: records",
        "Partition logs: the agents that take and give records, their store, and what the quorum keeps of them.",
        [NOW, TRAFFIC, STORE, GROUPS, QUORUM],
    )


LEADS = "and on (cluster, namespace, job, instance) pidkeeper_raft_is_leader{$where} == 1"
"""Of the member that leads: the others may be behind."""

NOW = Row(
    "Now",
    4,
    [
        tile(
            "Take records",
            "Agents whose store the quorum knows.",
            "sum(pidkeeper_agent_data_store_known{$where})",
            steps=[(0, RED), (1, GREEN)],
        ),
        tile(
            "Batches a second",
            "That clients sent and that are in order.",
            "sum(rate(pidkeeper_agent_data_batches_received_total{$where}[5m]))",
            unit="ops",
        ),
        tile(
            "Nearest bound",
            "Of what the quorum keeps of partition logs; at the bound batches are refused.",
            f"max(pidkeeper_logs_kept{{$where}} / pidkeeper_logs_kept_limit{{$where}} {LEADS})",
            unit="percentunit",
            steps=[(0.8, ORANGE), (0.95, RED)],
        ),
        tile(
            "Oldest open transaction",
            "It holds the last stable offset of a log. No timeout is longer than 15 minutes.",
            f"max(pidkeeper_logs_open_transaction_age_seconds{{$where}} {LEADS})",
            unit="s",
            steps=[(300, ORANGE), (900, RED)],
        ),
        tile(
            "Damaged ranges",
            "Read within an hour: records that were acknowledged and are missing, or not what the quorum says.",
            "sum(increase(pidkeeper_agent_data_damaged_reads_total{$where}[1h]))",
            steps=[(1, RED)],
        ),
        tile(
            "Garbage",
            "Objects that no log needs and that are not deleted yet.",
            f"max(pidkeeper_logs_garbage_objects{{$where}} {LEADS})",
        ),
    ],
)

TRAFFIC = Row(
    "Produce and Fetch",
    12,
    [
        graph(
            "Bytes",
            "Of record batches, a second: taken from producers and given to consumers.",
            Query("rate(pidkeeper_agent_data_received_bytes_total{$where}[$__rate_interval])", "{{instance}}: taken"),
            Query("rate(pidkeeper_agent_data_sent_bytes_total{$where}[$__rate_interval])", "{{instance}}: given"),
            unit="Bps",
        ),
        graph(
            "Batches received",
            "A second. Each is a row at the quorum.",
            Query("rate(pidkeeper_agent_data_batches_received_total{$where}[$__rate_interval])", "{{instance}}"),
            unit="ops",
        ),
        graph(
            "Batches refused, by code",
            "A second. NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR and REQUEST_TIMED_OUT are what the cluster owes.",
            Query(
                "sum by (code) (rate(pidkeeper_agent_data_batches_refused_total{$where}[$__rate_interval]))",
                "{{code}}",
            ),
            unit="ops",
        ),
        graph(
            "Requests",
            "A second.",
            Query(
                "rate(pidkeeper_agent_data_produce_requests_total{$where}[$__rate_interval])", "{{instance}}: Produce"
            ),
            Query("rate(pidkeeper_agent_data_fetch_requests_total{$where}[$__rate_interval])", "{{instance}}: Fetch"),
            unit="ops",
        ),
        graph(
            "Memory",
            "Bytes of batches that wait for their commit, of answers to Fetch, and of the newest objects.",
            Query("pidkeeper_agent_data_pending_bytes{$where}", "{{instance}}: pending"),
            Query("pidkeeper_agent_data_fetching_bytes{$where}", "{{instance}}: fetching"),
            Query("pidkeeper_agent_data_recent_bytes{$where}", "{{instance}}: recent"),
            unit="bytes",
        ),
        graph(
            "Requests that wait for memory",
            "Their clients are slowed down.",
            Query("pidkeeper_agent_data_produce_waiting{$where}", "{{instance}}: Produce"),
            Query("pidkeeper_agent_data_fetch_waiting{$where}", "{{instance}}: Fetch"),
        ),
    ],
)

STORE = Row(
    "Store",
    12,
    [
        graph(
            "Duration of puts",
            "Until an object was stored, with all tries.",
            *quantiles("pidkeeper_agent_data_put_duration_seconds", "instance", "{{instance}}"),
            unit="s",
            steps=[(1.0, RED)],
        ),
        graph(
            "Duration of commits",
            "Until the quorum answered to an object, with all tries.",
            *quantiles("pidkeeper_agent_data_commit_duration_seconds", "instance", "{{instance}}"),
            unit="s",
        ),
        graph(
            "Calls that failed",
            "A second, by operation. They are tried again.",
            Query(
                "sum by (instance, operation) "
                "(rate(pidkeeper_agent_data_store_errors_total{$where}[$__rate_interval]))",
                "{{instance}}: {{operation}}",
            ),
            unit="ops",
        ),
        graph(
            "Age of the oldest put",
            "How long it is under way. A store that does not answer shows here alone.",
            Query("pidkeeper_agent_data_put_age_seconds{$where}", "{{instance}}"),
            unit="s",
            steps=[(10.0, RED)],
        ),
        graph(
            "Reads",
            "A second: batches from memory, and ranges read from the store.",
            Query("rate(pidkeeper_agent_data_memory_reads_total{$where}[$__rate_interval])", "{{instance}}: memory"),
            Query("rate(pidkeeper_agent_data_store_reads_total{$where}[$__rate_interval])", "{{instance}}: store"),
            unit="ops",
        ),
        timeline(
            "Takes records",
            "Whether the quorum knows the agent's store.",
            Query("max by (cluster, instance) (pidkeeper_agent_data_store_known{$where})", "{{instance}}"),
            {0: ("no", RED), 1: ("yes", GREEN)},
        ),
    ],
)

GROUPS = Row(
    "Consumer groups",
    12,
    [
        graph(
            "Groups, by state",
            "Of all agents that coordinate some. While a group prepares a rebalance nobody in it consumes.",
            Query("sum by (state) (pidkeeper_agent_groups_held{$where})", "{{state}}"),
            Query("sum(pidkeeper_agent_groups_members{$where})", "members"),
        ),
        graph(
            "Longest without rest",
            "Of the group that has not been stable for a minute at a time for the longest.",
            Query("pidkeeper_agent_groups_restless_seconds{$where}", "{{instance}}"),
            unit="s",
            steps=[(900.0, ORANGE)],
        ),
        graph(
            "Rebalances",
            "A second: that came to their end, and that were lost because another agent had gone on.",
            Query("rate(pidkeeper_agent_groups_rebalances_total{$where}[$__rate_interval])", "{{instance}}: taken"),
            Query("rate(pidkeeper_agent_groups_lost_total{$where}[$__rate_interval])", "{{instance}}: lost"),
            unit="ops",
        ),
        graph(
            "Offsets",
            "A second: committed, and by code not committed. Codes of members that lost their partitions are no fault.",
            Query("sum(rate(pidkeeper_agent_groups_offsets_committed_total{$where}[$__rate_interval]))", "committed"),
            Query(
                "sum by (code) (rate(pidkeeper_agent_groups_offsets_refused_total{$where}[$__rate_interval]))",
                "{{code}}",
            ),
            unit="ops",
        ),
        graph(
            "Requests to commit",
            "A second, those within transactions too.",
            Query("rate(pidkeeper_agent_groups_commit_requests_total{$where}[$__rate_interval])", "{{instance}}"),
            unit="ops",
        ),
    ],
)

QUORUM = Row(
    "Quorum",
    12,
    [
        graph(
            "Kept, against the bound",
            "Share of each bound that is used.",
            Query(
                f"max by (cluster, kind) (pidkeeper_logs_kept{{$where}} / pidkeeper_logs_kept_limit{{$where}} {LEADS})",
                "{{kind}}",
            ),
            Query(
                "max by (cluster, kind) "
                f"(pidkeeper_groups_kept{{$where}} / pidkeeper_groups_kept_limit{{$where}} {LEADS})",
                "of groups: {{kind}}",
            ),
            unit="percentunit",
            steps=[(0.8, ORANGE), (0.95, RED)],
        ),
        graph(
            "Last stable lag",
            "Offsets that read_committed does not see yet, of the log with the most.",
            Query(f"max by (cluster) (pidkeeper_logs_last_stable_lag{{$where}} {LEADS})", "offsets"),
        ),
        graph(
            "Oldest open transaction",
            "Seconds since it began. No timeout is longer than 15 minutes.",
            Query(f"max by (cluster) (pidkeeper_logs_open_transaction_age_seconds{{$where}} {LEADS})", "age"),
            unit="s",
            steps=[(900.0, RED)],
        ),
        graph(
            "Garbage",
            "Objects that no log needs, at the quorum, and those that agents have still to delete.",
            Query(f"max by (cluster) (pidkeeper_logs_garbage_objects{{$where}} {LEADS})", "at the quorum"),
            Query("pidkeeper_agent_data_objects_to_delete{$where}", "{{instance}}: to delete"),
        ),
        graph(
            "Age of the oldest garbage",
            "As the leader saw it.",
            Query("max by (cluster) (pidkeeper_logs_garbage_age_seconds{$where})", "age"),
            unit="s",
            steps=[(3600.0, ORANGE)],
        ),
        graph(
            "Objects that came to nothing",
            "A second: given up, and left in the store as garbage.",
            Query(
                "rate(pidkeeper_agent_data_objects_given_up_total{$where}[$__rate_interval])", "{{instance}}: given up"
            ),
            Query("rate(pidkeeper_agent_data_objects_left_total{$where}[$__rate_interval])", "{{instance}}: left"),
            unit="ops",
        ),
    ],
)
