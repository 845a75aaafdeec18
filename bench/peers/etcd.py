"""etcd: three members, which sync their log before they acknowledge, as they do by default.

The program is the one that `tools/fetch-kubernetes` built, else the one of `tools/fetch-etcd`.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Final

from bench.closed_loop import LoadResult
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers import etcd_messages as etcd
from bench.peers.etcd_load import BLOCK_IDS, BLOCK_KEY, PUT, RANGE, TXN, EtcdLoadSpec
from bench.peers.grpc_frames import Calls, header_block, opening
from bench.peers.interface import Peer, Scheme
from bench.peers.nodes import HOST, Node
from pidkeeper.cli.local_cluster import free_ports, import_root

MEMBERS: Final = (1, 2, 3)
ANSWER_SECONDS: Final = 1.0
STATUS: Final = header_block(etcd.STATUS, HOST)
_READ_BYTES: Final = 65_536


class EtcdSession:
    """A blocking client of one member, which allocates by a put on condition."""

    def __init__(self, port: int, seconds: float) -> None:
        self._calls = Calls()
        self._socket = socket.create_connection((HOST, port), timeout=seconds)
        self._socket.sendall(opening())

    def call(self, headers: bytes, request: bytes) -> bytes | None:
        """The message of the answer; None if the call failed. Raises OSError."""
        self._socket.sendall(self._calls.call(headers, request))
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the member closed the connection")
            answer, reply = self._calls.take(data)
            self._socket.sendall(reply)
            if answer.done:
                return answer.message

    def allocate(self) -> int | None:
        """The next block's start; None if the member refuses or somebody else took it. Raises OSError."""
        message = self.call(RANGE, etcd.range_request(BLOCK_KEY))
        if message is None:
            return None
        stored = etcd.read_range(message)
        start = int(stored.value)
        message = self.call(TXN, etcd.swap_request(BLOCK_KEY, b"%d" % (start + BLOCK_IDS), stored.revision))
        return start if message is not None and etcd.read_swap(message) else None

    def status(self) -> etcd.Status:
        """Who it is, and who leads. Raises OSError."""
        message = self.call(STATUS, b"")
        if message is None:
            raise ConnectionRefusedError("the member does not tell its status")
        return etcd.read_status(message)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Etcd(Peer):
    """The members."""

    def __init__(self, directory: Path) -> None:
        program = _program()
        assert program is not None, "why_unavailable() was asked first"
        self.name = f"etcd {_version(program)}"
        ports = iter(free_ports(2 * len(MEMBERS)))
        peers = {f"etcd-{member}": f"http://{HOST}:{next(ports)}" for member in MEMBERS}
        cluster = ",".join(f"{name}={url}" for name, url in peers.items())
        self.nodes = []
        for name, peer in peers.items():
            port = next(ports)
            client = f"http://{HOST}:{port}"
            options = {
                "name": name,
                "data-dir": str(directory / name / "data"),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": cluster,
            }
            command = [str(program), *(f"--{option}={value}" for option, value in options.items())]
            self.nodes.append(Node(name, command, directory / name, port))

    @staticmethod
    def why_unavailable() -> str | None:
        """None if it can start here, else what is missing."""
        return None if _program() else "etcd: neither .tools/kubernetes nor .tools/etcd has it; see tools/fetch-etcd"

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """Both at the leader, where a put takes the shortest way."""
        return (
            Scheme(f"{self.name}, read and put on condition", self._conditional),
            Scheme(f"{self.name}, plain put", self._plain),
        )

    def find_leader(self) -> Node | None:
        """The leader, if all members name the same one. Raises OSError."""
        statuses = [self._status(node) for node in self.nodes]
        leaders = {status.leader for status in statuses}
        if len(leaders) != 1:
            return None
        return next((node for node, one in zip(self.nodes, statuses, strict=True) if one.member in leaders), None)

    def connect(self, node: Node, seconds: float) -> EtcdSession:
        """A session at one member. Raises OSError."""
        return EtcdSession(node.port, seconds)

    def prepare(self) -> None:
        """The key of blocks. Raises RuntimeError."""
        session = self.connect(self.leader(), LOAD_START_SECONDS)
        try:
            if session.call(PUT, etcd.put_request(BLOCK_KEY, b"0")) is None:
                raise RuntimeError(f"{self.name} refused the first put")
        finally:
            session.close()

    def _status(self, node: Node) -> etcd.Status:
        session = self.connect(node, ANSWER_SECONDS)
        try:
            return session.status()
        finally:
            session.close()

    def _conditional(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        return self._load(True, callers, seconds, warmup)

    def _plain(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        return self._load(False, callers, seconds, warmup)

    def _load(self, conditional: bool, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = EtcdLoadSpec(self.leader().port, conditional, callers, seconds, warmup)
        return run_load("bench.peers.etcd_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)


def _program() -> Path | None:
    tools = import_root() / ".tools"
    return next((path for path in (tools / "kubernetes" / "etcd", tools / "etcd" / "etcd") if path.exists()), None)


def _version(program: Path) -> str:
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10.0, check=True).stdout
    return printed.splitlines()[0].rpartition(" ")[2]
