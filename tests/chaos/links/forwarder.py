"""`python -m tests.chaos.links.forwarder`: our own proxy, which takes orders on standard input, a line of JSON each.

Each is answered by a line on standard output, in order. It ends with its standard input, so with whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Final, cast

import msgspec
import uvloop

from tests.chaos.links.pipe import Count, Pipe
from tests.chaos.links.proxies import Link, Passed, Stream, Toxic, Traffic

RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: a close is a reset."""


class Order(msgspec.Struct, omit_defaults=True):
    """`action`: a method of `Proxies`. `link` and `toxic`: its arguments. `number`: which order it is."""

    number: int
    action: str
    link: Link | None = None
    toxic: Toxic | None = None


class Reply(msgspec.Struct, omit_defaults=True):
    """To the order of this number. `error`: why it was not done."""

    number: int
    error: str = ""
    traffic: Traffic | None = None


class Side(asyncio.Protocol):
    """One end of a connection. `pipe`: what it sends goes into it; `incoming`: what is sent to it comes out of it."""

    transport: asyncio.Transport
    incoming: Pipe

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pipe: Pipe | None = None
        self.early: list[bytes] = []
        """What came before the other end was there; nothing at its end, as a read would say."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connection.made(self)

    def data_received(self, data: bytes) -> None:
        if self.pipe is None:
            self.early.append(data)
        else:
            self.pipe.feed(data)

    def eof_received(self) -> bool:
        if self.pipe is None:
            self.early.append(b"")
        else:
            self._connection.ended(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.ended(self)

    def pause_writing(self) -> None:
        self.incoming.hold(True)

    def resume_writing(self) -> None:
        self.incoming.hold(False)


class Connection:
    """From whoever connected to a door to its target."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._sides: dict[Stream, Side] = {}
        self._dial: asyncio.Task[None] | None = None
        self.source = Side(self)
        self.target = Side(self)
        self.pipes: dict[Stream, Pipe] = {}
        self._over = False

    def made(self, side: Side) -> None:
        """One end is connected: the target is dialled for the source, and all flows once it answers."""
        if side is self.source:
            self._door.connections.add(self)
            self.source.transport.pause_reading()
            self._dial = asyncio.get_running_loop().create_task(self._reach())
        elif self._over:
            side.transport.abort()
        else:
            self._lay()

    def ended(self, side: Side) -> None:
        """This end sends no more."""
        if self._over:
            return
        if side.pipe is None:
            self.finish()
        else:
            side.pipe.end()
            if self.source.transport.is_closing() and self.target.transport.is_closing():
                self.finish()

    def finish(self, *, reset: bool = False) -> None:
        """Close both ends, behind what was written to them; or reset them."""
        if self._over:
            return
        self._over = True
        self._door.connections.discard(self)
        if not self.pipes and self._dial is not None:
            self._dial.cancel()
        for pipe in self.pipes.values():
            pipe.stop()
        for side in (self.source, self.target) if self.pipes else (self.source,):
            if reset:
                side.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                side.transport.abort()
            else:
                side.transport.close()

    def _reset(self) -> None:
        self.finish(reset=True)

    async def _reach(self) -> None:
        host, _, port = self._door.link.upstream.rpartition(":")
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.target, host, int(port))
        except OSError:
            self.finish()

    def _lay(self) -> None:
        source = self.source.transport
        for stream, one, other in (
            (Stream.UPSTREAM, self.source, self.target),
            (Stream.DOWNSTREAM, self.target, self.source),
        ):
            toxics = [toxic for toxic in self._door.toxics.values() if toxic.stream is stream]
            pipe = Pipe(one.transport, other.transport, self._door.counts[stream], toxics, self._reset)
            one.pipe = other.incoming = self.pipes[stream] = pipe
        if not source.is_closing():
            source.resume_reading()
        for data in self.source.early:
            if data:
                self.pipes[Stream.UPSTREAM].feed(data)
            else:
                self.ended(self.source)


class Door:
    """Where one link is entered."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.toxics: dict[str, Toxic] = {}
        self.connections: set[Connection] = set()
        self.counts = {stream: Count() for stream in Stream}
        self._server: asyncio.Server | None = None

    async def enable(self) -> None:
        """Listen. Raises OSError."""
        if self._server is None:
            host, _, port = self.link.listen.rpartition(":")
            factory = asyncio.get_running_loop().create_server
            self._server = await factory(lambda: Connection(self).source, host, int(port), reuse_address=True)

    def disable(self) -> None:
        """Listen no more, and close all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.finish()

    def add(self, toxic: Toxic) -> None:
        """Raises ValueError if one of its kind and stream is there."""
        if toxic.name in self.toxics:
            raise ValueError(f"{toxic.name} is there already")
        self.toxics[toxic.name] = toxic
        for connection in list(self.connections):
            if connection.pipes:
                connection.pipes[toxic.stream].add(toxic)

    def remove(self, toxic: Toxic) -> None:
        """Raises KeyError if none of its kind and stream is there."""
        del self.toxics[toxic.name]
        for connection in list(self.connections):
            if connection.pipes:
                connection.pipes[toxic.stream].remove(toxic.kind)

    def passed(self) -> dict[Stream, Passed]:
        """Since it was opened."""
        return {stream: Passed(count.received, count.sent) for stream, count in self.counts.items()}


class Forwarder:
    """All doors, by name of the link."""

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}

    async def obey(self, order: Order) -> Reply:
        """Do it."""
        if order.link is None:
            return Reply(order.number, traffic={name: door.passed() for name, door in self._doors.items()})
        try:
            await self._change(order.action, order.link, order.toxic)
        except (OSError, LookupError, ValueError) as error:
            return Reply(order.number, f"{order.action} {order.link.name}: {error!r}")
        return Reply(order.number)

    async def _change(self, action: str, link: Link, toxic: Toxic | None) -> None:
        if action == "open":
            self._doors[link.name] = Door(link)
        door = self._doors[link.name]
        if action in {"open", "enable"}:
            await door.enable()
        elif action == "disable":
            door.disable()
        elif action == "clear":
            for one in list(door.toxics.values()):
                door.remove(one)
        elif toxic is not None:
            (door.add if action == "add" else door.remove)(toxic)


async def serve() -> None:
    """Obey until there is nobody who could order any more."""
    reader, forwarder = asyncio.StreamReader(), Forwarder()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        reply = await forwarder.obey(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve())
