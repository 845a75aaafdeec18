"""Handshakes: what a stranger can send to the two ends of a peer link before, in and after shaking hands."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import msgspec

from pidkeeper.controller.raft.messages import Heartbeat, Message
from pidkeeper.controller.transport.frames import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    FoundingTerms,
    FrameError,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
)
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.controller.transport.links import MAX_GUESTS, InboundLink, PeerLinks
from pidkeeper.controller.transport.outbound import OutboundConnection, OutboundLink
from tests.fuzz.mutator import Parts
from tests.fuzz.raft_core import frame_parts
from tests.fuzz.target import Target, Violation

_KEY: Final = b"the key of the cluster"
_NONCE: Final = bytes(NONCE_BYTES)
_FOUNDING_ID: Final = uuid.UUID(int=1)
_PROOF: Final = b"the proof for the Hello before"
"""A part that `assemble` replaces by the right Proof, so that mutated Hellos get past it, too."""

_MEMBERS: Final = {2: ("127.0.0.1", 1), 3: ("127.0.0.1", 1)}
_MAX_BUFFERED: Final = 2048 + 4
"""Bytes of one incomplete handshake frame that may be kept."""


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Task(_Timer):
    """A coroutine that never runs."""

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        callback(self)


class _Loop:
    """The calls of an event loop that a link makes; nothing runs later."""

    def __init__(self) -> None:
        self.timers: list[_Timer] = []
        self.tasks: dict[str, _Task] = {}

    def create_task(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> _Task:
        coroutine.close()
        self.tasks[name] = task = _Task()
        return task

    def call_later(self, delay: float, callback: Callable[..., object]) -> _Timer:
        self.timers.append(timer := _Timer())
        return timer


class _Transport:
    """Keeps what was written; closing and aborting only set a flag."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> socket.socket | tuple[str, int] | None:
        if name == "socket":
            return self._connection
        return ("192.0.2.1", 9090) if name == "peername" else None

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

    def introduced(self, peer: int) -> None:
        return None

    def received(self, messages: list[Message]) -> None:
        self.senders += [message.sender for message in messages]

    def link_up(self, peer: int) -> None:
        return None

    def link_lost(self, peer: int) -> None:
        return None


class HandshakeTarget(Target):
    """Bytes at an accepting link (first byte even) or at a dialling one (odd), with nonces of zeroes.

    A second bit of the first byte: as many guests as are allowed are there already.
    """

    name = "handshake"
    refusals = (FrameError,)
    steps = 1500
    steps_per_byte = 3

    def __init__(self) -> None:
        logger = logging.getLogger("pidkeeper.controller.transport")
        logger.propagate = False
        self._log = _LastLine()
        logger.handlers = [self._log]
        self._connection = socket.socket()
        self._hello = Hello(PROTOCOL_VERSION, "cluster-a", 2, 1, "directory", _NONCE)
        self._said = Hello(PROTOCOL_VERSION, "cluster-a", 1, 2, "directory", _NONCE)
        self.corpus: list[Parts] = _transcripts(self._hello, self._said)

    def assemble(self, parts: Parts) -> bytes:
        """The byte that chooses the end, and a stream of frames."""
        made: list[bytes] = []
        for part in parts[1:]:
            made.append(_proof(made[-1]) if part == _PROOF and made else part)
        return parts[0][:1].ljust(1, b"\0") + frame_parts(tuple(made))

    def feed(self, data: bytes) -> None:
        self._log.line = "closed by the other side"
        loop, transport, events = _Loop(), _Transport(self._connection), _Events()
        identity = Identity("cluster-a", 1, "directory", (_KEY,), founding_id=_FOUNDING_ID)
        links = PeerLinks(identity, _MEMBERS)
        links.events = events
        links._started = True
        choice = data[0] if data else 0
        guests = cast("dict[int, InboundLink]", dict.fromkeys(range(101, 101 + (MAX_GUESTS if choice & 2 else 0))))
        links._inbound.update(guests)
        asyncio._set_running_loop(loop)  # type: ignore[arg-type]
        try:
            shake = self._accept if choice % 2 == 0 else self._dial
            peer = shake(links, transport, data[1:])
        finally:
            asyncio._set_running_loop(None)
        if not all(timer.cancelled for timer in loop.timers):
            raise Violation("a timer of a closed link is left")
        if links._connections or links._inbound != guests or set(events.senders) - {peer}:
            raise Violation(f"left over: {links._connections}, {links._inbound}; messages of {set(events.senders)}")
        _check_guest(links, loop, peer, full=bool(guests))
        if transport.closed:
            raise FrameError(self._log.line)

    def close(self) -> None:
        self._connection.close()

    def _accept(self, links: PeerLinks, transport: Any, data: bytes) -> int | None:
        link = InboundLink(links)
        link._nonce = _NONCE
        link.connection_made(transport)
        _send(link, transport, data)
        if link._peer is None and not transport.closed and len(link._handshake.rest()) > _MAX_BUFFERED:
            raise Violation(f"{len(link._handshake.rest())} bytes of a handshake are kept")
        link.connection_lost(None)
        return link._peer

    def _dial(self, links: PeerLinks, transport: Any, data: bytes) -> int | None:
        link = OutboundConnection(OutboundLink(links, 2, "127.0.0.1", 1))
        link.connection_made(transport)
        link._hello = self._said
        _send(link, transport, data)
        if link.was_up and acceptor_mac(_KEY, self._said, 2, _NONCE) not in data:
            raise Violation("a link is up to a member that did not prove itself")
        link.connection_lost(None)
        return None


