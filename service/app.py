"""Puts a service together: its calls, probes, metrics and document, and the upkeep that runs beside them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from prometheus_client.registry import Collector

from pidkeeper.service.access import Access
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.build import build_version
from pidkeeper.service.content import JSON
from pidkeeper.service.dispatch import Dispatcher
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.service.metrics import (
    RequestCounters,
    ServerCounters,
    ServiceCollector,
    build_registry,
    exposition,
)
from pidkeeper.service.openapi import Description, build_document
from pidkeeper.service.probes import Checks, Draining, Probe
from pidkeeper.service.problems import SERVER_NAME, Leader
from pidkeeper.service.routes import Route, TextRoute
from pidkeeper.service.task_metrics import TaskCollector
from pidkeeper.service.tracing import Tracer

UPKEEP_SECONDS: Final = 0.1
"""How often expired requests are given up and the loop's lag is measured: a hundredth of the request timeout."""

Operations = TypeVar("Operations")


class Service(msgspec.Struct, Generic[Operations], frozen=True, kw_only=True):
    """What one service brings along.

    `description` and `readiness`, the question that `/readyz` answers, go into the document; `live` and `ready` are the
    checks of the probes. `texts` are routes of its own, `collectors` have its samples. `upkeep` is called each
    UPKEEP_SECONDS, `drain` when the service begins to stop. `clock_ns`: a monotonic clock, by which answers are timed.
    The rest is as in Dispatcher.
    """

    description: Description
    readiness: str
    routes: Sequence[Route[Operations]]
    operations: Operations
    live: Checks
    ready: Checks
    collectors: Sequence[Collector]
    leader: Leader = lambda: None
    texts: Sequence[TextRoute] = ()
    upkeep: Callable[[], None] = lambda: None
    drain: Callable[[], None] = lambda: None
    clock_ns: Callable[[], int] = time.monotonic_ns
    answers_in_kind: bool = False
    tracer: Tracer | None = None


class ProbeApp:
    """The probes and the metrics of a service alone, to be served on an address of their own."""

    def __init__(
        self,
        whole: Dispatcher[Any],
        texts: Sequence[TextRoute],
        counters: ServerCounters,
        draining: Draining,
    ) -> None:
        self.counters: Final = counters
        self._draining = draining
        dispatcher = whole.empty()
        dispatcher.add_texts(texts)
        self.dispatch: Final = dispatcher.dispatch

    def begin_drain(self) -> None:
        """Turn `/readyz` to 503: there is no other readiness than that of the service."""
        self._draining.active = True

    async def keep_up(self) -> None:
        """Nothing to do here: the service has its own upkeep."""


class App:
    """One service, ready to be served: `dispatch` answers a request, `begin_drain` turns `/readyz` to 503.

    `probes` answers a part of the requests. `operations`: what answers calls, for whoever speaks another protocol.
    """

    def __init__(self, service: Service[Any], authenticator: Authenticator) -> None:
        self.counters: Final = ServerCounters()
        self.operations: Final = service.operations
        self._draining = Draining()
        self._upkeep = service.upkeep
        self._drain = service.drain
        requests = RequestCounters()
        dispatcher = Dispatcher(
            service.operations,
            authenticator,
            requests,
            leader=service.leader,
            report_fault=_report_fault,
            clock_ns=service.clock_ns,
            answers_in_kind=service.answers_in_kind,
            tracer=service.tracer,
        )
        dispatcher.add(service.routes)
        probe_counters = ServerCounters()
        own = ServiceCollector(requests, self.counters, probe_counters, service.live, service.ready)
        # Probes of orchestrators have no name; all else has one where everybody needs one.
        access = Access.VIEWER if authenticator.closed else Access.PUBLIC
        texts = [*self._probes(service), _metrics_route([own, TaskCollector(), *service.collectors], access)]
        document = _document_route(service, [*service.texts, *texts], access, authenticator.ways)
        dispatcher.add_texts([*service.texts, *texts, document])
        self.dispatch: Final = dispatcher.dispatch
        self.served: Final = dispatcher.served
        self.probes: Final = ProbeApp(dispatcher, texts, probe_counters, self._draining)

    def begin_drain(self) -> None:
        """Turn `/readyz` to 503 while everything is still served: the first step of a stop."""
        self._draining.active = True
        self._drain()

    async def keep_up(self) -> None:
        """Measure the loop's lag and do the service's upkeep until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + UPKEEP_SECONDS
            await asyncio.sleep(UPKEEP_SECONDS)
            self.counters.loop_lag.take(max(0, int((loop.time() - due) * 1e9)))
            self._upkeep()

    def _probes(self, service: Service[Any]) -> list[TextRoute]:
        def ready() -> list[HealthCheck]:
            return [*service.ready(), self._draining.check()]

        return [
            *Probe("livez", service.live).routes("Is this process alive?", "liveness"),
            *Probe("readyz", ready).routes(service.readiness, "readiness"),
        ]


def _report_fault(message: str, error: Exception) -> None:
    """To the event loop: a service has what surfaces there end the process if need be (`on_violation`)."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _metrics_route(collectors: Sequence[Collector], access: Access) -> TextRoute:
    registry = build_registry(collectors)

    def scrape(request: HttpRequest, _: Mapping[str, str]) -> HttpResponse:
        text, content_type = exposition(registry, request.headers.get("Accept", ""))
        return HttpResponse(200, {"Content-Type": content_type, "Server": SERVER_NAME}, text)

    return TextRoute(
        path="/metrics",
        name="metrics",
        summary="Samples for Prometheus.",
        handler=scrape,
        answers={200: "the samples"},
        access=access,
    )


def _document_route(
    service: Service[Any], texts: Sequence[TextRoute], access: Access, ways: Sequence[str]
) -> TextRoute:
    """The route of the document, which lists itself too. It is made when it is first asked for, and kept."""

    @functools.cache
    def answer() -> HttpResponse:
        every_text = [*texts, route]
        content = build_document(service.description, service.routes, every_text, build_version(), ways)
        return HttpResponse(200, {"Content-Type": JSON, "Server": SERVER_NAME}, msgspec.json.encode(content))

    def document(_request: HttpRequest, _path_texts: Mapping[str, str]) -> HttpResponse:
        return answer()

    route = TextRoute(
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=document,
        content_type=JSON,
        answers={200: "the document"},
        access=access,
    )
    return route
