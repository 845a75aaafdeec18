"""Do clients get IDs, for how long would the reserves last, and what keeps agents from filling them?"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana import panels
from deploy.grafana.panels import GREEN, ORANGE, RED, Query, Row, graph, quantiles, tile, timeline


def board() -> Dashboard:
    """The dashboard of the broker agents."""
    return panels.board(
        "agents",
        "pidkeeper: agents",
        "The agents that answer InitProducerId from their reserves.",
        [NOW, RESERVES, BLOCKS, CLIENTS],
    )


NOW = Row(
    "Now",
    4,
    [
        tile(
            "Starving",
            "Agents whose claims failed within the last 5 minutes.",
            "count(increase(pidkeeper_agent_starved_seconds_total{$where}[5m]) > 0) or vector(0)",
            steps=[(1, RED)],
        ),
        tile(
            "Ready",
            "Agents whose claims will succeed.",
            "sum(pidkeeper_agent_ready{$where})",
            steps=[(0, RED), (1, GREEN)],
        ),
        tile(
            "Emptiest reserve",
            "Share of what it should hold, of the agent that has least.",
            "min(pidkeeper_agent_reserve_ids{$where} / pidkeeper_agent_reserve_target_ids{$where})",
            unit="percentunit",
            steps=[(0, RED), (0.25, ORANGE), (0.5, GREEN)],
        ),
        tile(
            "Fenced",
            "Agents that the controllers fence, because their heartbeats do not come.",
            "sum(pidkeeper_agent_fenced{$where})",
            steps=[(1, RED)],
        ),
        tile(
            "Claims a second",
            "Producer IDs that clients got.",
            "sum(rate(pidkeeper_agent_claims_total{$where}[5m]))",
            unit="ops",
        ),
        tile(
            "Blocks thrown away",
            "Within an hour. A few after a registration are no harm; many mean that IDs went back.",
            "sum(increase(pidkeeper_agent_blocks_rejected_total{$where}[1h]))",
            steps=[(1, ORANGE), (10, RED)],
        ),
    ],
)

RESERVES = Row(
    "Reserves",
    12,
    [
        graph(
            "IDs in the reserve",
            "What an agent hands out without asking anybody.",
            Query("pidkeeper_agent_reserve_ids{$where}", "{{instance}}"),
            Query("pidkeeper_agent_reserve_target_ids{$where}", "{{instance}}: target"),
        ),
        graph(
            "Seconds that the reserve lasts",
            "At the measured rate of claims, of the agents that have clients.",
            Query("pidkeeper_agent_reserve_ids{$where} / (pidkeeper_agent_claim_rate{$where} > 0)", "{{instance}}"),
            unit="s",
        ),
        graph(
            "Starved",
            "Share of the time in which claims failed.",
            Query("rate(pidkeeper_agent_starved_seconds_total{$where}[$__rate_interval])", "{{instance}}"),
            unit="percentunit",
        ),
        timeline(
            "Readiness",
            "Whether claims will succeed.",
            Query("max by (cluster, instance) (pidkeeper_agent_ready{$where})", "{{instance}}"),
            {0: ("not ready", RED), 1: ("ready", GREEN)},
        ),
    ],
)

BLOCKS = Row(
    "Blocks",
    12,
    [
        graph(
            "Rounds of requests, by outcome",
            "Each round asks for up to 8 blocks at once.",
            Query(
                "sum by (instance, outcome) (rate(pidkeeper_agent_prefetch_rounds_total{$where}[$__rate_interval]))",
                "{{instance}}: {{outcome}}",
            ),
            unit="ops",
        ),
        graph(
            "Duration of rounds",
            "An agent gives an attempt up after 300 ms.",
            *quantiles("pidkeeper_agent_prefetch_duration_seconds", "instance", "{{instance}}"),
            unit="s",
        ),
        graph(
            "Blocks received",
            "A second.",
            Query("rate(pidkeeper_agent_blocks_received_total{$where}[$__rate_interval])", "{{instance}}"),
            unit="ops",
        ),
        graph(
            "Since the last success",
            "Since a round last brought a block. With a full reserve and no clients it may be long ago.",
            Query("time() - (pidkeeper_agent_last_success_timestamp_seconds{$where} > 0)", "{{instance}}"),
            unit="s",
        ),
        graph(
            "Registrations",
            "Within an hour. More than one of an agent means that it lost its session.",
            Query("increase(pidkeeper_agent_registrations_total{$where}[1h])", "{{instance}}"),
        ),
        graph(
            "Candidates lost",
            "IDs for transactional producers that became gaps, because the outcome of their request is unknown.",
            Query("rate(pidkeeper_agent_candidates_lost_total{$where}[$__rate_interval])", "{{instance}}"),
            unit="ops",
        ),
    ],
)

CLIENTS = Row(
    "Clients",
    12,
    [
        graph(
            "Claims",
            "Producer IDs a second, and claims that failed for want of one.",
            Query("rate(pidkeeper_agent_claims_total{$where}[$__rate_interval])", "{{instance}}"),
            Query("rate(pidkeeper_agent_claim_errors_total{$where}[$__rate_interval])", "{{instance}}: failed"),
            unit="ops",
        ),
        graph(
            "Transactional requests, by outcome",
            "A second.",
            Query(
                "sum by (kind, outcome) (rate(pidkeeper_agent_transactional_requests_total{$where}[$__rate_interval]))",
                "{{kind}}: {{outcome}}",
            ),
            unit="ops",
        ),
        graph(
            "Duration of transactional requests",
            "These alone wait for the quorum.",
            *quantiles("pidkeeper_agent_transactional_duration_seconds", "kind", "{{kind}}"),
            unit="s",
        ),
        graph(
            "Kafka connections",
            "Open ones. The limit is 4,096.",
            Query("pidkeeper_agent_connections{$where}", "{{instance}}"),
        ),
        graph(
            "Connections that were ended",
            "A second: refused, evicted for others, cut, malformed, or without TLS.",
            Query("rate(pidkeeper_agent_connections_refused_total{$where}[$__rate_interval])", "{{instance}}: refused"),
            Query("rate(pidkeeper_agent_connections_evicted_total{$where}[$__rate_interval])", "{{instance}}: evicted"),
            Query(
                "sum by (instance, reason) (rate(pidkeeper_agent_connections_cut_total{$where}[$__rate_interval]))",
                "{{instance}}: cut, {{reason}}",
            ),
            Query("rate(pidkeeper_agent_malformed_frames_total{$where}[$__rate_interval])", "{{instance}}: malformed"),
            Query(
                "sum by (instance, reason) (rate(pidkeeper_agent_handshakes_failed_total{$where}[$__rate_interval]))",
                "{{instance}}: TLS, {{reason}}",
            ),
            unit="ops",
        ),
    ],
)
