"""Bodies and parameters: what bytes of which media type become which value, and the bounds on them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pidkeeper.controller.api.problems import HttpError
from pidkeeper.protocol.errors import ErrorCode, RequestError

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

MAX_BODY_BYTES: Final = 64 * 1024
"""Bytes in a request body. The largest names the partitions of a transaction: 10,000 of a topic, if they are many, take
56 KiB of JSON. Whoever has more sends them in parts, as they come; every other body is under 4 KiB."""

BODY_TIMEOUT_SECONDS: Final = 10.0
"""A body of at most 64 KiB that takes longer comes from a stalled or hostile caller."""

MAX_QUOTED_CHARACTERS: Final = 64
"""Characters of the caller's text that an error message repeats."""

# A sign and the 19 digits of 2^63-1: longer numbers cannot be valid, so they are never converted.
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)

Model = TypeVar("Model")
Decode = Callable[[bytes], Any]


def quoted(text: str) -> str:
    """The caller's text for an error message, escaped and cut."""
    return repr(text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS] + "...")


class BodyDecoder:
    """Decodes the bodies of one route. The decoders are made once."""

    def __init__(self, model: type[Any]) -> None:
        json_decode: Decode = msgspec.json.Decoder(model).decode
        self._decoders: dict[str | None, Decode] = {
            None: json_decode,
            JSON: json_decode,
            MSGPACK: msgspec.msgpack.Decoder(model).decode,
        }

    def decode(self, content_type: str | None, body: bytes) -> Any:
        """The value in `body`. Raises RequestError for another media type or a body that does not fit the model."""
        decode = self._decoders.get(content_type) or self._decoder_for(content_type or "")
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            found = "the request has no body; a value is required" if not body else str(error)
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{found}; nothing was changed") from error
        except (UnicodeDecodeError, RecursionError) as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"malformed body: {error}; nothing was changed") from error

    def _decoder_for(self, content_type: str) -> Decode:
        decode = self._decoders.get(content_type.partition(";")[0].strip().lower())
        if decode is None:
            detail = f"send the body as {JSON} or {MSGPACK}, not as {quoted(content_type)}"
            raise HttpError(415, ErrorCode.INVALID_REQUEST, detail, headers={"Accept": f"{JSON}, {MSGPACK}"})
        return decode


async def read_body(request: web.Request) -> bytes:
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
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise HttpError(400, ErrorCode.INVALID_REQUEST, f"the body broke off: {error}", close=True) from error
    return bytes(body)


def too_large(size: str) -> HttpError:
    """The refusal of a body of `size`."""
    detail = f"the body is {size}; the limit is {MAX_BODY_BYTES} bytes; nothing was changed"
    return HttpError(413, ErrorCode.MESSAGE_TOO_LARGE, detail, close=True)


def prefers_msgpack(accept: str) -> bool:
    """Whether an Accept header ranks msgpack above JSON (RFC 9110, section 12.5.1). On a tie JSON wins."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        media, *parameters = part.lower().split(";")
        weights[media.strip()] = _weight(parameters)
    other = weights.get("application/*", weights.get("*/*", 0.0))
    return weights.get(MSGPACK, other) > weights.get(JSON, other)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def decode_parameters(model: type[Model], given: Mapping[str, str], where: str, texts: Collection[str] = ()) -> Model:
    """The integers and texts in a path or a query as a value of `model`. `where` names them in an error.

    `texts`: the names of those that are no integers. Raises RequestError for a parameter that is unknown, given twice,
    out of range, or no decimal integer.
    """
    values: dict[str, int | str] = {}
    for name in given:
        text = given[name]
        if name in texts:
            values[name] = text
        elif _INTEGER.fullmatch(text) is not None:
            values[name] = int(text)
        else:
            detail = f"{where} {quoted(name)} must be a decimal integer of at most 19 digits, not {quoted(text)}"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    if len(values) != len(given):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"a {where} is given more than once")
    try:
        return msgspec.convert(values, model)
    except msgspec.ValidationError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{where}: {error}") from error
