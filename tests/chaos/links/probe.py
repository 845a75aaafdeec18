"""One harmless question through a link, and what became of it: how the link looks to whoever uses it."""

from __future__ import annotations

import asyncio
import enum
import os
import re
import ssl
import struct
from typing import Final

import msgspec

from pidkeeper.cli.local_cluster import HOST
from pidkeeper.controller.transport.frames import NONCE_BYTES, PROTOCOL_VERSION, Hello, frame
from tests.chaos.links.proxies import PortKind

PATIENCE_SECONDS: Final = 1.5
"""For which a probe waits. A healthy link takes milliseconds, on a machine that is busy some more."""

_LENGTH: Final = struct.Struct(">I")
_PADDING: Final = "x" * 200
"""So that a request is longer than what a limit of data lets pass, and takes time where bandwidth is short."""

_API_VERSIONS: Final = struct.pack(">hhih", 18, 0, 1, len(_PADDING)) + _PADDING.encode()
"""API key, version, correlation id, and client id."""

_STRANGER: Final = Hello(
    version=PROTOCOL_VERSION,
    cluster_id="chaos-probe",
    sender=1,
    to=1,
    directory_id="chaos-probe",
    nonce=os.urandom(NONCE_BYTES),
    address=_PADDING,
)
"""Of another cluster: it is refused, by a frame, whatever else it says."""

_HEADERS: Final = {"Host": HOST, "Connection": "close", "X-Padding": _PADDING}
_LINES: Final = ("GET /livez HTTP/1.1", *(f"{name}: {value}" for name, value in _HEADERS.items()), "", "")

REQUESTS: Final[dict[PortKind, bytes]] = {
    PortKind.HTTP: "\r\n".join(_LINES).encode(),
    PortKind.KAFKA: _LENGTH.pack(len(_API_VERSIONS)) + _API_VERSIONS,
    PortKind.PEER: frame(_STRANGER),
}


class Outcome(enum.Enum):
    """ENDED: closed, reset or refused before the answer was whole. SILENT: not whole when patience was at an end."""

    ANSWERED = "answered"
    ENDED = "ended"
    SILENT = "silent"


class Seen(msgspec.Struct, frozen=True):
    """What became of a probe, `seconds` after it began. `sent`, `received`: bytes, those of TLS left out."""

    outcome: Outcome
    seconds: float
    sent: int
    received: int


async def ask(address: str, port: PortKind, context: ssl.SSLContext | None) -> Seen:
    """Ask whoever is behind `address`. `context`: of a port that speaks TLS."""
    begun, received = asyncio.get_running_loop().time(), bytearray()
    outcome = Outcome.ENDED
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _exchange(address, port, context, received)
    except TimeoutError:
        outcome = Outcome.SILENT
    except OSError:
        pass
    if _whole(port, bytes(received)):
        outcome = Outcome.ANSWERED
    return Seen(outcome, asyncio.get_running_loop().time() - begun, len(REQUESTS[port]), len(received))


async def seconds_to_the_end(address: str, patience: float) -> float | None:
    """How long the end of a connection takes to come back once this side has ended it; None if longer than patience."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(*_split(address))
            begun = asyncio.get_running_loop().time()
            try:
                writer.write_eof()
                await reader.read()
            finally:
                writer.transport.abort()
    except TimeoutError:
        return None
    except OSError:
        return 0.0
    return asyncio.get_running_loop().time() - begun


async def _exchange(address: str, port: PortKind, context: ssl.SSLContext | None, received: bytearray) -> None:
    reader, writer = await asyncio.open_connection(*_split(address), ssl=context)
    try:
        writer.write(REQUESTS[port])
        while not _whole(port, bytes(received)) and (data := await reader.read(65_536)):
            received += data
    finally:
        writer.transport.abort()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _whole(port: PortKind, answer: bytes) -> bool:
    if port is PortKind.HTTP:
        head, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        return bool(end) and (length is None or len(body) >= int(length[1]))
    return len(answer) >= _LENGTH.size and len(answer) >= _LENGTH.size + int(_LENGTH.unpack_from(answer)[0])
