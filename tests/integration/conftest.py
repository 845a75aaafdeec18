"""The cluster that the tests of a file share which leave it as they found it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from tests.support.cluster import bring_back, running_cluster, wait_until


@pytest.fixture(scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # One for the whole run would take more by idling for a quarter of an hour than the starts do.
    # The patient profile: no test here is about elections, and none may be disturbed by one.
    options = {"profile": "wan"}
    with running_cluster(tmp_path_factory.mktemp("healthy"), agents=1, controller_options=options) as cluster:
        yield cluster
        codes = cluster.stop()
    assert set(codes.values()) == {0}, f"after all that it was sent, the cluster stopped with {codes}"


@pytest.fixture
def healthy(_shared: LocalCluster) -> LocalCluster:
    """Three controllers and one agent, all ready, its reserve full and its address known: nothing happens by itself."""
    bring_back(_shared)
    (agent,) = _shared.layout.agents

    def full() -> bool:
        status = json.loads(_shared.get(agent, "/v1/status")[1])
        return bool(status["reserve_ids"] >= status["reserve_target_ids"])

    def known() -> bool:
        brokers = json.loads(_shared.get(_shared.leader(), "/v1/brokers")[1])["brokers"]
        return any(broker["kafka"] == agent.kafka for broker in brokers)

    wait_until(full, "a full reserve of the agent")
    # It leaves its address once the metadata version has risen, seconds after the start.
    wait_until(known, "the agent's address to be known")
    return _shared
