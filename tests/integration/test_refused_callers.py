"""Every listener of both services against every kind of caller: who is refused gets nothing and changes nothing.

Each caller comes from an address of its own, by which the line in the log is known that says why it was refused.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.kafka_load import request_frame
from pidkeeper.broker_agent.api.routes import ROUTES as AGENT_ROUTES
from pidkeeper.broker_agent.config import AgentConfig
from pidkeeper.cli.controllers import connect
from pidkeeper.cli.local_cluster import HOST, Agent, LocalCluster, Member, free_ports, member_name
from pidkeeper.controller.api.routes import ROUTES as CONTROLLER_ROUTES
from pidkeeper.controller.config import ControllerConfig
from pidkeeper.controller.transport.frames import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Hello,
    Welcome,
    handshake_reader,
    hello_frame,
)
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import Access
from pidkeeper.service.certified import KINDS
from pidkeeper.service.kafka.wire.primitives import int16, int32, string
from pidkeeper.service.logs import MAX_LINES_A_SECOND
from pidkeeper.service.routes import Route
from tests.integration.test_secure import Callers
from tests.support.cluster import CONTROLLER_OPTIONS, bring_back, followers, log_of, pidkeeper, wait_until
from tests.support.http_calls import address_of, call
from tests.support.sasl_users import authenticate, handshake, plain

OK: Final = 200
SILENCE: Final = None
"""What a caller gets that is hung up on."""

FOREIGN_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
INIT: Final = "/v1/init-producer-id"


def addresses(member: Member) -> list[str]:
    further = [member.kafka] if isinstance(member, Agent) else [member.peer, member.kafka]
    return [member.http, *(one for one in further if one is not None)]


class OpenCluster(LocalCluster):
    """All members have a listener for probes. The second agent has users and rules besides."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        members = self.members()
        # Nobody listens on the ports of the other listeners yet.
        free = free_ports(len(members), self.ports())
        self.probes = dict(zip(map(member_name, members), free, strict=True))

    def _config(self, member: Member) -> dict[str, Any]:
        probed = super()._config(member) | {"probe_listen": f"{HOST}:{self.probes[member_name(member)]}"}
        files = {name: str(self.directory / name) for name in ("users_file", "acls_file")}
        return probed | files if member_name(member) == "agent-2" else probed


