"""The link on which a member sends to one peer: dialled, and dialled again whenever its connection breaks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from typing import Final, Protocol, cast

from pidkeeper.controller.transport.connections import HANDSHAKE_SECONDS, certified_by, notice_silence
from pidkeeper.controller.transport.frames import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    FrameError,
    Hello,
    Proof,
    Refused,
    Welcome,
    acceptor_mac,
    dialler_mac,
    frame,
    handshake_reader,
    hello_frame,
    same_mac,
)
from pidkeeper.controller.transport.identity import SEE, Identity
from pidkeeper.service.protection import Protection

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes waiting in one link: a full inflight window of small appends, or some large ones. Above it messages drop."""

DIAL_BACKOFF_SECONDS: Final = (0.02, 0.4)
"""Pause between attempts to dial: first and longest. Doubled each time, with full jitter."""


class Member(Protocol):
    """Whose link it is."""

    identity: Identity

    @property
    def protection(self) -> Protection: ...

    def count_failure(self, peer: int, reason: str) -> None:
        """Count a failed dial, a refusal or a drop for the metrics."""

    def came_up(self, peer: int) -> None:
        """Messages can be sent to `peer` from now on."""


class OutboundLink:
    """Sends to `peer`, as long as a connection to it stands, and has one connection at a time."""

    def __init__(self, member: Member, peer: int, host: str, port: int) -> None:
        self.member: Final = member
        self.peer: Final = peer
        self.address = (host, port)
        self._connection: OutboundConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._jitter = random.Random()
        self._told: str | None = None
        self._plainly = False

    @property
    def up(self) -> bool:
        """Whether messages can be sent."""
        return self._connection is not None and self._connection.up

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(self._dial_for_ever(), name=f"dial-{self.peer}")

    async def stop(self) -> None:
        """Stop dialling, and close the link once what was written has left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._connection is not None:
            self._connection.close()

    def redial(self) -> None:
        """Break the connection, so that it is dialled anew."""
        if self._connection is not None:
            self._connection.abort()

    def write(self, data: bytes) -> None:
        """Send `data`, or drop it if the link is down or full."""
        if self._connection is None or not self._connection.up:
            return
        if self._connection.unsent_bytes > MAX_UNSENT_BYTES:
            self.member.count_failure(self.peer, "full")
            return
        self._connection.write(data)

    def tell(self, level: int, what: str) -> None:
        """Log what keeps the link from coming up: once, not with every attempt."""
        if what != self._told:
            logger.log(level, "%s", what)
            self._told = what

    def came_up(self) -> None:
        """The connection has shaken hands."""
        self._told = None
        self.member.came_up(self.peer)

    async def _dial_for_ever(self) -> None:
        first, longest = DIAL_BACKOFF_SECONDS
        backoff = first
        while True:
            if await self._dial():
                backoff = first
            await asyncio.sleep(backoff * self._jitter.random())
            backoff = min(backoff * 2, longest)

    async def _dial(self) -> bool:
        """Connect, and wait until the connection is lost; whether it was of use meanwhile."""
        context = self._next_context()
        connection = self._connection = OutboundConnection(self)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: connection, *self.address, ssl=context)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: a host that cannot be a DNS name
            # It may stand: a process that was stopped finds its time over and the connection made at once. Over TLS
            # asyncio then closes it as if somebody would wait for the other side's goodbye.
            connection.abort()
            self.member.count_failure(self.peer, "connect")
            self._plainly = context is not None and isinstance(error, ssl.SSLError | ConnectionResetError)
            if isinstance(error, ssl.SSLError):
                self.tell(logging.WARNING, f"no TLS with member {self.peer}: {error.reason or error}")
            return False
        await connection.lost.wait()
        self._plainly = context is not None and not connection.was_up
        return connection.was_up

    def _next_context(self) -> ssl.SSLContext | None:
        """With TLS where there is any. Where it is optional, without behind an attempt with it that came to nothing."""
        protection = self.member.protection
        if protection.tls is None or (self._plainly and not protection.required):
            return None
        return protection.tls.contexts.dialler


class OutboundConnection(asyncio.Protocol):
    """One connection of a link, from the first byte to the last. What becomes of it is no other one's business."""

    def __init__(self, link: OutboundLink) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._reader = handshake_reader()
        self._hello: Hello | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False
        self.certified = False
        """Whether it is one over TLS, on which the other side has shown its certificate."""
        self.up = False
        self.was_up = False
        self.lost: Final = asyncio.Event()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """End it once all that was written has left."""
        self._end()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self.up, self._ended = False, True
        if self._deadline is not None:
            self._deadline.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._ended:
            transport.abort()
            return
        notice_silence(transport)
        link, identity = self._link, self._link.member.identity
        certified = certified_by(transport, identity.cluster_id)
        self.certified = certified is not None
        if certified is not None and link.peer not in certified:
            link.tell(logging.ERROR, f"what answers for member {link.peer} has not its certificate: {SEE}")
            link.member.count_failure(link.peer, "certificate")
            self.abort()
            return
        self._hello = Hello(
            version=PROTOCOL_VERSION,
            cluster_id=identity.cluster_id,
            sender=identity.node_id,
            to=link.peer,
            directory_id=identity.directory_id,
            nonce=os.urandom(NONCE_BYTES),
            address=identity.address,
            metadata_version=identity.metadata_version,
            founding_id=identity.founding_id,
            blank=identity.blank,
            succession=identity.succession,
            voters=identity.voters,
            release=identity.release,
        )
        transport.write(hello_frame(self._hello))
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        link = self._link
        try:
            self._reader.push(data)
            while not self._ended and (value := self._reader.pop()) is not None:
                self._shake_hands(value)
        except FrameError as error:
            link.tell(logging.WARNING, f"closing the link to member {link.peer}: {error}")
            link.member.count_failure(link.peer, "malformed")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self.lost.set()

    def _shake_hands(self, value: Hello | Welcome | Refused | Proof) -> None:
        assert self._hello is not None
        link = self._link
        if isinstance(value, Refused):
            link.member.count_failure(link.peer, "refused")
            host, port = link.address
            link.tell(logging.ERROR, f"member {link.peer} at {host}:{port} refuses us: {value.reason}")
            self.abort()
            return
        if self.up or not isinstance(value, Welcome) or value.sender != link.peer:
            raise FrameError(f"unexpected {type(value).__name__} in a handshake")
        key = self._key_of(self._hello, value)
        self.write(frame(Proof(dialler_mac(key, self._hello, value.sender, value.nonce))))
        if self._deadline is not None:
            self._deadline.cancel()
        self.up = self.was_up = True
        link.came_up()

    def _key_of(self, hello: Hello, welcome: Welcome) -> bytes | None:
        """The key that the acceptor proves to know. Raises FrameError if it is none of ours.

        None over TLS: there the certificates are the proof.
        """
        for key in (None,) if self.certified else self._link.member.identity.keys:
            if same_mac(welcome.mac, acceptor_mac(key, hello, welcome.sender, welcome.nonce)):
                return key
        raise FrameError(f"member {self._link.peer} does not know the cluster key")
