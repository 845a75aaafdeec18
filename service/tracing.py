"""What services tell of a request to whoever traces it, in OpenTelemetry's terms and without OpenTelemetry.

A service without a tracer has None in its place, and wraps nothing: what is off costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from pidkeeper.service.exchange import HttpRequest, HttpResponse

Attributes = Mapping[str, str | int]
"""Named as OpenTelemetry's semantic conventions do; what these do not know begins with `pidkeeper.`."""

SERVER_ERROR: Final = 500
"""The first status of HTTP that is a fault of the server."""

Endpoint = Callable[[HttpRequest, Mapping[str, str]], Awaitable[HttpResponse]]


class Span(Protocol):
    """One that has begun. An exception that leaves it ends it as failed."""

    def set(self, name: str, value: str | int) -> None:
        """One more attribute."""

    def fail(self, error_type: str) -> None:
        """It failed: of which kind the error was."""


class Tracer(Protocol):
    """Makes spans. Within the `with` block of one it is the current span of its task, and the parent of the next."""

    def server_span(
        self, name: str, attributes: Attributes, headers: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Span]:
        """The answer to a request, which goes on with the trace that its `headers` name (W3C Trace Context)."""

    def client_span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """A request to another service."""

    def internal_span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """Work that nobody outside has asked for."""

    def headers(self) -> Mapping[str, str]:
        """What a request takes along for its receiver to go on with the trace of the current span, recorded or not."""

    def recorded(self) -> object | None:
        """The current span, as a parent for `add`; None if there is none, or one that is not recorded."""

    def add(self, name: str, parent: object, took_ns: int, attributes: Attributes) -> None:
        """A span below `parent` that ends now and took so many nanoseconds."""


class Exporter(Tracer, Protocol):
    """A tracer that takes what it makes to somebody."""

    def mark_log_lines(self) -> None:
        """Have the log name the spans, and be told of trouble with measure."""

    async def flush(self, seconds: float) -> None:
        """Export what is left, for that long at most. Spans that end afterwards are dropped."""


def traced(endpoint: Endpoint, method: str, route: str, tracer: Tracer) -> Endpoint:
    """The same endpoint, with a server span for each request."""
    name = f"{method} {route}"
    of_route = {"http.request.method": method, "http.route": route}

    async def traced_endpoint(request: HttpRequest, path_texts: Mapping[str, str]) -> HttpResponse:
        with tracer.server_span(name, {**of_route, "url.path": request.url.path}, request.headers) as span:
            answer = await endpoint(request, path_texts)
            span.set("http.response.status_code", answer.status)
            if answer.status >= SERVER_ERROR:
                span.fail(str(answer.status))
            return answer

    return traced_endpoint