class World:
    """The cluster, and who calls it. `password`: alice's, who may use transactional ids that begin with shop-."""

    def __init__(self, cluster: OpenCluster, directory: Path) -> None:
        self.cluster = cluster
        self.leader = cluster.leader()
        self.follower, self.other_follower = followers(cluster, self.leader)
        self.agent, self.agent_with_users = cluster.layout.agents
        self.callers = Callers(cluster, directory)
        self.expired = self.callers.expired()
        self._came: list[float] = []
        tokens, users, acls = (cluster.directory / name for name in ("tokens", "users_file", "acls_file"))
        self.revoked = ordered("tokens", "create", tokens, "--name", "gone", "--role", "operator")
        ordered("tokens", "revoke", tokens, "--name", "gone")
        self.deleted = ordered("users", "create", users, "--name", "bob")
        ordered("users", "delete", users, "--name", "bob")
        self.password = ordered("users", "create", users, "--name", "alice")
        ordered("acls", "add", acls, "allow", "--principal", "alice", "--transactional-id", "shop-*")

    @functools.cache  # noqa: B019 - there is one for the file
    def certificate(self, kind: str, name: str = "test", cluster_id: str | None = None) -> ssl.SSLContext:
        return self.callers.named(kind, name, cluster_id)

    def probes(self, member: Member) -> str:
        return f"https://{HOST}:{self.cluster.probes[member_name(member)]}"

    @functools.cache  # noqa: B019 - there is one for the file
    def _line(self, member: str) -> http.client.HTTPConnection:
        (found,) = (one for one in self.cluster.members() if member_name(one) == member)
        return connect(found.http, 30.0, lambda: self.cluster.context)

    def text(self, member: Member, path: str) -> str:
        """What an operator gets, over a connection that stays."""
        line = self._line(member_name(member))
        line.request("GET", path)
        answer = line.getresponse()
        text = answer.read().decode()
        assert answer.status == OK, text
        return text

    def read(self, member: Member, path: str) -> Any:
        return json.loads(self.text(member, path))

    def brokers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.read(self.leader, "/v1/brokers")["brokers"]
        return found

    def facts(self) -> dict[str, Any]:
        """All that a caller could have got or changed."""
        quorum = self.read(self.leader, "/v1/quorum")
        return {
            **{key: quorum[key] for key in ("next_producer_id", "term", "leader_id", "metadata_version", "warnings")},
            "members": [member["id"] for member in (*quorum["voters"], *quorum["learners"])],
            "brokers": [(broker["broker_id"], broker["broker_epoch"], broker["fenced"]) for broker in self.brokers()],
            "transactions": self.read(self.leader, "/v1/transactions")["transactions"],
            "claimed": [self.read(agent, "/v1/status")["claimed"] for agent in (self.agent, self.agent_with_users)],
        }

    def count(self, member: Member, counted: Counted) -> float:
        """0 before there is a sample."""
        families = text_string_to_metric_families(self.text(member, "/metrics"))
        samples = [one for family in families for one in family.samples]
        labels = dict(counted.labels)
        return sum(one.value for one in samples if one.name == counted.name and labels.items() <= one.labels.items())

    def log_has_room(self) -> bool:
        """Whether one more caller comes at a pace at which all are told of (`logs.MAX_LINES_A_SECOND`).

        Each line is waited for before the next caller comes, so no second has more lines than callers, and one.
        """
        now = time.monotonic()
        self._came = [came for came in self._came if now - came <= 1]
        if len(self._came) >= MAX_LINES_A_SECOND - 1:
            return False
        self._came.append(now)
        return True

    def lines_about(self, member: Member, source: str) -> list[str]:
        """What the member has logged about connections from there."""
        return [line for line in log_of(self.cluster, member).splitlines() if f"connection from {source}" in line]


def ordered(*order: str | Path) -> str:
    done = pidkeeper(*order)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with contextlib.closing(socket.socket()) as one:
        try:
            one.bind(("127.0.1.1", 0))
        except OSError:
            pytest.skip("no addresses of their own for callers: this machine has not all of 127.0.0.0/8")
    directory = tmp_path_factory.mktemp("refused") / "cluster"
    directory.mkdir()
    for name in ("tokens", "users_file", "acls_file"):
        (directory / name).touch()
    listed = {"tokens_file": str(directory / "tokens")}
    # The patient profile: no test here is about elections, and none may be disturbed by one.
    options = CONTROLLER_OPTIONS | listed | {"profile": "wan"}
    cluster = OpenCluster(directory, agents=2, secure=True, controller_options=options, agent_options=listed)
    try:
        bring_back(cluster)
        world = World(cluster, tmp_path_factory.mktemp("callers"))
        wait_until(lambda: at_rest(world), "full reserves and known addresses: nothing happens by itself from there on")
        wait_for_revocations(world)
        yield world
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])


def at_rest(world: World) -> bool:
    known = {broker["broker_id"]: broker["kafka"] for broker in world.brokers()}
    agents = (world.agent, world.agent_with_users)
    statuses = [world.read(agent, "/v1/status") for agent in agents]
    return known == {agent.id: agent.kafka for agent in agents} and all(
        status["reserve_ids"] >= status["reserve_target_ids"] for status in statuses
    )


SOURCES: Final = (f"127.0.{net}.{host}" for net, host in itertools.product(range(1, 255), range(1, 255)))


# Who calls: what it speaks TLS with, if at all, and the token that it brings.


class Caller(NamedTuple):
    context: ssl.SSLContext | None
    token: str | None = None
    user: tuple[str, str] | None = None
    """By SASL, with the password."""
    source: str = ""


