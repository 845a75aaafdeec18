"""gRPC over HTTP/2 (RFC 9113) as far as one unary call at a time on a connection needs it, without any I/O.

A call that succeeds has a message before its trailers, one that fails has trailers alone: so no header needs to be
read, and none is.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MAX_WINDOW: Final = 2**31 - 1
"""Of flow control, which nobody then needs to renew: more than all answers of a run together."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
_INITIAL_WINDOW_SIZE: Final = 4
_DEFAULT_WINDOW: Final = 65_535
_FRAME: Final = struct.Struct(">HBBBi")
_MESSAGE: Final = struct.Struct(">Bi")


class Answer(NamedTuple):
    """What has come of a call. `message`: None if it failed."""

    done: bool
    message: bytes | None


class ConnectionOverError(ConnectionResetError):
    """The server takes no further call on this connection."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def opening() -> bytes:
    """What a client sends first."""
    settings = struct.pack(">Hi", _INITIAL_WINDOW_SIZE, MAX_WINDOW)
    window = struct.pack(">i", MAX_WINDOW - _DEFAULT_WINDOW)
    return _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, window)


def header_block(method: str, authority: str) -> bytes:
    """The headers of a call of `method`, like `/package.Service/Method`: names by number in HPACK's static table."""

    def text(value: str) -> bytes:
        assert len(value) < 0x7F, "longer ones have a length of several bytes"
        return bytes([len(value)]) + value.encode()

    method_post, scheme_http = b"\x83", b"\x86"
    content_type = b"\x0f\x10" + text("application/grpc")
    trailers = b"\x00" + text("te") + text("trailers")
    return method_post + scheme_http + b"\x04" + text(method) + b"\x01" + text(authority) + content_type + trailers


class Calls:
    """One connection: makes the frames of calls, and takes what comes."""

    def __init__(self) -> None:
        self._stream = -1
        self._pending = b""
        self._message = b""

    def call(self, headers: bytes, request: bytes) -> bytes:
        """The frames of the next call."""
        self._stream += 2
        self._message = b""
        message = _MESSAGE.pack(0, len(request)) + request
        return _frame(_HEADERS, _END_HEADERS, self._stream, headers) + _frame(_DATA, _END_STREAM, self._stream, message)

    def take(self, data: bytes) -> tuple[Answer, bytes]:
        """What has come of the call, and what has to be sent because of that.

        Raises ConnectionOverError when the server says so.
        """
        data, reply, done = self._pending + data, b"", False
        while len(data) >= _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(data)
            end = _FRAME.size + (high << 8 | low)
            if len(data) < end:
                break
            payload, data = data[_FRAME.size : end], data[end:]
            if stream == self._stream:
                self._message += payload if kind == _DATA else b""
                done = done or kind == _RESET or (kind in {_DATA, _HEADERS} and flags & _END_STREAM != 0)
            else:
                reply += self._control(kind, flags, payload)
        self._pending = data
        return Answer(done, self._whole_message()), reply

    def _whole_message(self) -> bytes | None:
        return self._message[_MESSAGE.size :] if len(self._message) >= _MESSAGE.size else None

    @staticmethod
    def _control(kind: int, flags: int, payload: bytes) -> bytes:
        if kind == _GO_AWAY:
            raise ConnectionOverError("the server takes no further call on this connection")
        if kind in {_SETTINGS, _PING} and not flags & _ACK:
            return _frame(kind, _ACK, 0, payload if kind == _PING else b"")
        return b""
