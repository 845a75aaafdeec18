"""ZooKeeper's protocol as far as the loads need it: frames of jute, its serialisation, made and read by hand."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

BAD_VERSION: Final = -103
NODE_EXISTS: Final = -110
SESSION_MILLISECONDS: Final = 40_000
"""The longest that a server with a tick of two seconds grants."""

MAX_FRAME_BYTES: Final = 1 << 20
"""The largest that servers take by default."""

_LENGTH: Final = struct.Struct(">i")
_REPLY: Final = struct.Struct(">iqi")
_VERSION: Final = struct.Struct(">i")
_STAT_BYTES: Final = 68
_VERSION_AT: Final = 32
_CREATE, _GET, _SET, _CLOSE = 1, 4, 5, -11
_ALL_RIGHTS: Final = 31


class Reply(NamedTuple):
    """One reply: an error code, 0 for none, and what comes after the header."""

    error: int
    body: bytes


def _buffer(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _frame(kind: int, body: bytes) -> bytes:
    # Servers only echo the number of a request, and there is one at a time.
    return _buffer(struct.pack(">ii", 1, kind) + body)


def connect_request() -> bytes:
    """A new session."""
    return _buffer(struct.pack(">iqiq", 0, 0, SESSION_MILLISECONDS, 0) + _buffer(bytes(16)) + b"\x00")


def get_data(path: str) -> bytes:
    """What a znode holds, without a watch."""
    return _frame(_GET, _buffer(path.encode()) + b"\x00")


def set_data(path: str, data: bytes, version: int) -> bytes:
    """Write a znode if it has this version; -1 for any."""
    return _frame(_SET, _buffer(path.encode()) + _buffer(data) + _VERSION.pack(version))


def create(path: str, data: bytes) -> bytes:
    """Make a znode that stays and that anybody may write."""
    everybody = struct.pack(">ii", 1, _ALL_RIGHTS) + _buffer(b"world") + _buffer(b"anyone")
    return _frame(_CREATE, _buffer(path.encode()) + _buffer(data) + everybody + struct.pack(">i", 0))


def close_request() -> bytes:
    """End the session: one that is only left costs the quorum a write when it expires."""
    return _frame(_CLOSE, b"")


def whole_frame(data: bytes) -> bytes | None:
    """The payload of the one frame that `data` is; None while it is not whole.

    Raises ValueError for more than one, or for one that is too large.
    """
    if len(data) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if not _LENGTH.size <= end <= MAX_FRAME_BYTES or len(data) > end:
        raise ValueError(f"not one frame of ZooKeeper: {data[:40].hex()}")
    return data[_LENGTH.size :] if len(data) == end else None


def read_reply(payload: bytes) -> Reply:
    """Raises ValueError for what is none."""
    if len(payload) < _REPLY.size:
        raise ValueError(f"not a reply of ZooKeeper: {payload.hex()}")
    return Reply(_REPLY.unpack_from(payload)[2], payload[_REPLY.size :])


def stat_version(body: bytes) -> int:
    """The version of the znode, from the Stat at the end of a reply to getData or setData."""
    version: int = _VERSION.unpack_from(body, len(body) - _STAT_BYTES + _VERSION_AT)[0]
    return version


def data_of(body: bytes) -> bytes:
    """What the znode holds, from a reply to getData."""
    return body[_LENGTH.size : -_STAT_BYTES]
