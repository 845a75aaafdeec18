"""Apache Kafka in KRaft mode: three controllers and one broker, from the jars of `tools/fetch-jars kafka`.

The controllers sync their log before they acknowledge, as they do by default. A broker leaves that to the page cache
and to its replicas, of which one broker has none; its log of transactions is asked for nothing more here.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from bench.closed_loop import LoadResult
from bench.cluster import LOAD_BROKER_ID
from bench.kafka_load import ANSWER_BYTES, KafkaLoadSpec, read_answer, request_frame
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.peers.interface import START_SECONDS, Peer, Scheme
from bench.peers.java import why_no_java
from bench.peers.kafka_registration import register
from bench.peers.nodes import HOST, Node, wait_for
from bench.txn_load import TxnLoadSpec
from pidkeeper.cli.local_cluster import free_ports, import_root

JARS: Final = import_root() / ".tools" / "kafka"
CONTROLLERS: Final = (1, 2, 3)
BROKER: Final = 4
TOPIC: Final = "bench"
CLUSTER_ID: Final = "cGlka2VlcGVyLWJlbmNoLTE"
"""Base64 of 16 bytes, which is all that Kafka asks of it."""

ANSWER_SECONDS: Final = 1.0
NOT_CONTROLLER: Final = 41
_NOBODY: Final = -1
_TOOL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SERVER_JVM: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""What Kafka's start script gives a server."""


class KafkaSession:
    """A blocking client of one controller."""

    def __init__(self, port: int, broker_epoch: int, seconds: float, broker_id: int = LOAD_BROKER_ID) -> None:
        self._request = request_frame(broker_id, broker_epoch)
        self._socket = socket.create_connection((HOST, port), timeout=seconds)

    def ask(self) -> tuple[int, int]:
        """Error code, 0 for none, and the start of a block. Raises OSError."""
        self._socket.sendall(self._request)
        answer = b""
        while len(answer) < ANSWER_BYTES:
            answer += (chunk := self._socket.recv(ANSWER_BYTES - len(answer)))
            if not chunk:
                raise ConnectionResetError("the controller closed the connection")
        return read_answer(answer)

    def allocate(self) -> int | None:
        """The next block's start; None if this controller does not give one. Raises OSError."""
        error, start = self.ask()
        return None if error else start

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Kafka(Peer):
    """Three controllers, which allocate blocks, and a broker, which hands out IDs and coordinates transactions."""

    settle_seconds = 20.0

    def __init__(self, directory: Path) -> None:
        found = re.search(r"kafka_[0-9.]+-([0-9.]+)\.jar", " ".join(jar.name for jar in JARS.glob("kafka_*.jar")))
        self.name = f"Kafka {found[1] if found else '?'}"
        ports = free_ports(len(CONTROLLERS) + 1)
        voters = [f"{node}@{HOST}:{port}" for node, port in zip(CONTROLLERS, ports, strict=False)]
        self._voters = {"controller.quorum.voters": ",".join(voters), "controller.listener.names": "CONTROLLER"}
        self.nodes = [self._node(directory, node, port) for node, port in zip(CONTROLLERS, ports, strict=False)]
        self.broker: Final = self._node(directory, BROKER, ports[-1])
        self.others = (self.broker,)
        self._epoch = _NOBODY

    @staticmethod
    def why_unavailable() -> str | None:
        """None if it can start here, else what is missing."""
        if not list(JARS.glob("kafka_2.13-*.jar")):
            return "Kafka: .tools/kafka is empty; tools/fetch-jars kafka fills it with Maven"
        return f"Kafka: {why}" if (why := why_no_java()) else None

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """Blocks of the leading controller, and transactions at the broker, whose pairs are the numbers."""
        return (
            Scheme(f"{self.name}, AllocateProducerIds", self._blocks),
            Scheme(f"{self.name}, transactions", self._transactions),
        )

    @property
    def claims_address(self) -> str:
        """host:port of the broker, for loads of InitProducerId."""
        return f"{HOST}:{self.broker.port}"

    def find_leader(self) -> Node | None:
        """The controller that would look at a request, if it is the only one. Raises OSError."""
        leaders = []
        for node in self.nodes:
            # Of a broker that is not registered: it is refused after the question who leads, and takes no block.
            session = KafkaSession(node.port, _NOBODY, ANSWER_SECONDS, broker_id=LOAD_BROKER_ID + 1)
            try:
                if session.ask()[0] != NOT_CONTROLLER:
                    leaders.append(node)
            finally:
                session.close()
        return leaders[0] if len(leaders) == 1 else None

    def connect(self, node: Node, seconds: float) -> KafkaSession:
        """A session at one controller. Raises OSError."""
        return KafkaSession(node.port, self._epoch, seconds)

    def __enter__(self) -> Self:
        self._format()
        return super().__enter__()

    def prepare(self) -> None:
        """Register the load as a broker, and have the real one make a topic, and its log of transactions."""
        self._epoch = register(self.leader().port, LOAD_BROKER_ID, CLUSTER_ID)
        wait_for(self._has_topic, f"the topic of {self.name}", [*self.nodes, self.broker], START_SECONDS)

    def _has_topic(self) -> bool:
        from confluent_kafka import KafkaException, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": self.claims_address, "log_level": 0}
        admin = AdminClient(settings)
        try:
            if TOPIC not in admin.list_topics(timeout=ANSWER_SECONDS).topics:
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(LOAD_START_SECONDS)
            Producer(settings | {"transactional.id": "first"}).init_transactions(LOAD_START_SECONDS)
        except KafkaException:
            return False
        return True

    def _node(self, directory: Path, node: int, port: int) -> Node:
        home = directory / f"kafka-{node}"
        home.mkdir(parents=True, exist_ok=True)
        role, listener = ("broker", "PLAINTEXT") if node == BROKER else ("controller", "CONTROLLER")
        settings = {
            "process.roles": role,
            "node.id": str(node),
            "listeners": f"{listener}://{HOST}:{port}",
            "log.dirs": str(home / "logs"),
            **self._voters,
        }
        if node == BROKER:
            # There is one broker only.
            alone = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
            settings |= dict.fromkeys((*alone, "transaction.state.log.min.isr"), "1")
        (home / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return Node(home.name, server_command(home / "server.properties"), home, port)

    def _format(self) -> None:
        """Raises RuntimeError with the tool's complaint."""
        with ThreadPoolExecutor() as pool:
            list(
                pool.map(format_storage, [node.directory / "server.properties" for node in (*self.nodes, self.broker)])
            )

    def _blocks(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = KafkaLoadSpec(HOST, self.leader().port, LOAD_BROKER_ID, self._epoch, callers, seconds, warmup)
        return run_load("bench.kafka_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)

    def _transactions(self, callers: int, seconds: float, warmup: float) -> LoadResult:
        spec = TxnLoadSpec(HOST, self.broker.port, TOPIC, "bench", callers, seconds, warmup)
        return run_load("bench.txn_load", spec, LoadResult, warmup + seconds + LOAD_START_SECONDS)


def format_storage(properties: Path) -> None:
    """What a node needs before its first start. Raises RuntimeError with the tool's complaint."""
    command = _java(_TOOL_JVM, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka's storage tool ended with {done.returncode}: {done.stdout}{done.stderr}")


def server_command(properties: Path) -> list[str]:
    """The command that runs a node."""
    return _java(_SERVER_JVM, "kafka.Kafka", str(properties))


def _java(options: Sequence[str], main: str, *arguments: str) -> list[str]:
    return ["java", *options, "-cp", f"{JARS}/*", main, *arguments]
