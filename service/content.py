"""Bodies: what bytes of which media type become which value, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from multidict import CIMultiDict

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.exchange import HttpResponse
from pidkeeper.service.problems import SERVER_NAME, HttpError, quoted

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

MAX_BODY_BYTES: Final = 64 * 1024
"""Bytes in a request body. The largest names the partitions of a transaction: 10,000 of a topic, if they are many, take
56 KiB of JSON. Whoever has more sends them in parts, as they come; every other body is under 4 KiB."""

Decode = Callable[[bytes], Any]

_JSON_HEADERS: Final = CIMultiDict({"Content-Type": JSON, "Server": SERVER_NAME})
_MSGPACK_HEADERS: Final = CIMultiDict({"Content-Type": MSGPACK, "Server": SERVER_NAME})
_encode_json: Final = msgspec.json.Encoder().encode
_encode_msgpack: Final = msgspec.msgpack.Encoder().encode


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
        decode = self._decoders.get(_media_type(content_type))
        if decode is None:
            detail = f"send the body as {JSON} or {MSGPACK}, not as {quoted(content_type)}"
            raise HttpError(415, ErrorCode.INVALID_REQUEST, detail, headers={"Accept": f"{JSON}, {MSGPACK}"})
        return decode


def too_large(size: str) -> HttpError:
    """The refusal of a body of `size`."""
    detail = f"the body is {size}; the limit is {MAX_BODY_BYTES} bytes; nothing was changed"
    return HttpError(413, ErrorCode.MESSAGE_TOO_LARGE, detail, close=True)


def json_response(answer: Any) -> HttpResponse:
    """`answer` as JSON."""
    return HttpResponse(200, _JSON_HEADERS, _encode_json(answer))


def msgpack_response(answer: Any) -> HttpResponse:
    """`answer` as msgpack."""
    return HttpResponse(200, _MSGPACK_HEADERS, _encode_msgpack(answer))


def wants_msgpack(accept: str | None, content_type: str | None, *, in_kind: bool) -> bool:
    """Whether the answer is to be msgpack, by an Accept header and the media type of the request.

    `in_kind`: a caller who names no media type gets its own.
    """
    if accept is None or accept in (JSON, "*/*"):
        return in_kind and accept != JSON and content_type is not None and _media_type(content_type) == MSGPACK
    return prefers_msgpack(accept)


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


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
