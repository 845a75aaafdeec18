"""What the agent counts beside what every service does. Hot counters are plain ints, read when scraped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.service.histogram import durations
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.kafka.listener_metrics import listener_families

PREFIX: Final = "pidkeeper_agent_"


class AgentCollector(Collector):
    """Reads the counters of the agent, its transactions and its listener at the time of the scrape.

    `wall_clock()`: seconds since the epoch, of which the last success is told, and nothing else.
    """

    def __init__(self, agent: Agent, listener: KafkaListener, wall_clock: Callable[[], float] = time.time) -> None:
        self._agent = agent
        self._listener = listener
        self._wall_clock = wall_clock
        self._rounds = durations()
        self._last_success = 0.0
        agent.prefetcher.on_round = self._on_round

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield from listener_families(PREFIX, self._listener)
        rounds = CounterMetricFamily(
            PREFIX + "prefetch_rounds", "Rounds of block requests, by outcome.", labels=["outcome"]
        )
        for outcome, count in self._agent.prefetcher.rounds.items():
            rounds.add_metric([outcome], count)
        yield rounds
        yield self._rounds.family(
            PREFIX + "prefetch_duration_seconds", "Seconds that a round of block requests took, whatever came of it."
        )
        requests = CounterMetricFamily(
            PREFIX + "transactional_requests",
            "Transactional requests, by outcome: the answer's name, or why they may be late and were not passed on.",
            labels=["kind", "outcome"],
        )
        for kind_and_outcome, count in self._agent.transactions.outcomes.items():
            requests.add_metric(kind_and_outcome, count)
        yield requests
        took = HistogramMetricFamily(
            PREFIX + "transactional_duration_seconds",
            "Seconds from a transactional request to its answer, whatever that was: these alone wait for the quorum.",
            labels=["kind"],
        )
        for kind, histogram in self._agent.transactions.durations.items():
            histogram.add_to(took, kind)
        yield took

    def _on_round(self, seconds: float, blocks: int) -> None:
        self._rounds.observe(int(seconds * 1e9))
        if blocks:
            self._last_success = self._wall_clock()

    def _counters(self) -> Iterator[Metric]:
        agent = self._agent
        reserve, prefetcher = agent.reserve, agent.prefetcher
        for name, text, value in (
            ("claims", "Producer IDs claimed from the reserve; a claim never waits.", reserve.claimed),
            ("claim_errors", "Claims refused at once because the reserve was empty.", reserve.failed_claims),
            ("blocks_received", "Blocks received and added to the reserve.", prefetcher.blocks_received),
            ("blocks_rejected", "Blocks received and rejected.", prefetcher.blocks_rejected),
            ("registrations", "Registrations with the controllers.", agent.session.registrations),
            ("starved_seconds", "Seconds during which claims failed.", prefetcher.starved_seconds),
            ("candidates_taken", "Candidate IDs that the leader gave to a transactional id.", agent.candidates.taken),
            (
                "candidates_lost",
                "Candidate IDs discarded because the outcome of their request is unknown.",
                agent.candidates.lost,
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value=value)

    def _gauges(self) -> Iterator[Metric]:
        agent, reserve = self._agent, self._agent.reserve
        for name, text, value in (
            ("reserve_ids", "Producer IDs in the reserve, which can be claimed at once.", reserve.remaining),
            ("reserve_blocks", "Blocks in the reserve.", reserve.blocks_held),
            ("reserve_target_ids", "Producer IDs that the reserve should hold.", agent.prefetcher.policy.target_ids()),
            ("claim_rate", "Measured claims per second.", agent.prefetcher.policy.claim_rate),
            (
                "broker_epoch",
                "Broker epoch of the registration; -1 if not registered.",
                _or_minus_one(agent.session.broker_epoch),
            ),
            ("fenced", "1 while the controllers fence this broker.", int(agent.session.fenced)),
            ("ready", "1 while the agent is ready.", int(agent.ready)),
            (
                "last_success_timestamp_seconds",
                "When the reserve last got a block, since the epoch; 0 before the first.",
                self._last_success,
            ),
            (
                "transactional_requests_under_way",
                "Transactional requests that wait for the controllers.",
                agent.transactions.under_way,
            ),
            ("candidates_kept", "Unused candidate IDs kept for the next requests.", len(agent.candidates)),
            ("known_agents", "Agents that Metadata names to clients, this one included.", len(agent.directory.nodes)),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, value=value)


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value
