"""A cluster with nothing in plaintext and nobody unnamed: who gets in, who does not, and how one becomes such."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer

from bench.limited_files import LimitedFilesCluster
from pidkeeper.cli.controllers import CERTIFICATES, dev_files
from pidkeeper.cli.dev_certificates import DevAuthority, issue_for_cluster
from pidkeeper.cli.local_cluster import Agent, LocalCluster, Member, member_name
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.clients.java_witness import java_process, why_no_java
from tests.clients.witnesses import KafkaProducer
from tests.integration.test_membership import add_voter
from tests.integration.test_peer_keys import Claims, roll
from tests.support.certificates import NOW, CertificateAuthority
from tests.support.cluster import (
    CONTROLLER_OPTIONS,
    SOON_ANOTHER,
    assert_healthy,
    exit_code,
    log_of,
    pidkeeper,
    quorum,
    running_cluster,
    wait_until,
)
from tests.support.http_calls import Answer, address_of, call, exchange

BROKER = 1
ALLOCATE = "/v1/producer-ids/allocate"
INIT = "/v1/init-producer-id"
LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Callers:
    """Certificates of all kinds of people, and what they trust."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self._authority = DevAuthority(cluster.directory / CERTIFICATES)
        self._certificates = cluster.directory / CERTIFICATES
        self.ca = str(self._certificates / "ca.pem")
        other = CertificateAuthority(directory, "of somebody else")
        self.other_ca = other.path
        self.stranger = self._trusting(other.issue("stranger", uris=[self.name("operator", "dev")]))

    def name(self, kind: str, name: str, cluster_id: str | None = None) -> str:
        return CertifiedName(cluster_id or self.cluster.layout.cluster_id, kind, name).uri

    def named(self, kind: str, name: str = "test", cluster_id: str | None = None, days: int = 1) -> ssl.SSLContext:
        """What the holder of such a certificate speaks TLS with."""
        return client_context(self.files(kind, name, cluster_id, days))

    def files(self, kind: str, name: str = "test", cluster_id: str | None = None, days: int = 1) -> TlsFiles:
        file = f"{kind}-{name}-{cluster_id}"
        wanted = CertifiedName(cluster_id or self.cluster.layout.cluster_id, kind, name)
        self._authority.issue(file, [wanted], (), days)
        return TlsFiles(
            certificate_file=str(self._certificates / f"{file}.pem"),
            key_file=str(self._certificates / f"{file}.key"),
            ca_file=self.ca,
        )

    def expired(self) -> ssl.SSLContext:
        """An operator's, that has ended."""
        files = self.files("operator", "late")
        context = client_context(TlsFiles(ca_file=self.ca))
        name = CertifiedName(self.cluster.layout.cluster_id, "operator", "late")
        self._authority.issue("operator-late-None", [name], (), 0)
        time.sleep(1.0)  # it ends with the second in which it was made
        context.load_cert_chain(str(files.certificate_file), str(files.key_file))
        return context

    def nobody(self) -> ssl.SSLContext:
        """Without a certificate."""
        return client_context(TlsFiles(ca_file=self.ca))

    def _trusting(self, files: TlsFiles) -> ssl.SSLContext:
        return client_context(msgspec.structs.replace(files, ca_file=self.ca))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("secure") / "cluster", agents=1, secure=True) as running:
        yield running


