"""Tokens, certificates and CAs are replaced, one process after the other, and nothing fails meanwhile."""

from __future__ import annotations

import http.client
import itertools
import socket
import ssl
import threading
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.local_cluster import Agent, Controller, LocalCluster, Member, member_name
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.integration.test_peer_keys import Claims, roll
from tests.integration.test_tokens import Tokens
from tests.support.certificates import CertificateAuthority
from tests.support.cluster import CONTROLLER_OPTIONS, SOON_ANOTHER, labelled, log_of, running_cluster, wait_until
from tests.support.http_calls import address_of, call

ALLOCATE = "/v1/producer-ids/allocate"
BROKER = 77


def replace(path: Path, content: str) -> None:
    """As a whole."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(content)
    unfinished.rename(path)


class TokenCluster(LocalCluster):
    """Each controller has the file of tokens as its own, and a brokers' token has each agent."""

    def __init__(self, directory: Path, operators: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self._operators = operators

    def tokens(self, controller: Member) -> Path:
        return self.directory / f"{member_name(controller)}.tokens"

    def _config(self, member: Member) -> dict[str, Any]:
        own = {"tokens_file": str(self.tokens(member))} if isinstance(member, Controller) else {}
        return super()._config(member) | own

    def _token_file(self) -> Path:
        return self._operators


class Allocations:
    """Takes blocks as an operator without a pause, each time with the token that is in the file then."""

    def __init__(self, controller: Controller, token_file: Path) -> None:
        self.given: list[int] = []
        self.failed: list[bytes] = []
        self._url = controller.http
        self._token_file = token_file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the allocations do not end"

    def _run(self) -> None:
        path, body = f"/v1/brokers/{BROKER}/register", {"incarnation_id": "one"}
        epoch = call(self._url, "POST", path, body, token=self._token_file.read_text()).json()["broker_epoch"]
        while not self._stop.wait(0.01):
            wanted = {"broker_id": BROKER, "broker_epoch": epoch}
            answer = call(self._url, "POST", ALLOCATE, wanted, token=self._token_file.read_text())
            if answer.status == 200:
                self.given.append(answer.json()["producer_id_start"])
            else:
                self.failed.append(answer.body)


def test_tokens_of_an_agent_and_of_operators_are_rolled_under_load(tmp_path: Path) -> None:
    tokens, own, operators = Tokens(tmp_path / "tokens"), tmp_path / "agent", tmp_path / "operator"
    own.write_text(tokens.create("agent-1", "broker:1"))
    operators.write_text(tokens.create("operator", "operator"))
    old = [own.read_text(), operators.read_text()]
    cluster = TokenCluster(
        tmp_path / "cluster",
        operators,
        agents=1,
        controller_options=CONTROLLER_OPTIONS,
        agent_options={"token_file": str(own), **SOON_ANOTHER},
    )
    controllers, (agent,) = cluster.layout.controllers, cluster.layout.agents

    def tell_controllers() -> None:
        for controller in controllers:
            replace(cluster.tokens(controller), tokens.file.read_text())

    def denied(controller: Controller) -> float:
        return sum(labelled(controller, "pidkeeper_http_requests_denied_total").values())

    tell_controllers()
    try:
        cluster.start()
        cluster.wait_ready()
        leader = leader_of(cluster, operators.read_text())
        with Claims(agent) as claims, Allocations(leader, operators) as allocations:

            def go_on() -> None:
                claimed, given = len(claims.claimed), len(allocations.given)
                wait_until(lambda: len(claims.claimed) > claimed + 200, "more claims")
                wait_until(lambda: len(allocations.given) > given + 20, "more blocks of an operator")

            go_on()
            for name, role, file in (("agent-1", "broker:1", own), ("operator", "operator", operators)):
                newer = tokens.create(name, role)
                tell_controllers()
                replace(file, newer)
                go_on()
            wait_until(
                lambda: "token_file changed and was read again" in log_of(cluster, agent), "the agent's new token"
            )
            for name in ("agent-1", "operator"):
                tokens.revoke(name, "--but-the-newest")
            tell_controllers()
            go_on()
            another_block(agent)
        assert (claims.failed, allocations.failed) == ([], [])
        assert [denied(controller) for controller in controllers] == [0, 0, 0], "not even a heartbeat"
        assert len(set(claims.claimed)) == len(claims.claimed)
        for controller, token in itertools.product(controllers, old):
            wait_until(partial(is_refused, controller, token), "the end of an old token")
        assert cluster.running(agent)
        assert not [token for token in old if token in log_of(cluster, agent)]
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def another_block(agent: Agent, context: ssl.SSLContext | None = None) -> None:
    """Wait until claims have made the agent ask the controllers for one."""

    def received() -> int:
        return int(call(agent.http, "GET", "/v1/status", context=context).json()["blocks_received"])

    before = received()
    wait_until(lambda: received() > before, "another block of the agent")


def is_refused(controller: Controller, token: str) -> bool:
    return call(controller.http, "GET", "/v1/quorum", token=token).status == 401


def leader_of(cluster: LocalCluster, token: str) -> Controller:
    """By the word of whoever leads, to somebody with a token."""

    def look() -> Controller | None:
        for controller in cluster.layout.controllers:
            if call(controller.http, "GET", "/v1/quorum", token=token).json().get("role") == "leader":
                return controller
        return None

    found = wait_until(look, "a leader")
    assert found is not None
    return found


class SecondAuthority:
    """Another CA, which signs for the members and the operator of a secure cluster in place of the first."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster = cluster
        self._files = cluster.directory / CERTIFICATES
        self._authority = CertificateAuthority(directory, "second")
        self._kinds = {member_name(agent): ("broker", str(agent.id)) for agent in cluster.layout.agents}
        self._kinds |= {member_name(one): ("controller", str(one.id)) for one in cluster.layout.controllers}
        self._kinds["operator"] = ("operator", "dev")
        self.first, self.second = (self._files / "ca.pem").read_text(), Path(self._authority.path).read_text()

    def issue(self, name: str) -> TlsFiles:
        """A certificate like the one that `name` has."""
        uri = CertifiedName(self._cluster.layout.cluster_id, *self._kinds[name]).uri
        files = self._authority.issue(name, uris=[uri])
        return msgspec.structs.replace(files, ca_file=str(self._files / "ca.pem"))

    def replace(self, name: str) -> None:
        """Put such a certificate where the first one is."""
        files = self.issue(name)
        for new, kept in ((files.key_file, f"{name}.key"), (files.certificate_file, f"{name}.pem")):
            replace(self._files / kept, Path(str(new)).read_text())

    def trust(self, *authorities: str) -> None:
        """Have all members trust these."""
        replace(self._files / "ca.pem", "".join(authorities))


def serves(member: Member, context: ssl.SSLContext) -> bool:
    try:
        return call(member.http, "GET", "/metrics", context=context).status == 200
    except (OSError, http.client.HTTPException):
        return False


def signed_by_second(member: Member, context: ssl.SSLContext) -> bool:
    with (
        socket.create_connection(address_of(member.http), 10) as bare,
        context.wrap_socket(bare, server_hostname="localhost") as line,
    ):
        certificate: Any = line.getpeercert()
    return (("commonName", "second"),) in certificate["issuer"]


def test_certificates_and_their_ca_are_rolled_under_load(tmp_path: Path) -> None:
    """The second CA is trusted beside the first, signs for one member after the other, and is trusted alone then."""
    with running_cluster(tmp_path / "cluster", agents=1, agent_options=SOON_ANOTHER, secure=True) as cluster:
        (agent,), members = cluster.layout.agents, cluster.members()
        authority = SecondAuthority(cluster, tmp_path)
        old = cluster.context
        authority.trust(authority.first, authority.second)
        new = client_context(authority.issue("operator"))
        for member in members:
            wait_until(partial(serves, member, new), f"{member_name(member)} to trust the second CA as well")
        with Claims(agent, new) as claims:
            for member in members:
                claimed = len(claims.claimed)
                authority.replace(member_name(member))
                wait_until(partial(signed_by_second, member, new), f"{member_name(member)} to show its new certificate")
                wait_until(lambda: len(claims.claimed) > claimed + 300, "more claims")  # noqa: B023 - called here
            authority.replace("operator")
            del cluster.context
            authority.trust(authority.second)
            for member in members:
                wait_until(lambda: not serves(member, old), "the end of the first CA")  # noqa: B023 - called here
            # Every link and every connection of the agent is made anew.
            roll(cluster)
            another_block(agent, new)
        assert claims.failed == []
        assert len(set(claims.claimed)) == len(claims.claimed)
        assert cluster.running(agent)
