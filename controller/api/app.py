"""Puts the interface together: the aiohttp application of one member."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from pidkeeper.controller.api.content import JSON, quoted
from pidkeeper.controller.api.endpoint import Endpoint, build_endpoint, require_token
from pidkeeper.controller.api.member_port import Member
from pidkeeper.controller.api.metrics import ApiMetrics, build_registry, build_version, exposition
from pidkeeper.controller.api.openapi import PLAIN_ROUTES, build_document
from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.api.probes import Draining, Probe
from pidkeeper.controller.api.problems import SERVER_NAME, HttpError, problem_response
from pidkeeper.controller.api.routes import ROUTES
from pidkeeper.controller.api.throttle import ApiLimits
from pidkeeper.controller.node.health_check import HealthCheck
from pidkeeper.protocol.errors import ErrorCode, RequestError

SWEEP_SECONDS: Final = 0.1
"""How often expired requests are given up and the loop's lag is measured: a hundredth of the request timeout."""

DRAINING: Final = web.AppKey("draining", Draining)

UNKNOWN_ROUTE: Final = "unknown"
"""The metrics label of every request that no route takes."""


def build_app(
    member: Member, *, limits: ApiLimits, token: str | None, clock_ns: Callable[[], int] = time.monotonic_ns
) -> web.Application:
    """The application that serves `member`.

    `token`: the bearer token that every call under `/v1` must bring; None leaves them open. Probes, metrics and the
    OpenAPI document are always open. `clock_ns`: a monotonic clock. Raises ValueError for an empty token.
    """
    app = web.Application()
    metrics = ApiMetrics()
    operations = Operations(member, limits, metrics, clock_ns)
    draining = app[DRAINING] = Draining()
    authorise = None if token is None else require_token(token)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, build_endpoint(route, operations, metrics, authorise))
    document = msgspec.json.encode(build_document(ROUTES, build_version(), secured=token is not None))
    registry = build_registry(metrics, operations.pending, member)
    plain = {
        **_probe_handlers(member, draining),
        "metrics": _metrics_handler(registry),
        "openapi": _document_handler(document),
    }
    for plain_route in PLAIN_ROUTES:
        app.router.add_get(plain_route.path, plain[plain_route.name])
    _refuse_the_rest(app, metrics)
    app.cleanup_ctx.append(_sweeper(operations, metrics, clock_ns))
    return app


def _probe_handlers(member: Member, draining: Draining) -> dict[str, Endpoint]:
    def readiness() -> list[HealthCheck]:
        return [*member.readiness(), draining.check()]

    live, ready = Probe("livez", member.liveness), Probe("readyz", readiness)
    return {
        "livez": live.all_checks,
        "livez_check": live.one_check,
        "readyz": ready.all_checks,
        "readyz_check": ready.one_check,
    }


def _metrics_handler(registry: CollectorRegistry) -> Endpoint:
    async def scrape(request: web.Request) -> web.Response:
        text, content_type = exposition(registry, request.headers.get("Accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type, "Server": SERVER_NAME})

    return scrape


def _document_handler(document: bytes) -> Endpoint:
    async def openapi(_: web.Request) -> web.Response:
        return web.Response(body=document, headers={"Content-Type": JSON, "Server": SERVER_NAME})

    return openapi


def _refuse_the_rest(app: web.Application, metrics: ApiMetrics) -> None:
    """Answer an unknown path or method with a problem document."""
    outcomes = metrics.route(UNKNOWN_ROUTE)
    methods: dict[str, list[str]] = defaultdict(list)
    for route in ROUTES:
        methods[route.path].append(route.method)
    for plain_route in PLAIN_ROUTES:
        methods[plain_route.path] += ["GET", "HEAD"]

    def refuse(error: RequestError) -> web.Response:
        outcomes[error.code.name] += 1
        return problem_response(error, None)

    def wrong_method(allowed: str) -> Endpoint:
        async def answer(request: web.Request) -> web.Response:
            detail = f"{quoted(request.method)} is not served on {quoted(request.path)}; use {allowed}"
            return refuse(HttpError(405, ErrorCode.INVALID_REQUEST, detail, headers={"Allow": allowed}))

        return answer

    async def unknown_path(request: web.Request) -> web.Response:
        detail = f"there is no {quoted(request.path)} here; /openapi.json lists every call"
        return refuse(RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail))

    for path, allowed in methods.items():
        app.router.add_route("*", path, wrong_method(", ".join(allowed)))
    app.router.add_route("*", "/{path:.*}", unknown_path)


def _sweeper(
    operations: Operations, metrics: ApiMetrics, clock_ns: Callable[[], int]
) -> Callable[[web.Application], AsyncIterator[None]]:
    async def sweep() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SWEEP_SECONDS
            await asyncio.sleep(SWEEP_SECONDS)
            metrics.loop_lag_ns = max(0, int((loop.time() - due) * 1e9))
            operations.pending.expire(clock_ns())

    async def context(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(sweep())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return context
