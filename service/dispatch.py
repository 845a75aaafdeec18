"""From a request to its answer, without a socket: the same for aiohttp and for a simulated transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.access import Access
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.endpoint import Endpoint, FaultReport, build_endpoint, build_text_endpoint, timed
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.metrics import RequestCounters
from pidkeeper.service.problems import HttpError, Leader, problem_response, quoted
from pidkeeper.service.router import Router
from pidkeeper.service.routes import Route, TextRoute
from pidkeeper.service.tracing import Tracer, traced

UNKNOWN_ROUTE: Final = "unknown"
"""The metrics label of every request that no route takes."""

TIMED: Final = frozenset({Access.BROKER, Access.PRODUCER})
"""Whose routes are timed and traced: calls that something waits for. What people and scrapers ask for is seldom, and no
matter."""

Operations = TypeVar("Operations")


class Dispatcher(Generic[Operations]):
    """Answers every request, whatever it is.

    `leader` is named in refusals; a fault is answered with 500 and goes to `report_fault`. `clock_ns`: a monotonic
    clock. `answers_in_kind`: whether a caller that names no media type is answered in that of its request, rather than
    in JSON. `tracer`: gets a span of each request to a route that is timed.
    """

    def __init__(
        self,
        operations: Operations,
        authenticator: Authenticator,
        counters: RequestCounters,
        *,
        leader: Leader,
        report_fault: FaultReport,
        clock_ns: Callable[[], int],
        answers_in_kind: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self._operations = operations
        self._authenticator = authenticator
        self._counters = counters
        self._leader = leader
        self._report_fault = report_fault
        self._clock_ns = clock_ns
        self._answers_in_kind = answers_in_kind
        self._tracer = tracer
        self._router: Router[Endpoint] = Router()
        self._unknown = counters.route(UNKNOWN_ROUTE)

    def empty(self) -> Dispatcher[Operations]:
        """Another one with the same counters, which serves nothing yet."""
        return Dispatcher(
            self._operations,
            self._authenticator,
            self._counters,
            leader=self._leader,
            report_fault=self._report_fault,
            clock_ns=self._clock_ns,
            answers_in_kind=self._answers_in_kind,
            tracer=self._tracer,
        )

    def add(self, routes: Sequence[Route[Operations]]) -> None:
        """Serve the calls of a table."""
        for route in routes:
            endpoint = build_endpoint(
                route,
                self._operations,
                self._authenticator,
                self._counters.route(route.name),
                leader=self._leader,
                report_fault=self._report_fault,
                answers_in_kind=self._answers_in_kind,
            )
            if route.access in TIMED:
                endpoint = timed(endpoint, self._counters.duration(route.name), self._clock_ns)
                if self._tracer is not None:
                    endpoint = traced(endpoint, route.method, route.path, self._tracer)
            self._router.add(route.method, route.path, endpoint)

    def add_texts(self, routes: Sequence[TextRoute]) -> None:
        """Serve texts."""
        for route in routes:
            endpoint = build_text_endpoint(route, self._authenticator)
            for method in ("GET", "HEAD"):
                self._router.add(method, route.path, endpoint)

    def served(self) -> set[tuple[str, str]]:
        """Method and path of everything that is served."""
        return set(self._router.paths())

    async def dispatch(self, request: HttpRequest) -> HttpResponse:
        """The answer. Never raises but when it is cancelled."""
        found = self._router.find(request.url.path_safe)
        if found is None:
            detail = f"there is no {quoted(request.url.path)} here; /openapi.json lists every call"
            return self._refuse(RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail))
        methods, path_texts = found
        endpoint = methods.get(request.method)
        if endpoint is None:
            return self._refuse(_wrong_method(request, methods))
        return await endpoint(request, path_texts)

    def _refuse(self, error: RequestError) -> HttpResponse:
        self._unknown[error.code.name] += 1
        return problem_response(error, None)


def _wrong_method(request: HttpRequest, methods: Mapping[str, Endpoint]) -> HttpError:
    allowed = ", ".join(methods)
    detail = f"{quoted(request.method)} is not served on {quoted(request.url.path)}; use {allowed}"
    return HttpError(405, ErrorCode.INVALID_REQUEST, detail, headers={"Allow": allowed})
