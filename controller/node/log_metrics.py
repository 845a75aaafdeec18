"""A member's samples of partition logs, from its applied state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.stable_offsets import stable_offsets
from pidkeeper.controller.state.logs import limits
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.protocol.transactions import MAX_TIMEOUT_MS

PREFIX: Final = "pidkeeper_logs_"


def log_metrics(member: ClusterMember) -> Iterator[Metric]:
    """Every family, freshly made. What has a bound is told with it."""
    logs = member.machine.logs
    yield GaugeMetricFamily(PREFIX + "topics", "Topics.", value=len(logs.topics))
    kept = GaugeMetricFamily(PREFIX + "kept", "What is kept of partition logs, by kind.", labels=["kind"])
    bounds = GaugeMetricFamily(PREFIX + "kept_limit", "Bound of what is kept of partition logs.", labels=["kind"])
    for kind, count, bound in (
        ("partitions", logs.topics.partitions, limits.MAX_PARTITIONS),
        ("rows", logs.rows + logs.open, limits.MAX_ROWS),
        ("segments", logs.segments, limits.MAX_SEGMENTS),
        ("producers", logs.producer_count, limits.MAX_PRODUCERS),
        ("aborted_transactions", logs.aborted + logs.open, limits.MAX_ABORTED),
        ("objects", len(logs.objects), limits.MAX_OBJECTS),
        ("committers", logs.committers, limits.MAX_COMMITTERS),
    ):
        kept.add_metric([kind], count)
        bounds.add_metric([kind], bound)
    yield kept
    yield bounds
    yield from _open_transactions(member)
    yield GaugeMetricFamily(
        PREFIX + "garbage_objects",
        "Objects that no log needs and that are not deleted yet.",
        value=len(logs.objects.garbage),
    )
    founding_id = member.machine.foundings.founding_id
    known = logs.store_id is not None and member.machine.metadata_version >= SEGMENTS
    held = known and not logs.collects(founding_id)
    yield GaugeMetricFamily(
        PREFIX + "collection_held",
        "1 while nothing is deleted from the store, since the quorum took the place of another.",
        value=held,
    )
    duties = member.leadership
    yield GaugeMetricFamily(
        PREFIX + "garbage_age_seconds",
        "How long the oldest of them has waited, as this member saw while it led; 0 on others.",
        value=duties.garbage_seconds(),
    )
    yield GaugeMetricFamily(PREFIX + "watches", "Calls that wait until a log goes on.", value=len(duties.log_watch))
    yield CounterMetricFamily(
        PREFIX + "producers_expired",
        "Producers that were silent for long and forgotten, for each log, while this member led.",
        value=duties.logs.expired,
    )


def _open_transactions(member: ClusterMember) -> Iterator[Metric]:
    logs = member.machine.logs
    yield GaugeMetricFamily(PREFIX + "open_transactions", "Transactions open in a log, for each log.", value=logs.open)
    stable = stable_offsets(logs, member.machine.transactions)
    yield GaugeMetricFamily(
        PREFIX + "last_stable_lag",
        "Offsets between the last stable offset and the end of a log, of the log with the most.",
        value=stable.lag,
    )
    now_ms = member.ports.wall_clock() * 1000
    age_ms = 0.0 if stable.oldest_ms is None else max(now_ms - stable.oldest_ms, 0.0)
    yield GaugeMetricFamily(
        PREFIX + "open_transaction_age_seconds",
        "Age of the oldest transaction that holds the last stable offset of a log; 0 without one.",
        value=age_ms / 1000,
    )
    yield GaugeMetricFamily(
        PREFIX + "open_transaction_age_limit_seconds",
        "The longest timeout that a transaction may have, after which the leader aborts it.",
        value=MAX_TIMEOUT_MS / 1000,
    )
