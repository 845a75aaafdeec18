"""How many IDs are handed out, to whom, how fast, with which errors, and for how long they last."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import GREEN, ORANGE, RED, Query, Row, graph, quantiles, tile

FAILED = 'sum(cluster:pidkeeper_allocation_failures:rate5m{cluster=~"$cluster"})'
GRANTED = 'sum(cluster:pidkeeper_allocation_successes:rate5m{cluster=~"$cluster"})'


def board() -> Dashboard:
    """The dashboard of allocation."""
    return panels.board(
        "allocation",
        "pidkeeper: allocation",
        "Blocks of producer IDs: rate, errors, duration, quotas and what is left.",
        [NOW, REQUESTS, BROKERS, SPACE, TRANSACTIONS],
    )


NOW = Row(
    "Now",
    4,
    [
        tile(
            "Blocks a second",
            "Blocks that the leader committed, of the last 5 minutes.",
            'sum(broker:pidkeeper_ids_blocks_allocated:rate5m{cluster=~"$cluster"})',
            unit="ops",
            decimals=1,
        ),
        tile(
            "Failures",
            "Share of the allocations of the last 5 minutes that the quorum failed. 0 while nobody asks.",
            f"{FAILED} / clamp_min({FAILED} + {GRANTED}, 1e-9)",
            unit="percentunit",
            steps=[(0.001, ORANGE), (0.0144, RED)],
        ),
        tile(
            "Duration (p99)",
            "One in a hundred allocations takes so long or longer. An agent gives one up after 300 ms.",
            'max(cluster:pidkeeper_allocation_duration_seconds:p99_5m{cluster=~"$cluster"})',
            unit="s",
            steps=[(0.1, ORANGE), (0.25, RED)],
        ),
        tile(
            "Throttled a second",
            "Requests that a quota refused.",
            "sum(rate(pidkeeper_throttled_total{$where}[5m]))",
            unit="ops",
            steps=[(10, ORANGE)],
        ),
        tile(
            "Held back by evidence",
            "Brokers that hold IDs which this quorum has not handed out. Above 0, nothing is handed out.",
            "max(pidkeeper_evidence_open{$where})",
            steps=[(1, RED)],
        ),
        tile(
            "Days left",
            "Until the last ID, at the rate of the last six hours. Infinite while nothing is handed out.",
            'min(cluster:pidkeeper_ids_days_left:rate6h{cluster=~"$cluster"})',
            unit="d",
            steps=[(0, RED), (365, GREEN)],
        ),
    ],
)

REQUESTS = Row(
    "Requests",
    12,
    [
        graph(
            "Allocations, by outcome",
            "NOT_CONTROLLER sends an agent to the leader; THROTTLING_QUOTA_EXCEEDED makes it wait.",
            Query(
                'sum by (outcome) (rate(pidkeeper_api_requests_total{route="allocate_producer_ids",$where}'
                "[$__rate_interval]))",
                "{{outcome}}",
            ),
            unit="reqps",
        ),
        graph(
            "Duration of allocations",
            "From the admission of an allocation to its answer.",
            *quantiles("pidkeeper_allocation_duration_seconds", "cluster", "{{cluster}}"),
            unit="s",
            steps=[(0.25, RED)],
        ),
        graph(
            "All requests, by route",
            "Requests that were answered, whatever came of them.",
            Query("sum by (route) (rate(pidkeeper_api_requests_total{$where}[$__rate_interval])) > 0", "{{route}}"),
            unit="reqps",
        ),
        graph(
            "Duration of requests, by route",
            "From a request to its answer, refusals included.",
            Query(
                "histogram_quantile(0.99, sum by (le, route) "
                "(rate(pidkeeper_api_request_duration_seconds_bucket{$where}[$__rate_interval])))",
                "p99 {{route}}",
            ),
            unit="s",
        ),
        graph(
            "Requests that wait",
            "For the next batch, and for their entry to be committed and applied. The limit is 4,096.",
            Query("sum(pidkeeper_raft_proposals_pending{$where})", "next batch"),
            Query("sum(pidkeeper_api_pending_requests{$where})", "commit"),
        ),
        graph(
            "Requests of a batch",
            "All requests of a batch share one entry and one sync.",
            *quantiles("pidkeeper_raft_batch_requests", "cluster", "{{cluster}}"),
        ),
        graph(
            "Refused, by quota",
            "Refusals a second. `pending` means that too many requests wait.",
            Query("sum by (quota) (rate(pidkeeper_throttled_total{$where}[$__rate_interval]))", "{{quota}}"),
            unit="reqps",
        ),
    ],
)

BROKERS = Row(
    "Brokers",
    12,
    [
        graph(
            "Blocks a minute, by broker",
            "The ten that take most. At 250 a minute an alert fires: some client asks again and again.",
            Query(
                'topk(10, 60 * broker:pidkeeper_ids_blocks_allocated:rate5m{cluster=~"$cluster"})', "broker {{broker}}"
            ),
            steps=[(250, ORANGE)],
        ),
        graph(
            "Throttled a second, by broker",
            "The ten that are refused most. An agent waits as long as it is told.",
            Query(
                "topk(10, sum by (broker) (rate(pidkeeper_ids_allocation_throttled_total{$where}[5m])))",
                "broker {{broker}}",
            ),
            unit="reqps",
            steps=[(10, ORANGE)],
        ),
        graph(
            "Registered and fenced",
            "Brokers that are registered, and those of them whose heartbeats stopped.",
            Query("max(pidkeeper_brokers_registered{$where})", "registered"),
            Query("max(pidkeeper_brokers_fenced{$where})", "fenced"),
        ),
    ],
)

SPACE = Row(
    "ID space",
    12,
    [
        graph(
            "Next ID",
            "As the leader has it. It never falls.",
            Query('cluster:pidkeeper_ids_next_id:leader{cluster=~"$cluster"}', "{{cluster}}"),
        ),
        graph(
            "IDs a second",
            "Over six hours. A floor that was raised counts as well.",
            Query('cluster:pidkeeper_ids_allocated:rate6h{cluster=~"$cluster"}', "{{cluster}}"),
        ),
        graph(
            "Left",
            "Share of all producer IDs that is not handed out yet.",
            Query("min by (cluster) (pidkeeper_ids_remaining_ratio{$where})", "{{cluster}}"),
            unit="percentunit",
        ),
        graph(
            "Archived",
            "Blocks below are in archives; later ones are in the log.",
            Query("pidkeeper_archive_end_id{$where}", "{{instance}}"),
        ),
    ],
    open=False,
)

TRANSACTIONS = Row(
    "Transactions",
    12,
    [
        graph(
            "Transactional ids, by state",
            "PrepareCommit and PrepareAbort stay near 0. The limit of all together is 200,000.",
            Query("max by (state) (pidkeeper_transactional_ids{$where})", "{{state}}"),
        ),
        graph(
            "Ended by the quorum",
            "A second: aborted with their producer fenced, timed out, and ids that were idle and forgotten.",
            Query("sum(rate(pidkeeper_transactions_fenced_total{$where}[$__rate_interval]))", "fenced"),
            Query("sum(rate(pidkeeper_transactions_timed_out_total{$where}[$__rate_interval]))", "timed out"),
            Query("sum(rate(pidkeeper_transactional_ids_forgotten_total{$where}[$__rate_interval]))", "forgotten"),
        ),
    ],
    open=False,
)
