"""A process that holds connections which ask for nothing, or take very long to.

`python -m bench.crowd_process` with a spec as one line on stdin. It prints one line when every connection was opened
once, goes on until stdin ends, and prints another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import sys
from typing import Final, Literal

import msgspec
import uvloop

from pidkeeper.cli.kafka_load import request_frame

Kind = Literal["http", "kafka", "peer"]

TICKS: Final = 20
"""A second's work is spread over so many ticks: a real crowd does not do all at once."""

OPENING: Final = 64
"""Connections that are opened at a time; more would only fill the backlog of the listener."""

_HEAD: Final = b"POST /v1/producer-ids/allocate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_ASK: Final = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
_METADATA: Final = b"\x00\x00\x00\x14\x00\x03\x00\x01\x00\x00\x00\x01\x00\x02me\xff\xff\xff\xff\x00\x00\x00\x00"
SLOW: Final[dict[Kind, tuple[tuple[bytes, bytes, bool], ...]]] = {
    "http": (
        (_HEAD, b"X-Slow: 1\r\n", True),
        (_HEAD + b"Content-Length: 60000\r\n\r\n", b" ", True),
        (_ASK, b"", False),
    ),
    "kafka": ((request_frame()[:20], request_frame()[20:21], True), (_METADATA + request_frame() * 64, b"", False)),
    "peer": ((b"\x00\x00\x00\x40", b"\x01", True),),
}
"""What slow connections do, in turn: the bytes that they begin with, those of each second, and whether they read."""

MALFORMED: Final[dict[Kind, tuple[bytes, ...]]] = {
    "http": (
        b"\x16\x03\x01nonsense\r\n\r\n",
        _HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        _HEAD + b'Content-Length: 9\r\n\r\n{"a": 1e,',
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    "kafka": (
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    "peer": (b"\xff" * 64, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
}
"""What no listener takes, in turn, each over a connection of its own."""

MALFORMED_SECONDS: Final = 2.0
"""How long the end of such a connection is waited for."""


class Target(msgspec.Struct, frozen=True):
    """One listener, and how many connections of either sort it gets. What is slow sends some bytes each second.

    `malformed`: requests a second that nobody can take.
    """

    host: str
    port: int
    kind: Kind
    idle: int
    slow: int
    malformed: int = 0


class CrowdSpec(msgspec.Struct, frozen=True):
    """The listeners, and how many lost connections to each are opened anew a second."""

    targets: list[Target]
    reopened_a_second: int


class CrowdStatus(msgspec.Struct, frozen=True):
    """Connections opened so far, those that are open now, and those that could not be opened; malformed requests."""

    opened: int
    open: int
    failed: int
    malformed: int


class Member(asyncio.Protocol):
    """One of the crowd."""

    def __init__(self, crowd: TargetCrowd, habit: tuple[bytes, bytes, bool] | None) -> None:
        self._crowd = crowd
        self.habit = habit
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._crowd.open.add(self)
        if self.habit is not None and self._transport is not None:
            self._transport.write(self.habit[0])
            if not self.habit[2]:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._crowd.open.discard(self)
        self._crowd.lost.append(self.habit)

    def go_on(self) -> None:
        """Send the bytes of another second."""
        if self._transport is not None and self.habit is not None and self._transport.get_write_buffer_size() == 0:
            self._transport.write(self.habit[1])


class TargetCrowd:
    """Those at one listener."""

    def __init__(self, target: Target) -> None:
        self._target = target
        habits = SLOW[target.kind]
        slow = [habits[number % len(habits)] for number in range(target.slow)]
        self.lost: list[tuple[bytes, bytes, bool] | None] = [*slow, *[None] * target.idle]
        self.open: set[Member] = set()
        self.opened = 0
        self.failed = 0
        self.malformed = 0

    async def open_some(self, count: int) -> None:
        """Open up to so many of those that are not open."""
        habits, self.lost = self.lost[:count], self.lost[count:]
        for at in range(0, len(habits), OPENING):
            await asyncio.gather(*map(self._open, habits[at : at + OPENING]))

    async def go_on_for_ever(self, reopened_a_second: int) -> None:
        """Each second, send what slow ones send, and open some of the lost ones again."""
        for tick in itertools.count():
            await asyncio.sleep(1 / TICKS)
            for member in tuple(self.open)[tick % TICKS :: TICKS]:
                member.go_on()
            await self.open_some(reopened_a_second // TICKS)

    async def send_malformed_for_ever(self) -> None:
        """As many a second as the target says, spread over its ticks; those of a tick one after the other."""
        requests = itertools.cycle(MALFORMED[self._target.kind])
        while True:
            await asyncio.sleep(1 / TICKS)
            for _ in range(self._target.malformed // TICKS):
                await self._send(next(requests))

    async def _send(self, request: bytes) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(MALFORMED_SECONDS):
                reader, writer = await asyncio.open_connection(self._target.host, self._target.port)
                writer.write(request)
                self.malformed += 1
                await reader.read(1)
                writer.close()

    async def _open(self, habit: tuple[bytes, bytes, bool] | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(10):
                await loop.create_connection(lambda: Member(self, habit), self._target.host, self._target.port)
        except (OSError, TimeoutError):
            self.failed += 1
            self.lost.append(habit)
        else:
            self.opened += 1


async def main() -> None:
    """Hold the crowd of a spec until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    spec = msgspec.json.decode(await reader.readline(), type=CrowdSpec)
    crowds = [TargetCrowd(target) for target in spec.targets]
    await asyncio.gather(*(crowd.open_some(len(crowd.lost)) for crowd in crowds))
    _tell(crowds)
    # From here on it is measured, and a real crowd does not run on the members' cores.
    os.nice(19)
    going = [asyncio.create_task(crowd.go_on_for_ever(spec.reopened_a_second)) for crowd in crowds]
    going += [asyncio.create_task(crowd.send_malformed_for_ever()) for crowd in crowds]
    await reader.read()
    for task in going:
        task.cancel()
    await asyncio.gather(*going, return_exceptions=True)
    _tell(crowds)


def _tell(crowds: list[TargetCrowd]) -> None:
    status = CrowdStatus(
        opened=sum(crowd.opened for crowd in crowds),
        open=sum(len(crowd.open) for crowd in crowds),
        failed=sum(crowd.failed for crowd in crowds),
        malformed=sum(crowd.malformed for crowd in crowds),
    )
    sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main())
