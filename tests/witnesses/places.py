"""The two that witnesses are shown: a Kafka broker, and a cluster whose agents keep records."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import new_leader, pause, resume, running_cluster
from tests.support.kafka_broker import KafkaBroker

AGENTS: Final = 2
SESSION_TIMEOUT_MS: Final = 3000
HEARTBEAT_INTERVAL_MS: Final = 300
STOPPED_SECONDS: Final = 1.0
"""How long the leader that was stopped stays so after another one leads."""

_KAFKA_SETTINGS: Final = {"auto.create.topics.enable": "true"}
"""As Kafka has it by default, and agents too."""


class Place(ABC):
    """Where a witness connects to: `bootstrap` is host:port, with commas between."""

    name: str
    bootstrap: str

    @abstractmethod
    def harm(self) -> None:
        """Take down what serves, one thing after the other. All runs again at the end."""


class Kafka(Place):
    """A broker of its own."""

    name = "kafka"

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def harm(self) -> None:
        """Kill the broker, and start it again."""
        self._broker.close()
        self._broker.start()


class Ours(Place):
    """Three controllers and AGENTS agents."""

    name = "pidkeeper"

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.bootstrap = ",".join(agent.kafka for agent in cluster.layout.agents)

    def harm(self) -> None:
        """Kill each agent in turn and start it again, and stop the leader until another one leads."""
        for agent in self._cluster.layout.agents:
            self._cluster.kill(agent)
            self._cluster.start(agent)
            self._cluster.wait_ready(agent)
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
    broker.start()
    try:
        yield Kafka(broker)
    finally:
        broker.close()


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[Place]:
    """A cluster that runs meanwhile."""
    with running_cluster(
        directory,
        agents=AGENTS,
        controller_options={"broker_session_timeout_ms": SESSION_TIMEOUT_MS},
        agent_options={"heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS},
        data=True,
    ) as cluster:
        yield Ours(cluster)