Who = Callable[[World, "Listener"], Caller]


def stranger(world: World, _: Listener) -> Caller:
    return Caller(world.callers.stranger)


def late(world: World, _: Listener) -> Caller:
    return Caller(world.expired)


def unnamed(world: World, _: Listener) -> Caller:
    return Caller(world.callers.nobody())


def plainly(_world: World, _listener: Listener) -> Caller:
    return Caller(None)


def revoked(world: World, _: Listener) -> Caller:
    """By a token, or as a user who is gone."""
    return Caller(world.callers.nobody(), world.revoked, ("bob", world.deleted))


def neighbour(world: World, listener: Listener) -> Caller:
    """The right name, of another cluster."""
    return Caller(world.certificate(*listener.right(world), cluster_id="another-cluster"))


def another(world: World, listener: Listener) -> Caller:
    """Known here, and not the one that may ask this."""
    return Caller(world.certificate(*listener.wrong(world)))


def right(world: World, listener: Listener) -> Caller:
    return Caller(world.certificate(*listener.right(world)))


# What is asked, and what comes back: a status of HTTP, an error of Kafka, or SILENCE.


def over_http(base_url: str, method: str, path: str, body: Any, caller: Caller) -> int | None:
    if caller.context is None:
        base_url = base_url.replace("https://", "http://")
    try:
        answer = call(
            base_url, method, path, body, token=caller.token, context=caller.context, source=caller.source or None
        )
    except (OSError, http.client.HTTPException):
        return SILENCE
    return answer.status


def bytes_to(address: str, sent: bytes, caller: Caller, frames: int) -> list[bytes]:
    """So many frames that come back, or fewer before the other side hangs up."""
    heard = b""
    with contextlib.suppress(OSError), socket.create_connection(address_of(address), 10, (caller.source, 0)) as bare:
        secured = None if caller.context is None else caller.context.wrap_socket(bare, server_hostname="localhost")
        with secured or bare as connection:
            connection.sendall(sent)
            while len(whole(heard)) < frames and (more := connection.recv(65_536)):
                heard += more
    return whole(heard)


def whole(heard: bytes) -> list[bytes]:
    frames = []
    while len(heard) >= 4 and len(heard) >= (end := 4 + int.from_bytes(heard[:4], "big")):
        frames.append(heard[4:end])
        heard = heard[end:]
    return frames


def allocate(world: World, caller: Caller) -> int | None:
    (epoch,) = (broker["broker_epoch"] for broker in world.brokers() if broker["broker_id"] == world.agent.id)
    body = {"broker_id": world.agent.id, "broker_epoch": epoch}
    return over_http(world.leader.http, "POST", "/v1/producer-ids/allocate", body, caller)


def claim(world: World, caller: Caller) -> int | None:
    return over_http(world.agent.http, "POST", INIT, {"transactional_id": None}, caller)


def introduce(world: World, caller: Caller) -> int | None:
    """As a follower, up to the proof: with that the link would take the place of the one that is there."""
    cluster_id, follower, leader = world.cluster.layout.cluster_id, world.follower.id, world.leader.id
    hello = Hello(PROTOCOL_VERSION, cluster_id, follower, leader, "a-directory", bytes(NONCE_BYTES))
    answers = bytes_to(world.leader.peer, hello_frame(hello), caller, 1)
    if not answers:
        return SILENCE
    reader = handshake_reader()
    reader.push(int32(len(answers[0])) + answers[0])
    return OK if isinstance(reader.pop(), Welcome) else 403


def allocate_by_kafka(world: World, caller: Caller) -> int | None:
    """AllocateProducerIds of the agent's broker, behind SASL where the caller brings a token."""
    (epoch,) = (broker["broker_epoch"] for broker in world.brokers() if broker["broker_id"] == world.agent.id)
    requests = [request_frame(world.agent.id, epoch)]
    if caller.token is not None:
        requests = [handshake("PLAIN"), authenticate(plain("whoever", caller.token)), *requests]
    assert world.leader.kafka is not None
    answers = bytes_to(world.leader.kafka, b"".join(requests), caller, len(requests))
    if len(answers) < len(requests):
        return SILENCE
    return int.from_bytes(answers[-1][9:11], "big", signed=True) or OK


