"""A broker of another system, which speaks Kafka's protocol with a codec that is not ours (kio)."""

from __future__ import annotations

import socket
import ssl
import uuid
from typing import Any, Self

from bench.peers.kafka_registration import FEATURES
from tests.support.kafka_oracles import kio_nested, kio_request, kio_response

SECONDS = 10.0


class ForeignBroker:
    """Asks one controller over a connection of its own. Use as a context manager; raises OSError when it is closed."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        host, port = address.rsplit(":", 1)
        self._socket: socket.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._stream = self._socket.makefile("rb")
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """The decoded answer."""
        self._asked += 1
        self.send(kio_request(api, version, self._asked, "broker of another system", **fields))
        number, answer = kio_response(api, version, self.receive())
        assert number == self._asked
        return answer

    def send(self, *frames: bytes) -> None:
        """Frames at once; each gets its length here."""
        self._socket.sendall(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))

    def receive(self) -> bytes:
        """A frame without its length. Raises ConnectionError at the end."""
        length = self._stream.read(4)
        if len(length) < 4:
            raise ConnectionResetError("the controller closed the connection")
        return self._stream.read(int.from_bytes(length, "big"))

    def register(
        self, broker_id: int, cluster_id: str, *, version: int = 4, incarnation: uuid.UUID | None = None
    ) -> Any:
        """With a listener, features and log directories, as Kafka's brokers send them."""
        listener = kio_nested("broker_registration", version, "request", "Listener")
        feature = kio_nested("broker_registration", version, "request", "Feature")
        further: dict[str, Any] = {}
        if version >= 1:
            further["is_migrating_zk_broker"] = False
        if version >= 2:
            further["log_dirs"] = (uuid.uuid4(), uuid.uuid4())
        if version >= 3:
            further["previous_broker_epoch"] = 7
        return self.ask(
            "broker_registration",
            version,
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation or uuid.uuid4(),
            listeners=(listener(name="PLAINTEXT", host="broker.test", port=65_535, security_protocol=0),),
            features=tuple(
                feature(name=name, min_supported_version=least, max_supported_version=1000)
                for name, least in FEATURES.items()
                if least or version >= 4
            ),
            rack="r1",
            **further,
        )

    def heartbeat(self, broker_id: int, epoch: int, *, version: int = 1, want_shut_down: bool = False) -> Any:
        """With a log directory that failed, where the version has it."""
        further = {"offline_log_dirs": (uuid.uuid4(),)} if version >= 1 else {}
        return self.ask(
            "broker_heartbeat",
            version,
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=12,
            want_fence=True,
            want_shut_down=want_shut_down,
            **further,
        )

    def allocate(self, broker_id: int, epoch: int) -> Any:
        """A block."""
        return self.ask("allocate_producer_ids", 0, broker_id=broker_id, broker_epoch=epoch)
