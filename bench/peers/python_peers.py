"""The peers in Python: three nodes each, with a control port, in the virtual environment of `bench/peers/prepare.sh`.

Neither syncs what it writes, so neither is durable as the others are.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.closed_loop import LoadResult
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers.control_load import ALLOCATE, STATE, ControlLoadSpec, Reply, read_reply
from bench.peers.interface import Peer, Scheme
from bench.peers.nodes import HOST, Node
from pidkeeper.cli.local_cluster import free_ports, import_root

NODES: Final = 3
ANSWER_SECONDS: Final = 1.0
ENVIRONMENT: Final = import_root() / ".tools" / "peers"


class ControlSession:
    """A blocking client of one node."""

    def __init__(self, port: int, seconds: float) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=seconds)
        self._stream = self._socket.makefile("rb")

    def ask(self, request: bytes) -> Reply:
        """One answer. Raises OSError."""
        self._socket.sendall(request)
        line = self._stream.readline()
        if not line:
            raise ConnectionResetError("the node closed its control port")
        return read_reply(line)

    def allocate(self) -> int | None:
        """The next id; None if the node gives none. Raises OSError."""
        return self.ask(ALLOCATE).id

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()


class PythonPeer(Peer):
    """What both have in common."""

    package: str
    module: str

    def __init__(self, directory: Path) -> None:
        found = next(ENVIRONMENT.glob(f"lib/*/site-packages/{self.package}-*.dist-info"), None)
        assert found is not None, "why_unavailable() was asked first"
        self.name = f"{self.name} {found.stem.partition('-')[2]}, which never syncs"
        ports = free_ports(2 * NODES)
        addresses = [f"{HOST}:{port}" for port in ports[:NODES]]
        self.nodes = []
        for address, port in zip(addresses, ports[NODES:], strict=True):
            home = directory / f"{self.module}-{len(self.nodes) + 1}"
            command = [str(ENVIRONMENT / "bin" / "python"), "-m", f"bench.peers.{self.module}"]
            command += [*self.arguments(address, addresses, home), "--control-port", str(port)]
            self.nodes.append(Node(home.name, command, home, port, {"PYTHONPATH": str(import_root())}))

    @abstractmethod
    def arguments(self, address: str, addresses: Sequence[str], home: Path) -> list[str]:
        """What the node's module is told of itself and all nodes."""

    @staticmethod
    def why_unavailable() -> str | None:
        """None if it can start here, else what is missing."""
        if (ENVIRONMENT / "complete").exists():
            return None
        return "the peers in Python: .tools/peers is missing; bench/peers/prepare.sh makes it"

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """One, at the leader."""
        return (Scheme(self.name, self._load),)

    def find_leader(self) -> Node | None:
        """The leader, if the others follow. Raises OSError."""
        roles = {node.name: self._role(node) for node in self.nodes}
        if sorted(map(str, roles.values())) != ["Follower", "Follower", "Leader"]:
            return None
        return next(node for node in self.nodes if roles[node.name] == "Leader")

    def connect(self, node: Node, seconds: float) -> ControlSession:
        """A session at one node. Raises OSError."""
        return ControlSession(node.port, seconds)

    def _role(self, node: Node) -> str | None:
        session = self.connect(node, ANSWER_SECONDS)
        try:
            return session.ask(STATE).role
        finally:
            session.close()

    def _load(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = ControlLoadSpec(self.leader().port, callers, seconds, warmup)
        return run_load("bench.peers.control_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)


class PySyncObj(PythonPeer):
    """A replicated counter."""

    name = "PySyncObj"
    package = "pysyncobj"
    module = "pysyncobj_node"

    def arguments(self, address: str, addresses: Sequence[str], home: Path) -> list[str]:
        """Itself and the others."""
        others = ",".join(one for one in addresses if one != address)
        return ["--address", address, "--others", others, "--directory", str(home)]


class Raftos(PythonPeer):
    """A replicated value, read and written by one caller at a time.

    A leader that finds an entry of an earlier term uncommitted never commits anything again, and a leader that is
    killed under load leaves one as a rule: so most failovers have no end.
    """

    name = "raftos"
    package = "raftos"
    module = "raftos_node"
    attempt_seconds = 2.0
    """It answers with its heartbeats, which are 0.3 s apart."""

    def arguments(self, address: str, addresses: Sequence[str], home: Path) -> list[str]:
        """Itself and all."""
        return ["--address", address, "--cluster", ",".join(addresses), "--log-path", f"{home}/"]
