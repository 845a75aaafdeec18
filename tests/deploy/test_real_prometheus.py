"""A real Prometheus scrapes a cluster of real processes: every query finds its series, and real faults raise alerts.

The rules are those of deploy/, thresholds included, but for how long they look back and wait: minutes in operation, the
few seconds of a test here.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
import yaml

from bench.slow_disk import SlowDiskCluster
from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.local_cluster import Member
from pidkeeper.service.tls_files import TlsFiles
from tests.clients.security import Security
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    WAIT_SECONDS,
    bring_back,
    followers,
    pause,
    pidkeeper,
    quorum,
    resume,
    wait_until,
)
from tests.support.http_calls import address_of, call
from tests.support.monitoring import PROMETHEUS, Panel, alerts, panels, rules, series
from tests.support.prometheus import Prometheus, binary, running_prometheus

BLOCK_SIZE = 10
"""IDs per block, so that a few claims use up what an agent holds."""

QUOTA = {"per_second": 20.0, "burst": 2000}
"""Of a broker: enough entries of the log for a member to be behind, and then far less than one caller can ask for."""

SLOW_SYNC = 0.5
"""Seconds: above the threshold of PidkeeperFsyncVerySlow, which no sound disk comes near."""

BROKER = 77

EMPTY = {
    "pidkeeper_zookeeper_": "the cluster was never configured for ZooKeeper",
    "pidkeeper_raft_terms_refused_total": "a sample comes with the first term that is refused, and no member here lies",
    "pidkeeper_agent_handshakes_failed_total": "a sample comes with the first handshake that fails",
    'outcome!~"success|': "no allocation fails",
    "pidkeeper_agent_data_batches_refused_total": "a sample comes with the first batch that is refused",
    "pidkeeper_agent_groups_offsets_refused_total": "a sample comes with the first offset that is refused",
}
"""Selectors, by a part of their text, that find nothing in a healthy cluster, and why. No others may be empty."""

EMPTY_PANELS = {
    "agents: Seconds that the reserve lasts": "shows agents with clients only, and nobody claims yet",
    "quorum: Age of the newest snapshot": "none is taken before 10,000 entries",
    "agents: Transactional requests, by outcome": "a sample comes with the first of them",
}
"""Panels whose series are there, but whose queries leave all of them out, and why."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowDiskCluster]:
    """Three controllers and an agent that keeps records, with TLS. Its disks can be slowed down."""
    binary("prometheus")  # Without it nothing is to be started.
    # The patient profile: a busy machine must not change the leader from whom a broker takes blocks.
    options = CONTROLLER_OPTIONS | {"block_size": BLOCK_SIZE, "profile": "wan"}
    options["limits"] = CONTROLLER_OPTIONS["limits"] | {"broker_allocations": QUOTA}
    made = SlowDiskCluster(
        tmp_path_factory.mktemp("cluster"),
        agents=1,
        data=True,
        secure=True,
        controller_options=options,
        # So that both ways of asking the controllers show: others here come over HTTP.
        agent_options={"min_reserve_ids": 3 * BLOCK_SIZE, "reserve_seconds": 0.0, "transport": "kafka"},
    )
    try:
        bring_back(made)
        yield made
    finally:
        made.kill(*[member for member in made.members() if made.running(member)])


@pytest.fixture(scope="module")
def prometheus(cluster: SlowDiskCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "rules.yml").write_text(yaml.safe_dump(shortened()))
    with running_prometheus(directory, scraping(cluster)) as running:
        wait_until(lambda: set(running.targets().values()) == {"up"}, "all members to be scraped")
        yield running


