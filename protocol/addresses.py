"""Addresses of listeners: a host and a port."""

from __future__ import annotations

import msgspec


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
