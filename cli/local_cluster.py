"""A cluster of real processes on this machine: what `dev`, `demo`, the tests and the benchmarks run.

Layout of the directory: `cluster.json` (who is where), `config/*.toml`, `logs/*.log`, `data/controller-N/`.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import random
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

import pidkeeper
from pidkeeper.cli.controllers import CERTIFICATES, Controllers, connect, dev_files
from pidkeeper.cli.dev_user import CLIENT, make_user
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.disk.files import OsFiles, write_durably
from pidkeeper.protocol.addresses import KAFKA, KAFKA_SSL
from pidkeeper.protocol.messages import FoundQuorumRequest, FoundQuorumResponse
from pidkeeper.service.tls_files import TlsFiles

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 30.0
FOUND_ATTEMPT_SECONDS: Final = 1.0
"""Between two looks whether the members that are to be founded still run."""
LISTEN_PORTS: Final = range(20_000, 32_768)
"""Below those that Linux gives to outgoing connections, one of which could get such a port before it is listened on."""
STOP_SECONDS: Final = 10.0
CERTIFICATE_DAYS: Final = 365


class Controller(msgspec.Struct, omit_defaults=True):
    """One controller process, as cluster.json shows it. `learner`: it joined a cluster that was there already.

    `kafka`: host:port where brokers ask it in Kafka's protocol; None where it does not listen for that.
    """

    id: int
    http: str
    peer: str
    pid: int
    data_dir: str
    learner: bool = False
    kafka: str | None = None


class Agent(msgspec.Struct):
    """One broker agent process."""

    id: int
    http: str
    kafka: str
    pid: int


class Layout(msgspec.Struct, omit_defaults=True):
    """The contents of cluster.json. `zookeeper`: the connect string, of a cluster that was created with ZooKeeper.

    `to_found`: the uuid under which the quorum is still to be founded; none afterwards. `secure`: all speak TLS, with
    the certificates in `certs/`.
    """

    cluster_id: str
    controllers: list[Controller]
    agents: list[Agent]
    zookeeper: str | None = None
    to_found: uuid.UUID | None = None
    secure: bool = False


Member = Controller | Agent


class LocalCluster:
    """Starts, kills and restarts the members of one directory. Not thread-safe.

    If the directory already has a cluster, that cluster is used and the numbers given here are ignored. `by_kafka`:
    whether its controllers listen for Kafka's protocol too. `…_options` are keys of the configuration files, read at
    every start of a member; None leaves a key out. Raises
    CommandError if cluster.json cannot be read, or if `zookeeper` or `secure` is not what the cluster was created with.
    `data`: whether agents keep partition logs, in `store/`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int = 3,
        agents: int = 2,
        base_port: int | None = None,
        zookeeper: str | None = None,
        secure: bool = False,
        by_kafka: bool = True,
        controller_options: dict[str, Any] | None = None,
        agent_options: dict[str, Any] | None = None,
        data: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self.controller_options = controller_options or {}
        self.agent_options = agent_options or {}
        self._data = data
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._path = self.directory / "cluster.json"
        for name in ("config", "logs", "data"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._peer_key = self._make_peer_key()
        if self._path.exists():
            self.layout = self._resume(zookeeper, secure=secure)
        else:
            self.layout = self._lay_out(controllers, agents, base_port, zookeeper, secure=secure)
            if not by_kafka:
                for controller in self.layout.controllers:
                    controller.kafka = None
        if self.layout.secure:
            self._make_certificates()

    # Laying out.

    def _resume(self, zookeeper: str | None, *, secure: bool) -> Layout:
        try:
            layout = msgspec.json.decode(self._path.read_bytes(), type=Layout)
        except (msgspec.DecodeError, OSError) as error:
            raise CommandError(f"{self._path} does not describe a cluster: {error}; use another --dir") from error
        if zookeeper not in {None, layout.zookeeper}:
            began = "without ZooKeeper" if layout.zookeeper is None else f"with ZooKeeper at {layout.zookeeper}"
            raise CommandError(
                f"the cluster in {self.directory} was created {began}, not with {zookeeper}: use another --dir",
                ExitCode.REFUSED,
            )
        if secure and not layout.secure:
            raise CommandError(
                f"the cluster in {self.directory} was created without --secure: use another --dir", ExitCode.REFUSED
            )
        return layout

    def _lay_out(
        self, controllers: int, agents: int, base_port: int | None, zookeeper: str | None, *, secure: bool
    ) -> Layout:
        scheme = "https" if secure else "http"
        count = 3 * controllers + 2 * agents
        ports = iter(free_ports(count) if base_port is None else range(base_port, base_port + count))
        layout = Layout(
            cluster_id=f"local-{uuid.uuid4()}",
            zookeeper=zookeeper,
            to_found=uuid.uuid4(),
            secure=secure,
            controllers=[
                Controller(
                    id=node_id,
                    http=f"{scheme}://{HOST}:{next(ports)}",
                    peer=f"{HOST}:{next(ports)}",
                    pid=0,
                    data_dir=str(self.directory / "data" / f"controller-{node_id}"),
                )
                for node_id in range(1, controllers + 1)
            ],
            agents=[
                Agent(id=broker_id, http=f"{scheme}://{HOST}:{next(ports)}", kafka=f"{HOST}:{next(ports)}", pid=0)
                for broker_id in range(1, agents + 1)
            ],
        )
        # Behind the ports that a cluster had before.
        for controller in layout.controllers:
            controller.kafka = f"{HOST}:{next(ports)}"
        return layout

    def _make_certificates(self) -> None:
        """Those that are not there yet."""
        members = [member_name(member) for member in self.members()]
        if all(dev_files(self.directory, name) for name in [*members, "operator"]):
            return
        from pidkeeper.cli.dev_certificates import issue_for_cluster

        issue_for_cluster(
            self.directory / CERTIFICATES,
            self.layout.cluster_id,
            controllers=[controller.id for controller in self.layout.controllers],
            brokers=[agent.id for agent in self.layout.agents],
            hosts=(HOST, "localhost"),
            days=CERTIFICATE_DAYS,
        )

    def _make_peer_key(self) -> Path:
        path = self.directory / "config" / "peer-key"
        if not path.exists():
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
        return path

    def add_user(self) -> Path:
        """Let Kafka clients of a secure cluster log in as a user of SASL; the settings with which they do."""
        client = self.directory / CLIENT
        make_user(self._users, client, self.directory / CERTIFICATES / "ca.pem")
        return client

    @property
    def _users(self) -> Path:
        return self.directory / "config" / "users"

    def add_controller(self) -> Controller:
        """Lay out one more controller, which is a learner until it is made a voter. Does not start it."""
        node_id = max(controller.id for controller in self.layout.controllers) + 1
        # Of those that do not run just now nobody listens on theirs.
        http_port, peer_port, kafka_port = free_ports(3, self.ports())
        by_kafka = self.layout.controllers[0].kafka is not None
        controller = Controller(
            id=node_id,
            http=f"{'https' if self.layout.secure else 'http'}://{HOST}:{http_port}",
            peer=f"{HOST}:{peer_port}",
            pid=0,
            data_dir=str(self.directory / "data" / f"controller-{node_id}"),
            learner=True,
            kafka=f"{HOST}:{kafka_port}" if by_kafka else None,
        )
        self.layout.controllers.append(controller)
        if self.layout.secure:
            self._make_certificates()
        return controller

    def ports(self) -> set[int]:
        """What the members listen on while they run."""
        members: list[Member] = [*self.layout.controllers, *self.layout.agents]
        places = [place for one in members for place in (one.http, one.kafka) if place is not None]
        places += [one.peer for one in self.layout.controllers]
        return {int(place.rpartition(":")[2]) for place in places}

    def _write_config(self, member: Member) -> Path:
        path = self.directory / "config" / f"{member_name(member)}.toml"
        settings = {key: value for key, value in self._config(member).items() if value is not None}
        path.write_bytes(msgspec.toml.encode(settings))
        return path

    def _config(self, member: Member) -> dict[str, Any]:
        if isinstance(member, Agent):
            return {
                "broker_id": member.id,
                "controllers": self._asked(),
                "http_listen": member.http.partition("://")[2],
                "kafka_listen": member.kafka,
                # There are few, and whoever looks on sees at once what becomes of them.
                "heartbeat_interval_ms": 500,
                **self._security(member),
                **({"data": {"store": str(self.directory / "store")}} if self._data else {}),
                **self.agent_options,
            }
        return {
            "node_id": member.id,
            "cluster_id": self.layout.cluster_id,
            "data_dir": member.data_dir,
            "http_listen": member.http.partition("://")[2],
            "kafka_listen": member.kafka,
            "peer_listen": member.peer,
            "peer_key_file": None if self.layout.secure else str(self._peer_key),
            **self._security(member),
            "voters": [
                {
                    "id": c.id,
                    "peer": c.peer,
                    "http": c.http,
                    **({} if c.kafka is None else {"kafka": self.kafka_url(c)}),
                    **({"learner": True} if c.learner else {}),
                }
                for c in self.layout.controllers
                if not c.learner or c is member
            ],
            **({} if self.layout.zookeeper is None else _in_zookeeper(self.layout.zookeeper)),
            # Its agents are as new as the directory: there is nobody to hear.
            "founding_hearing_ms": 0,
            **self.controller_options,
        }

    def _asked(self) -> list[str]:
        """The addresses at which agents ask the controllers."""
        controllers = self.layout.controllers
        if self.agent_options.get("transport") != "kafka":
            return [one.http for one in controllers]
        if any(one.kafka is None for one in controllers):
            raise CommandError(
                f"the controllers in {self.directory} do not listen for Kafka's protocol: use another --dir",
                ExitCode.REFUSED,
            )
        return [self.kafka_url(one) for one in controllers]

    def kafka_url(self, controller: Controller) -> str:
        """Where brokers ask a controller in Kafka's protocol."""
        return f"{KAFKA_SSL if controller.http.startswith('https://') else KAFKA}{controller.kafka}"

    def _security(self, member: Member) -> dict[str, Any]:
        if not self.layout.secure:
            return {}
        files = dev_files(self.directory, member_name(member))
        assert files is not None, "they were made with the directory"
        security: dict[str, Any] = {"security": "required", "tls": msgspec.structs.asdict(files)}
        if isinstance(member, Agent) and self._users.exists():
            security["users_file"] = str(self._users)
        return security

    # Processes.

    def members(self) -> list[Member]:
        """Controllers, then agents."""
        return [*self.layout.controllers, *self.layout.agents]

    def start(self, *members: Member) -> None:
        """Start `members` (all that do not run by default) without waiting for them."""
        for member in members or self.members():
            if not self.running(member):
                self._start(member)
        self._save()

    def _save(self) -> None:
        # As a whole: whoever reads it while members are started again must not meet half of it.
        write_durably(OsFiles(), self._path, msgspec.json.format(msgspec.json.encode(self.layout)))

    def _start(self, member: Member) -> None:
        kind = "agent" if isinstance(member, Agent) else "controller"
        if isinstance(member, Controller):
            format_directory(OsFiles(), Path(member.data_dir), self.layout.cluster_id, member.id, ignore_formatted=True)
        command = [*self.program(member), kind, "run", "--config", str(self._write_config(member))]
        with (self.directory / "logs" / f"{member_name(member)}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=import_root()
            )
        self._processes[member_name(member)] = process
        member.pid = process.pid

    def program(self, _: Member) -> list[str]:
        """What is run for a member, before the arguments of the `pidkeeper` command."""
        return [sys.executable, "-m", "pidkeeper.cli"]

    def running(self, member: Member) -> bool:
        """Whether this object started the member's process and it still lives."""
        process = self._processes.get(member_name(member))
        return process is not None and process.poll() is None

    def exit_code(self, member: Member) -> int | None:
        """How the member's process ended (negative: by that signal); None if it runs or never did."""
        process = self._processes.get(member_name(member))
        return None if process is None else process.poll()

    def dead(self) -> list[Member]:
        """Members whose process ended."""
        return [member for member in self.members() if not self.running(member)]

    def kill(self, *members: Member) -> None:
        """`kill -9`, and wait until the processes are gone."""
        for member in members:
            self._processes[member_name(member)].kill()
        for member in members:
            self._processes[member_name(member)].wait()

    def signal(self, member: Member, number: signal.Signals) -> None:
        """Send a signal to one member."""
        self._processes[member_name(member)].send_signal(number)

    def stop(self) -> dict[str, int]:
        """Stop everything gracefully, agents first; returns the exit code of each member by name."""
        codes: dict[str, int] = {}
        for group in (self.layout.agents, self.layout.controllers):
            running = [member for member in group if self.running(member)]
            for member in running:
                self.signal(member, signal.SIGCONT)
                self.signal(member, signal.SIGTERM)
            for member in running:
                codes[member_name(member)] = self._wait(member)
        return codes

    def _wait(self, member: Member) -> int:
        process = self._processes[member_name(member)]
        try:
            return process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    # Looking at them.

    def wait_ready(self, *members: Member, seconds: float = READY_SECONDS) -> None:
        """Wait until `members` (all by default) are ready.

        Raises CommandError with the end of the log of one that is not.
        """
        deadline = time.monotonic() + seconds
        self.found(seconds=seconds)
        for member in members or self.members():
            while not self.ready(member):
                self._check_running(member)
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"{member_name(member)} is not ready after {seconds:g} s:\n{self.log_end(member)}"
                    )
                time.sleep(0.02)

    def _check_running(self, *members: Member) -> None:
        for member in members:
            if not self.running(member):
                raise CommandError(f"{member_name(member)} ended while starting:\n{self.log_end(member)}")

    def found(self, *, seconds: float = READY_SECONDS) -> None:
        """Found the quorum of a new directory, which all its controllers must run for; an older one has its quorum.

        Raises CommandError with the end of a log.
        """
        if self.layout.to_found is None:
            return
        voters = [one for one in self.layout.controllers if not one.learner]
        first = min(voters, key=lambda one: one.id)
        request = FoundQuorumRequest(self.layout.to_found, [one.id for one in voters])
        founder = Controllers(
            first.http, None, min(seconds, FOUND_ATTEMPT_SECONDS), self._token_file(), self._operator_files()
        )
        deadline = time.monotonic() + seconds
        while self.layout.to_found is not None:
            try:
                founder.ask(FoundQuorumResponse, "POST", "/v1/quorum/found", request)
                self.layout.to_found = None
            except CommandError as error:
                self._check_running(*voters)
                if error.exit_code != ExitCode.UNREACHABLE or time.monotonic() > deadline:
                    logs = "\n".join(f"{member_name(one)}:\n{self.log_end(one)}" for one in voters)
                    raise CommandError(f"the quorum cannot be founded: {error}\n{logs}") from error
        self._save()

    def _token_file(self) -> Path | None:
        options = self.controller_options
        named = options.get("operator_token_file") or options.get("token_file")
        return None if named is None else Path(named)

    def _operator_files(self) -> TlsFiles | None:
        return dev_files(self.directory, "operator") if self.layout.secure else None

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        """What an operator of a secure cluster speaks TLS with."""
        from pidkeeper.service.tls import client_context

        files = self._operator_files()
        assert files is not None, "the cluster is a secure one"
        return client_context(files)

    def ready(self, member: Member) -> bool:
        """Whether the member's /readyz says so."""
        try:
            return self.get(member, "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, member: Member, path: str, *, timeout: float = 1.0) -> tuple[int, bytes]:
        """One GET request to a member. Raises OSError or HTTPException."""
        connection = connect(member.http, timeout, lambda: self.context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def leader(self, *, seconds: float = READY_SECONDS) -> Controller:
        """The controller that says it leads with the highest term. Raises CommandError if none does in time."""
        self.found(seconds=seconds)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            claims = []
            for controller in self.layout.controllers:
                try:
                    description = json.loads(self.get(controller, "/v1/quorum", timeout=0.2)[1])
                except (OSError, http.client.HTTPException, ValueError):
                    continue
                if description.get("role") == "leader":
                    claims.append((description["term"], controller.id, controller))
            if claims:
                return max(claims)[2]
            time.sleep(0.02)
        raise CommandError(f"no controller leads after {seconds:g} s")

    def log_end(self, member: Member, lines: int = 15) -> str:
        """The last lines of a member's log."""
        path = self.directory / "logs" / f"{member_name(member)}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"


def _in_zookeeper(connect: str) -> dict[str, Any]:
    return {"mode": "zookeeper", "zookeeper": {"connect": connect}}


def member_name(member: Member) -> str:
    """Like `controller-1` or `agent-2`; also the name of its log and its configuration."""
    return f"{'agent' if isinstance(member, Agent) else 'controller'}-{member.id}"


def import_root() -> Path:
    """The folder that holds the package `pidkeeper`: children import it from there, installed or not."""
    return Path(pidkeeper.__file__).parents[1]


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """Ports that nobody listens on now, and none of those `taken`. Raises OSError if there are not so many."""
    found: dict[int, socket.socket] = {}
    try:
        for port in random.sample(LISTEN_PORTS, len(LISTEN_PORTS)):
            if len(found) == count:
                break
            if port in taken:
                continue
            one = socket.socket()
            try:
                one.bind((HOST, port))
            except OSError:
                one.close()
            else:
                found[port] = one
        if len(found) < count:
            raise OSError(
                f"fewer than {count} ports of {HOST} are free from {LISTEN_PORTS.start} to {LISTEN_PORTS.stop - 1}"
            )
        return list(found)
    finally:
        for one in found.values():
            one.close()