def shortened() -> dict[str, Any]:
    """The rules of deploy/ with waits of nothing and looks back of ten seconds; thresholds are as they are."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule.pop("for", None)
        rule.pop("keep_firing_for", None)
        rule["expr"] = re.sub(r"\[(5|15)m\]", "[10s]", rule["expr"])
    return {"groups": groups}


def scraping(cluster: SlowDiskCluster) -> dict[str, Any]:
    """The configuration of deploy/ with the addresses of this cluster, and the certificate of a viewer."""
    config: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    files = cluster.directory / CERTIFICATES
    tls = {"ca_file": "ca.pem", "cert_file": "viewer.pem", "key_file": "viewer.key"}
    members: dict[str, Sequence[Member]] = {
        "pidkeeper-controller": cluster.layout.controllers,
        "pidkeeper-agent": cluster.layout.agents,
    }
    for job in config["scrape_configs"]:
        job["scheme"] = "https"
        job["tls_config"] = {key: str(files / name) for key, name in tls.items()}
        targets = [instance(member) for member in members[job["job_name"]]]
        job["static_configs"][0]["targets"] = targets
    return config


def instance(member: Member) -> str:
    return member.http.partition("://")[2]


def fires(prometheus: Prometheus, alert: str, **labels: str) -> None:
    """Wait until the alert fires with these labels."""

    def look() -> bool:
        return any(labels.items() <= found.items() for found in prometheus.firing(alert))

    wait_until(look, f"{alert} to fire with {labels}")


class Broker:
    """Asks the leader for blocks over one connection, whatever it is answered."""

    def __init__(self, cluster: SlowDiskCluster) -> None:
        self._connection = http.client.HTTPSConnection(*address_of(cluster.leader().http), context=cluster.context)
        body = {"incarnation_id": "storm"}
        self._epoch = json.loads(self._ask(f"/v1/brokers/{BROKER}/register", body)[1])["broker_epoch"]

    def allocate(self) -> int:
        """The status of one more request. Raises OSError or HTTPException."""
        return self._ask("/v1/producer-ids/allocate", {"broker_id": BROKER, "broker_epoch": self._epoch})[0]

    def close(self) -> None:
        self._connection.close()

    def _ask(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()


@contextlib.contextmanager
def repeated(action: Callable[[], object]) -> Iterator[None]:
    """Do `action` over and over meanwhile, on another thread."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_healthy_cluster_raises_no_critical_alert(prometheus: Prometheus) -> None:
    critical = [name for name, rule in alerts().items() if rule["labels"]["severity"] == "critical"]
    wait_until(lambda: prometheus.query("cluster:pidkeeper_raft_leaders:sum == 1"), "a leader to be recorded")
    wait_until(lambda: not any(prometheus.firing(name) for name in critical), "no critical alert to fire")


def explained(selector: str) -> bool:
    return any(part in selector for part in EMPTY)


def test_every_series_that_a_rule_looks_at_is_there(cluster: SlowDiskCluster, prometheus: Prometheus) -> None:
    with contextlib.closing(Broker(cluster)) as broker:
        assert broker.allocate() == 200
    looked_at = {one for rule in rules() for one in series(rule["expr"])}
    missing = {one for one in looked_at if not explained(one)}

    def complete() -> bool:
        missing.difference_update([one for one in missing if prometheus.query(one)])
        return not missing

    wait_until(complete, f"data for each of {sorted(missing)}")
    for selector in looked_at:
        assert not explained(selector) or prometheus.query(selector) == [], f"{selector} needs no explanation"


@pytest.mark.parametrize("panel", panels(), ids=str)
def test_every_panel_shows_data(prometheus: Prometheus, panel: Panel) -> None:
    if str(panel) in EMPTY_PANELS:
        assert [prometheus.query(query) for query in panel.queries] == [[]], "it needs no explanation"
        return
    for query in panel.queries:
        if not any(explained(one) for one in series(query)):
            wait_until(functools.partial(prometheus.query, query), f"data for {query}")


def test_a_certificate_that_ends_soon_raises_an_alert(cluster: SlowDiskCluster, prometheus: Prometheus) -> None:
    assert prometheus.firing("PidkeeperCertificateExpiring") == []
    layout = cluster.layout
    numbers = ("--controllers", str(len(layout.controllers)), "--agents", str(len(layout.agents)))
    where = ("--dir", cluster.directory / CERTIFICATES, "--cluster-id", layout.cluster_id)
    assert pidkeeper("certs", "dev", *where, *numbers, "--days", "3").returncode == 0
    for member in cluster.members():
        fires(prometheus, "PidkeeperCertificateExpiring", instance=instance(member), severity="warning")
    assert prometheus.firing("PidkeeperCertificateEnds") == []