@pytest.fixture(scope="module")
def callers(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Callers:
    return Callers(cluster, tmp_path_factory.mktemp("callers"))


def ask(member: Member, context: ssl.SSLContext, path: str, body: Any = None) -> Answer:
    return call(member.http, "GET" if body is None else "POST", path, body, context=context)


def next_id(cluster: LocalCluster) -> int:
    found: int = quorum(cluster.leader(), cluster.context)["next_producer_id"]
    return found


def producer(cluster: LocalCluster, files: TlsFiles | None, **settings: Any) -> Producer:
    (agent,) = cluster.layout.agents
    tls = {} if files is None else {
        "ssl.ca.location": files.ca_file,
        "ssl.certificate.location": files.certificate_file,
        "ssl.key.location": files.key_file,
    }  # fmt: skip
    known = {"bootstrap.servers": agent.kafka, "transactional.id": "t", "log_level": 0}
    protocol = {"security.protocol": "plaintext" if files is None else "ssl"}
    return Producer({**known, **protocol, **{key: value for key, value in tls.items() if value}, **settings})


def test_an_operator_works_as_ever_and_nothing_is_served_without_tls(cluster: LocalCluster) -> None:
    allocated = pidkeeper("ids", "allocate", "--broker", "9", "--cluster", cluster.directory)
    assert allocated.returncode == 0, allocated.stderr
    assert_healthy(cluster)
    for member in cluster.members():
        addresses = [member.http.partition("://")[2], *([member.kafka] if isinstance(member, Agent) else [member.peer])]
        for address in addresses:
            assert exchange(address, LIVE) == b"", f"{address} answers in plaintext"


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--controllers", "{http}"], 3, "it hung up without an answer; if it speaks TLS, name it https://"),
        (["--controllers", "{https}"], 3, "its certificate is refused, .*: name its CA with --ca-file"),
        (["--controllers", "{https}", "--ca-file", "{ca}"], 4, "a bearer token or a client certificate is required"),
        (["--controllers", "{https}", "--ca-file", "{stranger}"], 3, "its certificate is refused"),
        (["--controllers", "https://{peer}", "--ca-file", "{ca}"], 3, "no TLS with it|hung up"),
        (["--controllers", "{https}", "--ca-file", "{key}"], 2, "ca_file: .* holds no certificate"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    cluster: LocalCluster, callers: Callers, options: list[str], code: int, reason: str
) -> None:
    leader = cluster.leader()
    known = {
        "https": leader.http,
        "http": leader.http.replace("https", "http"),
        "ca": callers.ca,
        "key": callers.ca.replace(".pem", ".key"),
        "stranger": callers.other_ca,
        "peer": leader.peer,
    }
    ran = pidkeeper("health", "--timeout", "1", *(option.format(**known) for option in options))
    assert ran.returncode == code, ran.stderr
    assert re.search(reason, ran.stderr), ran.stderr
    assert "Traceback" not in ran.stderr


async def test_the_other_libraries_get_ids_over_tls(cluster: LocalCluster, callers: Callers) -> None:
    (agent,) = cluster.layout.agents
    files = callers.files("producer", "python")
    context = client_context(files)
    async with asyncio.timeout(60):
        producer = AIOKafkaProducer(
            bootstrap_servers=agent.kafka, transactional_id="a", security_protocol="SSL", ssl_context=context
        )
        await producer.start()
        first = producer._txn_manager.producer_id
        await producer.stop()
    other = await asyncio.to_thread(
        KafkaProducer,
        bootstrap_servers=agent.kafka,
        transactional_id="k",
        security_protocol="SSL",
        ssl_context=context,
    )
    await asyncio.to_thread(other.init_transactions)
    second = other._transaction_manager.producer_id_and_epoch.producer_id
    await asyncio.to_thread(other.close, 1)
    assert 0 <= first != second >= 0


def test_the_java_client_gets_an_id_over_tls(cluster: LocalCluster, callers: Callers, tmp_path: Path) -> None:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)
    (agent,) = cluster.layout.agents
    files = callers.files("producer", "java")
    own = tmp_path / "own.pem"
    own.write_bytes(Path(str(files.key_file)).read_bytes() + Path(str(files.certificate_file)).read_bytes())
    with java_process(tmp_path) as java:
        for key, value in (
            ("security.protocol", "SSL"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", callers.ca),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", str(own)),
        ):
            java.ask("set", key, value)
        java.ask("open", "one", agent.kafka, "j")
        java.ask("init", "one")
        assert int(java.ask("pair", "one").split()[0]) >= 0


def test_librdkafka_gets_an_id_with_its_certificate_alone(cluster: LocalCluster, callers: Callers) -> None:
    producer(cluster, callers.files("producer")).init_transactions(30)
    for refused in (
        producer(cluster, None),
        producer(cluster, TlsFiles(ca_file=callers.ca)),
        producer(cluster, callers.files("viewer")),
        producer(cluster, callers.files("producer", "x", "another-cluster")),
    ):
        with pytest.raises(KafkaException):
            refused.init_transactions(3)


