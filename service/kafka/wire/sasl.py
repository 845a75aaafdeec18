"""SaslHandshake, key 17, version 1, and SaslAuthenticate, key 36, versions 0 to 2 (KIP-43, KIP-152, KIP-368).

Version 0 of the handshake, after which tokens come without a header, is of clients from before Kafka 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.primitives import Reader, array, byte_string, int16, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

HANDSHAKE_VERSIONS: Final = Versions(1, 1, first_flexible=2)
AUTHENTICATE_VERSIONS: Final = Versions(0, 2, first_flexible=2)


class HandshakeRequest(msgspec.Struct, frozen=True):
    """The mechanism that the client wants."""

    mechanism: str


class AuthenticateRequest(msgspec.Struct, frozen=True):
    """A message of the mechanism."""

    auth_bytes: bytes


def read_handshake_request(reader: Reader, _: int) -> HandshakeRequest:
    """Read the whole body. Raises WireError."""
    request = HandshakeRequest(reader.string(flexible=False))
    reader.finish()
    return request


def write_handshake_request(mechanism: str) -> bytes:
    """The body."""
    return string(mechanism, flexible=False)


def read_handshake_response(reader: Reader) -> int:
    """The error, 0 for none. Raises WireError."""
    error = reader.int16()
    for _ in range(reader.array_length(flexible=False, min_element_bytes=2)):
        reader.string(flexible=False)
    reader.finish()
    return error


def handshake_response(error: ErrorCode, mechanisms: Sequence[str]) -> bytes:
    """The body of the answer; the mechanisms are those that are offered."""
    return int16(error.kafka_code) + array([string(name, flexible=False) for name in mechanisms], flexible=False)


def read_authenticate_request(reader: Reader, version: int) -> AuthenticateRequest:
    """Read the whole body. Raises WireError."""
    flexible = AUTHENTICATE_VERSIONS.is_flexible(version)
    request = AuthenticateRequest(reader.byte_string(flexible=flexible))
    if flexible:
        reader.skip_tags()
    reader.finish()
    return request


def write_authenticate_request(message: bytes) -> bytes:
    """The body in the highest version."""
    return byte_string(message, flexible=True) + tags(flexible=True)


def read_authenticate_response(reader: Reader) -> int:
    """The error in the highest version, 0 for none. Raises WireError."""
    error = reader.int16()
    reader.nullable_string(flexible=True)
    reader.byte_string(flexible=True)
    reader.int64()
    reader.skip_tags()
    reader.finish()
    return error


def authenticate_response(
    version: int, error: ErrorCode = ErrorCode.NONE, detail: str | None = None, message: bytes = b""
) -> bytes:
    """The body of the answer, with the server's message of the mechanism. A session lasts as long as its connection."""
    flexible = AUTHENTICATE_VERSIONS.is_flexible(version)
    lifetime = int64(0) if version >= 1 else b""
    texts = string(detail, flexible=flexible) + byte_string(message, flexible=flexible)
    return int16(error.kafka_code) + texts + lifetime + tags(flexible=flexible)