def _check_guest(links: PeerLinks, loop: _Loop, peer: int | None, *, full: bool) -> None:
    """Members keep their links. Who is none was dialled back if it gave an address, and is forgotten with its link."""
    if links._outbound.keys() != _MEMBERS.keys() or links.peers.keys() - _MEMBERS.keys():
        raise Violation(f"links {sorted(links._outbound)}, peers {links.peers}")
    guest = peer if peer is not None and peer not in _MEMBERS else None
    if guest is not None and full:
        raise Violation(f"{guest} is one guest more than {MAX_GUESTS}")
    names = {f"dial-{guest}", f"hang-up-{guest}"}
    if loop.tasks and loop.tasks.keys() != names:
        raise Violation(f"tasks {sorted(loop.tasks)} for guest {guest}")


def _proof(hello: bytes) -> bytes:
    """What proves the member that said `hello`; what it wrote itself if that is no Hello."""
    try:
        said = msgspec.msgpack.decode(hello, type=Hello)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _PROOF
    return msgspec.msgpack.encode(Proof(dialler_mac(_KEY, said, 1, _NONCE)))


def _send(link: asyncio.Protocol, transport: Any, data: bytes) -> None:
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        if not transport.closed:
            link.data_received(piece)


def _transcripts(hello: Hello, said: Hello) -> list[Parts]:
    encode = msgspec.msgpack.encode
    welcome = Welcome(2, "theirs", _NONCE, acceptor_mac(_KEY, said, 2, _NONCE))
    heartbeat = Heartbeat(1, 2, 1, 0, 0)
    named = [
        msgspec.structs.replace(hello, cluster_id="other"),
        msgspec.structs.replace(hello, version=PROTOCOL_VERSION + 1),
        msgspec.structs.replace(hello, to=3),
        msgspec.structs.replace(hello, founding_id=_FOUNDING_ID),
        msgspec.structs.replace(hello, founding_id=uuid.UUID(int=2)),
        msgspec.structs.replace(hello, blank=FoundingTerms((1, 2, 3), 1000, False)),
        *[
            msgspec.structs.replace(hello, sender=sender, address=address)
            for sender in (2, 9, 2**31 - 1)
            for address in ("", "h:1", "[::1]:65535", "a:b:0", ":1", "h:65536", "\0:1", "h" * 262 + ":1")
        ],
    ]
    guest = msgspec.structs.replace(hello, sender=9, address="127.0.0.1:9093")
    return [
        (b"\0", encode(hello), _PROOF),
        (b"\0", encode(hello), _PROOF, encode(heartbeat), encode(heartbeat)),
        (b"\0", encode(hello), encode(Proof(b"wrong"))),
        *[(b"\0", encode(one), _PROOF) for one in named],
        *[(choice, encode(guest), _PROOF, encode(Heartbeat(1, 9, 1, 0, 0))) for choice in (b"\0", b"\2")],
        (b"\0", encode(guest), _PROOF, encode(heartbeat)),
        (b"\2", encode(hello), _PROOF, encode(heartbeat)),
        (b"\1", encode(welcome)),
        (b"\1", encode(Welcome(2, "theirs", _NONCE, b""))),
        (b"\1", encode(Refused("x" * 512))),
    ]