def kafka(member: Callable[[World], Any], transactional_id: str | None = None) -> Ask:
    """InitProducerId, version 1, behind SASL where the caller has a user."""

    def ask(world: World, caller: Caller) -> int | None:
        wanted = int16(-1) if transactional_id is None else string(transactional_id, flexible=False)
        body = int16(22) + int16(1) + int32(7) + string("c", flexible=False) + wanted + int32(60_000)
        requests = [int32(len(body)) + body]
        if caller.user is not None:
            requests = [handshake("PLAIN"), authenticate(plain(*caller.user)), *requests]
        answers = bytes_to(member(world).kafka, b"".join(requests), caller, len(requests))
        if len(answers) < len(requests):
            return SILENCE
        return int.from_bytes(answers[-1][8:10], "big", signed=True) or OK

    return ask


Ask = Callable[[World, Caller], int | None]
Name = Callable[[World], tuple[str, str]]


class Listener(NamedTuple):
    """Whose it is, what is asked there, who may, and somebody who is known and may not."""

    setting: str
    member: Callable[[World], Member]
    ask: Ask
    right: Name
    wrong: Name


CONTROLLER_HTTP: Final = Listener(
    "controller http_listen",
    lambda world: world.leader,
    allocate,
    lambda world: ("broker", str(world.agent.id)),
    lambda world: ("broker", str(world.agent_with_users.id)),
)
CONTROLLER_PROBES: Final = Listener(
    "controller probe_listen",
    lambda world: world.leader,
    lambda world, caller: over_http(world.probes(world.leader), "GET", "/metrics", None, caller),
    lambda _: ("viewer", "test"),
    lambda _: ("producer", "test"),
)
CONTROLLER_KAFKA: Final = Listener(
    "controller kafka_listen",
    lambda world: world.leader,
    allocate_by_kafka,
    lambda world: ("broker", str(world.agent.id)),
    lambda world: ("broker", str(world.agent_with_users.id)),
)
CONTROLLER_PEERS: Final = Listener(
    "controller peer_listen",
    lambda world: world.leader,
    introduce,
    lambda world: ("controller", str(world.follower.id)),
    lambda world: ("controller", str(world.other_follower.id)),
)
AGENT_HTTP: Final = Listener(
    "agent http_listen", lambda world: world.agent, claim, lambda _: ("producer", "test"), lambda _: ("viewer", "test")
)
AGENT_PROBES: Final = Listener(
    "agent probe_listen",
    lambda world: world.agent,
    lambda world, caller: over_http(world.probes(world.agent), "GET", "/metrics", None, caller),
    lambda _: ("viewer", "test"),
    lambda _: ("producer", "test"),
)
AGENT_KAFKA: Final = Listener(
    "agent kafka_listen",
    lambda world: world.agent,
    kafka(lambda world: world.agent),
    lambda _: ("producer", "test"),
    lambda _: ("viewer", "test"),
)
AGENT_KAFKA_WITH_USERS: Final = AGENT_KAFKA._replace(
    member=lambda world: world.agent_with_users, ask=kafka(lambda world: world.agent_with_users)
)


