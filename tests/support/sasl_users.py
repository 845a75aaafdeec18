"""Users of SASL in a file, and what their clients send."""

from __future__ import annotations

from pathlib import Path

from pidkeeper.broker_agent.security.user_list import User, UserList
from pidkeeper.service.kafka.wire.primitives import byte_string, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE


def write_users(path: Path, *users: User) -> UserList:
    path.write_text("".join(f"{user.line}\n" for user in users))
    return UserList(str(path))


def plain(name: str, password: str, acting_for: str = "") -> bytes:
    """The one message of PLAIN (RFC 4616)."""
    return f"{acting_for}\0{name}\0{password}".encode()


def handshake(mechanism: str, correlation_id: int = 1) -> bytes:
    """A frame of SaslHandshake, version 1."""
    return _frame(SASL_HANDSHAKE, 1, correlation_id, string(mechanism, flexible=False))


def authenticate(message: bytes, correlation_id: int = 2, version: int = 2) -> bytes:
    """A frame of SaslAuthenticate."""
    flexible = version >= 2
    body = tags(flexible=flexible) + byte_string(message, flexible=flexible) + tags(flexible=flexible)
    return _frame(SASL_AUTHENTICATE, version, correlation_id, body)


def api_versions(correlation_id: int = 0) -> bytes:
    """A frame of ApiVersions, version 0."""
    return _frame(API_VERSIONS, 0, correlation_id, b"")


def _frame(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    frame = int16(key) + int16(version) + int32(correlation_id) + string("c", flexible=False) + body
    return int32(len(frame)) + frame
