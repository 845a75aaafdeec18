"""From a route to the coroutine that aiohttp calls: everything around the operation, bound once at start."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from pidkeeper.controller.api.content import (
    JSON,
    MAX_BODY_BYTES,
    MSGPACK,
    BodyDecoder,
    decode_parameters,
    prefers_msgpack,
    read_body,
    too_large,
)
from pidkeeper.controller.api.metrics import SUCCESS, ApiMetrics
from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.api.problems import SERVER_NAME, HttpError, problem_response
from pidkeeper.controller.api.routes import Route
from pidkeeper.protocol.errors import ErrorCode, RequestError

logger = logging.getLogger(__name__)

Endpoint = Callable[[web.Request], Awaitable[web.StreamResponse]]
Authorise = Callable[[web.Request], None]
Parameters = Callable[[web.Request], Any]

_JSON_HEADERS: Final = CIMultiDict({"Content-Type": JSON, "Server": SERVER_NAME})
_MSGPACK_HEADERS: Final = CIMultiDict({"Content-Type": MSGPACK, "Server": SERVER_NAME})
_encode_json: Final = msgspec.json.Encoder().encode
_encode_msgpack: Final = msgspec.msgpack.Encoder().encode


def require_token(token: str) -> Authorise:
    """A check of the Authorization header (RFC 6750) in constant time. Raises ValueError for an empty token."""
    if not token:
        raise ValueError("the API token is empty; write one into the token file, or configure none")
    expected = token.encode()

    def authorise(request: web.Request) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), expected)
        if scheme.lower() != "bearer" or not matches:
            detail = "a valid bearer token is required: Authorization: Bearer <token>"
            headers = {"WWW-Authenticate": 'Bearer realm="pidkeeper"'}
            raise HttpError(401, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail, headers=headers)

    return authorise


def build_endpoint(route: Route, operations: Operations, metrics: ApiMetrics, authorise: Authorise | None) -> Endpoint:
    """The coroutine for one route: authorise, decode, operate, encode; a refusal becomes a problem document."""
    outcomes = metrics.route(route.name)
    leader = operations.member.leader
    handler = route.handler
    parameters = _parameters(route)
    decoder = BodyDecoder(route.request) if route.request is not None else None

    async def endpoint(request: web.Request) -> web.StreamResponse:
        try:
            headers = request.headers
            if authorise is not None:
                authorise(request)
            values = parameters(request) if parameters is not None else None
            body = None
            if decoder is not None:
                content = request.content
                raw = content.read_nowait() if content.is_eof() else await read_body(request)
                if len(raw) > MAX_BODY_BYTES:
                    raise too_large(f"{len(raw)} bytes")
                body = decoder.decode(headers.get("Content-Type"), raw)
            answer = await handler(operations, values, body)
            outcomes[SUCCESS] += 1
            return _respond(answer, headers.get("Accept"))
        except RequestError as error:
            outcomes[error.code.name] += 1
            return problem_response(error, leader())
        except Exception:
            logger.exception("%s failed", route.name)
            fault = RequestError(ErrorCode.UNKNOWN_SERVER_ERROR)
            outcomes[fault.code.name] += 1
            return problem_response(fault, None)

    return endpoint


def _respond(answer: Any, accept: str | None) -> web.Response:
    if accept is None or accept in (JSON, "*/*") or not prefers_msgpack(accept):
        return web.Response(body=_encode_json(answer), headers=_JSON_HEADERS)
    return web.Response(body=_encode_msgpack(answer), headers=_MSGPACK_HEADERS)


def _parameters(route: Route) -> Parameters | None:
    if route.path_model is not None:
        model = route.path_model

        def from_path(request: web.Request) -> Any:
            return decode_parameters(model, request.match_info, "path parameter")

        return from_path
    if route.query_model is not None:
        model, texts = route.query_model, route.query_texts

        def from_query(request: web.Request) -> Any:
            return decode_parameters(model, request.query, "query parameter", texts)

        return from_query
    return None
