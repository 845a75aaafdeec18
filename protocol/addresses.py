"""Addresses of listeners: a host and a port."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

KAFKA: Final = "kafka://"
KAFKA_SSL: Final = "kafka+ssl://"
"""What Kafka calls SSL is TLS."""


class AddressError(ValueError):
    """A text is no address; the message says which, and what it is for."""


class HostPort(msgspec.Struct, frozen=True):
    """An address to listen on or to connect to. IPv6 hosts stand in brackets when written."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, key: str) -> HostPort:
        """`host:port`, port 0 included. Raises AddressError that names `key`."""
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535):
            raise AddressError(f"{key}: {text!r} is not host:port, like 127.0.0.1:9092")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class KafkaUrl(NamedTuple):
    """Where Kafka's protocol is spoken: `kafka://host:port`, or `kafka+ssl://host:port` for TLS."""

    address: HostPort
    encrypted: bool

    @classmethod
    def parse(cls, text: str, key: str) -> KafkaUrl:
        """Raises AddressError that names `key`."""
        for scheme in (KAFKA, KAFKA_SSL):
            if text.startswith(scheme):
                address = HostPort.parse(text.removeprefix(scheme).removesuffix("/"), key)
                if address.port == 0:
                    raise AddressError(f"{key}: {text!r} has port 0, where nobody listens")
                return cls(address, scheme == KAFKA_SSL)
        raise AddressError(f"{key}: {text!r} is no address like {KAFKA}127.0.0.1:9093, or {KAFKA_SSL} for TLS")

    def __str__(self) -> str:
        return f"{KAFKA_SSL if self.encrypted else KAFKA}{self.address}"
