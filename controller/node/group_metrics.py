"""A member's samples of consumer groups, from its applied state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.state.groups import limits

PREFIX: Final = "pidkeeper_groups_"


def group_metrics(member: ClusterMember) -> Iterator[Metric]:
    """Every family, freshly made. What has a bound is told with it."""
    groups = member.machine.groups
    kept = GaugeMetricFamily(PREFIX + "kept", "What is kept of consumer groups, by kind.", labels=["kind"])
    bounds = GaugeMetricFamily(PREFIX + "kept_limit", "Bound of what is kept of consumer groups.", labels=["kind"])
    for kind, count, bound in (
        ("groups", len(groups), limits.MAX_GROUPS),
        ("members_bytes", groups.members_bytes, limits.MAX_MEMBERS_BYTES),
        ("offsets", groups.offsets + groups.pending, limits.MAX_OFFSETS),
        ("offset_bytes", groups.offset_bytes, limits.MAX_OFFSET_BYTES),
    ):
        kept.add_metric([kind], count)
        bounds.add_metric([kind], bound)
    yield kept
    yield bounds
    yield GaugeMetricFamily(PREFIX + "pending_offsets", "Offsets that transactions hold.", value=groups.pending)
    yield CounterMetricFamily(
        PREFIX + "offsets_expired",
        "Offsets that nobody went on with and that were forgotten, while this member led.",
        value=member.leadership.groups.expired,
    )
