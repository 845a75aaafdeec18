"""Bodies that are still under way: how large they may get, and how long they may take."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.content import MAX_BODY_BYTES, too_large
from pidkeeper.service.problems import HttpError

BODY_TIMEOUT_SECONDS: Final = 10.0
"""A body of at most 64 KiB that takes longer comes from a stalled or hostile caller."""


async def read_body(request: web.BaseRequest) -> bytes:
    """The body that has not arrived as a whole yet.

    Raises HttpError if it is larger than MAX_BODY_BYTES (a declared size is refused unread), or if it does not arrive
    within BODY_TIMEOUT_SECONDS or breaks off. Each of them closes the connection, since its stream is out of step.
    """
    declared = request.content_length
    if declared is not None and declared > MAX_BODY_BYTES:
        raise too_large(f"{declared} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise too_large(f"more than {MAX_BODY_BYTES} bytes")
    except TimeoutError as error:
        expected = "an unknown number of" if declared is None else str(declared)
        detail = f"{len(body)} of {expected} bytes came in {BODY_TIMEOUT_SECONDS:g} s; nothing was changed"
        raise HttpError(408, ErrorCode.INVALID_REQUEST, detail, close=True) from error
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
        raise HttpError(400, ErrorCode.INVALID_REQUEST, f"the body broke off: {error}", close=True) from error
    return bytes(body)
