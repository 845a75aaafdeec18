"""ZooKeeper: three servers from the jars that come with PySpark, with the settings of its own sample configuration."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
from pathlib import Path
from typing import Final

from bench.closed_loop import LoadResult
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers import jute
from bench.peers.interface import Peer, Scheme
from bench.peers.java import why_no_java
from bench.peers.kazoo_load import KazooLoadSpec
from bench.peers.nodes import HOST, Node
from bench.peers.zookeeper_load import (
    BLOCK_PATH,
    PLAIN_PATH,
    ZooKeeperLoadSpec,
    block_from,
    check_session,
    next_start,
)
from pidkeeper.cli.local_cluster import free_ports

SERVERS: Final = (1, 2, 3)
ANSWER_SECONDS: Final = 1.0
_JARS: Final = ("zookeeper-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
"""All that a server without TLS and admin page loads. Without a binding SLF4J drops every log line."""
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HEAP: Final = "-Xmx1000m"
"""What its start script gives a server."""


class ZooKeeperSession:
    """A blocking client of one server, which allocates by a write on condition."""

    def __init__(self, port: int, seconds: float) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=seconds)
        try:
            check_session(self._ask(jute.connect_request()))
        except (OSError, ValueError) as error:
            self._socket.close()
            if isinstance(error, ValueError):
                raise ConnectionRefusedError(str(error)) from error
            raise

    def allocate(self) -> int | None:
        """The next block's start; None if somebody else took it. Raises OSError."""
        error, body = jute.read_reply(self._ask(jute.get_data(BLOCK_PATH)))
        if error:
            return None
        start = next_start(jute.data_of(body))
        request = jute.set_data(BLOCK_PATH, block_from(start), jute.stat_version(body))
        return None if jute.read_reply(self._ask(request)).error else start

    def create(self, path: str, data: bytes) -> None:
        """Make a znode, if it is not there. Raises OSError."""
        error = jute.read_reply(self._ask(jute.create(path, data))).error
        if error not in {0, jute.NODE_EXISTS}:
            raise OSError(f"{path} was not created: ZooKeeper's error {error}")

    def close(self) -> None:
        """End the session, without waiting for the answer, and hang up."""
        with contextlib.suppress(OSError):
            self._socket.sendall(jute.close_request())
        self._socket.close()

    def _ask(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        data = b""
        while (payload := jute.whole_frame(data)) is None:
            data += (chunk := self._socket.recv(jute.MAX_FRAME_BYTES))
            if not chunk:
                raise ConnectionResetError("the server closed the connection")
        return payload


class ZooKeeper(Peer):
    """The ensemble. Syncs each transaction before it is acknowledged, as it does by default (forceSync)."""

    settle_seconds = 10.0

    def __init__(self, directory: Path) -> None:
        jars = [str(jar) for pattern in _JARS for jar in sorted(_jars().glob(pattern))]
        found = re.search(r"/zookeeper-([0-9.]+)\.jar", ":".join(jars))
        self.name = f"ZooKeeper {found[1] if found else '?'}"
        ports = iter(free_ports(3 * len(SERVERS)))
        self._quorum = [f"server.{server}={HOST}:{next(ports)}:{next(ports)}" for server in SERVERS]
        self.nodes = []
        for server in SERVERS:
            home, port = directory / f"zookeeper-{server}", next(ports)
            self._configure(server, home, port)
            command = ["java", _HEAP, "-cp", ":".join(jars), _MAIN, str(home / "zoo.cfg")]
            self.nodes.append(Node(home.name, command, home, port))

    @staticmethod
    def why_unavailable() -> str | None:
        """None if it can start here, else what is missing."""
        if importlib.util.find_spec("pyspark") is None:
            return "ZooKeeper: pyspark, which brings its jars, is not installed"
        return f"ZooKeeper: {why}" if (why := why_no_java()) else None

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All at the leader, where a write takes the shortest way."""
        return (
            Scheme(f"{self.name}, read and conditional setData", self._conditional),
            Scheme(f"{self.name}, plain setData", self._plain),
            Scheme(f"{self.name}, read and conditional setData by kazoo", self._by_kazoo),
        )

    def find_leader(self) -> Node | None:
        """The leader, if there is one and the others follow. Raises OSError."""
        modes = {node.name: _mode(node) for node in self.nodes}
        if sorted(modes.values()) != ["follower", "follower", "leader"]:
            return None
        return next(node for node in self.nodes if modes[node.name] == "leader")

    def connect(self, node: Node, seconds: float) -> ZooKeeperSession:
        """A session at one server. Raises OSError."""
        return ZooKeeperSession(node.port, seconds)

    def prepare(self) -> None:
        """The znodes of the schemes."""
        session = self.connect(self.leader(), LOAD_START_SECONDS)
        try:
            session.create(BLOCK_PATH, block_from(0))
            session.create(PLAIN_PATH, block_from(0))
        finally:
            session.close()

    def _configure(self, server: int, home: Path, port: int) -> None:
        (home / "data").mkdir(parents=True, exist_ok=True)
        (home / "data" / "myid").write_text(f"{server}\n")
        lines = [
            "tickTime=2000",
            "initLimit=10",
            "syncLimit=5",
            f"dataDir={home / 'data'}",
            f"clientPort={port}",
            f"clientPortAddress={HOST}",
            # The default is 60 from one address.
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *self._quorum,
        ]
        (home / "zoo.cfg").write_text("\n".join([*lines, ""]))

    def _conditional(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        return self._raw(True, callers, seconds, warmup)

    def _plain(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        return self._raw(False, callers, seconds, warmup)

    def _raw(self, conditional: bool, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = ZooKeeperLoadSpec(self.leader().port, conditional, callers, seconds, warmup)
        return run_load("bench.peers.zookeeper_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)

    def _by_kazoo(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = KazooLoadSpec(self.leader().port, callers, seconds, warmup)
        return run_load("bench.peers.kazoo_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)


def _jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations, "why_unavailable() was asked first"
    return Path(found.submodule_search_locations[0]) / "jars"


def _mode(node: Node) -> str:
    """`leader` or `follower`; empty while it serves nobody. Raises OSError."""
    with socket.create_connection((HOST, node.port), ANSWER_SECONDS) as one:
        one.sendall(b"srvr")
        answer = b"".join(iter(lambda: one.recv(4096), b"")).decode()
    found = re.search(r"^Mode: (.*)$", answer, re.MULTILINE)
    return found[1] if found else ""
