"""How leaders came and went, as this member saw it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.raft.election_tally import ElectionCause, ElectionOutcome, LossCause

PREFIX: Final = "pidkeeper_raft_"


def election_metrics(member: ClusterMember) -> Iterator[Metric]:
    """Elections, losses of a leader, and how long a won election took. Every cause and outcome is shown from the start:
    an increase from nothing to 1 would be none for Prometheus."""
    tally = member.core.tally
    elections = CounterMetricFamily(
        PREFIX + "elections",
        "Elections that this member began, by why it did and what came of it.",
        labels=["cause", "outcome"],
    )
    for cause, outcome in product(ElectionCause, ElectionOutcome):
        elections.add_metric([cause.value, outcome.value], tally.elections[cause, outcome])
    yield elections
    losses = CounterMetricFamily(
        PREFIX + "leader_losses",
        "Times that this member lost its leader, or its own leadership, by why it did.",
        labels=["cause"],
    )
    for loss in LossCause:
        losses.add_metric([loss.value], tally.losses[loss])
    yield losses
    yield member.driver.election_clock.duration.family(
        PREFIX + "election_duration_seconds",
        "Seconds from the beginning of an election of this member, its pre-votes included, until it had won.",
    )
