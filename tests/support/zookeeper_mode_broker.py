"""A real Kafka broker that keeps to ZooKeeper, on loopback, from the jars of tools/fetch-jars kafka-3.9."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from pidkeeper.cli.kafka_load import ClaimTally, connect
from pidkeeper.cli.local_cluster import free_ports
from tests.support.java_servers import JVM, end_with_this_process
from tests.support.waiting import until
from tests.support.zookeeper import HOST

JARS: Final = Path(__file__).resolve().parents[2] / ".tools" / "kafka-3.9"
PATIENCE_SECONDS: Final = 60.0
"""When a test gives up on the broker; never how fast it must be."""
SESSION_MS: Final = 18_000
"""Kafka's default: a broker on a busy machine keeps its session."""
_LOG4J: Final = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1} %m%n
"""


def why_unavailable() -> str | None:
    """None if a broker can start here, beside a ZooKeeper of the tests, else what is missing."""
    if shutil.which("java") is None:
        return "no Kafka broker: no Java on PATH"
    if not list(JARS.glob("kafka_2.13-*.jar")):
        return (
            "no Kafka broker for ZooKeeper: .tools/kafka-3.9 is empty; tools/fetch-jars kafka-3.9 fills it with Maven"
        )
    return None


class ZookeeperModeBroker:
    """One broker, with everything under `directory`. `connect`: a chroot of ZooKeeper, as host:port/path.

    `protocol`: its inter.broker.protocol.version (IBP), which says how it comes by blocks.
    """

    def __init__(self, directory: Path, connect: str, broker_id: int, protocol: str) -> None:
        self.broker_id: Final = broker_id
        self._directory = directory
        self._port = free_ports(1)[0]
        self._properties = {
            "broker.id": str(broker_id),
            "inter.broker.protocol.version": protocol,
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "log.dirs": str(directory / "logs"),
            "controlled.shutdown.enable": "false",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "background.threads": "1",
            "log.cleaner.enable": "false",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._killer: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        properties, log4j = self._directory / "server.properties", self._directory / "log4j.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
        log4j.write_text(_LOG4J)
        options = ("-Xmx256m", *JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{JARS}/*")
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        self._killer = end_with_this_process(self._process)

    @property
    def _log_file(self) -> Path:
        return self._directory / "broker.log"

    def log(self) -> str:
        """What it has said."""
        return self._log_file.read_text(errors="replace")

    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def gives_ids(self) -> bool:
        """Whether it serves, and has a block. Raises AssertionError with its log if it has ended."""
        assert self.running(), f"broker {self.broker_id} ended\n{self.log()}"
        with socket.socket() as one:
            serves = one.connect_ex((HOST, self._port)) == 0
        return serves and self.claim(1).claims == 1

    def claim(self, count: int) -> ClaimTally:
        """The answers to `count` requests for a producer ID without transactional id (InitProducerId v4)."""
        return asyncio.run(self._claim(count))

    async def _claim(self, count: int) -> ClaimTally:
        tally = ClaimTally()
        connection = await connect(f"{HOST}:{self._port}", tally)
        sent = 0
        while sent < count:
            sent += connection.send(count - sent)
            await until(lambda: not connection.outstanding or connection.closed.done())
            assert connection.failure is None and not tally.lost_connections, (connection.failure, self.log())
        connection.close()
        await connection.closed
        return tally

    def stop(self) -> None:
        """End the process in order, and its session with it."""
        if self._killer is not None:
            # The killer goes first: after the wait the number may belong to another process.
            self._killer.kill()
            self._killer.wait()
            if self._killer.stdin is not None:
                self._killer.stdin.close()
            self._killer = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None