@pytest.mark.parametrize(
    ("who", "status"),
    [
        ("stranger", None),
        ("expired", None),
        ("nobody", 401),
        ("producer", 403),
        ("viewer", 403),
        ("controller of the cluster", 403),
        ("operator of another cluster", 403),
        ("broker of another cluster", 403),
        ("another broker", 403),
        ("broker", 200),
    ],
)
def test_who_may_act_for_a_broker(cluster: LocalCluster, callers: Callers, who: str, status: int | None) -> None:
    contexts: dict[str, Callable[[], ssl.SSLContext]] = {
        "stranger": lambda: callers.stranger,
        "expired": callers.expired,
        "nobody": callers.nobody,
        "producer": lambda: callers.named("producer"),
        "viewer": lambda: callers.named("viewer"),
        "controller of the cluster": lambda: callers.named("controller", "1"),
        "operator of another cluster": lambda: callers.named("operator", "x", "another-cluster"),
        "broker of another cluster": lambda: callers.named("broker", "77", "another-cluster"),
        "another broker": lambda: callers.named("broker", "78"),
        "broker": lambda: callers.named("broker", "77"),
    }
    context = contexts[who]()
    leader = cluster.leader()
    known = ask(leader, callers.named("broker", "77"), "/v1/brokers/77/register", {"incarnation_id": "one"}).json()
    calls = [
        ("/v1/brokers/77/register", {"incarnation_id": "one"}),
        ("/v1/brokers/77/heartbeat", {"broker_epoch": known["broker_epoch"]}),
        (ALLOCATE, {"broker_id": 77, "broker_epoch": known["broker_epoch"]}),
    ]
    before = next_id(cluster)
    for path, body in calls:
        if status is None:
            with pytest.raises((OSError, http.client.HTTPException)):
                ask(leader, context, path, body)
        else:
            answer = ask(leader, context, path, body)
            assert answer.status == status, answer.body
    taken = next_id(cluster) - before
    assert taken == (1000 if status == 200 else 0)


@pytest.mark.parametrize(("kind", "status"), [("viewer", 403), ("broker", 403), ("producer", 403), ("operator", 200)])
def test_only_operators_change_the_cluster(cluster: LocalCluster, callers: Callers, kind: str, status: int) -> None:
    context = callers.named(kind, "5")
    leader = cluster.leader()
    before = next_id(cluster)
    assert ask(leader, context, "/v1/producer-ids/floor", {"at_least": before}).status == status
    assert ask(leader, context, "/v1/quorum").status == (403 if kind == "producer" else 200)


@pytest.mark.parametrize(("kind", "status"), [("viewer", 403), ("broker", 403), ("producer", 200), (None, 401)])
def test_who_gets_ids_of_an_agent(cluster: LocalCluster, callers: Callers, kind: str | None, status: int) -> None:
    (agent,) = cluster.layout.agents
    context = callers.nobody() if kind is None else callers.named(kind, "5")
    assert ask(agent, context, INIT, {"transactional_id": None}).status == status
    seen = {"viewer": 200, "broker": 200, "producer": 403, None: 401}
    assert ask(agent, context, "/metrics").status == seen[kind]
    assert ask(agent, context, "/readyz").status == 200


