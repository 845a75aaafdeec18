"""What takes batches in the benchmark of the data plane: our cluster of three controllers and an agent, and Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers.single_kafka import EVERY_BATCH, SingleKafka, admin
from bench.process_tree import cpu_seconds
from bench.produce_load import FLUSH_SECONDS, ProduceResult, ProduceSpec
from bench.round_trip_load import RECORD_SECONDS, RoundTripResult, RoundTripSpec
from pidkeeper.cli.local_cluster import LocalCluster

TOPIC_SECONDS: Final = 30.0


class Load(NamedTuple):
    """Of `producers`, each with `window` batches of `batch_bytes` in flight."""

    producers: int
    window: int
    batch_bytes: int


class Produced(NamedTuple):
    """What a load got, and how many cores each process kept busy meanwhile, by its name.

    Meanwhile is from before the load's process started until it has ended: a short run makes them look idle.
    """

    result: ProduceResult
    busy: Mapping[str, float]


class System:
    """Serves at `bootstrap`. `processes`: pids by name. `topic_settings`: of every topic that is made."""

    def __init__(
        self, name: str, bootstrap: str, processes: Mapping[str, int], topic_settings: Mapping[str, str] | None = None
    ) -> None:
        self.name: Final = name
        self.bootstrap: Final = bootstrap
        self.processes: Final = processes
        self._topic_settings = dict(topic_settings or {})

    def produce(self, load: Load, seconds: float, warmup: float) -> Produced:
        """One load on a topic of its own. Raises RuntimeError, TimeoutExpired if it fails."""
        with self.topic(load.producers) as topic:
            spec = ProduceSpec(self.bootstrap, topic, *load, seconds, warmup)
            limit = warmup + seconds + FLUSH_SECONDS + LOAD_START_SECONDS
            before, began = self._used(), time.monotonic()
            result = run_load("bench.produce_load", spec, ProduceResult, limit)
            took, after = time.monotonic() - began, self._used()
        busy = {name: (after[name] - before[name]) / took for name in before}
        return Produced(result, busy | {"load": result.busy})

    def round_trips(self, records: int, warmup: int, record_bytes: int) -> RoundTripResult:
        """From producer to consumer, one record at a time. Raises RuntimeError, TimeoutExpired if it fails."""
        with self.topic(1) as topic:
            spec = RoundTripSpec(self.bootstrap, topic, records, warmup, record_bytes)
            limit = LOAD_START_SECONDS + RECORD_SECONDS + records + warmup
            return run_load("bench.round_trip_load", spec, RoundTripResult, limit)

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A new topic, which is gone afterwards: so what one run writes is no burden for the next."""
        from confluent_kafka.cimpl import NewTopic

        client, name = admin(self.bootstrap), f"bench-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, partitions, 1, config=self._topic_settings)
        client.create_topics([new])[name].result(TOPIC_SECONDS)
        try:
            yield name
        finally:
            client.delete_topics([name])[name].result(TOPIC_SECONDS)

    def _used(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.processes.items()}


def ours(cluster: LocalCluster) -> System:
    """A cluster that runs, of one agent."""
    (agent,) = cluster.layout.agents
    leader = cluster.leader()
    followers = [one for one in cluster.layout.controllers if one.id != leader.id]
    processes = {"agent": agent.pid, "leader": leader.pid}
    processes |= {f"follower {number}": one.pid for number, one in enumerate(followers, 1)}
    return System("pidkeeper", agent.kafka, processes)


def kafka(broker: SingleKafka, *, synced: bool) -> System:
    """A broker that runs. `synced`: its topics sync each batch; without that they sync none."""
    name = "Kafka that syncs each batch" if synced else "Kafka"
    return System(name, broker.bootstrap, {"broker": broker.pid}, EVERY_BATCH if synced else None)


def who_was_busy(busy: Mapping[str, float]) -> str:
    """The processes by the cores that they kept busy, the busiest first."""
    ordered = sorted(busy.items(), key=lambda one: -one[1])
    return "cores busy: " + ", ".join(f"{name} {cores:.2f}" for name, cores in ordered)
