"""A transport that writes down every request by itself: a call of the controllers' client may make several."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
import msgspec

from pidkeeper.broker_agent.controllers.transport import Transport
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import Problem
from tests.chaos.load.actor import Route
from tests.chaos.load.journal import ActorJournal
from tests.chaos.load.kinds import ALLOCATE, REGISTER

MAY_HAVE_DONE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Codes that do not say that nothing was done: a leader may fall over a record that its successor commits."""

MAX_BODY_BYTES: Final = 1_000
"""Of a request that is kept as a whole: those of honest callers are shorter."""
KEPT_BYTES: Final = 200

_KINDS: Final = {"allocate": ALLOCATE, "register": REGISTER, "heartbeat": "heartbeat"}


class RecordingTransport:
    """Writes into `journal` what goes over `inner`, to where `route` leads. `kind`: of all, if not by their paths."""

    def __init__(self, inner: Transport, journal: ActorJournal, route: Route, kind: str | None = None) -> None:
        self._inner = inner
        self._journal = journal
        self._route = route
        self._kind = kind

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`."""
        kind = self._kind or _KINDS.get(path.partition("?")[0].rpartition("/")[2], path)
        arguments = _arguments(path, body) if kind in _KINDS.values() else {"path": path} | _arguments(path, body)
        number = self._journal.invoke(kind, **arguments, member=base_url)
        try:
            status, content = await self._inner.exchange(method, self._route(base_url), path, body, timeout_seconds)
        except aiohttp.ClientConnectorError as error:
            # Not a byte of it was sent.
            self._journal.refuse(number, f"not connected: {error}")
            raise
        except (OSError, ValueError) as error:
            self._journal.unknown(number, f"{type(error).__name__}: {error}")
            raise
        except asyncio.CancelledError:
            self._journal.unknown(number, "given up")
            raise
        self._note(number, status, content)
        return status, content

    def _note(self, number: int, status: int, content: bytes) -> None:
        if status == ErrorCode.NONE.http_status:
            try:
                self._journal.ok(number, msgspec.json.decode(content, type=dict[str, Any]))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._journal.unknown(number, f"unreadable: {error}")
            return
        try:
            code = ErrorCode[msgspec.json.decode(content, type=Problem).code]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            self._journal.unknown(number, f"HTTP {status} without a problem document")
            return
        note = self._journal.unknown if code in MAY_HAVE_DONE else self._journal.refuse
        note(number, code.name)


def _arguments(path: str, body: bytes | None) -> dict[str, Any]:
    """What was asked for: the body, with the broker of the path; its first bytes where it is malformed or too long."""
    asked: dict[str, Any] = {}
    if body is not None:
        try:
            asked |= msgspec.json.decode(body[:MAX_BODY_BYTES], type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            asked["body"] = body[:KEPT_BYTES].decode("latin-1")
    path, _, query = path.partition("?")
    if query.startswith("blocks="):
        asked["blocks"] = int(query.removeprefix("blocks="))
    words = path.split("/")
    if words[1:3] == ["v1", "brokers"] and len(words) > 3:
        asked["broker_id"] = int(words[3]) if words[3].isdecimal() else words[3]
    return asked
