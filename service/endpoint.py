"""From a route to the coroutine that answers its requests: everything around the operation, bound once at start."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import asdict
from yarl import URL

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import ANONYMOUS, Access, Principal
from pidkeeper.service.authentication import Authenticator, not_permitted
from pidkeeper.service.call import Call
from pidkeeper.service.content import (
    MAX_BODY_BYTES,
    BodyDecoder,
    json_response,
    msgpack_response,
    too_large,
    wants_msgpack,
)
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.foreign_pages import refuse_foreign_page
from pidkeeper.service.histogram import Histogram
from pidkeeper.service.metrics import SUCCESS
from pidkeeper.service.parameters import decode_parameters
from pidkeeper.service.problems import Leader, problem_response
from pidkeeper.service.routes import Route, TextRoute
from pidkeeper.service.trace_context import sampled_trace

MAX_ORDER_CHARACTERS: Final = 300
"""Of an order in the log: who, what, and the longest names of a transaction."""

logger = logging.getLogger(__name__)

Operations = TypeVar("Operations")

Endpoint = Callable[[HttpRequest, Mapping[str, str]], Awaitable[HttpResponse]]
"""Answers a request, given the texts in its path by name."""

FaultReport = Callable[[str, Exception], None]
"""Gets the message and the exception of a fault that a caller is answered with 500."""


def build_endpoint(
    route: Route[Operations],
    operations: Operations,
    authenticator: Authenticator,
    outcomes: Counter[str],
    *,
    leader: Leader,
    report_fault: FaultReport,
    answers_in_kind: bool = False,
) -> Endpoint:
    """The coroutine for one route: authorise, decode, operate, encode; a refusal becomes a problem document."""
    handler = route.handler
    authorise = _authoriser(route.access, authenticator)
    path_model = route.path_model
    read_query = None if route.query_model is None else _query_reader(route.query_model, route.query_texts)
    tell_order = _order_log(route.name) if route.access is Access.OPERATOR else None
    decoder = BodyDecoder(route.request) if route.request is not None else None

    async def endpoint(request: HttpRequest, path_texts: Mapping[str, str]) -> HttpResponse:
        path = query = body = None
        try:
            principal = authorise(request)
            if tell_order is not None:
                refuse_foreign_page(request.headers)
            if path_model is not None:
                path = decode_parameters(path_model, path_texts, "path parameter")
            if read_query is not None:
                query = read_query(request.url)
            if decoder is not None:
                raw = request.body if isinstance(request.body, bytes) else await request.body()
                if len(raw) > MAX_BODY_BYTES:
                    raise too_large(f"{len(raw)} bytes")
                body = decoder.decode(request.headers.get("Content-Type"), raw)
            if tell_order is not None:
                tell_order(principal, path, body)
            trace_id = sampled_trace(request.headers)
            answer = await handler(operations, Call(principal, path, query, body, request.has_hung_up, trace_id))
            outcomes[SUCCESS] += 1
            return _respond(answer, request.headers, in_kind=answers_in_kind)
        except RequestError as error:
            outcomes[error.code.name] += 1
            return problem_response(error, leader())
        except Exception as error:  # noqa: BLE001 - whatever broke, the caller gets a document
            report_fault(f"{route.name} failed", error)
            outcomes[ErrorCode.UNKNOWN_SERVER_ERROR.name] += 1
            return problem_response(RequestError(ErrorCode.UNKNOWN_SERVER_ERROR), None)

    return endpoint


def _query_reader(model: type[Any], texts: Collection[str]) -> Callable[[URL], Any]:
    """Decodes queries. That of most calls is empty, and decoded once."""
    try:
        empty = decode_parameters(model, {}, "query parameter")
    except RequestError:
        empty = None

    def read(url: URL) -> Any:
        if empty is not None and not url.raw_query_string:
            return empty
        return decode_parameters(model, url.query, "query parameter", texts)

    return read


def timed(endpoint: Endpoint, duration: Histogram, clock_ns: Callable[[], int]) -> Endpoint:
    """The same endpoint, which records how long each answer took, and in which trace: not what strangers say of it."""

    async def timed_endpoint(request: HttpRequest, path_texts: Mapping[str, str]) -> HttpResponse:
        began = clock_ns()
        answer = await endpoint(request, path_texts)
        duration.observe(clock_ns() - began, None if answer.denied else sampled_trace(request.headers))
        return answer

    return timed_endpoint


def build_text_endpoint(route: TextRoute, authenticator: Authenticator) -> Endpoint:
    """The same for a text."""
    handler = route.handler
    authorise = _authoriser(route.access, authenticator)

    async def endpoint(request: HttpRequest, path_texts: Mapping[str, str]) -> HttpResponse:
        try:
            authorise(request)
            return handler(request, path_texts)
        except RequestError as error:
            return problem_response(error, None)

    return endpoint


def _authoriser(access: Access, authenticator: Authenticator) -> Callable[[HttpRequest], Principal]:
    if access is Access.PUBLIC:
        return lambda _: ANONYMOUS

    authenticate = authenticator.authenticate

    def authorise(request: HttpRequest) -> Principal:
        principal = authenticate(request)
        if access not in principal.roles:
            raise not_permitted(principal, access)
        return principal

    return authorise


def _order_log(name: str) -> Callable[[Principal, Any, Any], None]:
    """Logs who gives an order, and which, as far as a line goes: no order has a secret. Once where it is repeated."""
    last = ""

    def tell(principal: Principal, *parts: Any) -> None:
        nonlocal last
        values = [f"{key}={value!r}" for part in parts if part is not None for key, value in asdict(part).items()]
        if (order := f"{principal.name} orders {name}: {', '.join(values)}"[:MAX_ORDER_CHARACTERS]) != last:
            last = order
            logger.info("%s", order)

    return tell


def _respond(answer: Any, headers: Mapping[str, str], *, in_kind: bool) -> HttpResponse:
    if wants_msgpack(headers.get("Accept"), headers.get("Content-Type"), in_kind=in_kind):
        return msgpack_response(answer)
    return json_response(answer)