class Counted(NamedTuple):
    """Samples of one name with these labels."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


class Refusal(NamedTuple):
    """What the caller gets, by what it is counted, and what the log says of it."""

    answer: int | None
    counted: Counted
    told: str


def no_tls(prefix: str, reason: str, told: str) -> Refusal:
    return Refusal(SILENCE, Counted(f"pidkeeper_{prefix}_handshakes_failed_total", (("reason", reason),)), told)


def denied(prefix: str, status: int, told: str) -> Refusal:
    return Refusal(status, Counted(f"pidkeeper_{prefix}_requests_denied_total", (("code", str(status)),)), told)


def without_tls(prefix: str) -> dict[Who, Refusal]:
    """The same everywhere."""
    return {
        plainly: no_tls(prefix, "plaintext", "it speaks without TLS"),
        stranger: no_tls(prefix, "certificate", "its certificate is refused, "),
        late: no_tls(prefix, "certificate", "its certificate is refused, certificate has expired"),
    }


NAMELESS: Final = "a bearer token or a client certificate is required"
NO_CERTIFICATE: Final = "no TLS with a caller: peer did not return a certificate"
NO_PRODUCER: Final = "is refused: it has not the role producer"
NOT_ITS_CERTIFICATE: Final = "refused a peer link: the certificate is not that of member"
MALFORMED: Final = Counted("pidkeeper_agent_malformed_frames_total")
MALFORMED_AT_A_CONTROLLER: Final = Counted("pidkeeper_kafka_malformed_frames_total")
TOKENS: Final = Counted("pidkeeper_kafka_authentications_total", (("mechanism", "PLAIN"), ("outcome", "failure")))
FORBIDDEN: Final = Counted(
    "pidkeeper_kafka_requests_total",
    (("api", "AllocateProducerIds"), ("outcome", "CLUSTER_AUTHORIZATION_FAILED")),
)
PASSWORDS: Final = Counted("pidkeeper_agent_authentications_total", (("mechanism", "PLAIN"), ("outcome", "failure")))


def http_refusals(prefix: str, neighbour_told: str, another_told: str) -> dict[Who, Refusal]:
    return {
        **without_tls(prefix),
        unnamed: denied(prefix, 401, NAMELESS),
        revoked: denied(prefix, 401, NAMELESS),
        neighbour: denied(prefix, 403, neighbour_told),
        another: denied(prefix, 403, another_told),
    }


TABLE: Final[dict[Listener, dict[Who, Refusal]]] = {
    CONTROLLER_HTTP: http_refusals(
        "http",
        "broker 1 of cluster another-cluster may not do this: it needs the role broker",
        "broker 2 may not act for broker 1",
    ),
    CONTROLLER_PROBES: http_refusals(
        "probe",
        "viewer test of cluster another-cluster may not do this: it needs the role viewer",
        "producer test may not do this: it needs the role viewer",
    ),
    CONTROLLER_KAFKA: {
        **without_tls("kafka"),
        unnamed: Refusal(SILENCE, MALFORMED_AT_A_CONTROLLER, "a client is refused, API key 67 before it has authent"),
        revoked: Refusal(SILENCE, TOKENS, "a client is refused, nobody has the token that it sent as a password"),
        neighbour: Refusal(SILENCE, MALFORMED_AT_A_CONTROLLER, "is refused: it has not the role broker"),
        another: Refusal(31, FORBIDDEN, "AllocateProducerIds is refused: broker 2 may not act for broker 1"),
    },
    CONTROLLER_PEERS: {
        **without_tls("raft_peer"),
        unnamed: no_tls("raft_peer", "no certificate", NO_CERTIFICATE),
        neighbour: no_tls("raft_peer", "refused", NOT_ITS_CERTIFICATE)._replace(answer=403),
        another: no_tls("raft_peer", "refused", NOT_ITS_CERTIFICATE)._replace(answer=403),
    },
    AGENT_HTTP: http_refusals(
        "http",
        "producer test of cluster another-cluster may not do this: it needs the role producer",
        "viewer test may not do this: it needs the role producer",
    ),
    AGENT_PROBES: http_refusals(
        "probe",
        "viewer test of cluster another-cluster may not do this: it needs the role viewer",
        "producer test may not do this: it needs the role viewer",
    ),
    AGENT_KAFKA: {
        **without_tls("agent"),
        unnamed: no_tls("agent", "no certificate", NO_CERTIFICATE),
        neighbour: no_tls("agent", "no producer", NO_PRODUCER),
        another: no_tls("agent", "no producer", NO_PRODUCER),
    },
    AGENT_KAFKA_WITH_USERS: {
        **without_tls("agent"),
        unnamed: Refusal(SILENCE, MALFORMED, "a client is refused, API key 22 before it has authenticated"),
        revoked: Refusal(SILENCE, PASSWORDS, "a client is refused, nobody: there is no such user"),
        neighbour: Refusal(SILENCE, MALFORMED, NO_PRODUCER),
        another: Refusal(SILENCE, MALFORMED, NO_PRODUCER),
    },
}
"""Without a row for tokens where none are taken."""


def name_of(one: object) -> str:
    return one.setting if isinstance(one, Listener) else getattr(one, "__name__", str(one))


def test_the_table_has_every_listener_that_there_is() -> None:
    configs = {"controller": ControllerConfig, "agent": AgentConfig}
    known = {
        f"{service} {field}"
        for service, config in configs.items()
        for field in config.__struct_fields__
        if field.endswith("_listen")
    }
    assert {listener.setting for listener in TABLE} == known
    everybody = {plainly, stranger, late, unnamed, neighbour, another}
    assert all(rows.keys() >= everybody for rows in TABLE.values())


def is_refused(world: World, member: Member, ask: Ask, caller: Caller, expected: Refusal) -> None:
    """And gets nothing, changes nothing, is counted once, and told of in one line that has no secret."""
    wait_until(world.log_has_room, "room in the log")
    caller = caller._replace(source=next(SOURCES))
    facts, count = world.facts(), world.count(member, expected.counted)
    assert ask(world, caller) == expected.answer
    wait_until(lambda: world.count(member, expected.counted) == count + 1, f"one more of {expected.counted}")
    (line,) = wait_until(lambda: world.lines_about(member, caller.source), f"why {caller.source} is refused")
    assert expected.told in line
    assert not [secret for secret in (world.revoked, world.deleted, world.password) if secret in line]
    assert world.facts() == facts


def wait_for_revocations(world: World) -> None:
    """What is accepted is read again once a period (`refreshing`): until then a revoked token still is."""
    for listener, rows in TABLE.items():
        if revoked in rows:
            refused = functools.partial(is_answered, world, listener, revoked(world, listener), rows[revoked].answer)
            wait_until(refused, f"the end of what is revoked at {listener.setting}")


def is_answered(world: World, listener: Listener, caller: Caller, answer: int | None) -> bool:
    return world.log_has_room() and listener.ask(world, caller._replace(source=next(SOURCES))) == answer


CELLS: Final = [(listener, who) for listener, rows in TABLE.items() for who in rows]


@pytest.mark.parametrize(("listener", "who"), CELLS, ids=name_of)
def test_a_wrong_caller_is_refused(world: World, listener: Listener, who: Who) -> None:
    is_refused(world, listener.member(world), listener.ask, who(world, listener), TABLE[listener][who])


def test_a_transactional_id_of_somebody_else_is_refused_to_a_user(world: World) -> None:
    outcome = (("kind", "init_producer_id"), ("outcome", FOREIGN_ID.name))
    expected = Refusal(
        FOREIGN_ID.kafka_code,
        Counted("pidkeeper_agent_transactional_requests_total", outcome),
        "no rule allows alice the transactional id 'bank-1'",
    )
    alice = Caller(world.callers.nobody(), user=("alice", world.password))
    is_refused(world, world.agent_with_users, kafka(lambda world: world.agent_with_users, "bank-1"), alice, expected)


def test_a_transactional_id_of_somebody_else_is_refused_over_http(world: World) -> None:
    def ask(world: World, caller: Caller) -> int | None:
        return over_http(world.agent_with_users.http, "POST", INIT, {"transactional_id": "bank-1"}, caller)

    expected = denied("http", 403, "no rule allows this caller the transactional id 'bank-1'")
    is_refused(world, world.agent_with_users, ask, right(world, AGENT_HTTP), expected)


ORDERS: Final[dict[str, Any]] = {
    "fence_broker": {},
    "raise_floor": {"at_least": 10_000_000},
    "abort_transaction": {"transactional_id": "shop-1"},
    "start_migration": {},
    "finalize_migration": {},
    "roll_back_migration": {},
    "found_quorum": {"founding_id": str(uuid.uuid4()), "voters": [1, 2, 3]},
    "dismiss_evidence": {"broker_id": 1},
    "transfer_leadership": {},
    "add_voter": {"id": 9, "peer": "127.0.0.1:1", "http": "https://127.0.0.1:1"},
    "remove_voter": None,
    "order_topic": {"topic_id": str(uuid.uuid4()), "name": "orders", "partitions": 1},
    "remove_topic": None,
    "remove_group": None,
    "reset_offsets": {"group_id": "g", "topics": [["orders", [[0, 0, -1, ""]]]]},
    "forget_offsets": {"group_id": "g", "topics": [["orders", [0]]]},
    "report_store": None,
    "release_collection": {"foundings": [str(uuid.uuid4())]},
}
"""What would be carried out, for an operator, by each of the calls that change the cluster."""


CALLS: Final[list[tuple[str, Route[Any]]]] = [
    *(("controller", route) for route in CONTROLLER_ROUTES),
    *(("agent", route) for route in AGENT_ROUTES),
]


def test_every_order_is_one_that_would_be_carried_out() -> None:
    orders = {route.name: route for _, route in CALLS if route.access is Access.OPERATOR}
    assert ORDERS.keys() == orders.keys()
    for name, body in ORDERS.items():
        model = orders[name].request
        assert (body is None) == (model is None), name
        assert model is None or msgspec.convert(body, model, strict=False) is not None


@pytest.mark.parametrize(("service", "route"), CALLS, ids=lambda one: one if isinstance(one, str) else one.name)
def test_a_call_is_for_those_with_its_role_alone(world: World, service: str, route: Route[Any]) -> None:
    member = world.leader if service == "controller" else world.agent
    path, body = route.path.replace("{id}", "1"), ORDERS.get(route.name, {})
    facts = world.facts()
    for kind, roles in KINDS.items():
        if route.access not in roles:
            caller = Caller(world.certificate(kind, "5"))
            assert over_http(member.http, route.method, path, body, caller) == 403, kind
    for caller in (Caller(world.callers.nobody()), Caller(world.callers.nobody(), world.revoked)):
        assert over_http(member.http, route.method, path, body, caller) == 401
    assert world.facts() == facts


@pytest.mark.parametrize("service", ["controller", "agent"])
def test_only_probes_and_the_console_are_free(world: World, service: str) -> None:
    """Whatever else is served, and whatever will be."""
    member = world.leader if service == "controller" else world.agent
    nobody = Caller(world.callers.nobody())
    paths = world.read(member, "/openapi.json")["paths"]
    calls = [(path, method.upper()) for path, methods in paths.items() for method in methods]
    free = {
        path for path, method in calls if over_http(member.http, method, path.replace("{id}", "1"), None, nobody) != 401
    }
    console = {path for path in paths if path == "/" or path.startswith("/console")}
    assert free == console | {"/livez", "/livez/{check}", "/readyz", "/readyz/{check}"}
    for path in ("/livez", "/readyz"):
        assert over_http(world.probes(member), "GET", path, None, nobody) == OK
    assert over_http(world.probes(member), "GET", "/v1/status", None, Caller(world.cluster.context)) == 404


def test_no_secret_is_in_a_log(world: World) -> None:
    for member in world.cluster.members():
        log = log_of(world.cluster, member)
        assert not [secret for secret in (world.revoked, world.deleted, world.password) if secret in log]


@pytest.mark.parametrize("listener", TABLE, ids=name_of)
def test_the_right_caller_is_served_by_the_same_bytes(world: World, listener: Listener) -> None:
    """Last, for it may change something."""
    assert listener.ask(world, right(world, listener)._replace(source=next(SOURCES))) == OK
