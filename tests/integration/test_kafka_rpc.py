"""Controllers that are asked in Kafka's protocol, by our agents and by brokers of another system, while leaders die."""

from __future__ import annotations

import asyncio
import signal
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

import pytest

from pidkeeper.cli.local_cluster import Controller, LocalCluster
from tests.integration.test_agents import DEFAULT_LIMITS, assert_lawful, claiming, status
from tests.integration.test_secure import Callers
from tests.integration.test_tokens import Tokens
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    bring_back,
    exit_code,
    followers,
    labelled,
    ledger,
    log_of,
    metrics,
    new_leader,
    running_cluster,
    wait_until,
)
from tests.support.foreign_broker import ForeignBroker
from tests.support.http_calls import call

BY_KAFKA: Final = {"transport": "kafka"}
FOREIGN: Final = 900
THROTTLED: Final = 89
"""THROTTLING_QUOTA_EXCEEDED."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("by-kafka")
    with running_cluster(directory, agents=2, controller_options=DEFAULT_LIMITS, agent_options=BY_KAFKA) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    bring_back(shared)
    return shared


def address(controller: Controller) -> str:
    assert controller.kafka is not None, "controllers of a new directory listen for Kafka's protocol"
    return controller.kafka


class AnotherSystem:
    """A broker that takes blocks without a pause, at whichever controller leads, and keeps what it was given.

    It does as Kafka's own: 41 and a closed connection have it turn to the next controller, 77 and 102 register anew,
    and 89 wait for as long as it is told.
    """

    def __init__(self, cluster: LocalCluster, broker_id: int = FOREIGN) -> None:
        self.starts: list[int] = []
        self.errors: list[int] = []
        self._addresses = [address(one) for one in cluster.layout.controllers]
        self._cluster_id = cluster.layout.cluster_id
        self._broker_id = broker_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        at = 0
        while not self._stop.is_set():
            try:
                with ForeignBroker(self._addresses[at % len(self._addresses)]) as broker:
                    self._take(broker)
            except OSError:
                time.sleep(0.02)
            at += 1

    def _take(self, broker: ForeignBroker) -> None:
        registered = broker.register(self._broker_id, self._cluster_id, incarnation=uuid.UUID(int=self._broker_id))
        error = int(registered.error_code)
        while error == 0 and not self._stop.is_set():
            block = broker.allocate(self._broker_id, registered.broker_epoch)
            if (error := int(block.error_code)) == 0:
                self.starts.append(block.producer_id_start)
            elif error == THROTTLED and block.throttle_time > timedelta(0):
                # It asks without pause, so it comes to the end of its quota where the machine is fast.
                self._stop.wait(block.throttle_time.total_seconds())
                error = 0
        if error:
            self.errors.append(error)
            time.sleep(0.02)


async def test_no_claim_fails_while_leaders_die_and_another_system_takes_blocks(cluster: LocalCluster) -> None:
    one, two = cluster.layout.agents
    with AnotherSystem(cluster) as other:
        async with claiming(one) as first, claiming(two) as second:
            for _ in range(2):
                old, taken = cluster.leader(), len(other.starts)
                before = {agent.id: status(agent)["blocks_received"] for agent in (one, two)}
                await asyncio.to_thread(cluster.kill, old)
                await asyncio.to_thread(new_leader, cluster, old)
                await asyncio.to_thread(wait_until, lambda taken=taken: len(other.starts) > taken + 20, "its blocks")
                await asyncio.to_thread(
                    wait_until,
                    lambda before=before: all(status(a)["blocks_received"] > before[a.id] + 2 for a in (one, two)),
                    "blocks from the new leader",
                )
                await asyncio.to_thread(bring_back, cluster)
    for tally in (first, second):
        assert tally.claims > 1000
        assert (dict(tally.errors), tally.lost_connections) == ({}, 0)
    assert_lawful(cluster, {one.id: first.ids, two.id: second.ids})
    owners = {block["first"]: block["broker_id"] for block in ledger(cluster)}
    assert {owners[start] for start in other.starts} == {FOREIGN}
    assert len(set(other.starts)) == len(other.starts)
    assert set(other.errors) <= {41, 7}, "it was told to turn elsewhere, or that nobody knows"


def test_agents_ask_for_all_in_kafkas_protocol(cluster: LocalCluster) -> None:
    """For transactions and the list of brokers too, which are calls of HTTP in frames of it."""
    for agent in cluster.layout.agents:
        body = {"transactional_id": f"orders-{agent.id}", "transaction_timeout_ms": 60_000}
        assert call(agent.http, "POST", "/v1/init-producer-id", body).json()["error_code"] == 0
    agents = len(cluster.layout.agents)
    wait_until(
        lambda: all(metrics(one)["pidkeeper_agent_known_agents"] == agents for one in cluster.layout.agents),
        "agents to know each other",
    )
    leader = cluster.leader()
    counted = labelled(leader, "pidkeeper_api_requests_total")
    called = {value for labels, count in counted.items() if count for value in labels}
    assert called >= {"init_producer_id", "list_brokers"}
    assert not called & {"allocate_producer_ids", "register_broker", "broker_heartbeat", "unregister_broker"}
    taken = labelled(leader, "pidkeeper_kafka_requests_total")
    assert taken["AllocateProducerIds", "success"] > 0
    assert taken["BrokerHeartbeat", "success"] > 0


def test_an_agent_that_stops_takes_its_leave(cluster: LocalCluster) -> None:
    agent = cluster.layout.agents[1]
    cluster.signal(agent, signal.SIGTERM)
    assert exit_code(cluster, agent) == 0
    brokers = call(cluster.leader().http, "GET", "/v1/brokers").json()["brokers"]
    assert agent.id not in {one["broker_id"] for one in brokers if not one["fenced"]}
    assert f"unregistered broker {agent.id}" in log_of(cluster, agent)


def test_a_follower_sends_brokers_on_and_shows_it_in_its_metrics(cluster: LocalCluster) -> None:
    follower = followers(cluster, cluster.leader())[0]
    counted = ("AllocateProducerIds", "NOT_CONTROLLER")
    before = labelled(follower, "pidkeeper_kafka_requests_total").get(counted, 0)
    with ForeignBroker(address(follower)) as broker:
        assert int(broker.allocate(FOREIGN, 1).error_code) == 41
    assert labelled(follower, "pidkeeper_kafka_requests_total")[counted] == before + 1


def test_one_quota_holds_for_both_ways(tmp_path: Path) -> None:
    narrow = {"broker_allocations": {"per_second": 0.01, "burst": 2}}
    options = {"limits": CONTROLLER_OPTIONS["limits"] | narrow}
    with running_cluster(tmp_path, controllers=1, controller_options=options) as cluster:
        (controller,) = cluster.layout.controllers
        with ForeignBroker(address(controller)) as broker:
            epoch = broker.register(FOREIGN, cluster.layout.cluster_id).broker_epoch
            assert int(broker.allocate(FOREIGN, epoch).error_code) == 0
            body = {"broker_id": FOREIGN, "broker_epoch": epoch}
            assert call(controller.http, "POST", "/v1/producer-ids/allocate", body).status == 200
            refused = broker.allocate(FOREIGN, epoch)
            assert int(refused.error_code) == 89
            assert 0 < refused.throttle_time.total_seconds() <= 100
            assert call(controller.http, "POST", "/v1/producer-ids/allocate", body).status == 429


def test_nobody_without_a_brokers_certificate_is_served(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", agents=1, secure=True, agent_options=BY_KAFKA) as cluster:
        (agent,) = cluster.layout.agents
        wait_until(lambda: ledger_of(cluster), "blocks of the agent, over TLS")
        callers, leader = Callers(cluster, tmp_path), cluster.leader()

        def registered(broker_id: int, context: ssl.SSLContext | None) -> int | None:
            try:
                with ForeignBroker(address(leader), context) as broker:
                    return int(broker.register(broker_id, cluster.layout.cluster_id).error_code)
            except OSError:
                return None

        seven = callers.named("broker", "7")
        assert registered(7, seven) == 0
        assert registered(8, seven) == 31
        assert registered(7, callers.named("operator")) == 0
        for nobody in (None, callers.nobody(), callers.stranger, callers.named("producer"), callers.named("viewer")):
            assert registered(7, nobody) is None
        refused = call(leader.http, "GET", "/metrics", context=cluster.context).body.decode()
        assert 'pidkeeper_kafka_handshakes_failed_total{reason="no broker"} 2.0' in refused
        assert log_of(cluster, agent).count("registered broker") == 1


def ledger_of(cluster: LocalCluster) -> list[Any]:
    context = cluster.context
    answer = call(cluster.leader().http, "GET", "/v1/producer-ids/blocks?limit=10", context=context)
    blocks: list[Any] = answer.json()["blocks"]
    return blocks


def test_an_agent_whose_token_is_refused_ends_and_says_so(tmp_path: Path) -> None:
    tokens, own, operators = Tokens(tmp_path / "tokens"), tmp_path / "agent", tmp_path / "operators"
    own.write_text(tokens.create("agent-1", "broker:1"))
    operators.write_text("the operators' token")
    cluster = LocalCluster(
        tmp_path / "cluster",
        controllers=1,
        agents=1,
        controller_options=CONTROLLER_OPTIONS
        | {"tokens_file": str(tokens.file), "operator_token_file": str(operators)},
        agent_options={"token_file": str(own), **BY_KAFKA},
    )
    (agent,), (controller,) = cluster.layout.agents, cluster.layout.controllers
    try:
        cluster.start()
        cluster.wait_ready()
        assert call(agent.http, "POST", "/v1/init-producer-id", {}).json()["error_code"] == 0
        tokens.revoke("agent-1")
        assert exit_code(cluster, agent) == 4
        assert "refuse the token" in log_of(cluster, agent)
        assert 'outcome="failure"' in call(controller.http, "GET", "/metrics").body.decode()
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])
