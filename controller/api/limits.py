"""What the interface of a controller lets through."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pidkeeper.service.throttle import Rate


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the interface lets through.

    `broker_allocations`: blocks for one broker; 500 blocks a second are 500,000 IDs a second, about as many as one
    agent serves over the Kafka wire. `cluster_allocations`: ten such agents at once. `broker_sessions`: registrations
    and heartbeats of one broker; one heartbeat in 2 s is the rule, so 5 a second leaves room for a restart loop to be
    noticed. `cluster_sessions`: 4,000 brokers with a heartbeat each 2 s, which all register anew after a failover.
    `broker_transactional_inits`: producers that begin or come back; 10,000 of one broker are through in 20 s.
    `broker_transactions`: partitions that join and ends, with tokens of their own, so that a crowd of new producers
    delays nobody's commit; a transaction takes two or three. `cluster_...` of these: some such brokers at once.
    `broker_commits`: objects of one broker; with a linger of 5 ms it makes 200 a second, and several times that many
    without. `broker_reads`: calls that read, watch or find logs; 2,000 fetches a second of an agent's consumers.
    `max_pending`: requests that wait for their commit; 4096 is what one batch of the log carries.
    `request_timeout_ms`: how long one may wait; ten elections in a row fit in.
    """

    broker_allocations: Rate = Rate(500.0, 1000)
    cluster_allocations: Rate = Rate(5000.0, 10_000)
    broker_sessions: Rate = Rate(5.0, 10)
    cluster_sessions: Rate = Rate(2000.0, 4000)
    broker_transactional_inits: Rate = Rate(500.0, 1000)
    cluster_transactional_inits: Rate = Rate(2500.0, 5000)
    broker_transactions: Rate = Rate(1000.0, 2000)
    cluster_transactions: Rate = Rate(5000.0, 10_000)
    broker_commits: Rate = Rate(2000.0, 4000)
    cluster_commits: Rate = Rate(5000.0, 10_000)
    broker_reads: Rate = Rate(2000.0, 4000)
    cluster_reads: Rate = Rate(10_000.0, 20_000)
    max_pending: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 4096
    request_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=600_000)] = 10_000
