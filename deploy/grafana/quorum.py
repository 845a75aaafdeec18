"""Is there a leader, how many failures are tolerated, and what is slow: links, disks or processes?"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import GREEN, GREY, ORANGE, RED, Query, Row, graph, quantiles, tile, timeline

CLUSTER = "{{cluster}} {{namespace}}"


def board() -> Dashboard:
    """The dashboard of the quorum."""
    return panels.board(
        "quorum",
        "pidkeeper: quorum",
        "The members that commit every block before it is handed out.",
        [NOW, LEADERS, REPLICATION, DISK, SPACE, PROCESSES],
    )


NOW = Row(
    "Now",
    4,
    [
        tile(
            "Leaders",
            "Members that lead and serve. Anything but 1 for more than a moment is an incident.",
            "sum by (cluster, namespace) (pidkeeper_raft_is_leader{$where})",
            steps=[(0, RED), (1, GREEN), (2, RED)],
            legend=CLUSTER,
        ),
        tile(
            "Failure tolerance",
            "Voters that may still fail before no block can be committed. At 0 act soon.",
            "min by (cluster, namespace) (pidkeeper_raft_failure_tolerance{$where})",
            steps=[(0, RED), (1, GREEN)],
            legend=CLUSTER,
        ),
        tile(
            "Members that answer",
            "Members that Prometheus can scrape.",
            "count by (cluster, namespace) (pidkeeper_raft_voters{$where})",
            legend=CLUSTER,
        ),
        tile(
            "Furthest behind",
            "Entries that the slowest member lacks, as the leader sees it.",
            "max(pidkeeper_raft_peer_match_lag{$where})",
            steps=[(1000, ORANGE), (10_000, RED)],
        ),
        tile(
            "Slowest fsync (p99)",
            "One in a hundred writes of the log takes so long or longer on the slowest member.",
            'max(instance:pidkeeper_raft_fsync_duration_seconds:p99_5m{cluster=~"$cluster",instance=~"$instance"})',
            unit="s",
            steps=[(0.03, ORANGE), (0.3, RED)],
        ),
        tile(
            "Warnings",
            "What `pidkeeper health` says is to be mended although the quorum is healthy.",
            "sum(pidkeeper_warnings{$where})",
            steps=[(1, ORANGE)],
        ),
    ],
)

LEADERS = Row(
    "Leaders",
    12,
    [
        timeline(
            "Who leads",
            "The member that leads and serves. Two at the same time are an incident, unless they are of two terms.",
            Query("max by (cluster, instance) (pidkeeper_raft_is_leader{$where})", "{{instance}}"),
            {0: ("follows", GREY), 1: ("leads", GREEN)},
        ),
        timeline(
            "Readiness",
            "Whether all checks of /readyz pass.",
            Query('min by (cluster, instance) (pidkeeper_healthcheck{type="readyz",$where})', "{{instance}}"),
            {0: ("not ready", RED), 1: ("ready", GREEN)},
        ),
        graph(
            "Leaders lost, by cause",
            "Times within 5 minutes that a member lost its leader or its leadership.",
            Query("sum by (cause) (increase(pidkeeper_raft_leader_losses_total{$where}[5m]))", "{{cause}}"),
        ),
        graph(
            "Elections, by cause and outcome",
            "Elections within 5 minutes. Many that are lost mean split votes or members that cannot reach each other.",
            Query(
                "sum by (cause, outcome) (increase(pidkeeper_raft_elections_total{$where}[5m]))",
                "{{cause}}: {{outcome}}",
            ),
        ),
        graph(
            "Duration of elections",
            "From the first pre-vote to the victory. The election timeout comes before it: 300 to 600 ms.",
            *quantiles("pidkeeper_raft_election_duration_seconds", "cluster", "{{cluster}}"),
            unit="s",
        ),
        graph(
            "Term",
            "Rises with each election. Members of one term agree.",
            Query("max by (cluster, instance) (pidkeeper_raft_term{$where})", "{{instance}}"),
        ),
    ],
)

REPLICATION = Row(
    "Replication",
    12,
    [
        graph(
            "Behind the leader",
            "Entries that a member lacks. Above 10,000 it needs a snapshot.",
            Query("max by (cluster, peer) (pidkeeper_raft_peer_match_lag{$where})", "member {{peer}}"),
            steps=[(1000, ORANGE)],
        ),
        graph(
            "Last contact",
            "Since the last message of a member. Heartbeats go out every 50 ms.",
            Query("max by (cluster, peer) (pidkeeper_raft_peer_last_contact_seconds{$where})", "member {{peer}}"),
            unit="s",
            steps=[(10, ORANGE)],
        ),
        graph(
            "Round trips",
            "From the first sending of an entry to its acknowledgement, the write and sync of the peer included.",
            *quantiles("pidkeeper_raft_peer_rtt_seconds", "peer", "member {{peer}}"),
            unit="s",
        ),
        graph(
            "Commits",
            "From the proposal of an entry until it is committed and applied.",
            *quantiles("pidkeeper_raft_commit_duration_seconds", "cluster", "{{cluster}}"),
            unit="s",
            steps=[(0.1, ORANGE)],
        ),
        graph(
            "Problems of links",
            "Failed dials, refusals, malformed frames and dropped messages, a second.",
            Query(
                "sum by (instance, peer, reason) (rate(pidkeeper_raft_peer_failures_total{$where}[$__rate_interval]))",
                "{{instance}} to {{peer}}: {{reason}}",
            ),
        ),
        graph(
            "Proposals, by outcome",
            "Entries a second that leaders proposed. Of the unknown ones nobody can tell whether they are committed.",
            Query("sum by (outcome) (rate(pidkeeper_raft_proposals_total{$where}[$__rate_interval]))", "{{outcome}}"),
            unit="ops",
        ),
        graph(
            "Entries a second",
            "Entries of the log that are committed; each holds all requests of one batch.",
            Query("max by (cluster) (rate(pidkeeper_raft_commit_index{$where}[$__rate_interval]))", "{{cluster}}"),
            unit="ops",
        ),
    ],
)

DISK = Row(
    "Disk",
    12,
    [
        graph(
            "Writes of the log",
            "Write and fdatasync of one batch. A sound disk takes single milliseconds.",
            *quantiles("pidkeeper_raft_fsync_duration_seconds", "instance", "{{instance}}"),
            unit="s",
            steps=[(0.03, ORANGE), (0.3, RED)],
        ),
        graph(
            "Oldest write under way",
            "A write that hangs shows here, while it is in no histogram yet.",
            Query("pidkeeper_raft_log_write_age_seconds{$where}", "{{instance}}"),
            Query("pidkeeper_raft_chunk_read_age_seconds{$where}", "{{instance}}: snapshot read"),
            unit="s",
            steps=[(1, RED)],
        ),
        graph(
            "Stalls and handovers",
            "Times within 5 minutes that a disk began to stall, and that its leader handed over because of it.",
            Query("sum by (instance) (increase(pidkeeper_raft_disk_stalls_total{$where}[5m]))", "{{instance}}: stalls"),
            Query(
                "sum by (instance) (increase(pidkeeper_raft_disk_handovers_total{$where}[5m]))",
                "{{instance}}: handovers",
            ),
        ),
        graph(
            "Writes that wait",
            "Batches that wait for the disk.",
            Query("pidkeeper_raft_log_writes_waiting{$where}", "{{instance}}"),
        ),
    ],
)

SPACE = Row(
    "Space",
    12,
    [
        graph(
            "Free",
            "Free bytes where the data directory is. At 256 MiB an alert fires.",
            Query("pidkeeper_disk_free_bytes{$where}", "{{instance}}"),
            unit="bytes",
        ),
        graph(
            "Used",
            "Bytes of the log, the newest snapshot and the archives.",
            Query("pidkeeper_raft_log_bytes{$where}", "{{instance}}: log"),
            Query("pidkeeper_snapshot_bytes{$where}", "{{instance}}: snapshot"),
            Query("pidkeeper_archive_bytes{$where}", "{{instance}}: archives"),
            unit="bytes",
        ),
        graph(
            "Entries since the newest snapshot",
            "One is due every 10,000 entries, or sooner by bytes and blocks.",
            Query("pidkeeper_raft_applied_index{$where} - pidkeeper_raft_snapshot_index{$where}", "{{instance}}"),
            steps=[(50_000, ORANGE)],
        ),
        graph(
            "Age of the newest snapshot",
            "A quorum at rest takes none.",
            Query("time() - (pidkeeper_snapshot_timestamp_seconds{$where} > 0)", "{{instance}}"),
            unit="s",
        ),
        graph(
            "Gaps in the history",
            "1 on a member that was sent a snapshot in place of the log; others answer for what it lacks.",
            Query("pidkeeper_archive_gap{$where}", "{{instance}}"),
        ),
        graph(
            "Snapshots",
            "Snapshots within an hour: taken, and received from a leader.",
            Query("increase(pidkeeper_raft_snapshots_taken_total{$where}[1h])", "{{instance}}: taken"),
            Query("increase(pidkeeper_raft_snapshots_installed_total{$where}[1h])", "{{instance}}: received"),
        ),
    ],
    open=False,
)

PROCESSES = Row(
    "Processes",
    12,
    [
        graph(
            "Lag of the event loop",
            "Longest delay of a timer within the last minute. Two heartbeats are 100 ms.",
            Query("pidkeeper_event_loop_lag_seconds{$where}", "{{instance}}"),
            unit="s",
            steps=[(0.1, ORANGE)],
        ),
        graph(
            "CPU",
            "Cores in use.",
            Query("rate(process_cpu_seconds_total{$where}[$__rate_interval])", "{{instance}}"),
        ),
        graph(
            "Memory",
            "Resident bytes.",
            Query("process_resident_memory_bytes{$where}", "{{instance}}"),
            unit="bytes",
        ),
        graph(
            "Open files",
            "Of those that the limit allows.",
            Query("process_open_fds{$where} / process_max_fds{$where}", "{{instance}}"),
            unit="percentunit",
        ),
        graph(
            "HTTP connections",
            "Open ones; those refused or cut, a second.",
            Query("pidkeeper_http_connections{$where}", "{{instance}}"),
            Query("rate(pidkeeper_http_connections_refused_total{$where}[$__rate_interval])", "{{instance}}: refused"),
            Query(
                "sum by (instance, reason) (rate(pidkeeper_http_connections_cut_total{$where}[$__rate_interval]))",
                "{{instance}}: cut, {{reason}}",
            ),
        ),
        graph(
            "Kafka's protocol",
            "Connections of brokers that are open; requests a second, by their API and outcome. Nothing without it.",
            Query("pidkeeper_kafka_connections{$where}", "{{instance}}"),
            Query(
                "sum by (api, outcome) (rate(pidkeeper_kafka_requests_total{$where}[$__rate_interval]))",
                "{{api}}: {{outcome}}",
            ),
        ),
        graph(
            "Days left of certificates",
            "Until the certificate of a process ends; nothing without TLS.",
            Query("(pidkeeper_certificate_expiry_timestamp_seconds{$where} - time()) / 86400", "{{instance}}"),
            unit="d",
        ),
    ],
    open=False,
)