def test_certificates_are_renewed_without_a_restart(cluster: LocalCluster, callers: Callers) -> None:
    def ends(member: Member) -> float:
        text = ask(member, cluster.context, "/metrics").body.decode()
        found = re.search(r"^pidkeeper_certificate_expiry_timestamp_seconds (\S+)$", text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    def renewed(member: Member) -> bool:
        return abs(ends(member) - in_30_days) < 86_400

    before = {member_name(member): ends(member) for member in cluster.members()}
    first = next_id(cluster)
    made = pidkeeper(
        "certs", "dev", "--dir", cluster.directory / CERTIFICATES, "--cluster-id", cluster.layout.cluster_id,
        "--agents", "1", "--days", "30",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    in_30_days = (NOW + timedelta(days=30)).timestamp()
    for member in cluster.members():
        wait_until(partial(renewed, member), "the new certificate")
        assert before[member_name(member)] > in_30_days + 86_400
    del cluster.context
    assert pidkeeper("ids", "allocate", "--broker", "9", "--cluster", cluster.directory).returncode == 0
    assert next_id(cluster) > first
    assert [cluster.running(member) for member in cluster.members()] == [True] * 4


def test_a_voter_with_a_certificate_is_added(tmp_path: Path) -> None:
    with running_cluster(tmp_path, controllers=1, secure=True) as cluster:
        added = cluster.add_controller()
        cluster.start(added)
        add_voter(cluster, added)
        assert [voter["id"] for voter in quorum(cluster.leader(), cluster.context)["voters"]] == [1, 2]
        cluster.kill(added)
        cluster.start(added)
        cluster.wait_ready(added)


FILES = 1024


def test_a_crowd_that_says_nothing_takes_neither_files_nor_places(tmp_path: Path) -> None:
    """More than a process may have open, at every listener at once; a third of them begin a handshake."""
    cluster = LimitedFilesCluster(
        tmp_path,
        files=(FILES, FILES),
        controllers=1,
        agents=1,
        secure=True,
        controller_options=CONTROLLER_OPTIONS,
    )
    crowd: list[socket.socket] = []
    try:
        cluster.start()
        cluster.wait_ready()
        (controller,), (agent,) = cluster.layout.controllers, cluster.layout.agents
        for address in (controller.http, controller.peer, agent.http, agent.kafka):
            for number in range(FILES + 76):
                one = socket.create_connection(address_of(address), timeout=10)
                crowd.append(one)
                if number % 3 == 0:
                    one.sendall(b"\x16\x03\x01\x02\x00\x01")
        producer(cluster, Callers(cluster, tmp_path).files("producer")).init_transactions(30)
        for _ in range(3):
            allocated = pidkeeper("ids", "allocate", "--broker", "9", "--cluster", cluster.directory)
            assert allocated.returncode == 0, allocated.stderr
        for member in cluster.members():
            crowded = ask(member, cluster.context, "/metrics").body.decode()
            assert re.search(r'_handshakes_failed_total{reason="crowded"} [1-9]', crowded), "others gave way"
            assert "no connection can be accepted" not in log_of(cluster, member)
            assert "open files" not in log_of(cluster, member).partition("serves HTTP")[2]
    finally:
        for one in crowd:
            one.close()
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


class Changing(LocalCluster):
    """Members with certificates of their own, each of a level."""

    def certify(self) -> None:
        issue_for_cluster(
            self.directory / CERTIFICATES,
            self.layout.cluster_id,
            controllers=[controller.id for controller in self.layout.controllers],
            brokers=[agent.id for agent in self.layout.agents],
            hosts=["127.0.0.1"],
            days=1,
        )

    def _operator_files(self) -> TlsFiles | None:
        return dev_files(self.directory, "operator")

    def _config(self, member: Member) -> dict[str, Any]:
        config = super()._config(member)
        if config.get("security", "off") != "off":
            files = dev_files(self.directory, member_name(member))
            assert files is not None
            config["tls"] = msgspec.structs.asdict(files)
        return config


def test_a_quorum_changes_from_a_key_to_certificates_under_load(tmp_path: Path) -> None:
    cluster = Changing(
        tmp_path, agents=1, controller_options=dict(CONTROLLER_OPTIONS), agent_options=dict(SOON_ANOTHER)
    )
    cluster.certify()
    (agent,) = cluster.layout.agents
    try:
        cluster.start()
        cluster.wait_ready()
        with Claims(agent) as claims:
            roll(cluster, security="optional")
            wait_until(lambda: len(claims.claimed) > 2500, "claims over more than two blocks")
        assert claims.failed == []
        # The agent speaks TLS from here on; it still lets others in without.
        cluster.signal(agent, signal.SIGTERM)
        assert exit_code(cluster, agent) == 0
        for controller in cluster.layout.controllers:
            controller.http = controller.http.replace("http://", "https://")
        cluster.agent_options["security"] = "optional"
        cluster.start(agent)
        cluster.wait_ready(agent)
        with Claims(agent) as claims:
            roll(cluster, security="required", peer_key_file=None)
            before = len(claims.claimed)
            wait_until(lambda: len(claims.claimed) > before + 2500, "claims over more than two blocks")
        assert claims.failed == []
        # The last step. Whoever still comes without TLS is let in no more.
        cluster.signal(agent, signal.SIGTERM)
        assert exit_code(cluster, agent) == 0
        plainly, agent.http = agent.http, agent.http.replace("http://", "https://")
        cluster.agent_options["security"] = "required"
        cluster.start(agent)
        cluster.wait_ready(agent)
        with pytest.raises((OSError, http.client.HTTPException)):
            call(plainly, "POST", INIT, {"transactional_id": None})
        answer = ask(agent, cluster.context, INIT, {"transactional_id": None})
        assert answer.status == 200
        claimed = [*claims.claimed, answer.json()["producer_id"]]
        assert len(claimed) == len(set(claimed))
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def test_an_agent_that_is_not_authorised_ends_with_4(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token that the agent does not have")
    options = {"token_file": str(token)}
    cluster = LocalCluster(tmp_path / "cluster", controllers=1, agents=1, controller_options=options)
    (agent,) = cluster.layout.agents
    try:
        cluster.start(*cluster.layout.controllers)
        cluster.wait_ready(*cluster.layout.controllers)
        cluster.start(agent)
        assert exit_code(cluster, agent) == 4
        assert "a valid bearer token is required" in log_of(cluster, agent)
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def test_a_cluster_without_tls_is_not_resumed_as_a_secure_one(tmp_path: Path) -> None:
    LocalCluster(tmp_path, agents=0)._save()
    ran = pidkeeper("dev", "--dir", tmp_path, "--secure")
    assert ran.returncode == 5
    assert "was created without --secure" in ran.stderr
