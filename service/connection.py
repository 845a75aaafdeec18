"""One connection of an HTTP server: aiohttp's, which tells its server what it holds, and parses no known head again."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import Principal
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.hung_up import has_hung_up
from pidkeeper.service.known_head import KnownHeads, encode_answer
from pidkeeper.service.problems import HttpError, problem_response, quoted

FREE_REQUEST_BYTES: Final = 8 * 1024
"""Bytes of unfinished requests that every connection may hold: a head of 1 KiB, a token of 4 KiB, and any body but that
of a transaction's partitions."""


class Holder(web.Server, ABC):
    """The server of a connection. `known_heads`: those that its connections need not have parsed."""

    known_heads: KnownHeads

    @abstractmethod
    def request_grew(self, connection: Connection, count: int) -> None:
        """So many bytes of requests may be in memory."""

    @abstractmethod
    def answer_grew(self, connection: Connection, count: int) -> None:
        """So many bytes of answers wait for the other side to read."""

    @abstractmethod
    def answer_was_read(self, connection: Connection) -> None:
        """Hardly anything waits."""

    @abstractmethod
    async def answer(self, connection: Connection, request: HttpRequest) -> HttpResponse:
        """The answer to a request. Raises nothing but when it is cancelled."""

    @abstractmethod
    async def answer_whole(self, connection: Connection, request: HttpRequest) -> HttpResponse:
        """The same for a request that aiohttp has not seen; its body is there."""

    @abstractmethod
    def ends(self, connection: Connection) -> bool:
        """Whether the connection is to end with what it is answered now."""


class Connection(RequestHandler):
    """One connection, which tells its server what it holds.

    `line` stays known after aiohttp has closed it: until a caller has read what was sent, it takes up a file.
    `certified`: whom the certificate of the caller names, if it showed one. `end`: when that ends, in seconds since the
    epoch.
    """

    __slots__ = (
        "_chunk",
        "_holder",
        "_in_step",
        "_known_asked",
        "_last_chunk",
        "_put_off",
        "_received",
        "certified",
        "end",
        "line",
    )

    line: asyncio.Transport
    certified: Principal | None
    end: float

    def __init__(self, holder: Holder, **options: Any) -> None:
        super().__init__(holder, **options)
        self._holder = holder
        self._received = 0
        self._last_chunk = 0
        # Whether all that came so far was whole requests, which are answered; and the chunk that broke this off.
        self._in_step = True
        self._chunk: bytes | None = None
        self._known_asked: asyncio.Task[None] | None = None
        # What came behind a request whose head is known, before it was answered.
        self._put_off: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        """Count what comes in, then have it parsed. aiohttp calls it without data, too, to parse what it put off."""
        if data:
            self._last_chunk = len(data)
            self._received += self._last_chunk
            if self._received > FREE_REQUEST_BYTES:
                self._holder.request_grew(self, self._received)
            if self._known_asked is not None:
                self._put_off.append(data)
                self.line.pause_reading()
                return
            if self._in_step and self._may_ask and (known := self._holder.known_heads.find(data)) is not None:
                self._ask_known(known.request(data, self.certified, self.has_hung_up))
                return
            self._chunk, self._in_step = data if self._in_step else None, False
        super().data_received(data)

    def pause_writing(self) -> None:
        """More is unread than every connection may hold."""
        super().pause_writing()
        self._holder.answer_grew(self, self.line.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It was read."""
        super().resume_writing()
        self._holder.answer_was_read(self)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - as aiohttp has it
        """Take no further request, let the one under way finish within `timeout` seconds, and close."""
        self.close()
        if (asked := self._known_asked) is not None:
            await asyncio.wait([asked], timeout=timeout)
            asked.cancel()
        await super().shutdown(timeout)

    def has_hung_up(self) -> bool:
        """Whether the caller has closed it."""
        return has_hung_up(self.line)

    @property
    def waits(self) -> bool:
        """Whether nothing is asked now."""
        return self._waiter is not None and self._known_asked is None

    @property
    def remote(self) -> str | None:
        """The host of the caller."""
        peer = self.peername
        return str(peer[0]) if isinstance(peer, tuple) else peer

    def answered(self, request: web.BaseRequest) -> None:
        """Count no longer what belonged to a request that was answered, and know its head from now on."""
        self._free()
        chunk, self._chunk = self._chunk, None
        self._in_step = chunk is not None and self._holder.known_heads.learn(chunk, request)

    def _free(self) -> None:
        # Behind the end of a request the last chunk may hold the begin of another one, and only aiohttp's parser knows.
        if not self._messages:
            before = self._received
            self._received = self._last_chunk if self._last_chunk > FREE_REQUEST_BYTES else 0
            if before > FREE_REQUEST_BYTES:
                self._holder.request_grew(self, self._received)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A problem document, like every other refusal, for what aiohttp cannot read: a head that is too long or none
        at all. It logs it, and ends the connection."""
        super().handle_error(request, status, exc, message)
        faulty = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        code = ErrorCode.UNKNOWN_SERVER_ERROR if faulty else ErrorCode.INVALID_REQUEST
        problem = problem_response(HttpError(status, code, quoted(message or code.meaning)), None)
        answer = web.Response(status=status, headers=problem.headers, body=problem.body)
        answer.force_close()
        return answer

    # Requests with a known head.

    @property
    def _may_ask(self) -> bool:
        """Whether aiohttp waits for a request, and the caller reads its answers."""
        waiter = self._waiter
        if waiter is None or waiter.done() or self._close or self._force_close:
            return False
        return not self.writing_paused

    def _ask_known(self, request: HttpRequest) -> None:
        self._known_asked = self._loop.create_task(self._answer_known(request))

    async def _answer_known(self, request: HttpRequest) -> None:
        try:
            answer = await self._holder.answer_whole(self, request)
            self._known_asked = None
            self._free()
            if not self.line.is_closing():
                self._send(answer)
                self._go_on()
        except BaseException:
            self.line.abort()
            raise

    def _send(self, answer: HttpResponse) -> None:
        assert answer.told is None, "only what is asked without a body goes on being told"
        self._keep_alive()
        ends = answer.close or self._close or self._holder.ends(self)
        self.line.write(encode_answer(answer, close=ends))
        if ends:
            self.force_close()

    def _go_on(self) -> None:
        """With what was put off."""
        if self._put_off and not self.line.is_closing():
            put_off, self._put_off = self._put_off, []
            self.line.resume_reading()
            for data in put_off:
                self.data_received(data)

    def _process_keepalive(self) -> None:
        """aiohttp, which sees no request, takes the connection for idle."""
        if self._known_asked is not None:
            self._keep_alive()
        super()._process_keepalive()

    def _keep_alive(self) -> None:
        self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout
