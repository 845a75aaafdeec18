"""A quorum is rolled from the build before `transaction.version` 2 while the official client writes transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import Member
from pidkeeper.protocol.metadata_version import GROUPS, LATEST
from tests.clients.java_witness import JavaProcess, java_process, why_no_java
from tests.clients.record_witnesses import PARTITIONS, SECONDS
from tests.clients.test_transaction_epochs import LEAST, Producer, assert_whole, described, transactions
from tests.support.cluster import CONTROLLER_OPTIONS, followers, log_of, quorum, wait_until
from tests.support.earlier_build import PACKAGES, EarlierBuild, NoHistory, RolledCluster
from tests.support.http_calls import call

COMMIT: Final = "fd10d7f4^"
"""The parent of the commit that raised the metadata version to 13."""

SESSION_TIMEOUT_MS: Final = 2000
HEARTBEAT_INTERVAL_MS: Final = 200
TOPIC: Final = "rolled"


@pytest.fixture
def java(tmp_path: Path) -> Iterator[JavaProcess]:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    with java_process(tmp_path, "RecordWitness") as process:
        yield process


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RolledCluster]:
    """Three controllers and two agents of the earlier build."""
    try:
        build = EarlierBuild.unpack(tmp_path / "earlier", COMMIT, (*PACKAGES, "disk"))
    except NoHistory as error:
        pytest.skip(str(error))
    controllers = CONTROLLER_OPTIONS | {"broker_session_timeout_ms": SESSION_TIMEOUT_MS}
    agents = {"heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS}
    one = RolledCluster(
        tmp_path / "cluster", build, agents=2, data=True, controller_options=controllers, agent_options=agents
    )
    try:
        one.start()
        one.wait_ready()
        wait_until(lambda: version(one) == GROUPS, "its newest version")
        yield one
    finally:
        one.kill(*(member for member in one.members() if one.running(member)))


def version(cluster: RolledCluster) -> int:
    return int(quorum(cluster.leader())["metadata_version"])


def known_to_agents(cluster: RolledCluster) -> list[int | None]:
    """Which versions the leader takes its agents to know, in order of their ids."""
    brokers: list[dict[str, Any]] = call(cluster.leader().http, "GET", "/v1/brokers").json()["brokers"]
    return [one["metadata_version"] for one in brokers]


def progress(ended: dict[int, bool]) -> None:
    """Wait for some more transactions, each of which writes to both agents."""
    begun = len(ended)
    wait_until(lambda: len(ended) >= begun + 2 * LEAST, "more transactions")


def test_the_last_agent_to_be_rolled_brings_the_new_version(cluster: RolledCluster, java: JavaProcess) -> None:
    first, last = cluster.layout.agents
    bootstrap = ",".join(agent.kafka for agent in cluster.layout.agents)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
    producer = Producer(java, bootstrap, TOPIC)

    def epoch() -> int:
        return int(described(cluster, TOPIC)["producer_epoch"])

    with transactions(producer) as ended:
        leader = cluster.leader()
        rolled: list[Member] = [*followers(cluster, leader), leader, first]
        for member in rolled:
            cluster.upgrade(member)
        wait_until(lambda: known_to_agents(cluster) == [LATEST, GROUPS], "what the agents know")
        (warning,) = quorum(cluster.leader())["warnings"]
        assert warning.startswith(f"metadata version {LATEST} waits for broker {last.id}: ")
        wait_until(lambda: warning in log_of(cluster, cluster.leader()), "the leader's word of it")
        progress(ended)  # What the roll had aborted may take another pair.
        before = epoch()
        progress(ended)
        assert (version(cluster), epoch()) == (GROUPS, before), "each keeps the pair"

        cluster.upgrade(last)
        wait_until(lambda: version(cluster) == LATEST, "the newest version")
        assert quorum(cluster.leader())["warnings"] == []
        # The client hears of it with its next connection.
        cluster.leave(first)
        cluster.start_present(first)
        before = epoch()
        wait_until(lambda: epoch() >= before + LEAST, "an epoch for each transaction")
    assert_whole(bootstrap, TOPIC, ended)
