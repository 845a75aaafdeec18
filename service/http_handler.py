"""What stands between aiohttp and the dispatcher: its requests and answers, as the values that these are elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import HttpVersion11, hdrs, web

from pidkeeper.service.body import read_body
from pidkeeper.service.connection import Connection
from pidkeeper.service.exchange import HttpRequest, HttpResponse, Told

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def build_handler(
    answer: Callable[[Connection, HttpRequest], Awaitable[HttpResponse]], whole: Callable[[web.BaseRequest], None]
) -> Handler:
    """The coroutine that answers every request which aiohttp has parsed. `whole` is called once the body of one is
    there.
    """

    async def rest_of(request: web.BaseRequest) -> bytes:
        body = await read_body(request)
        whole(request)
        return body

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if hdrs.EXPECT in request.headers:
            await _invite_body(request)
        content = request.content
        there = content.is_eof() and content.exception() is None
        if there:
            whole(request)
        body = content.read_nowait() if there else partial(rest_of, request)
        caller = request.protocol
        assert isinstance(caller, Connection), "the server has no others"
        asked = HttpRequest(
            request.method, request.rel_url, request.headers, body, caller.certified, caller.has_hung_up
        )
        found = await answer(caller, asked)
        if found.told is not None:
            return await _tell(request, found, found.told)
        response = web.Response(body=found.body, status=found.status, headers=found.headers)
        if found.close:
            response.force_close()
        return response

    return handle


async def _tell(request: web.BaseRequest, answer: HttpResponse, told: Told) -> web.StreamResponse:
    """Send what is told until it ends, or until nobody is there to read it."""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.force_close()
    caller = request.protocol
    assert isinstance(caller, Connection), "the server has no others"
    with contextlib.closing(told), contextlib.suppress(ConnectionError):
        await response.prepare(request)
        async for part in told.parts(caller.line.abort):
            await response.write(part)
            await request.writer.drain()
    return response


async def _invite_body(request: web.BaseRequest) -> None:
    """Tell a client that waits with its body to go on (RFC 9110, section 10.1.1). Raises HTTPExpectationFailed."""
    if request.version != HttpVersion11:
        return
    expected = request.headers[hdrs.EXPECT]
    if expected.lower() != "100-continue":
        raise web.HTTPExpectationFailed(text=f"Unknown Expect: {expected}")
    await request.writer.write(CONTINUE)
    # What is counted as sent begins with the answer.
    request.writer.output_size = 0
    await request.writer.drain()
