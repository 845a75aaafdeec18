"""A real ZooKeeper on loopback, from the jars that come with PySpark: one server, or three that elect a leader."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from kazoo.client import KazooClient

from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.controller.migration.zookeeper import BLOCK_PATH
from tests.support.java_servers import JVM, end_with_this_process
from tests.support.waiting import stop_process

HOST: Final = "127.0.0.1"
WAIT_SECONDS: Final = 30.0
"""When a test gives up on ZooKeeper; never how fast it must be."""
POLL_SECONDS: Final = 0.01
ANSWER_SECONDS: Final = 0.5
LEAST_JAVA: Final = 17
"""What PySpark 4 asks for."""
_JARS: Final = ("zookeeper-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
"""All that a server without TLS and admin page loads. Without a binding SLF4J drops every log line."""
_JAVA: Final = ("java", "-Xmx64m", *JVM)
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def why_unavailable() -> str | None:
    """None if an Ensemble can start here, else what is missing."""
    if importlib.util.find_spec("pyspark") is None:
        return "no ZooKeeper: pyspark is not installed"
    missing = f"no ZooKeeper: no Java {LEAST_JAVA}+ on PATH"
    if shutil.which("java") is None:
        return missing
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    found = re.search(r'version "(\d+)', banner.stderr + banner.stdout)
    return None if found and int(found[1]) >= LEAST_JAVA else missing


def zookeeper_client(
    connect: str, *, session_seconds: float = 10.0, digest: str | None = None, start_seconds: float = WAIT_SECONDS
) -> KazooClient:
    """A client with a session, which it renews without end. Raises KazooTimeoutError if there is none in time."""
    client = KazooClient(
        connect,
        timeout=session_seconds,
        auth_data=None if digest is None else [("digest", digest)],
        connection_retry={"max_tries": -1, "delay": POLL_SECONDS, "max_delay": 0.1},
    )
    client.start(start_seconds)
    return client


def _class_path() -> str:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations, "ask why_unavailable() first"
    jars = Path(found.submodule_search_locations[0]) / "jars"
    return ":".join(str(jar) for pattern in _JARS for jar in sorted(jars.glob(pattern)))


class Ensemble:
    """ZooKeeper servers with the ids 1 to `size`, each with a directory of its own under `directory`.

    `settings`: more lines for the configuration; a change holds from a server's next start.
    """

    def __init__(self, directory: Path, size: Literal[1, 3] = 1) -> None:
        self.settings: list[str] = []
        self.servers: Final = list(range(1, size + 1))
        self._directory = directory
        self._class_path = _class_path()
        ports = iter(free_ports(3 * size))
        self._ports = {server: next(ports) for server in self.servers}
        self._quorum = {server: (next(ports), next(ports)) for server in self.servers}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._killers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        """The connect string of all servers, without a chroot."""
        return ",".join(self.address(server) for server in self.servers)

    def address(self, server: int) -> str:
        """The connect string of one server."""
        return f"{HOST}:{self._ports[server]}"

    def start(self) -> None:
        """Start every server that does not run, and wait until they serve."""
        for server in self.servers:
            self.start_server(server)
        self.wait_for_quorum()

    def start_server(self, server: int) -> None:
        """Start one server on the data it has, without waiting for it. Nothing happens if it runs."""
        if self.running(server):
            return
        home = self._directory / str(server)
        (home / "data").mkdir(parents=True, exist_ok=True)
        (home / "data" / "myid").write_text(f"{server}\n")
        (home / "zoo.cfg").write_text(self._configuration(server, home))
        with (home / "log").open("ab") as log:
            process = subprocess.Popen(
                [*_JAVA, "-cp", self._class_path, _MAIN, str(home / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
            )
        self._processes[server] = process
        self._killers[server] = end_with_this_process(process)

    def _configuration(self, server: int, home: Path) -> str:
        # A follower gives up on a silent leader, and a leader on silent followers, after syncLimit ticks: one second.
        lines = [
            "tickTime=200",
            "initLimit=20",
            "syncLimit=5",
            "maxSessionTimeout=60000",
            # Without fsync: kill -9 ends the process, not the page cache, so nothing acknowledged is lost.
            "forceSync=no",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=srvr",
            f"dataDir={home / 'data'}",
            f"clientPort={self._ports[server]}",
            f"clientPortAddress={HOST}",
        ]
        if len(self.servers) > 1:
            lines += [f"server.{other}={HOST}:{peer}:{vote}" for other, (peer, vote) in self._quorum.items()]
        return "\n".join([*lines, *self.settings, ""])

    # What it does.

    def running(self, server: int) -> bool:
        """Whether the server's process lives; it may be paused."""
        process = self._processes.get(server)
        return process is not None and process.poll() is None

    def mode(self, server: int) -> str | None:
        """`standalone`, `leader` or `follower`; None while the server does not serve."""
        if not self.running(server):
            return None
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._ports[server]), ANSWER_SECONDS) as one:
            one.sendall(b"srvr")
            answer = b"".join(iter(lambda: one.recv(4096), b"")).decode()
            found = re.search("^Mode: (.*)$", answer, re.MULTILINE)
            return found[1] if found else None
        return None

    def leader(self) -> int | None:
        """The server that leads now; the only one of a single server; None while there is none."""
        modes = {server: self.mode(server) for server in self.servers}
        return next((server for server, mode in modes.items() if mode in {"leader", "standalone"}), None)

    def followers(self) -> list[int]:
        """The servers that follow now."""
        return [server for server in self.servers if self.mode(server) == "follower"]

    def wait_for_quorum(self, seconds: float = WAIT_SECONDS) -> int:
        """The leader, as soon as it and every server that runs serves. Raises AssertionError after `seconds`."""

        def served() -> int | None:
            running = [server for server in self.servers if self.running(server)]
            return self.leader() if all(self.mode(server) for server in running) else None

        return self._wait(served, "a quorum", seconds)

    def wait_for_leader(self, seconds: float = WAIT_SECONDS) -> int:
        """The leader, as soon as there is one, whatever the others do. Raises AssertionError after `seconds`."""
        return self._wait(self.leader, "a leader", seconds)

    def _wait(self, found: Callable[[], int | None], what: str, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (server := found()) is not None:
                return server
            time.sleep(POLL_SECONDS)
        logs = "\n".join(path.read_text(errors="replace") for path in self._directory.glob("*/log"))
        raise AssertionError(f"ZooKeeper has no {what} after {seconds:g} s\n{logs}")

    # What is done to it.

    def kill(self, server: int) -> None:
        """`kill -9`, and wait until the process is gone."""
        # The killer goes first: after the wait the number may belong to another process.
        killer = self._killers.pop(server)
        killer.kill()
        killer.wait()
        if killer.stdin is not None:
            killer.stdin.close()
        process = self._processes.pop(server)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        """`kill -9` of every server that was started."""
        for server in list(self._processes):
            self.kill(server)

    def pause(self, server: int) -> None:
        """Stop the process: its connections stay open, and nobody answers."""
        stop_process(self._processes[server].pid)

    def resume(self, server: int) -> None:
        """Let a paused process go on."""
        self._processes[server].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End every process."""
        self.kill_all()

    # What the tests put there.

    def chroot(self, name: str, data: bytes | None = None) -> str:
        """The connect string of a new chroot `/name` with the znode of the latest block in it, which holds `data`."""
        client = zookeeper_client(self.connect)
        try:
            client.create(f"/{name}")
            client.create(f"/{name}{BLOCK_PATH}", data)
        finally:
            client.stop()
            client.close()
        return f"{self.connect}/{name}"
