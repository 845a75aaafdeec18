"""Real client libraries as outside witnesses of a real cluster: three controllers, two agents."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.agent_process import RunningAgent
from tests.support.cluster import bring_back, running_cluster

ADDRESSES = "PIDKEEPER_TEST_AGENTS"
"""Names agents that run already, as `kafka=http` pairs with commas between; without it a cluster is started here."""


@pytest.fixture(scope="session", autouse=True)
def _sockets_of_kafka_python() -> Iterator[None]:
    """kafka-python leaves a socket that could not connect to the garbage collector: here, and to nobody else's test.

    Its log would keep them: pytest holds the records, and with them the frames of the exceptions.
    """
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("clients"), agents=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: LocalCluster) -> LocalCluster:
    """A cluster of its own, so that its leader may be killed."""
    bring_back(_cluster)
    return _cluster


@pytest.fixture
def agents(request: pytest.FixtureRequest) -> list[RunningAgent]:
    if ADDRESSES in os.environ:
        pairs = (pair.split("=", 1) for pair in os.environ[ADDRESSES].split(","))
        return [RunningAgent(kafka, http) for kafka, http in pairs]
    cluster: LocalCluster = request.getfixturevalue("cluster")
    return [RunningAgent(agent.kafka, agent.http) for agent in cluster.layout.agents]
