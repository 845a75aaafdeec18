"""Rows of a route table. Handlers, metrics labels and `/openapi.json` are all made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import Access
from pidkeeper.service.call import Call
from pidkeeper.service.exchange import HttpRequest, HttpResponse

TEXT: Final = "text/plain"

Operations = TypeVar("Operations")

TextHandler = Callable[[HttpRequest, Mapping[str, str]], HttpResponse]
"""Answers a request, given the texts in its path by name."""


class Route(msgspec.Struct, Generic[Operations], frozen=True, kw_only=True):
    """One call on the object that has a service's operations.

    `name` is its operation id and metrics label; `access` the role that a caller needs. The parameters in `path_model`
    and `query_model` are integers, but for `query_texts`. `errors` are the rows that the handler raises itself; those
    that every call can raise are in COMMON_ERRORS.
    """

    method: str
    path: str
    name: str
    summary: str
    access: Access
    handler: Callable[[Operations, Call[Any, Any, Any]], Awaitable[Any]]
    response: type[Any]
    request: type[Any] | None = None
    path_model: type[Any] | None = None
    query_model: type[Any] | None = None
    query_texts: frozenset[str] = frozenset()
    errors: tuple[ErrorCode, ...] = ()


class TextRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that answers with text of its own: probes, metrics, the document, pages. The handler may refuse.

    `answers` gives status and meaning; `query` the names and meanings of text parameters.
    """

    path: str
    name: str
    summary: str
    handler: TextHandler
    content_type: str = TEXT
    answers: dict[int, str]
    query: dict[str, str] = {}
    access: Access = Access.PUBLIC


COMMON_ERRORS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Any call may be malformed, and any call may meet a fault of the server."""
