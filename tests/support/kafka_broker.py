"""A real Kafka broker on loopback, from the jars of tools/fetch-jars kafka: one process is broker and controller."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pidkeeper.cli.local_cluster import free_ports
from tests.support.java_servers import JVM, LOG4J, end_with_this_process

HOST: Final = "127.0.0.1"
JARS: Final = Path(__file__).resolve().parents[2] / ".tools" / "kafka"
LEAST_JAVA: Final = 17
"""What Kafka 4 asks of a broker."""
START_SECONDS: Final = 90.0
"""When a test gives up on the broker; never how fast it must be."""
TOOL_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
CLUSTER_ID: Final = "cGlka2VlcGVyLXRlc3QtMQ"
"""Base64 of 16 bytes, which is all that Kafka asks of it."""
_HEAP: Final = "-Xmx256m"


def why_unavailable() -> str | None:
    """None if a KafkaBroker can start here, else what is missing."""
    missing = f"no Kafka broker: no Java {LEAST_JAVA}+ on PATH"
    if shutil.which("java") is None:
        return missing
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    found = re.search(r'version "(\d+)', banner.stderr + banner.stdout)
    if found is None or int(found[1]) < LEAST_JAVA:
        return missing
    if not list(JARS.glob("kafka_2.13-*.jar")):
        return "no Kafka broker: .tools/kafka is empty; tools/fetch-jars kafka fills it with Maven"
    return None


def _java(main: str, *arguments: str, options: Iterable[str] = ()) -> list[str]:
    return ["java", _HEAP, *JVM, *options, "-cp", f"{JARS}/*", main, *arguments]


def _run_tool(main: str, *arguments: str) -> str:
    """What one of Kafka's own tools prints. Raises AssertionError with its complaint if it fails."""
    done = subprocess.run(_java(main, *arguments), capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, f"{main} {arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def dump_log_segments(segments: Iterable[Path], *, deep: bool = False, values: bool = False) -> str:
    """What Kafka's dump tool says of segments: a line a batch, `deep` a line a record, with `values`."""
    names = ",".join(str(path) for path in segments)
    options = ["--deep-iteration"] * deep + ["--print-data-log"] * values
    return _run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)


class KafkaBroker:
    """Node 1 of a cluster of its own, with everything under `directory`.

    `settings` are more lines for server.properties. Its segments lie in `logs`/<topic>-<partition>/.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.logs: Final = directory / "logs"
        self._directory = directory
        self._settings = dict(settings or {})
        self._port, self._controller_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._killer: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"{HOST}:{self._port}"

    @property
    def controller(self) -> str:
        """host:port at which its brokers, of which it is the only one, ask the controller that it is too."""
        return f"{HOST}:{self._controller_port}"

    def start(self) -> None:
        """Format the storage, start the broker and wait until it serves. Raises AssertionError with its log if not."""
        self._directory.mkdir(parents=True, exist_ok=True)
        properties, log4j = self._directory / "server.properties", self._directory / "log4j2.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        log4j.write_text(LOG4J)
        if not (self.logs / "meta.properties").exists():
            _run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(properties), options=[f"-Dlog4j2.configurationFile={log4j}"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, "LC_ALL": "C"},
            )
        self._killer = end_with_this_process(self._process)
        self._wait_until_it_serves()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.logs),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            "log.cleaner.backoff.ms": "100",
            **self._settings,
        }

    def _wait_until_it_serves(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None and self._process.poll() is None, f"the broker ended\n{self._log()}"
            try:
                if admin.list_topics(timeout=1.0).brokers:
                    return
            except KafkaException:
                time.sleep(POLL_SECONDS)
        raise AssertionError(f"the broker does not serve after {START_SECONDS:g} s\n{self._log()}")

    def _log(self) -> str:
        return (self._directory / "broker.log").read_text(errors="replace")

    def create_topic(self, name: str, **config: str) -> Path:
        """Create a topic of one partition; `config` with _ for the dots. The directory of its segments."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        settings = {key.replace("_", "."): value for key, value in config.items()}
        for made in admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values():
            made.result(TOOL_SECONDS)
        return self.logs / f"{name}-0"

    def close(self) -> None:
        """`kill -9` of the broker, and wait until it is gone. What it wrote stays, in the page cache at least."""
        # The killer goes first: after the wait the number may belong to another process.
        if self._killer is not None:
            self._killer.kill()
            self._killer.wait()
            if self._killer.stdin is not None:
                self._killer.stdin.close()
            self._killer = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
