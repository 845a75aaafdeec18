"""The interface of one member, put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client.registry import Collector

from pidkeeper.controller.api.console.pages import console_routes
from pidkeeper.controller.api.events import LiveEvents
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.member_port import Member
from pidkeeper.controller.api.metrics import AllocationMetrics, ControllerCollector
from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.api.routes import ROUTES
from pidkeeper.service.app import App, Service
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.certificate_metrics import CertificateCollector
from pidkeeper.service.event_streams import EventStreams
from pidkeeper.service.openapi import Description
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.token_hashes import Sharing
from pidkeeper.service.token_list import TokenList
from pidkeeper.service.tracing import Tracer

DESCRIPTION: Final = Description(
    "pidkeeper controller", "Hands out blocks of Kafka producer IDs. No ID twice, nothing acknowledged lost."
)


def build_authenticator(shared: Sharing | None, tokens: TokenList | None, protection: Protection) -> Authenticator:
    """Who is let in. `shared`: a common token must come with every call under `/v1`, where there is any; where
    operators have theirs, it is not enough for what changes the cluster. `tokens`: those of callers with roles of their
    own. `protection`: whether everybody must have a name.
    """
    return Authenticator(shared, listed=None if tokens is None else tokens.find, closed=protection.required)


def build_app(
    member: Member,
    *,
    limits: ApiLimits,
    shared: Sharing | None = None,
    tokens: TokenList | None = None,
    protection: Protection = UNPROTECTED,
    collectors: Sequence[Collector] = (),
    clock_ns: Callable[[], int] = time.monotonic_ns,
    tracer: Tracer | None = None,
) -> App:
    """The app that serves `member`.

    `shared`, `tokens`, `protection`: as in `build_authenticator`. Probes are always open, metrics and the OpenAPI
    document unless everybody must have a name. `collectors`: further samples. `clock_ns`: a monotonic clock. `tracer`:
    gets the spans of requests.
    """
    metrics = AllocationMetrics()
    operations = Operations(member, limits, metrics, clock_ns)
    pending, events = operations.pending, LiveEvents(member, EventStreams())

    def upkeep() -> None:
        pending.expire(clock_ns())
        events.pass_on()

    service = Service(
        description=DESCRIPTION,
        readiness="Is this member ready to take part in the quorum?",
        routes=ROUTES,
        operations=operations,
        live=member.liveness,
        ready=member.readiness,
        collectors=[
            ControllerCollector(metrics, pending, events.streams, member),
            CertificateCollector(protection),
            *collectors,
        ],
        clock_ns=clock_ns,
        leader=member.leader,
        texts=[*console_routes(), events.route()],
        upkeep=upkeep,
        drain=events.streams.end,
        tracer=tracer,
    )
    return App(service, build_authenticator(shared, tokens, protection))
