"""Real clients at a Kafka listener that wants to know who they are, and rules for their transactional ids."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException, Producer

from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.cli.controllers import dev_files
from pidkeeper.cli.kafka_load import request_frame
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.clients.java_witness import JavaError, java_process, why_no_java
from tests.clients.witnesses import KafkaProducer, KafkaPythonError
from tests.integration.test_secure import Callers
from tests.support.cluster import config_of, log_of, pidkeeper, running_cluster, wait_until
from tests.support.http_calls import address_of, call
from tests.support.sasl_users import authenticate, handshake, plain

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECONDS = 20
INIT = "/v1/init-producer-id"


class Secured:
    """A cluster whose agent has users and rules; `password` is alice's, who may use what begins with shop-."""

    def __init__(self, cluster: LocalCluster, users: Path, acls: Path, password: str) -> None:
        self.cluster = cluster
        self.users = users
        self.acls = acls
        self.password = password
        (agent,) = cluster.layout.agents
        self.agent = agent
        files = dev_files(cluster.directory, "operator")
        assert files is not None
        self.ca = str(files.ca_file)

    def has_logged(self, text: str) -> bool:
        return text in log_of(self.cluster, self.agent)

    def aiokafka(self, mechanism: str, user: str, password: str, transactional_id: str | None) -> int:
        """The producer ID that aiokafka gets."""

        async def ask() -> int:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.agent.kafka,
                transactional_id=transactional_id,
                enable_idempotence=True,
                security_protocol="SASL_SSL",
                ssl_context=client_context(TlsFiles(ca_file=self.ca)),
                sasl_mechanism=mechanism,
                sasl_plain_username=user,
                sasl_plain_password=password,
            )
            try:
                await producer.start()
                return int(producer._txn_manager.producer_id)
            finally:
                await producer.stop()

        return asyncio.run(asyncio.wait_for(ask(), SECONDS))

    def librdkafka(self, mechanism: str, user: str, password: str, transactional_id: str | None) -> int:
        """0 if librdkafka gets one; it does not tell which. Without a transactional id it cannot be asked."""
        producer = self.producer(mechanism, user, password, transactional_id)
        producer.init_transactions(SECONDS)
        return 0

    def producer(self, mechanism: str, user: str, password: str, transactional_id: str | None, **more: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.agent.kafka,
                "transactional.id": transactional_id,
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": self.ca,
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
                "log_level": 0,
                **more,
            }
        )

    def kafka_python(self, mechanism: str, user: str, password: str, transactional_id: str | None) -> int:
        """The producer ID that kafka-python gets."""
        producer = KafkaProducer(
            bootstrap_servers=self.agent.kafka,
            transactional_id=transactional_id,
            security_protocol="SASL_SSL",
            ssl_context=client_context(TlsFiles(ca_file=self.ca)),
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
            max_block_ms=SECONDS * 1000,
        )
        try:
            producer.init_transactions()
            return int(producer._transaction_manager.producer_id_and_epoch.producer_id)
        finally:
            producer.close(timeout=1)


Ask = Callable[[Secured, str, str, str, str], int]
LIBRARIES: list[Ask] = [Secured.aiokafka, Secured.librdkafka, Secured.kafka_python]
REFUSALS = (AiokafkaError, KafkaException, KafkaPythonError)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("users")
    users, acls = directory / "users", directory / "acls"
    password = pidkeeper("users", "create", str(users), "--name", "alice").stdout.strip()
    pidkeeper("acls", "add", str(acls), "allow", "--principal", "alice", "--transactional-id", "shop-*")
    with running_cluster(
        directory / "cluster",
        agents=1,
        secure=True,
        agent_options={"users_file": str(users), "acls_file": str(acls)},
    ) as cluster:
        yield Secured(cluster, users, acls, password)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("ask", LIBRARIES)
def test_every_library_gets_in_by_every_mechanism(secured: Secured, ask: Ask, mechanism: str) -> None:
    assert ask(secured, mechanism, "alice", secured.password, f"shop-{ask.__name__}-{mechanism}") >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(secured: Secured, mechanism: str) -> None:
    told = {
        refusal(secured, mechanism, user, password)
        for user, password in (("alice", "wrong"), ("mallory", secured.password))
    }
    assert told == {f"authentication by {mechanism} failed: user or password are wrong"}
    assert not secured.has_logged(secured.password)


