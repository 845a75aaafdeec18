"""The two that witnesses are shown: a Kafka broker, and a cluster whose agents keep records."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import Agent, LocalCluster, member_name
from tests.chaos.stage import ChaosCluster
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    bring_back,
    new_leader,
    pause,
    restart,
    restart_leader,
    resume,
    running_cluster,
)
from tests.support.kafka_broker import KafkaBroker
from tests.witnesses.fronts import serving

AGENTS: Final = 2
SESSION_TIMEOUT_MS: Final = 3000
HEARTBEAT_INTERVAL_MS: Final = 300
STOPPED_SECONDS: Final = 1.0
"""How long the leader that was stopped stays so after another one leads."""

PARTITIONS: Final = 4
MIN_SESSION_MS: Final = 1000
"""kafka-python's tests make topics by using them, and expect these of them and of groups."""

_KAFKA_SETTINGS: Final = {
    # As Kafka has it by default, and agents too.
    "auto.create.topics.enable": "true",
    "num.partitions": str(PARTITIONS),
    "group.min.session.timeout.ms": str(MIN_SESSION_MS),
}


class Place(ABC):
    """Where a witness connects to: `bootstrap` is host:port, with commas between."""

    name: str
    bootstrap: str
    faults: Mapping[str, Callable[[], None]]
    """What can be done to a single one of what serves, by name. It runs again at the end of each."""

    @abstractmethod
    def harm(self) -> None:
        """Take down what serves, one thing after the other. All runs again at the end."""

    @abstractmethod
    def mend(self) -> None:
        """Have all run again, where a fault was not ended. Raises AssertionError and CommandError if it does not."""


class Kafka(Place):
    """A broker of its own."""

    name = "kafka"

    def __init__(self, broker: KafkaBroker, bootstrap: str) -> None:
        self._broker = broker
        self.bootstrap = bootstrap
        self.faults = {"the broker is killed": self.harm}

    def harm(self) -> None:
        """Kill the broker, and start it again."""
        self._broker.close()
        self._broker.start()

    def mend(self) -> None:
        self.harm()


class Ours(Place):
    """Three controllers and AGENTS agents."""

    name = "pidkeeper"

    def __init__(self, cluster: LocalCluster, bootstraps: Sequence[str]) -> None:
        self._cluster = cluster
        agents = cluster.layout.agents
        self.bootstrap = ",".join(bootstraps)
        self._kills = {f"agent {agent.id} is killed": partial(restart, cluster, agent) for agent in agents}
        self.faults = self._kills | {
            **{f"agent {agent.id} stands still": partial(self._stop_agent, agent) for agent in agents},
            "the leader is killed": partial(restart_leader, cluster),
            "the leader stands still": self._stop_leader,
        }

    def harm(self) -> None:
        """Kill each agent in turn and start it again, and stop the leader until another one leads."""
        for kill in self._kills.values():
            kill()
        self._stop_leader()

    def mend(self) -> None:
        bring_back(self._cluster)

    def _stop_agent(self, agent: Agent) -> None:
        """For longer than its session lasts, so that it comes back as a stranger."""
        pause(self._cluster, agent)
        try:
            time.sleep(SESSION_TIMEOUT_MS / 1000 + STOPPED_SECONDS)
        finally:
            resume(self._cluster, agent)

    def _stop_leader(self) -> None:
        leader = self._cluster.leader()
        pause(self._cluster, leader)
        try:
            new_leader(self._cluster, leader)
            time.sleep(STOPPED_SECONDS)
        finally:
            resume(self._cluster, leader)


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Place]:
    """A broker that runs meanwhile. Raises AssertionError if it does not start."""
    broker = KafkaBroker(directory, _KAFKA_SETTINGS)
    with _running(broker):
        yield Kafka(broker, broker.bootstrap)


@contextlib.contextmanager
def fronted_kafka(directory: Path) -> Iterator[Place]:
    """The same, whose address stays while it is killed."""
    with serving(1) as (front,):
        broker = KafkaBroker(directory, _KAFKA_SETTINGS | {"advertised.listeners": f"PLAINTEXT://{front.address}"})
        front.server = broker.bootstrap
        with _running(broker):
            yield Kafka(broker, front.address)


@contextlib.contextmanager
def _running(broker: KafkaBroker) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.close()


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[Place]:
    """A cluster that runs meanwhile."""
    with running_cluster(
        directory, agents=AGENTS, controller_options=_CONTROLLER_OPTIONS, agent_options=_agent_options(directory)
    ) as cluster:
        yield Ours(cluster, [agent.kafka for agent in cluster.layout.agents])


@contextlib.contextmanager
def fronted_ours(directory: Path) -> Iterator[Place]:
    """The same, whose agents' addresses stay while they are killed."""
    cluster = ChaosCluster(
        directory,
        agents=AGENTS,
        controller_options=CONTROLLER_OPTIONS | _CONTROLLER_OPTIONS,
        agent_options=_agent_options(directory),
    )
    with serving(AGENTS) as fronts:
        for front, agent in zip(fronts, cluster.layout.agents, strict=True):
            front.server = agent.kafka
            cluster.edits[member_name(agent)] = {"kafka_advertised": front.address}
        try:
            bring_back(cluster)
            yield Ours(cluster, [front.address for front in fronts])
        finally:
            cluster.kill(*(one for one in cluster.members() if cluster.running(one)))


_CONTROLLER_OPTIONS: Final = {"broker_session_timeout_ms": SESSION_TIMEOUT_MS}


def _agent_options(directory: Path) -> dict[str, Any]:
    return {
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "data": {"store": str(directory / "store"), "default_partitions": PARTITIONS},
        "groups": {"min_session_timeout_ms": MIN_SESSION_MS, "initial_rebalance_delay_ms": 0},
    }
