"""Producers that go on while processes are killed: no record is lost, twice or out of order, no transaction torn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.clients.record_load import loaded
from tests.support.cluster import pause, restart, restart_leader, resume, running_cluster

SESSION_TIMEOUT_MS: Final = 2000
HEARTBEAT_INTERVAL_MS: Final = 200
STOPPED_SECONDS: Final = 2.0
"""About as long as the session of an agent."""

CALM_SECONDS: Final = 0.5
"""Between two faults, and behind the last: the producers get somewhere."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("kills"),
        agents=2,
        controller_options={"broker_session_timeout_ms": SESSION_TIMEOUT_MS},
        agent_options={"heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS},
        data=True,
    ) as one:
        yield one


def harm(cluster: LocalCluster) -> None:
    """Kill the agents one after the other, kill the leader, stop the agents in turn. All run again at the end."""
    time.sleep(CALM_SECONDS)
    for agent in cluster.layout.agents:
        restart(cluster, agent)
        time.sleep(CALM_SECONDS)
    restart_leader(cluster)
    for agent in cluster.layout.agents:
        time.sleep(CALM_SECONDS)
        pause(cluster, agent)
        time.sleep(STOPPED_SECONDS)
        resume(cluster, agent)
    time.sleep(CALM_SECONDS)


def test_kills_lose_nothing_and_repeat_nothing(cluster: LocalCluster) -> None:
    with loaded(",".join(agent.kafka for agent in cluster.layout.agents)):
        harm(cluster)
