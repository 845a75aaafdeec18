"""A single Kafka broker that is its own controller, with the settings of its start script: a peer of the data plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

from bench.peers.interface import START_SECONDS
from bench.peers.kafka import ANSWER_SECONDS, Kafka, format_storage, server_command
from bench.peers.nodes import HOST, Node, wait_for
from pidkeeper.cli.local_cluster import free_ports

EVERY_BATCH: Final = {"flush.messages": "1"}
"""Of a topic whose batches are synced before they are acknowledged. Kafka leaves that to the page cache by default."""


class SingleKafka:
    """Use as a context manager. Everything is under `directory`."""

    def __init__(self, directory: Path) -> None:
        port, controller_port = free_ports(2)
        self.bootstrap: Final = f"{HOST}:{port}"
        home = directory / "kafka"
        home.mkdir(parents=True)
        self._properties = home / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(home / "logs"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._node = Node("kafka", server_command(self._properties), home, port)

    @staticmethod
    def why_unavailable() -> str | None:
        """None if it can start here, else what is missing."""
        return Kafka.why_unavailable()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._node.pid

    def __enter__(self) -> Self:
        format_storage(self._properties)
        try:
            self._node.start()
            wait_for(self._serves, "a broker", [self._node], START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._node.close()

    def _serves(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(admin(self.bootstrap).list_topics(timeout=ANSWER_SECONDS).brokers)
        except KafkaException:
            return False


def admin(bootstrap: str) -> Any:
    """librdkafka's client for topics."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
