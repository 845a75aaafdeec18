"""Handshakes: what a stranger can send to the two ends of a peer link before, in and after shaking hands."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.raft.messages import Heartbeat, Message
from controller.transport.frames import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    FrameError,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
)
from controller.transport.links import Identity, InboundLink, OutboundLink, PeerLinks
from tests.fuzz.mutator import Parts
from tests.fuzz.raft_core import frame_parts
from tests.fuzz.target import Target, Violation

_KEY: Final = b"the key of the cluster"
_NONCE: Final = bytes(NONCE_BYTES)
_MAX_BUFFERED: Final = 2048 + 4
"""Bytes of one incomplete handshake frame that may be kept."""


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Loop:
    """The calls of an event loop that a link makes; nothing runs later."""

    def __init__(self) -> None:
        self.timers: list[_Timer] = []

    def call_later(self, delay: float, callback: Callable[..., object]) -> _Timer:
        self.timers.append(timer := _Timer())
        return timer


class _Transport:
    """Keeps what was written; closing and aborting only set a flag."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> socket.socket:
        return self._connection

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close


class _LastLine(logging.Handler):
    """Keeps the latest message: why a link was closed."""

    line = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.line = record.getMessage()


class _Events:
    """Notes what reaches the node."""

    def __init__(self) -> None:
        self.senders: list[int] = []

    def received(self, messages: list[Message]) -> None:
        self.senders += [message.sender for message in messages]

    def link_up(self, peer: int) -> None:
        return None

    def link_lost(self, peer: int) -> None:
        return None


class HandshakeTarget(Target):
    """Bytes at an accepting link (first byte even) or at a dialling one (odd), with nonces of zeroes."""

    name = "handshake"
    refusals = (FrameError,)
    steps = 1500
    steps_per_byte = 3

    def __init__(self) -> None:
        logger = logging.getLogger("controller.transport.links")
        logger.propagate = False
        self._log = _LastLine()
        logger.handlers = [self._log]
        self._connection = socket.socket()
        self._hello = Hello(PROTOCOL_VERSION, "cluster-a", 2, 1, "directory", _NONCE)
        self._said = Hello(PROTOCOL_VERSION, "cluster-a", 1, 2, "directory", _NONCE)
        self.corpus: list[Parts] = _transcripts(self._hello, self._said)

    def assemble(self, parts: Parts) -> bytes:
        """The byte that chooses the end, and a stream of frames."""
        return parts[0][:1].ljust(1, b"\0") + frame_parts(parts[1:])

    def feed(self, data: bytes) -> None:
        self._log.line = "closed by the other side"
        loop, transport, events = _Loop(), _Transport(self._connection), _Events()
        identity = Identity("cluster-a", 1, "directory", _KEY)
        links = PeerLinks(identity, {2: ("127.0.0.1", 1), 3: ("127.0.0.1", 1)}, events)
        asyncio._set_running_loop(loop)  # type: ignore[arg-type]
        try:
            shake = self._accept if not data or data[0] % 2 == 0 else self._dial
            shake(links, transport, data[1:])
        finally:
            asyncio._set_running_loop(None)
        if not all(timer.cancelled for timer in loop.timers):
            raise Violation("a timer of a closed link is left")
        if links._connections or links._inbound or set(events.senders) - {2}:
            raise Violation(f"left over: {links._connections}, {links._inbound}; messages of {set(events.senders)}")
        if transport.closed:
            raise FrameError(self._log.line)

    def close(self) -> None:
        self._connection.close()

    def _accept(self, links: PeerLinks, transport: Any, data: bytes) -> None:
        link = InboundLink(links)
        link._nonce = _NONCE
        link.connection_made(transport)
        _send(link, transport, data)
        if link._peer is None and not transport.closed and len(link._handshake.rest()) > _MAX_BUFFERED:
            raise Violation(f"{len(link._handshake.rest())} bytes of a handshake are kept")
        link.connection_lost(None)

    def _dial(self, links: PeerLinks, transport: Any, data: bytes) -> None:
        link = OutboundLink(links, 2, "127.0.0.1", 1)
        link.connection_made(transport)
        link._hello = self._said
        _send(link, transport, data)
        if link.up and acceptor_mac(_KEY, self._said, 2, _NONCE) not in data:
            raise Violation("a link is up to a member that did not prove itself")
        link.connection_lost(None)


def _send(link: asyncio.Protocol, transport: Any, data: bytes) -> None:
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        if not transport.closed:
            link.data_received(piece)


def _transcripts(hello: Hello, said: Hello) -> list[Parts]:
    encode = msgspec.msgpack.encode
    proof = Proof(dialler_mac(_KEY, hello, 1, _NONCE))
    welcome = Welcome(2, "theirs", _NONCE, acceptor_mac(_KEY, said, 2, _NONCE))
    heartbeat = Heartbeat(1, 2, 1, 0, 0)
    named = [
        msgspec.structs.replace(hello, cluster_id="other"),
        msgspec.structs.replace(hello, version=2),
        msgspec.structs.replace(hello, to=3),
        msgspec.structs.replace(hello, sender=9),
    ]
    return [
        (b"\0", encode(hello), encode(proof)),
        (b"\0", encode(hello), encode(proof), encode(heartbeat), encode(heartbeat)),
        (b"\0", encode(hello), encode(Proof(b"wrong"))),
        *[(b"\0", encode(one), encode(proof)) for one in named],
        (b"\1", encode(welcome)),
        (b"\1", encode(Welcome(2, "theirs", _NONCE, b""))),
        (b"\1", encode(Refused("x" * 512))),
    ]
