"""What an agent that keeps partition logs counts of the consumer groups that it coordinates. Read when scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.broker_agent.data.codes import code_name
from pidkeeper.broker_agent.groups.classic_group import State
from pidkeeper.broker_agent.groups.coordinator import Coordinator
from pidkeeper.broker_agent.groups.counters import CommitCounters

PREFIX: Final = "pidkeeper_agent_groups_"

STATES: Final = tuple(state for state in State if state is not State.DEAD)
"""Of groups that are held."""


class GroupCollector(Collector):
    """Reads the counters and looks at the groups at the time of the scrape."""

    def __init__(self, coordinator: Coordinator, commits: CommitCounters) -> None:
        self._coordinator = coordinator
        self._commits = commits

    def collect(self) -> Iterator[Metric]:
        yield from self._groups()
        coordinator, commits = self._coordinator, self._commits
        for name, text, value in (
            ("rebalances", "Rebalances that came to a generation which the quorum took.", coordinator.rebalances),
            ("lost", "Rebalances that came to nothing because another agent had gone on.", coordinator.lost),
            ("commit_requests", "Requests to commit offsets, those within transactions too.", commits.requests),
            ("offsets_committed", "Offsets that the quorum has committed.", commits.committed),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value=value)
        refused = CounterMetricFamily(
            PREFIX + "offsets_refused", "Offsets not committed, by what the client was told.", labels=["code"]
        )
        for code, count in commits.refused.items():
            refused.add_metric([code_name(code)], count)
        yield refused

    def _groups(self) -> Iterator[Metric]:
        coordinator = self._coordinator
        held = GaugeMetricFamily(PREFIX + "held", "Groups that this agent coordinates.", labels=["state"])
        states = Counter(group.state for group in coordinator.held)
        for state in STATES:
            held.add_metric([state.value], states[state])
        yield held
        members = sum(len(group.members) for group in coordinator.held)
        yield GaugeMetricFamily(PREFIX + "members", "Members of the groups that this agent coordinates.", value=members)
        yield GaugeMetricFamily(
            PREFIX + "restless_seconds",
            "How long a group of this agent has not been stable for a minute at a time; of all groups the longest.",
            value=coordinator.restless_seconds,
        )