def refusal(secured: Secured, mechanism: str, user: str, password: str) -> str:
    """What librdkafka is told."""
    errors: list[str] = []
    producer = secured.producer(mechanism, user, password, "shop-1", error_cb=lambda error: errors.append(error.str()))

    def told() -> list[str]:
        producer.poll(0.1)
        return [error for error in errors if "authentication by" in error]

    told_error = wait_until(told, "a refusal")[0]
    found = re.search(r"authentication by .* wrong", told_error)
    assert found is not None, told_error
    return found[0]


@pytest.mark.parametrize("ask", LIBRARIES)
def test_a_transactional_id_of_somebody_else_is_refused(secured: Secured, ask: Ask) -> None:
    with pytest.raises(REFUSALS) as refusal:
        ask(secured, "SCRAM-SHA-256", "alice", secured.password, "bank-1")
    assert "uthoriz" in str(refusal.value) + type(refusal.value).__name__


def test_the_java_client_gets_in_and_is_told_why_not(secured: Secured, tmp_path: Path) -> None:
    if (reason := why_no_java()) is not None:
        pytest.skip(reason)

    with java_process(tmp_path) as java:

        def ask(mechanism: str, password: str, transactional_id: str) -> str:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'org.apache.kafka.common.security.{module} required username="alice" password="{password}";'
            for key, value in (
                ("security.protocol", "SASL_SSL"),
                ("ssl.truststore.type", "PEM"),
                ("ssl.truststore.location", secured.ca),
                ("sasl.mechanism", mechanism),
                ("sasl.jaas.config", login),
            ):
                java.ask("set", key, value)
            name = java.new_name()
            java.ask("open", name, secured.agent.kafka, transactional_id)
            java.ask("init", name)
            return java.ask("pair", name)

        for mechanism in MECHANISMS:
            assert int(ask(mechanism, secured.password, f"shop-java-{mechanism}").split()[0]) >= 0
        with pytest.raises(JavaError, match=r"SaslAuthenticationException.*user or password are wrong"):
            ask("SCRAM-SHA-512", "wrong", "shop-java")
        with pytest.raises(JavaError, match="TransactionalIdAuthorizationException"):
            ask("PLAIN", secured.password, "bank-java")


def test_whoever_is_deleted_is_cut_off_and_not_let_in_again(secured: Secured) -> None:
    password = pidkeeper("users", "create", str(secured.users), "--name", "bob").stdout.strip()
    pidkeeper("acls", "add", str(secured.acls), "allow", "--principal", "bob", "--transactional-id", "shop-bob")
    errors: list[str] = []
    producer = secured.producer(
        "SCRAM-SHA-512", "bob", password, "shop-bob", error_cb=lambda error: errors.append(error.str())
    )
    producer.init_transactions(SECONDS)
    pidkeeper("users", "delete", str(secured.users), "--name", "bob")

    def told() -> bool:
        producer.poll(0.1)
        return any("user or password are wrong" in error for error in errors)

    wait_until(told, "the refusal of a user who is gone")


def test_rules_hold_over_http_as_well_and_are_read_again(secured: Secured) -> None:
    context = secured.cluster.context

    def status(transactional_id: str) -> int:
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 1000}
        return call(secured.agent.http, "POST", INIT, body, context=context).status

    assert (status("shop-http"), status("http-1")) == (403, 403)
    rule = ["--principal", "operator dev", "--transactional-id", "http-*"]
    pidkeeper("acls", "add", str(secured.acls), "allow", *rule)
    wait_until(lambda: status("http-1") == 200, "the new rule")
    pidkeeper("acls", "add", str(secured.acls), "deny", "--principal", "*", "--transactional-id", "http-2")
    wait_until(lambda: status("http-2") == 403, "the rule that denies")
    assert status("http-1") == 200


def test_the_fingerprints_of_an_agent_are_those_of_its_files(secured: Secured) -> None:
    def told() -> tuple[str, str]:
        status = call(secured.agent.http, "GET", "/v1/status", context=secured.cluster.context).json()
        return status["users_fingerprint"], status["acls_fingerprint"]

    def of_files() -> tuple[str, str]:
        return UserList(str(secured.users)).fingerprint, AclList(str(secured.acls)).fingerprint

    before = of_files()
    wait_until(lambda: told() == before, "the fingerprints of what is in force")
    pidkeeper("acls", "add", str(secured.acls), "allow", "--principal", "carol", "--transactional-id", "carol")
    pidkeeper("users", "create", str(secured.users), "--name", "carol")
    wait_until(lambda: told() == of_files(), "the new ones")
    assert not set(told()) & set(before)


@contextlib.contextmanager
def broken(file: Path, text: str) -> Iterator[None]:
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


