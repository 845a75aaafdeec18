"""etcd's messages as far as the loads need them, made and read by hand.

A whole number is a varint, and everything else has its length before it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pidkeeper.service.kafka.wire.primitives import varint

RANGE: Final = "/etcdserverpb.KV/Range"
PUT: Final = "/etcdserverpb.KV/Put"
TXN: Final = "/etcdserverpb.KV/Txn"
STATUS: Final = "/etcdserverpb.Maintenance/Status"

_VARINT, _BYTES = 0, 2
_EQUAL, _MOD_REVISION = 0, 2


class Stored(NamedTuple):
    """What a key holds, and the revision that wrote it."""

    value: bytes
    revision: int


class Status(NamedTuple):
    """Ids of the member that was asked and of the one that leads (0 for none), and the version."""

    member: int
    leader: int
    version: str


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def fields(message: bytes) -> dict[int, int | bytes]:
    """By number, the last of each. Raises ValueError for other kinds than those two, and at a message's end."""
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if key & 7 == _VARINT:
            found[key >> 3] = value
        elif key & 7 == _BYTES and at + value <= len(message):
            found[key >> 3], at = message[at : at + value], at + value
        else:
            raise ValueError(f"not a message of etcd: {message[:60].hex()}")
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at == len(message):
            raise ValueError(f"a message of etcd ends within a number: {message[:60].hex()}")
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 0x80:
            return value, at


def _whole(found: dict[int, int | bytes], field: int) -> int:
    value = found.get(field, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {field} of an answer of etcd is no number")  # noqa: TRY004 - of the message, not ours
    return value


def _inner(found: dict[int, int | bytes], field: int) -> bytes:
    value = found.get(field, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {field} of an answer of etcd is a number")  # noqa: TRY004 - of the message, not ours
    return value


def range_request(key: bytes) -> bytes:
    """One key, as it is after all that was acknowledged."""
    return _bytes(1, key)


def put_request(key: bytes, value: bytes) -> bytes:
    """Whatever is there."""
    return _bytes(1, key) + _bytes(2, value)


def swap_request(key: bytes, value: bytes, revision: int) -> bytes:
    """Put if the key was last written by this revision, which is 0 for a key that is not there."""
    compare = _number(1, _EQUAL) + _number(2, _MOD_REVISION) + _bytes(3, key) + _number(6, revision)
    return _bytes(1, compare) + _bytes(2, _bytes(2, put_request(key, value)))


def read_range(message: bytes) -> Stored:
    """The key of an answer to `range_request`; empty and of revision 0 if it is not there. Raises ValueError."""
    found = fields(_inner(fields(message), 2))
    return Stored(_inner(found, 5), _whole(found, 3))


def read_swap(message: bytes) -> bool:
    """Whether `swap_request` did put. Raises ValueError."""
    return bool(_whole(fields(message), 2))


def read_put(message: bytes) -> int:
    """The revision that a put made. Raises ValueError."""
    return _whole(fields(_inner(fields(message), 1)), 3)


def read_status(message: bytes) -> Status:
    """Raises ValueError."""
    found = fields(message)
    return Status(_whole(fields(_inner(found, 1)), 2), _whole(found, 4), _inner(found, 2).decode())