def test_slow_syncs_of_one_member_raise_an_alert(cluster: SlowDiskCluster, prometheus: Prometheus) -> None:
    slow = followers(cluster, cluster.leader())[0]
    assert prometheus.firing("PidkeeperFsyncVerySlow") == []
    cluster.slow_down(SLOW_SYNC, slow)
    try:
        with contextlib.closing(Broker(cluster)) as broker, repeated(broker.allocate):
            fires(prometheus, "PidkeeperFsyncSlow", instance=instance(slow))
            fires(prometheus, "PidkeeperFsyncVerySlow", instance=instance(slow))
    finally:
        cluster.speed_up(slow)


def test_a_store_that_is_away_raises_alerts_until_it_is_back(cluster: SlowDiskCluster, prometheus: Prometheus) -> None:
    (agent,) = cluster.layout.agents
    files = cluster.directory / CERTIFICATES
    shown = {"ca_file": "ca.pem", "certificate_file": "producer.pem", "key_file": "producer.key"}
    tls = TlsFiles(**{key: str(files / name) for key, name in shown.items()})
    settings = {"bootstrap.servers": agent.kafka, "enable.idempotence": True, "log_level": 0}
    producer = confluent_kafka.Producer(settings | Security(tls).librdkafka())

    def produce() -> None:
        producer.produce("kept", b"x")
        producer.poll(0.1)

    produce()
    assert producer.flush(WAIT_SECONDS) == 0
    assert prometheus.firing("PidkeeperStoreFails") == []
    store = cluster.directory / "store"
    store.rename(store.with_name("away"))
    try:
        with repeated(produce):
            fires(prometheus, "PidkeeperStoreFails", instance=instance(agent), operation="put")
            fires(prometheus, "PidkeeperProduceFails", instance=instance(agent), code="KAFKA_STORAGE_ERROR")
    finally:
        store.with_name("away").rename(store)
    assert producer.flush(WAIT_SECONDS) == 0
    assert prometheus.firing("PidkeeperRecordsDamaged") == []


def test_a_member_that_is_stopped_is_behind_while_a_broker_storms(
    cluster: SlowDiskCluster, prometheus: Prometheus
) -> None:
    stopped = followers(cluster, cluster.leader())[0]
    pause(cluster, stopped)
    try:
        with contextlib.closing(Broker(cluster)) as broker, repeated(broker.allocate):
            fires(prometheus, "PidkeeperProducerIdStorm", broker=str(BROKER))
            fires(prometheus, "PidkeeperMemberBehind", peer=str(stopped.id))
            fires(prometheus, "PidkeeperMemberSilent", peer=str(stopped.id))
            fires(prometheus, "PidkeeperThrottleStorm", broker=str(BROKER))
            fires(prometheus, "PidkeeperMemberDown", instance=instance(stopped))
    finally:
        resume(cluster, stopped)


def test_without_a_quorum_the_agents_starve(cluster: SlowDiskCluster, prometheus: Prometheus) -> None:
    bring_back(cluster)
    (agent,) = cluster.layout.agents
    leader = cluster.leader()
    wait_until(lambda: quorum(leader, cluster.context)["failure_tolerance"] == 1, "all members to have caught up")
    wait_until(lambda: not prometheus.firing("PidkeeperNoLeader"), "the alert to be silent")
    assert prometheus.firing("PidkeeperAgentStarving") == []
    cluster.kill(leader, followers(cluster, leader)[0])
    with repeated(lambda: call(agent.http, "POST", "/v1/init-producer-id", {}, context=cluster.context)):
        fires(prometheus, "PidkeeperNoLeader", cluster="ids")
        fires(prometheus, "PidkeeperInsufficientMembers", cluster="ids")
        fires(prometheus, "PidkeeperAgentStarving", instance=instance(agent))