def test_files_that_cannot_be_used_change_nothing(secured: Secured) -> None:
    with broken(secured.users, "alice nonsense\n"), broken(secured.acls, "allow everything\n"):
        for what in ("the file of users", "the file of rules"):
            wait_until(partial(secured.has_logged, f"{what} {secured.users.parent}"), f"a word about {what}")
        assert secured.aiokafka("SCRAM-SHA-256", "alice", secured.password, "shop-kept") >= 0


class Stranger:
    """Raw bytes to the Kafka listener, and whatever comes back until it hangs up or says no more."""

    def __init__(self, secured: Secured) -> None:
        self._address = address_of(secured.agent.kafka)

    def says(self, sent: bytes, context: ssl.SSLContext | None) -> bytes:
        heard = b""
        with contextlib.suppress(OSError), socket.create_connection(self._address, timeout=1.0) as plain:
            speaking = (
                contextlib.nullcontext(plain)
                if context is None
                else context.wrap_socket(plain, server_hostname="localhost")
            )
            with speaking as connection:
                connection.sendall(sent)
                while more := connection.recv(65536):
                    heard += more
        return heard


def test_ten_kinds_of_wrong_caller_get_no_id(secured: Secured, tmp_path: Path) -> None:
    callers, stranger = Callers(secured.cluster, tmp_path), Stranger(secured)
    init = request_frame()
    right, wrong = plain("alice", secured.password), plain("alice", "wrong")
    for_bob = plain("alice", secured.password, "bob")
    unnamed = callers.nobody()
    attempts: dict[str, tuple[bytes, ssl.SSLContext | None]] = {
        "in plaintext": (init, None),
        "in plaintext, with the password": (handshake("PLAIN") + authenticate(right) + init, None),
        "without a name": (init, unnamed),
        "certificate of another CA": (init, callers.stranger),
        "expired certificate": (init, callers.expired()),
        "viewer's certificate": (init, callers.named("viewer")),
        "broker's certificate": (init, callers.named("broker", "1")),
        "producer of another cluster": (init, callers.named("producer", "x", "another-cluster")),
        "wrong password": (handshake("PLAIN") + authenticate(wrong) + init, unnamed),
        "unknown user": (handshake("PLAIN") + authenticate(plain("mallory", secured.password)) + init, unnamed),
        "for somebody else": (handshake("PLAIN") + authenticate(for_bob) + init, unnamed),
        "no handshake": (authenticate(right) + init, unnamed),
        "half of SCRAM": (handshake("SCRAM-SHA-256") + authenticate(b"n,,n=alice,r=abc") + init, unnamed),
        "unknown mechanism": (handshake("OAUTHBEARER") + authenticate(right) + init, unnamed),
    }
    before = claimed(secured)
    for who, (sent, context) in attempts.items():
        stranger.says(sent, context)
        assert claimed(secured) == before, who
    for context, token in ((unnamed, None), (unnamed, secured.password), (callers.named("viewer"), None)):
        answer = call(secured.agent.http, "POST", INIT, {"transactional_id": None}, token=token, context=context)
        assert answer.status in {401, 403}
    assert claimed(secured) == before
    stranger.says(handshake("PLAIN") + authenticate(right) + init, unnamed)
    assert claimed(secured) == before + 1, "the right caller gets one by the same bytes"


def claimed(secured: Secured) -> float:
    text = call(secured.agent.http, "GET", "/metrics", context=secured.cluster.context).body.decode()
    found = re.search(r"^pidkeeper_agent_claims_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_no_secret_is_told_anywhere(secured: Secured, tmp_path: Path) -> None:
    """Neither the password nor what the server keeps of it, nor a private key."""
    cluster, bundle = secured.cluster, tmp_path / "bundle.tar.gz"
    assert secured.aiokafka("PLAIN", "alice", secured.password, "shop-once-more") >= 0
    config = config_of(cluster, secured.agent)
    made = pidkeeper("debug", "bundle", "--cluster", cluster.directory, "--config", config, "--out", bundle)
    assert made.returncode == 0, made.stderr
    told = [gzip.decompress(bundle.read_bytes())]
    for member in cluster.members():
        told.append(log_of(cluster, member).encode())
        told += [Path(f"/proc/{member.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
        told += [call(member.http, "GET", path, context=cluster.context).body for path in ("/metrics", "/openapi.json")]
    keys = [path.read_text().splitlines()[1] for path in (cluster.directory / "certs").glob("*.key")]
    kept = [text for line in secured.users.read_text().splitlines() for text in re.findall(r"[\w+/=]{40,}", line)]
    assert keys
    assert kept
    for secret in (secured.password, *keys, *kept):
        assert not any(secret.encode() in one for one in told)
